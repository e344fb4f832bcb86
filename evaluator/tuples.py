"""Tuples in JSON, which has lists alone: target.json tags them, since an argument may be a size."""

from typing import Any

_TAG = "__tuple__"


def tagged(value: Any) -> Any:
    """`value` with every tuple as {"__tuple__": [items]}."""
    if isinstance(value, dict):
        return {key: tagged(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [tagged(item) for item in value]
        return {_TAG: items} if isinstance(value, tuple) else items
    return value


def untagged(value: Any) -> Any:
    """The inverse of `tagged`."""
    if isinstance(value, dict):
        if set(value) == {_TAG}:
            return tuple(map(untagged, value[_TAG]))
        return {key: untagged(item) for key, item in value.items()}
    return [untagged(item) for item in value] if isinstance(value, list) else value
