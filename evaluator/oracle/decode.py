"""Scenario `cache`: decoding step by step through the source's own cache, and greedy tokens of its `generate`."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from maxcode.evaluator.oracle.describe import logits_name
from maxcode.evaluator.oracle.flatten import flatten
from maxcode.evaluator.oracle.lift import computing_in
from maxcode.evaluator.oracle.sequences import resized, sequence_limit, sequence_shape
from maxcode.evaluator.oracle.session import NotApplicableError, Session
from maxcode.evaluator.oracle.store import Recording

PROMPT, STEPS = 11, 24
AGREES = 1e-8  # float64: a causal model's cached steps equal its full forward to rounding

_LEFT_OUT = frozenset({"use_cache", "attention_mask", "decoder_attention_mask"})  # no row is padded here


class _Forced(LogitsProcessor):
    """Makes greedy search choose given tokens, so that `generate` steps through a known sequence."""

    def __init__(self, tokens: Tensor) -> None:
        self._tokens, self._at = tokens, 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        forced = torch.full_like(scores, -float("inf"))
        forced.scatter_(1, self._tokens[:, self._at : self._at + 1], 0.0)
        self._at += 1
        return forced


def cache(session: Session) -> Recording:
    """One case: prompt, the tokens that follow, full forward over both, PyTorch's cached steps, greedy tokens."""
    model = session.model("float64")
    inputs, stepped, length = decode_inputs(session)
    growing = _growing(inputs, stepped)
    prompt = inputs | {name: inputs[name][:, :length] for name in growing}
    given: set[str] = set()
    with _noting_steps(model, given):
        greedy = generate(model, prompt, min(session.tokens, _room(model, length)), "float64")
    if session.large():  # a trained model's own tokens vary enough, and one pass less is many seconds less
        inputs = inputs | {stepped: torch.cat([prompt[stepped], greedy["tokens"]], dim=1)}
    tokens = inputs[stepped]
    steps = tokens.shape[1] - length
    full, discrete = session.run("float64", inputs)
    name = logits_name(model, flatten(full))
    if name is None:
        raise NotApplicableError("the output holds no logits over a vocabulary")
    own = greedy if session.large() else generate(model, prompt, steps, "float64", forced=tokens[:, length:])
    error = _error(own["logits"], flatten(full)[name][:, length - 1 : -1])
    if error > AGREES:
        raise NotApplicableError(f"PyTorch's cached steps differ from its full forward by {error:.1e}: not causal")
    recording = Recording("cache", "decode", "float64")
    case = recording.case("seed0", prompt, full, length=length, steps=steps, own_error=error)
    following = [name for name in growing if name == stepped or name in given]
    case["step_inputs"] = {name: recording.put(f"seed0/steps.{name}", inputs[name][:, length:]) for name in following}
    if stepped == "input_ids":  # a decoder's steps need what its encoder was given
        case["prompt_only"] = sorted(set(prompt) - given - {stepped, "use_cache"})
    case["step_logits"] = recording.put("seed0/step_logits", own["logits"])
    case["greedy"] = recording.put("seed0/greedy", greedy["tokens"])
    case["greedy_gap"] = recording.put("seed0/greedy_gap", _gap(greedy["logits"]))
    discrete.record_into(recording, case)
    return recording


