"""A model's parameters as training code handles them: one at a time, by the source's names, to group and to freeze."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from .leaves import LEAF_NAMES, Leaf, get_node, leaf_paths

FROZEN = "frozen"  # metadata of a variable: True, or the numbers of the slices that are not trained
_MODELING = "modeling"  # the module whose classes keep the source's own names for their parameters


@dataclass(eq=False)
class Parameter:
    """One parameter of the source: a variable of the model, or a slice of a stacked one.

    Layouts differ from the source's, so there is no `shape`; `ndim` and `size` are the source's.
    """

    name: str
    variable: nnx.Param
    leaf: Leaf

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.leaf.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.leaf.shape))

    @property
    def is_turned(self) -> bool:
        """Whether it is a matrix that the source stores [out, in] and this model [in, out]."""
        return self.ndim == 2 and self.leaf.path[-1] == "kernel"

    def dim(self) -> int:
        """Number of dimensions, as a method."""
        return self.ndim

    def numel(self) -> int:
        """Number of values, as a method."""
        return self.size

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained."""
        frozen = self.variable.get_metadata().get(FROZEN, ())
        return frozen is not True and self.leaf.index not in frozen

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.requires_grad_(requires_grad)

    def requires_grad_(self, requires_grad: bool = True) -> "Parameter":
        """Freeze it, or train it again."""
        frozen = self.variable.get_metadata().get(FROZEN, ())
        if self.leaf.index is None:
            changed: Any = not requires_grad
        else:
            rows = self.variable.get_raw_value().shape[0]
            kept = set(range(rows)) if frozen is True else set(frozen)
            kept = kept - {self.leaf.index} if requires_grad else kept | {self.leaf.index}
            changed = True if len(kept) == rows else tuple(sorted(kept))
        self.variable.set_metadata(**{FROZEN: changed})
        return self

    @property
    def value(self) -> Any:
        """Its array, in this model's layout."""
        value = self.variable.get_raw_value()
        return value if self.leaf.index is None else value[self.leaf.index]

    @value.setter
    def value(self, value: Any) -> None:
        whole = self.variable.get_raw_value()
        new = jnp.asarray(value, whole.dtype)
        self.variable.set_value(new if self.leaf.index is None else whole.at[self.leaf.index].set(new))

    @property
    def place(self) -> tuple[int, int | None]:
        """What tells two parameters apart: the variable, and the slice of it."""
        return id(self.variable), self.leaf.index


def named_parameters(model: nnx.Module) -> Iterator[tuple[str, Parameter]]:
    """Yield every parameter once, tied ones under their home, with the name that the source gives it."""
    for path, leaf in leaf_paths(model).items():
        if leaf.kind == "Param":
            owner, _, stored = path.rpartition(".")
            name = f"{owner}.{_source_leaf(model, leaf, stored)}".removeprefix(".")
            yield name, Parameter(name, get_node(model, leaf.path), leaf)


def parameters(model: nnx.Module) -> Iterator[Parameter]:
    """Yield every parameter once."""
    return (parameter for _, parameter in named_parameters(model))


def without_gradients(model: nnx.Module, names: Sequence[str]) -> nnx.Module:
    """Freeze parameters that no loss depends on: optimizers leave them alone, weight decay included.

    Raises KeyError for a name that the model has not.
    """
    known = dict(named_parameters(model))
    for name in names:
        known[name].requires_grad_(False)
    return model


def named_arrays(model: nnx.Module) -> Iterator[tuple[str, nnx.Variable]]:
    """Yield every stored variable once, parameters and buffers, with its path."""
    seen: set[int] = set()
    for path, leaf in leaf_paths(model).items():
        variable = get_node(model, leaf.path)
        if id(variable) not in seen:
            seen.add(id(variable))
            yield path if leaf.index is None else ".".join(map(str, leaf.path)), variable


def _source_leaf(model: nnx.Module, leaf: Leaf, stored: str) -> str:
    """The source's name of a stored array: its own where a converted class made it, torch's where a layer did."""
    owner = get_node(model, leaf.path[:-1])
    if type(owner).__module__.rpartition(".")[2] == _MODELING:
        return stored
    return next((source for source, names in LEAF_NAMES.items() if stored in names), stored)


def is_trained(path: Any, value: Any) -> bool:
    """Filter for nnx.split: parameters that are not frozen as a whole."""
    return isinstance(value, nnx.Param) and value.get_metadata().get(FROZEN, ()) is not True
