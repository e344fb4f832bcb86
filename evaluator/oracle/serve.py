"""`serve`: the model kept ready; the checks ask for forwards, gradients and timings while they run.

One JSON request a line on stdin, one answer a line on stdout (docs/interfaces.md §7.1). A request that fails gets its
error as the answer and the server goes on.
"""

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from maxcode.evaluator.oracle.build import call
from maxcode.evaluator.oracle.decode import generate, start_token
from maxcode.evaluator.oracle.discrete import Discrete
from maxcode.evaluator.oracle.flatten import flatten
from maxcode.evaluator.oracle.inputs import cast
from maxcode.evaluator.oracle.learning import OPTIMIZER, loss_weights, silence, weighted_loss, with_labels
from maxcode.evaluator.oracle.lift import DTYPES, computing_in
from maxcode.evaluator.oracle.session import Session

Request = dict[str, Any]


def serve(session: Session, requests: TextIO, answers: TextIO) -> None:
    """Answers requests until `stop` or the end of the input."""
    for line in requests:
        if not line.strip():
            continue
        answer: Request = {"id": None, "ok": False}
        try:
            request = json.loads(line)
            answer["id"] = request.get("id")
            if request["command"] == "stop":
                answer["ok"] = True
                _send(answers, answer)
                return
            if request["command"] not in COMMANDS:
                raise ValueError(f"command {request['command']!r}, expected stop or one of {', '.join(COMMANDS)}")
            answer |= COMMANDS[request["command"]](session, request) | {"ok": True}
        except Exception as error:
            answer["error"] = f"{type(error).__name__}: {error}"
        _send(answers, answer)


def _send(answers: TextIO, answer: Request) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _forward(session: Session, request: Request) -> Request:
    dtype, inputs, _ = _inputs(session, request)
    output, discrete = session.run(dtype, inputs)
    return _stored(request, {"outputs": flatten(output)}) | {"ties": discrete.ties()}


def _vjp(session: Session, request: Request) -> Request:
    """Outputs, and gradients of sum(output * cotangent) with respect to the floating inputs named in `wrt`."""
    dtype, inputs, tensors = _inputs(session, request)
    inputs = cast(inputs, DTYPES[dtype])
    for name in request["wrt"]:
        inputs[name] = inputs[name].detach().requires_grad_(True)
    model = session.model(dtype)
    discrete = Discrete(model)
    with discrete.watching():
        outputs = flatten(call(model, inputs, dtype, seed=session.seed))
    with computing_in(dtype):
        total = sum((outputs[n] * tensors[k].to(outputs[n].dtype)).sum() for n, k in request["cotangents"].items())
        wanted = [inputs[name] for name in request["wrt"]]
        found = torch.autograd.grad(total, wanted, allow_unused=True)
    gradients = {
        n: torch.zeros_like(w) if g is None else g for n, w, g in zip(request["wrt"], wanted, found, strict=True)
    }
    return _stored(request, {"outputs": outputs, "gradients": gradients}) | {"ties": discrete.ties()}


def _inputs(session: Session, request: Request) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    dtype = request.get("dtype", "float64")
    if dtype not in DTYPES or (dtype == "float64") != request.get("lifted", dtype == "float64"):
        raise ValueError(f"dtype {dtype!r} with lifted={request.get('lifted')}: float64 runs lifted, the others do not")
    tensors = load_file(request["file"]) if request.get("file") else {}
    given = request.get("inputs")
    return dtype, session.inputs(dtype) if given is None else _tree(given, tensors), tensors


def _tree(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, dict):
        return tensors[node["$tensor"]] if set(node) == {"$tensor"} else {k: _tree(v, tensors) for k, v in node.items()}
    return [_tree(item, tensors) for item in node] if isinstance(node, list) else node


def _stored(request: Request, groups: dict[str, dict[str, Tensor]]) -> Request:
    keys = {group: {name: f"{group}.{name}" for name in tensors} for group, tensors in groups.items()}
    flat = {
        keys[g][n]: t.detach().clone(memory_format=torch.contiguous_format)
        for g, ts in groups.items()
        for n, t in ts.items()
    }
    if any(tensor.is_complex() for tensor in flat.values()):
        flat = {key: torch.view_as_real(t) if t.is_complex() else t for key, t in flat.items()}
    save_file(flat, str(Path(request["out"])))
    return keys


def _time(session: Session, request: Request) -> Request:
    """Seconds of each of `repeat` runs: forward, training_step, or decode of `steps` tokens; one run before them warms
    up, unless `warm_up` is false.
    """
    dtype, inputs, _ = _inputs(session, {"dtype": "float32"} | request)
    what = request["what"]
    if what not in _TIMED:
        raise ValueError(f"what={what!r}, expected one of {', '.join(_TIMED)}")
    run = _TIMED[what](session, dtype, cast(inputs, DTYPES[dtype]), request)
    if request.get("warm_up", True):
        run()
    seconds = []
    for _ in range(int(request.get("repeat", 1))):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    config = getattr(session.peer(dtype), "config", None)
    return {"seconds": seconds, "attention": getattr(config, "_attn_implementation", None)}


def _generate(session: Session, request: Request) -> Request:
    """`steps` greedy tokens after `prompt` (rows of ids, none padded) by the source's own `generate`, and its time."""
    model, dtype = session.peer("float32"), "float32"
    prompt = {"input_ids": torch.tensor(request["prompt"])}
    start = time.perf_counter()
    tokens = generate(model, prompt, int(request["steps"]), dtype, keep_logits=False)["tokens"]
    return {"tokens": tokens.tolist(), "seconds": time.perf_counter() - start}


def _timed_forward(session: Session, dtype: str, inputs: dict[str, Any], request: Request) -> Callable[[], Any]:
    model = session.peer(dtype)

    def run() -> None:
        with torch.no_grad():
            call(model, inputs, dtype)

    return run


def _timed_decode(session: Session, dtype: str, inputs: dict[str, Any], request: Request) -> Callable[[], Any]:
    model = session.peer(dtype)
    prompt = {name: value for name, value in inputs.items() if name not in ("attention_mask", "use_cache")}
    if "decoder_input_ids" in prompt:
        prompt["decoder_input_ids"] = torch.full_like(prompt["decoder_input_ids"][:, :1], start_token(model))
    return lambda: generate(model, prompt, int(request["steps"]), dtype, keep_logits=False)


def _timed_training(session: Session, dtype: str, inputs: dict[str, Any], request: Request) -> Callable[[], Any]:
    model = silence(copy.deepcopy(session.peer(dtype)).train())
    (batch,), own = with_labels(model, [inputs], dtype)
    weights: dict[str, Tensor] = {}
    if not own:
        with torch.no_grad():
            weights = loss_weights(call(model, batch, dtype), session.seed)
    o = OPTIMIZER
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=o["learning_rate"],
        betas=(o["b1"], o["b2"]),
        eps=o["eps"],
        weight_decay=o["weight_decay"],
    )

    def run() -> None:
        output = call(model, batch, dtype)
        optimizer.zero_grad()
        (weighted_loss(output, weights) if weights else output["loss"]).backward()
        optimizer.step()

    return run


_TIMED = {"forward": _timed_forward, "decode": _timed_decode, "training_step": _timed_training}
COMMANDS: dict[str, Callable[[Session, Request], Request]] = {
    "forward": _forward,
    "generate": _generate,
    "time": _time,
    "vjp": _vjp,
}
