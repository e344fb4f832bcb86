"""Layers of a stack: when two are equal, how equal ones are stacked into one module, and how one is taken out again."""

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .module import Constant, iter_modules

INDEX_NAMES = ("layer_idx", "layer_id", "layer_index", "idx", "block_idx")
AXES = "out_sharding"  # the metadata name under which flax keeps axis names


class LayerIndexUsedError(TypeError):
    """A layer computed with its own number inside a scanned body, where the number is not known."""


class ThisLayer:
    """Stands for a layer's number inside a scanned body: it may be passed on (to a cache), not looked at."""

    def __init__(self, first: int):
        self._first = first

    def _refuse(self, *args: Any) -> Any:
        raise LayerIndexUsedError(
            f"a scanned layer computes with its own number (layer {self._first} and its repetitions share one body); "
            "pass key= to LayerStack.run so that layers that differ are told apart, or set scan_layers=False"
        )

    __index__ = __int__ = __float__ = __bool__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThisLayer) or (other is not None and self._refuse())

    def __hash__(self) -> int:
        return hash(ThisLayer)

    def __repr__(self) -> str:
        return f"layer {self._first} and its repetitions"


def signature(layer: nnx.Module, index: int, relative: bool) -> Hashable:
    """Describe everything that a layer's traced body depends on, so that equal layers have equal signatures.

    With `relative`, integers under INDEX_NAMES count by their distance from `index`.
    """
    seen: dict[int, int] = {}

    def describe(value: Any, name: str = "") -> Hashable:
        if isinstance(value, (nnx.Module, nnx.Variable)):
            if id(value) in seen:
                return ("shared", seen[id(value)])
            seen[id(value)] = len(seen)
        if isinstance(value, nnx.Variable):
            raw = value.get_raw_value()
            return (type(value), tuple(raw.shape), str(raw.dtype), value.get_metadata().get(AXES))
        if isinstance(value, nnx.Module):
            items = sorted(vars(value).items())
            return (type(value), *((k, describe(v, k)) for k, v in items if not k.startswith("_pytree__")))
        if isinstance(value, (list, tuple, nnx.List)):
            return (type(value), *(describe(v) for v in value))
        if isinstance(value, dict):
            return (dict, *((k, describe(v)) for k, v in value.items()))
        if isinstance(value, functools.partial):
            return (functools.partial, describe(value.func), describe(value.args), describe(value.keywords))
        if isinstance(value, (np.ndarray, jax.Array)):
            return Constant(value)
        if relative and name in INDEX_NAMES and _is_index(value):
            return ("layer", value - index)
        return (type(value), value) if isinstance(value, Hashable) else (type(value), id(value))

    return describe(layer)


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def variables(layer: nnx.Module) -> list[nnx.Variable]:
    """Return a layer's variables, each once, by sorted attribute names: an order that splitting and merging keeps."""
    found: dict[int, nnx.Variable] = {}
    visited: set[int] = set()

    def visit(value: Any) -> None:
        if isinstance(value, nnx.Variable):
            found.setdefault(id(value), value)
        elif isinstance(value, nnx.Module) and id(value) not in visited:
            visited.add(id(value))
            for name, below in sorted(vars(value).items()):
                if not name.startswith("_pytree__"):
                    visit(below)
        elif isinstance(value, (list, tuple, nnx.List)):
            for item in value:
                visit(item)
        elif isinstance(value, dict):
            for _, item in sorted(value.items(), key=lambda pair: str(pair[0])):
                visit(item)

    visit(layer)
    return list(found.values())


def stack_layers(template: nnx.Module, values: list[list[Any]]) -> None:
    """Give the template's variables a leading axis "layers": values[k] are those of its k-th variable, one per layer.

    Empties the lists as it goes, so that no more than one leaf exists twice.
    """
    for variable, leaves in zip(variables(template), values, strict=True):
        if isinstance(leaves[0], jax.ShapeDtypeStruct):
            stacked: Any = jax.ShapeDtypeStruct((len(leaves), *leaves[0].shape), leaves[0].dtype)
        else:
            stacked = jnp.stack(leaves)
        leaves.clear()
        variable.set_value(stacked)
        axes = variable.get_metadata().get(AXES)
        variable.set_metadata(AXES, ("layers", *(axes or (None,) * (len(stacked.shape) - 1))))


def take_layer(template: nnx.Module, index: int, distance: int) -> nnx.Module:
    """Return layer `index` of a stacked template as a module of its own, its number moved on by `distance`."""
    graph, state = nnx.split(template)
    layer = nnx.merge(graph, jax.tree.map(lambda leaf: leaf, state))
    for variable in variables(layer):
        raw = variable.get_raw_value()
        if isinstance(raw, jax.ShapeDtypeStruct):
            variable.set_value(jax.ShapeDtypeStruct(raw.shape[1:], raw.dtype))
        else:
            variable.set_value(raw[index])
        variable.set_metadata(AXES, variable.get_metadata()[AXES][1:])
    renumber(layer, lambda number: number + distance)
    return layer


def renumber(layer: nnx.Module, change: Any) -> None:
    """Replace the layer's own number, wherever it is kept below the layer, by `change(number)`."""
    for module in iter_modules(layer):
        for name in INDEX_NAMES:
            if _is_index(vars(module).get(name)):
                setattr(module, name, change(vars(module)[name]))


def first_number(layer: nnx.Module) -> int | None:
    """Return the layer's own number, if it keeps one."""
    for module in iter_modules(layer):
        for name in INDEX_NAMES:
            if _is_index(vars(module).get(name)):
                return vars(module)[name]
    return None


def shared_with_others(layers: Sequence[nnx.Module]) -> bool:
    """Say whether some variable belongs to several of the layers."""
    owners = [{id(variable) for variable in variables(layer)} for layer in layers]
    return sum(map(len, owners)) != len(set().union(*owners))
