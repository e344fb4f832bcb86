"""A converted package in a process of its own, answering one JSON request a line: for `make demo` and `make bench`.

    python package_process.py FOLDER --threads N

Run as a file, not as a module of maxcode: with the package it imports JAX and Flax, and neither torch nor transformers
nor maxcode; every answer says which of them are loaded after all. Requests are {"id", "command", …}, answers {"id",
"ok"} with the fields of the command, or {"id", "ok": false, "error"}, as those of the oracle's `serve`.
"""

import argparse
import functools
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOREIGN = ("torch", "transformers", "maxcode")


class Process:
    """The package of a folder, its model loaded on first use."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        name = next(path.parent.name for path in sorted(self.folder.glob("*/modeling.py")))
        sys.path.insert(0, str(self.folder))
        self.package = importlib.import_module(name)

    def submodule(self, name: str) -> Any:
        return importlib.import_module(f"{self.package.__name__}.{name}")

    @functools.cached_property
    def model(self) -> Any:
        return self.package.Model.from_pretrained(self.folder)

    @functools.cached_property
    def split(self) -> Any:
        from flax import nnx

        return nnx.split(self.model)

    @functools.cached_property
    def text(self) -> Any:
        return self.submodule("chat").Text(self.folder)

    @functools.cached_property
    def generator(self) -> Any:
        # No end token: both sides always write as many tokens as asked.
        return self.submodule("generate").Generator(self.model, {"eos_token_id": [], "pad_token_id": 0})

    @functools.cached_property
    def forward(self) -> Callable[..., Any]:
        import jax
        from flax import nnx

        graph, _ = self.split
        return jax.jit(lambda state, inputs: nnx.merge(graph, state)(**inputs))

    def __call__(self, **inputs: Any) -> Any:
        """The model's output for integer inputs given as nested lists or arrays."""
        import jax
        import numpy as np

        return jax.block_until_ready(
            self.forward(self.split[1], {name: np.asarray(value, np.int32) for name, value in inputs.items()})
        )


def encode(process: Process, question: str) -> dict[str, Any]:
    """Token ids of a question to the chat model."""
    return {"tokens": process.text.encode_chat([{"role": "user", "content": question}])}


def decode(process: Process, tokens: list[int]) -> dict[str, Any]:
    return {"text": process.text.decode(tokens)}


def generate(process: Process, prompt: list[list[int]], steps: int) -> dict[str, Any]:
    """Greedy tokens and the seconds they took."""
    process.generator  # noqa: B018 (loaded before the clock starts)
    start = time.perf_counter()
    tokens = process.generator.generate(prompt, steps, do_sample=False)
    return {"tokens": tokens, "seconds": time.perf_counter() - start}


def embed(process: Process, inputs: dict[str, list[list[int]]]) -> dict[str, Any]:
    """Mean of the last hidden state over real tokens, normalised: [texts, width]."""
    import numpy as np

    hidden = np.asarray(process(**inputs).last_hidden_state, np.float64)
    mask = np.asarray(inputs["attention_mask"])[..., None]
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return {"embeddings": (mean / np.linalg.norm(mean, axis=1, keepdims=True)).tolist()}


def run_time(process: Process, what: str, inputs: dict[str, Any], steps: int = 0) -> dict[str, Any]:
    """Seconds of one forward over `inputs`, or of `steps` greedy tokens."""
    if what == "decode":
        return {"seconds": [generate(process, inputs["input_ids"], steps)["seconds"]]}
    process.forward, process.split  # noqa: B018
    start = time.perf_counter()
    process(**inputs)
    return {"seconds": [time.perf_counter() - start]}


def compile_time(process: Process, layers: int, positions: int = 128) -> dict[str, Any]:
    """Seconds to trace, lower and compile the forward of the same model with so many layers; no weights are made."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    model = process.package.Model.abstract(resized(process, layers))
    graph, state = nnx.split(model)
    ids = jax.ShapeDtypeStruct((1, positions), jnp.int32)
    jax.clear_caches()
    start = time.perf_counter()
    jax.jit(lambda state, ids: nnx.merge(graph, state)(input_ids=ids)).lower(state, ids).compile()
    return {"seconds": time.perf_counter() - start}


def resized(process: Process, layers: int) -> Any:
    """The package's configuration with another number of layers; lists with one entry per layer repeat."""
    raw = json.loads((process.folder / "config.json").read_text())
    count = raw["num_hidden_layers"]
    for name, value in raw.items():
        if isinstance(value, list) and len(value) == count:
            raw[name] = [value[i % count] for i in range(layers)]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "config.json"
        path.write_text(json.dumps(raw | {"num_hidden_layers": layers}))
        return process.package.Config.from_json(path)


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "compile": compile_time, "decode": decode, "embed": embed, "encode": encode, "generate": generate, "time": run_time,
}  # fmt: skip


def answer(process: Process, request: dict[str, Any]) -> dict[str, Any]:
    """One request's answer; what fails is answered too."""
    fields = {name: value for name, value in request.items() if name not in ("id", "command")}
    try:
        found = {"ok": True} | COMMANDS[request["command"]](process, **fields)
    except Exception as error:
        found = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    return {"id": request["id"], "loaded": [name for name in FOREIGN if name in sys.modules], **found}


def main() -> None:
    """Answer requests until `stop` or the end of the input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, help="CPUs to use; set before JAX starts")
    options = parser.parse_args()
    sys.path[:] = [place for place in sys.path if place != str(Path(__file__).resolve().parent)]
    if options.threads:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the model prints must not look like an answer
    process = Process(options.folder)
    for line in sys.stdin:
        request = json.loads(line)
        stop = request["command"] == "stop"
        answers.write(json.dumps({"id": request["id"], "ok": True} if stop else answer(process, request)) + "\n")
        answers.flush()
        if stop:
            return


if __name__ == "__main__":
    main()
