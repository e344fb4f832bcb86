"""Scenarios made of forward passes: `exact`, `float32`, `bfloat16`, `long`, `padding`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from maxcode.evaluator.oracle.flatten import flatten
from maxcode.evaluator.oracle.sequences import resized, sequence_limit, sequence_shape
from maxcode.evaluator.oracle.session import NotApplicableError, Session
from maxcode.evaluator.oracle.store import Recording

MIN_LONG = 512


def exact(session: Session) -> Recording:
    """Cases `seed0`: the target's inputs; `other`: another batch and length where specs allow, else another seed."""
    recording = Recording("exact", "forward", "float64")
    _add(session, recording, "seed0", session.inputs("float64"))
    _add(session, recording, "other", _other_inputs(session))
    return recording


def _other_inputs(session: Session) -> dict[str, Any]:
    specs = session.specs()
    shape = sequence_shape(specs)
    if specs is None or shape is None:
        return session.inputs("float64", session.seed + 1)
    try:
        inputs = session.made(resized(specs, shape, (shape[0] + 1, shape[1] + 5), "right"), "float64", session.seed + 1)
        session.run("float64", inputs)
    except (RuntimeError, ValueError, IndexError, AssertionError):  # sizes that other inputs (images, limits) tie down
        return session.inputs("float64", session.seed + 1)
    return inputs


def rounded(dtype: str) -> Callable[[Session], Recording]:
    """The scenario `float32` or `bfloat16`: PyTorch in `dtype` beside the float64 truth, over input seeds.

    Discrete choices of the float64 run are replayed in the rounded one, so that `own_error` (max|a-b| / max|b|) is
    rounding only; the choices that would have flipped are counted in `flips`. Truth runs on inputs that were rounded to
    `dtype`, with weights in their stored precision.
    """

    def scenario(session: Session) -> Recording:
        recording = Recording(dtype, "forward", dtype)
        for seed in range(session.seed, session.seed + session.seeds):
            inputs = _unpadded(session, dtype, seed)
            truth, reference = session.run("float64", inputs)
            with session.trying(dtype):
                output, discrete = session.run(dtype, inputs, replay=reference)
            case = recording.case(f"seed{seed}", inputs, output)
            case["truth"] = recording.named(f"seed{seed}/truth", flatten(truth))
            reference.record_into(recording, case)
            case["flips"] = sum(discrete.flips)
            case["chosen"] = sum(choice["indices"].numel() for choice in reference.choices)
            case["own_error"] = relative_errors(flatten(output), flatten(truth))
        return recording

    return scenario


def _unpadded(session: Session, dtype: str, seed: int) -> dict[str, Any]:
    """The target's inputs without padding: values at positions that count for nothing can be all rounding error."""
    specs = session.specs()
    shape = sequence_shape(specs)
    if specs is None or shape is None:
        return session.inputs(dtype, seed)
    return session.made(resized(specs, shape, shape, None), dtype, seed)


def long(session: Session) -> Recording:
    """At least 512 positions (default 600), batch 3 (1 of a large model), no padding: short ones hide rope faults."""
    specs, shape = _sequence(session)
    limit = sequence_limit(session.model("float64"))
    length = min(session.length, limit or session.length)
    if length < MIN_LONG:
        raise NotApplicableError(f"the model takes {limit} positions, fewer than {MIN_LONG}")
    recording = Recording("long", "forward", "float64")
    _add(
        session,
        recording,
        "seed0",
        session.made(resized(specs, shape, (1 if session.large() else 3, length), None), "float64"),
    )
    return recording


def padding(session: Session) -> Recording:
    """Cases `right` and `left`: `counts` marks the positions that count, `counted` names the outputs it applies to."""
    specs, shape = _sequence(session)
    if "attention_mask" not in specs:
        raise NotApplicableError("the inputs hold no attention mask")
    recording = Recording("padding", "forward", "float64")
    for side in ("right", "left"):
        inputs = session.made(resized(specs, shape, (max(3, shape[0]), shape[1]), side), "float64")
        case = _add(session, recording, side, inputs)
        mask = inputs["attention_mask"].bool()
        case["counts"] = recording.put(f"{side}/counts", mask)
        case["counted"] = [n for n, shape_ in recording.shapes(case["outputs"]) if shape_[:2] == tuple(mask.shape)]
    return recording


def _sequence(session: Session) -> tuple[dict[str, Any], tuple[int, int]]:
    specs = session.specs()
    shape = sequence_shape(specs)
    if specs is None or shape is None:
        raise NotApplicableError("no token ids of shape [batch, length] among the input specs")
    return specs, shape


def _add(session: Session, recording: Recording, case_id: str, inputs: dict[str, Any]) -> dict[str, Any]:
    output, discrete = session.run("float64", inputs)
    case = recording.case(case_id, inputs, output)
    discrete.record_into(recording, case)
    return case


def relative_errors(ours: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    """Per floating output: max|a-b| / max|b| over the positions where b is finite."""
    found = {}
    for name, reference in truth.items():
        if name not in ours or not reference.is_floating_point() or ours[name].shape != reference.shape:
            continue
        finite = torch.isfinite(reference)
        if not bool(finite.any()):
            continue
        b = reference[finite].double()
        found[name] = float((ours[name][finite].double() - b).abs().max()) / (float(b.abs().max()) or 1.0)
    return found
