"""Scenario `edges`: inputs where ports go wrong although ordinary ones agree."""

import copy
from typing import Any

from maxcode.evaluator.oracle.derive import text_config
from maxcode.evaluator.oracle.describe import vocab_size
from maxcode.evaluator.oracle.sequences import resized, sequence_limit, sequence_shape
from maxcode.evaluator.oracle.session import NotApplicableError, Session
from maxcode.evaluator.oracle.store import Recording

_WINDOWS = (
    "sliding_window",
    "attention_chunk_size",
    "window_size",
    "local_attention",
    "attention_window",
    "chunk_size",
)


def edges(session: Session) -> Recording:
    """One case per edge that the source itself runs; what it refuses is listed under `refused` with its message."""
    recording = Recording("edges", "forward", "float64")
    refused = {}
    for name, inputs in _cases(session).items():
        try:
            output, discrete = session.run("float64", inputs)
        except Exception as error:  # what a source cannot run has no right answer to compare with
            refused[name] = f"{type(error).__name__}: {error}"
            continue
        case = recording.case(name, inputs, output, ties=discrete.ties())
        discrete.record_into(recording, case)
    if not recording.cases:
        raise NotApplicableError(f"the source runs none of the edge inputs: {refused}")
    recording.note(refused=refused)
    return recording


def _cases(session: Session) -> dict[str, dict[str, Any]]:
    specs, cases = session.specs(), {}
    shape = sequence_shape(specs)
    if specs is not None and shape is not None:
        cases |= _sequence_cases(session, specs, shape)
    ordinary = session.inputs("float64", session.seed + 7)
    floating = [n for n, v in ordinary.items() if hasattr(v, "is_floating_point") and v.is_floating_point()]
    if floating:
        for name, factor in (("large", 1e3), ("small", 1e-3), ("zero", 0.0)):
            cases[name] = ordinary | {n: ordinary[n] * factor for n in floating}
    return cases


def _sequence_cases(session: Session, specs: dict[str, Any], shape: tuple[int, int]) -> dict[str, dict[str, Any]]:
    model = session.model("float64")
    sizes = {"one token": (shape[0], 1), "one row": (1, shape[1])}
    config = text_config(model.config) if hasattr(model, "config") else None
    windows = [getattr(config, name, None) for name in _WINDOWS]
    limit = sequence_limit(model)
    for window in {w for w in windows if isinstance(w, int) and 0 < w <= 4096}:
        for length in (window, window + 1, 2 * window + 3):
            if limit is None or length <= limit:
                sizes[f"window {window}, {length} tokens"] = (shape[0], length)
    cases = {name: session.made(resized(specs, shape, size, None), "float64", 7) for name, size in sizes.items()}
    vocabulary = vocab_size(model)
    if vocabulary:
        ends = {"first id": 0, "last id": vocabulary - 1}
        pad = getattr(config, "pad_token_id", None)
        if isinstance(pad, int) and 0 <= pad < vocabulary:
            ends["padding id"] = pad
        for name, token in ends.items():
            cases[name] = session.made(_with_token(specs, token), "float64", 7)
    return cases


def _with_token(specs: dict[str, Any], token: int) -> dict[str, Any]:
    """Every third position of the ids is `token`, the last two among them: repeated tokens, and an end of the table."""
    result = copy.deepcopy(specs)
    for name, spec in result.items():
        # other integer inputs (token types, labels) index smaller tables
        if (
            name.endswith("input_ids")
            and isinstance(spec, dict)
            and spec.get("kind") == "ids"
            and len(spec["shape"]) == 2
        ):
            rows, length = spec["shape"]
            starts = [*range(0, length, 3), max(0, length - 2), length - 1]
            spec["fill"] = [*spec.get("fill", []), *([[[0, rows], [s, s + 1]], token] for s in starts)]
    return result
