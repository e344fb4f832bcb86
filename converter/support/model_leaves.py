"""The weights of a model under the source's dotted names, whether its layers are scanned or not."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from flax import nnx

_NOT_WEIGHTS = (nnx.RngState, nnx.Intermediate, nnx.Cache)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One parameter or persistent buffer: its variable, and its `index` into the leading axes of a stacked one."""

    fqn: str
    variable: nnx.Variable
    index: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.variable.get_value().shape)[len(self.index) :]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.variable.get_value().dtype)

    def read(self) -> np.ndarray:
        """The values as a NumPy array (on this host)."""
        value = self.variable.get_value()
        return np.asarray(value[self.index] if self.index else value)

    def to_json(self) -> dict[str, Any]:
        """Name, shape and dtype, as the weight map's builder reads them."""
        return {"fqn": self.fqn, "shape": list(self.shape), "dtype": self.dtype.name}


def leaves(model: nnx.Module) -> dict[str, Leaf]:
    """Every weight of an abstract or real model by dotted name, in the order of the model's attributes.

    A stack of layers shows each layer under its own number. A variable that two modules share (tied weights) has the
    alphabetically first of its names; a module's `aliases` are skipped.
    """
    found: dict[tuple[int, tuple[int, ...]], Leaf] = {}
    for leaf in _walk(model, "", ()):
        place = (id(leaf.variable), leaf.index)
        # nnx.merge sorts attributes, so the name of a shared variable must not depend on their order
        if place not in found or leaf.fqn < found[place].fqn:
            found[place] = leaf
    return {leaf.fqn: leaf for leaf in found.values()}


def _walk(node: Any, prefix: str, index: tuple[int, ...]) -> Iterator[Leaf]:
    if hasattr(node, "locate"):
        for number in range(len(node)):
            path, place = node.locate(number)
            yield from _walk(_follow(node, path), f"{prefix}{number}.", index if place is None else (*index, place))
        return
    for name, child in _children(node):
        if isinstance(child, nnx.Variable):
            if not isinstance(child, _NOT_WEIGHTS):
                yield Leaf(f"{prefix}{name}", child, index)
        elif isinstance(child, (nnx.Module, dict, list, tuple)):
            yield from _walk(child, f"{prefix}{name}.", index)


def _children(node: Any) -> list[tuple[str, Any]]:
    if isinstance(node, nnx.Module):
        skipped = getattr(node, "aliases", ())
        return [(k, v) for k, v in vars(node).items() if not k.startswith("_pytree__") and k not in skipped]
    if isinstance(node, dict):
        return [(str(key), value) for key, value in node.items()]
    return [(str(number), value) for number, value in enumerate(node)]


def _follow(node: Any, path: Any) -> Any:
    for step in path:
        node = getattr(node, step) if isinstance(step, str) else node[step]
    return node
