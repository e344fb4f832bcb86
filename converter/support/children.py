"""The modules that a module holds, with torch's names: to look at them, and to put others in their place.

Layers of a stack are handed out one by one and stacked again afterwards, so that what was put into them stays.
"""

from collections.abc import Iterator
from typing import Any

from flax import nnx

from .stack import LayerStack


def named_children(module: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
    """Yield (name, child) for the modules directly below, in the order in which they were set.

    Layers without weights or settings may be plain functions here: those are no children.
    """
    if isinstance(module, LayerStack):
        layers = [module[i] for i in range(len(module))]
        try:
            yield from ((str(i), layer) for i, layer in enumerate(layers))
        finally:
            module.store(layers)
        return
    names = getattr(module, "_names", None) or list(vars(module))  # containers keep an order of their own
    held = [(name, vars(module)[name]) for name in names if name not in getattr(module, "aliases", ())]
    yield from ((name, child) for name, child in held if isinstance(child, nnx.Module))


def children(module: nnx.Module) -> Iterator[nnx.Module]:
    """Yield the modules directly below, in order."""
    yield from (child for _, child in named_children(module))


def set_child(module: Any, name: str, child: nnx.Module) -> None:
    """Put `child` in the place of the module's child `name`.

    Raises:
      TypeError: `module` is a layer stack, whose layers have no attributes of their own.
    """
    if isinstance(module, LayerStack):
        raise TypeError(
            f"layer {name} of a stack cannot be replaced by another; set scan_layers=False, or replace within"
        )
    setattr(module, name, child)