@contextlib.contextmanager
def _noting_steps(model: nn.Module, given: set[str]) -> Iterator[None]:
    """Within the block, `given` collects the arguments with a value of all calls but the first."""
    calls = 0

    def note(_: nn.Module, __: tuple, kwargs: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            given.update(name for name, value in kwargs.items() if value is not None)

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _growing(inputs: dict[str, Any], stepped: str) -> list[str]:
    """The ids that grow, and their companions of the same shape, such as token types."""
    shape = inputs[stepped].shape
    alike = [name for name, value in inputs.items() if torch.is_tensor(value) and value.shape == shape]
    return [stepped, *(name for name in alike if name != stepped)]


def decode_inputs(session: Session) -> tuple[dict[str, Any], str, int]:
    """Unpadded inputs of prompt and following tokens, the name of the ids that grow, and the prompt's length.

    The prompt holds all placeholders of images and the like.

    Raises:
      NotApplicableError: the model generates nothing, or keeps no cache.
    """
    model, specs = session.model("float64"), session.specs()
    shape = sequence_shape(specs)
    if specs is None or shape is None or not has_cache(model):
        raise NotApplicableError("the model has no generate() over token ids with a cache")
    stepped = "decoder_input_ids" if "decoder_input_ids" in specs else "input_ids"
    specs = {name: spec for name, spec in specs.items() if name not in _LEFT_OUT}
    prompt = max([PROMPT, *(region[1][1] + 2 for region, _ in specs[stepped].get("fill", ()) if len(region) > 1)])
    length = min(prompt + STEPS, sequence_limit(model) or prompt + STEPS)
    shape = (specs[stepped]["shape"][0], specs[stepped]["shape"][1])
    specs = specs | {stepped: resized({stepped: specs[stepped]}, shape, (shape[0], length), None)[stepped]}
    for name, spec in specs.items():  # companions of the ids, such as token types
        if isinstance(spec, dict) and tuple(spec.get("shape") or ()) == shape:
            specs[name] = resized({name: spec}, shape, (shape[0], length), None)[name]
    inputs = session.made(specs, "float64")
    if stepped == "decoder_input_ids":
        inputs[stepped][:, 0] = start_token(model)
    return inputs, stepped, min(prompt, length - 1)


def has_cache(model: nn.Module) -> bool:
    """Whether `generate` exists for the class and a cache is part of its calls."""
    can_generate = getattr(model, "can_generate", None)
    return bool(can_generate and can_generate() and getattr(model, "_supports_cache_class", True))


def start_token(model: nn.Module) -> int:
    """What a decoder begins with; 0 where the configuration says nothing."""
    for holder in (model.generation_config, model.config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            value = getattr(holder, name, None)
            if isinstance(value, int):
                return value
    return 0


def generate(
    model: nn.Module,
    prompt: dict[str, Any],
    count: int,
    dtype: str,
    forced: Tensor | None = None,
    *,
    keep_logits: bool = True,
) -> dict[str, Tensor]:
    """`count` tokens by transformers' own greedy search, never stopping early.

    Returns:
      tokens [batch, count] and, unless told not to keep them, the raw logits [batch, count, vocabulary] that each was
      chosen from.
    """
    processors = LogitsProcessorList([_Forced(forced)] if forced is not None else [])
    arguments = dict(prompt)
    if "input_ids" in arguments:
        arguments["attention_mask"] = torch.ones_like(arguments["input_ids"])
    with torch.no_grad(), _plain_generation(model), computing_in(dtype):
        out = model.generate(
            **arguments,
            max_new_tokens=count,
            logits_processor=processors,
            output_logits=keep_logits,
            return_dict_in_generate=True,
        )
    tokens = {"tokens": out.sequences[:, -count:]}
    return tokens | {"logits": torch.stack(out.logits, dim=1)} if keep_logits else tokens


@contextlib.contextmanager
def _plain_generation(model: nn.Module) -> Iterator[None]:
    """Greedy search without stop tokens or penalties, whatever the checkpoint's generation settings say."""
    before, start = model.generation_config, start_token(model)
    model.generation_config = GenerationConfig(
        do_sample=False,
        use_cache=True,
        eos_token_id=None,
        pad_token_id=0,
        bos_token_id=start,
        decoder_start_token_id=start,
    )
    try:
        yield
    finally:
        model.generation_config = before


def _room(model: nn.Module, prompt: int) -> int:
    limit = sequence_limit(model)
    return limit - prompt if limit else 1 << 20


def _gap(logits: Tensor) -> Tensor:
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


def _error(ours: Tensor, truth: Tensor) -> float:
    return float((ours - truth).abs().max() / truth.abs().max().clamp_min(1e-300))
