"""Sample inputs: from the target's specs, or from a module file's own `get_inputs()`.

A spec is a dictionary with `kind` (ids, mask, uniform, float, image, audio, literal, const, list, tuple, dict) or, as
on the command line, `shape` with `dtype`, `low`, `high`. Anything else is passed to the model as it is.
"""

import zlib
from typing import Any

import torch

from maxcode.evaluator.oracle.errors import OracleError

_FLOATS = ("float", "image", "audio")
_DTYPES = {
    name: getattr(torch, name)
    for name in ("int64", "int32", "int16", "int8", "uint8", "bool", "float32", "float64", "float16", "bfloat16")
}
_ALIASES = {"int": "int64", "long": "int64", "float": "float32", "double": "float64", "half": "float16"}


def generator(name: str, seed: int) -> torch.Generator:
    """A generator whose stream depends on `name` and `seed` only, so that adding a tensor moves no other."""
    return torch.Generator().manual_seed(zlib.crc32(f"{name}/{seed}".encode()) + (seed << 32))


def make_inputs(specs: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Values of keyword arguments. Floating tensors are float32 or as the spec says; `cast` adapts them to a run.

    Raises:
      OracleError: a spec of unknown kind or dtype.
    """
    return {name: make_value(name, spec, seed) for name, spec in specs.items()}


def make_value(name: str, spec: Any, seed: int) -> Any:
    if isinstance(spec, list):
        return [make_value(f"{name}.{i}", item, seed) for i, item in enumerate(spec)]
    if not isinstance(spec, dict):
        return spec
    if not ("kind" in spec or "shape" in spec):
        return {key: make_value(f"{name}.{key}", item, seed) for key, item in spec.items()}
    kind = spec.get("kind") or _kind_by_dtype(name, spec)
    if kind == "const":
        return spec["value"]
    if kind in ("list", "tuple"):
        items = [make_value(f"{name}.{i}", item, seed) for i, item in enumerate(spec["items"])]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: make_value(f"{name}.{key}", item, seed) for key, item in spec["items"].items()}
    spec = {key: value for key, value in spec.items() if value is not None}
    _check_spec(name, spec)
    dtype = _dtype(name, spec.get("dtype", "float32"))
    value = _tensor(name, kind, spec, seed, dtype)
    for region, fill in spec.get("fill", []):  # placeholders: [[start, stop] per leading dimension, value]
        value[tuple(slice(start, stop) for start, stop in region)] = fill
    return value.to(dtype)


_FIELDS = {
    "kind", "shape", "dtype", "low", "high", "values", "mean", "std", "fill", "pad_left", "pad_right", "value", "items",
}  # fmt: skip


def _check_spec(name: str, spec: dict[str, Any]) -> None:
    do = f"correct --inputs, such as {_EXAMPLE}"
    if unknown := sorted(set(spec) - _FIELDS):
        raise OracleError(f"inputs.{name}", f"unknown field {', '.join(unknown)}", "shape, dtype, low, high", do)
    shape = spec.get("shape")
    if not isinstance(shape, list | tuple) or any(type(n) is not int or n < 0 for n in shape):
        raise OracleError(f"inputs.{name}", f"shape {shape!r}", "a list of sizes, none negative", do)
    bad = [key for key in ("low", "high", "mean", "std") if not isinstance(spec.get(key, 0), int | float)]
    if bad:
        raise OracleError(f"inputs.{name}", f"{bad[0]} {spec[bad[0]]!r}", "a number", do)
    if spec.get("low", 0) > spec.get("high", spec.get("low", 0)):
        raise OracleError(f"inputs.{name}", f"low {spec['low']} above high {spec['high']}", "low <= high", do)


_EXAMPLE = '{"shape": [2, 3], "dtype": "float32", "low": 0, "high": 1}'


def _tensor(name: str, kind: str, spec: dict[str, Any], seed: int, dtype: torch.dtype) -> torch.Tensor:
    shape, draw = tuple(spec["shape"]), generator("input:" + name, seed)
    if kind == "literal":
        return torch.tensor(spec["values"], dtype=dtype).reshape(shape)
    if kind == "ids":
        low, high = int(spec.get("low", 0)), int(spec.get("high", 2))
        return torch.randint(low, max(high, low + 1), shape, generator=draw)
    if kind == "mask":
        return _mask(shape, spec, dtype)
    if kind == "uniform":
        low, high = float(spec.get("low", 0.0)), float(spec.get("high", 1.0))
        return torch.rand(shape, generator=draw, dtype=torch.float32) * (high - low) + low
    if kind in _FLOATS:
        noise = torch.randn(shape, generator=draw, dtype=torch.float32)
        return noise * spec.get("std", 1.0) + spec.get("mean", 0.0)
    kinds = "const, list, tuple, dict, literal, ids, mask, uniform, float, image or audio"
    raise OracleError(f"inputs.{name}", f"kind {kind!r}", kinds, "correct the kind of this input")


def _mask(shape: tuple[int, ...], spec: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    mask = torch.ones(shape, dtype=dtype)
    for row, count in enumerate(spec.get("pad_right", [])):
        if count:
            mask[row, ..., -count:] = 0
    for row, count in enumerate(spec.get("pad_left", [])):
        mask[row, ..., :count] = 0
    return mask


def _kind_by_dtype(name: str, spec: dict[str, Any]) -> str:
    bounded = "low" in spec or "high" in spec
    if _dtype(name, spec.get("dtype", "float32")).is_floating_point:
        return "uniform" if bounded else "float"
    return "ids"


def _dtype(name: str, text: str) -> torch.dtype:
    text = str(text).removeprefix("torch.")
    text = _ALIASES.get(text, text)
    if text not in _DTYPES:
        raise OracleError(f"inputs.{name}", f"dtype {text!r}", f"one of {', '.join(_DTYPES)}", "correct the dtype")
    return _DTYPES[text]


def cast(value: Any, dtype: torch.dtype) -> Any:
    """Floating tensors inside `value` in `dtype`; drawn in float32, they are the same numbers for every dtype."""
    if torch.is_tensor(value):
        return value.to(dtype) if value.is_floating_point() else value.clone()
    if isinstance(value, dict):
        return {key: cast(item, dtype) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(cast(item, dtype) for item in value)
    return value
