"""States that one layer stores and later layers read, by name."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax


class SharedStates(dict[str, Any]):
    """A dictionary of arrays that is handed from layer to layer; a pytree, so that a layer stack can carry it."""

    def __init__(self, states: Mapping[str, Any] | None = None):
        super().__init__(states or {})


def _flatten(states: SharedStates) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    names = tuple(sorted(states))
    return tuple(states[name] for name in names), names


def _unflatten(names: tuple[str, ...], values: Iterable[Any]) -> SharedStates:
    return SharedStates(dict(zip(names, values, strict=True)))


jax.tree_util.register_pytree_node(SharedStates, _flatten, _unflatten)
