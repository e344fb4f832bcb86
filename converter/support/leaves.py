"""A model's stored arrays by their source-like names, whatever the layout of its layer stacks; tied weights.

leaf_paths(model)["model.layers.3.self_attn.q_proj.kernel"]
# Leaf(path=("model", "layers", "periods", 0, "self_attn", "q_proj", "kernel"), index=3, shape=…, dtype=…, axes=…)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from .layers import Embedding, Linear
from .stack import LayerStack
from .stack_layers import AXES

Path = tuple[str | int, ...]
LEAF_NAMES = {"weight": ("weight", "kernel", "embedding", "scale")}  # source leaf -> where it may be stored


@dataclass(frozen=True)
class Leaf:
    """Where one source tensor's values are stored: the attribute path of a variable, and the slice of it.

    `index` is the position on the leading axis of a stacked variable, None for a variable of its own. `shape` and
    `axes` (logical names, or None) are those of the slice. `kind` is "Param" or "Buffer".
    """

    path: Path
    index: int | None
    shape: tuple[int, ...]
    dtype: jnp.dtype
    axes: tuple[str | None, ...]
    kind: str


def leaf_paths(model: nnx.Module) -> dict[str, Leaf]:
    """Map the dotted name of every stored array to its place; tied weights appear once, under their home.

    Works on concrete models and on abstract ones (`Model.abstract(config)`, `nnx.eval_shape`). The order is that of the
    constructor's assignments, or alphabetical where the model went through `nnx.merge`.
    """
    found: dict[str, Leaf] = {}
    seen: set[tuple[int, int | None]] = set()
    for fqn, path, index, variable in _walk(model, (), (), None):
        if (id(variable), index) in seen:
            continue
        seen.add((id(variable), index))
        raw, cut = variable.get_raw_value(), 0 if index is None else 1
        axes = tuple(variable.get_metadata().get(AXES) or (None,) * len(raw.shape))
        kind = "Param" if isinstance(variable, nnx.Param) else type(variable).__name__
        found[".".join(fqn)] = Leaf(path, index, tuple(raw.shape[cut:]), jnp.dtype(raw.dtype), axes[cut:], kind)
    return found


def _walk(node: Any, fqn: tuple[str, ...], path: Path, index: int | None) -> Iterator[tuple[Any, ...]]:
    """Yield (name parts, path, index, variable) for all variables at and below a node."""
    if isinstance(node, nnx.Variable):
        yield fqn, path, index, node
    elif isinstance(node, LayerStack):
        for i in range(len(node)):
            place, slot = node.locate(i)
            yield from _walk(get_node(node, place), (*fqn, str(i)), (*path, *place), slot)
    elif isinstance(node, nnx.Module):
        for name, value in vars(node).items():
            if not name.startswith("_pytree__") and name not in getattr(node, "aliases", ()):
                yield from _walk(value, (*fqn, name), (*path, name), index)
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _walk(value, (*fqn, str(name)), (*path, name), index)
    elif isinstance(node, (list, tuple, nnx.List)):
        for i, value in enumerate(node):
            yield from _walk(value, (*fqn, str(i)), (*path, i), index)


def get_node(model: Any, path: Path) -> Any:
    """Return the module, container or variable at an attribute path."""
    node = model
    for part in path:
        # Not getattr: a layer's `bias` reads as an array there, the variable is in its vars.
        node = vars(node)[part] if isinstance(part, str) and isinstance(node, nnx.Module) else node[part]
    return node


def get_leaf(model: nnx.Module, leaf: str | Leaf) -> Array:
    """Return the array of a leaf, given by name or place."""
    leaf = _find(model, leaf)
    value = get_node(model, leaf.path).get_raw_value()
    return value if leaf.index is None else value[leaf.index]


def set_leaf(model: nnx.Module, leaf: str | Leaf, value: Any) -> None:
    """Replace the array of a leaf, given by name or place.

    Setting slices of a stacked variable copies it each time: to fill a whole model, gather the slices of one path and
    call `get_node(model, leaf.path).set_value(stacked)`.

    Raises:
        KeyError: the model has no leaf of that name.
        ValueError: the shape is not the leaf's.
    """
    name, leaf = leaf, _find(model, leaf)
    if tuple(jnp.shape(value)) != leaf.shape:
        raise ValueError(f"{name}: shape {tuple(jnp.shape(value))}, expected {leaf.shape}; check the weight's layout")
    variable = get_node(model, leaf.path)
    value = jnp.asarray(value, leaf.dtype)
    if leaf.index is not None:
        whole = variable.get_raw_value()
        whole = jnp.zeros(whole.shape, whole.dtype) if isinstance(whole, jax.ShapeDtypeStruct) else whole
        value = whole.at[leaf.index].set(value)
    variable.set_value(value)


def _find(model: nnx.Module, leaf: str | Leaf) -> Leaf:
    if isinstance(leaf, Leaf):
        return leaf
    leaves = leaf_paths(model)
    if leaf not in leaves:
        near = [name for name in leaves if name.rpartition(".")[0] == leaf.rpartition(".")[0]] or list(leaves)[:8]
        raise KeyError(f"no stored array {leaf!r}; there are {near}; tied weights are stored under their home only")
    return leaves[leaf]


def tie_weights(model: nnx.Module, ties: Mapping[str, str]) -> None:
    """Make source parameters share storage: {"lm_head.weight": "model.embed_tokens.weight"}, names as in the source.

    The first of each pair gives up its own array. A linear layer tied to an embedding reads the embedding's table.

    Raises:
        KeyError: no such parameter.
        ValueError: shapes differ.
        TypeError: one lies in a scanned layer stack.
    """
    for target, source in ties.items():
        (module, name), (home, home_name) = _owner(model, target), _owner(model, source)
        if isinstance(module, Embedding) and isinstance(home, Linear):
            (module, name), (home, home_name) = (home, home_name), (module, name)
        mine, theirs = vars(module)[name], vars(home)[home_name]
        if mine is theirs or mine is None:
            continue
        flipped = isinstance(module, Linear) and isinstance(home, Embedding)
        shape = theirs.get_raw_value().shape
        if mine.get_raw_value().shape != (shape[::-1] if flipped else shape):
            raise ValueError(f"cannot tie {target} to {source}: shapes {mine.get_raw_value().shape} and {shape}")
        if flipped:
            layer: Any = module
            del layer.kernel
            layer.kernel, name = None, "tied"
        setattr(module, name, theirs)
        module.aliases = (*module.aliases, name)


def _owner(model: nnx.Module, fqn: str) -> tuple[Any, str]:
    """Return the module of a source parameter and the attribute that stores it."""
    *parents, leaf = fqn.split(".")
    node: Any = model
    for part in parents:
        if isinstance(node, LayerStack):
            raise TypeError(f"cannot tie {fqn}: it lies in a layer stack; keep that layer outside the stack")
        is_module = isinstance(node, nnx.Module)
        inside: Any = vars(node) if is_module else node
        try:
            node = inside[int(part) if part.isdigit() and not is_module else part]
        except (KeyError, IndexError, TypeError):
            raise KeyError(f"cannot tie {fqn}: no {part!r} in {type(node).__name__}") from None
    for name in LEAF_NAMES.get(leaf, (leaf,)):
        if name in vars(node):
            return node, name
    raise KeyError(f"cannot tie {fqn}: {type(node).__name__} stores no {leaf!r}")
