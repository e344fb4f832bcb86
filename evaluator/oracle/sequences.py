"""Sequence-shaped inputs: finding batch and length in input specs, and asking for others."""

import copy
from typing import Any

from torch import nn

from maxcode.evaluator.oracle.derive import text_config

_LIMITS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "context_length",
)


def sequence_shape(specs: dict[str, Any] | None) -> tuple[int, int] | None:
    """[batch, length] of the token ids: the input called `input_ids`, else the only two-dimensional ids."""
    if not specs:
        return None
    ids = {
        name: tuple(spec["shape"])
        for name, spec in specs.items()
        if isinstance(spec, dict) and _is_ids(spec) and len(spec.get("shape") or ()) == 2
    }
    if "input_ids" in ids:
        return ids["input_ids"]
    return next(iter(ids.values())) if len(ids) == 1 else None


def _is_ids(spec: dict[str, Any]) -> bool:
    kind = spec.get("kind", "ids")
    return kind == "ids" and "int" in str(spec.get("dtype", "float32"))


def sequence_limit(model: nn.Module) -> int | None:
    """The largest number of positions that the configuration allows, where it names one."""
    config = getattr(model, "config", None)
    if config is None:
        return None
    text = text_config(config)
    limits = [getattr(text, name, None) for name in _LIMITS]
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=None)


def resized(
    specs: dict[str, Any], old: tuple[int, int], new: tuple[int, int], padding: str | None
) -> dict[str, dict[str, Any]]:
    """Specs for another batch and length.

    Args:
      old, new: (batch, length). Leading dimensions equal to the old batch, second ones equal to the old length change;
        inputs of another length (decoder ids) keep theirs.
      padding: "left" or "right" pads all rows but the first differently; None pads nothing.
    """
    result = copy.deepcopy(specs)
    for spec in result.values():
        if not isinstance(spec, dict) or not spec.get("shape") or spec.get("kind") in ("const", "literal"):
            continue
        shape = list(spec["shape"])
        if shape[0] == old[0]:
            shape[0] = new[0]
        for axis in range(1, len(shape)):
            if shape[axis] == old[1] and (axis == 1 or spec.get("kind") == "mask"):
                shape[axis] = new[1]
        spec["shape"] = shape
        if spec.get("kind") == "mask":
            spec.pop("pad_left", None)
            spec.pop("pad_right", None)
            if padding:
                spec[f"pad_{padding}"] = [_pad(row, shape[-1]) for row in range(shape[0])]
        elif padding == "left" and spec.get("fill"):
            spec["fill"] = [moved for region, value in spec["fill"] for moved in _moved(region, value, shape)]
    return result


def _pad(row: int, length: int) -> int:
    return (row * 3) % (length // 2 + 1)


def _moved(region: list[list[int]], value: Any, shape: list[int]) -> list[Any]:
    """Placeholders of a region, row by row behind that row's padding on the left, as far as they fit."""
    if len(region) < 2:
        return [[region, value]]
    found = []
    for row in range(*region[0]):
        shift = min(_pad(row, shape[1]), max(0, shape[1] - region[1][1]))
        found.append([[[row, row + 1], [bound + shift for bound in region[1]], *region[2:]], value])
    return found


def larger_batch(specs: Any, batch: int = 3) -> dict[str, Any] | None:
    """Specs for `batch` rows, where all inputs agree on another number of rows; None where they do not."""
    if not isinstance(specs, dict):
        return None
    tensors = [spec for spec in specs.values() if isinstance(spec, dict) and spec.get("shape")]
    rows = {spec["shape"][0] for spec in tensors}
    if len(rows) != 1 or any(spec.get("kind") == "literal" for spec in tensors):
        return None
    result = copy.deepcopy(specs)
    for spec in result.values():
        if isinstance(spec, dict) and spec.get("shape"):
            spec["shape"] = [batch, *spec["shape"][1:]]
    return result
