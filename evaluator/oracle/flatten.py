"""Model outputs to and from flat dictionaries with dotted names."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch


def flatten(value: Any, prefix: str = "", *, root: str = "output") -> dict[str, torch.Tensor]:
    """Tensors inside `value` by dotted name; one bare tensor is called `root`.

    Mappings and output records give field names, lists and tuples positions. Caches (objects with `get_seq_length`) and
    everything that is not a tensor are left out.
    """
    if torch.is_tensor(value):
        return {prefix or root: value}
    if hasattr(value, "get_seq_length"):
        return {}
    found: dict[str, torch.Tensor] = {}
    for key, item in _children(value):
        found.update(flatten(item, f"{prefix}.{key}" if prefix else str(key), root=root))
    return found


def _children(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return [(name, getattr(value, name)) for name in value.__dataclass_fields__]
    return []


def structure(value: Any) -> Any:
    """A JSON-able sketch: tensors as {"shape", "dtype"}, records with their class name, caches as "cache"."""
    if torch.is_tensor(value):
        return {"shape": list(value.shape), "dtype": dtype_name(value.dtype)}
    if hasattr(value, "get_seq_length"):
        return "cache"
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    kind = type(value).__name__
    return {"type": kind, "items": {str(key): structure(item) for key, item in _children(value)}}


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` -> "float32"."""
    return str(dtype).removeprefix("torch.")


def bind(function: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by parameter name; those of `*args`, or of a function that cannot be inspected, are "args.0" …"""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {f"args.{i}": a for i, a in enumerate(args)} | dict(kwargs)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            named.update({f"{name}.{i}": a for i, a in enumerate(value)})
        else:
            named[name] = value
    return named
