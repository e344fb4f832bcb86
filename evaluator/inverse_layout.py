"""Undo a layout of weights.json with numpy: "o i -> i o", "(h=4 d) i -> i h d", "c 1 k -> k c".

Written apart from the checkpoint code on purpose: a fault there must not excuse itself here.
"""

import math
import re

import numpy as np


def parse(side: str, sizes: dict[str, int]) -> list[list[str]]:
    """Axes of one side: a parenthesised group is one axis made of several, `1` an axis of length one."""
    groups = []
    for group, single in re.findall(r"\(([^)]*)\)|(\S+)", side):
        names = [part.partition("=") for part in (group or single).split()]
        sizes.update({name: int(size) for name, _, size in names if size})
        groups.append([name for name, _, _ in names if name != "1"])
    return groups


def to_source(target: np.ndarray, layout: str, shape: tuple[int, ...]) -> np.ndarray:
    """The source's tensor of `shape` from the JAX leaf `target`.

    Raises ValueError when the axes do not fit the shapes.
    """
    source_side, _, target_side = layout.partition("->")
    sizes: dict[str, int] = {}
    source, axes = parse(source_side, sizes), parse(target_side, sizes)
    if source == axes:
        if target.shape != tuple(shape):
            raise ValueError(f"layout {layout!r}: the leaf has shape {target.shape}, the source tensor {tuple(shape)}")
        return target
    for _ in range(2):  # the second round uses what the other side has settled
        _solve(source, shape, sizes, layout)
        _solve(axes, target.shape, sizes, layout)
    flat = [name for group in axes for name in group]
    names = [name for group in source for name in group]
    if sorted(flat) != sorted(names) or len(set(flat)) != len(flat):
        raise ValueError(f"layout {layout!r}: both sides must name the same axes, each once")
    split = target.reshape([sizes[name] for name in flat])
    return split.transpose([flat.index(name) for name in names]).reshape(shape)


def _solve(groups: list[list[str]], shape: tuple[int, ...], sizes: dict[str, int], layout: str) -> None:
    if len(groups) != len(shape):
        raise ValueError(f"layout {layout!r}: {len(groups)} axes for shape {tuple(shape)}")
    for group, size in zip(groups, shape, strict=True):
        unknown = [name for name in group if name not in sizes]
        known = math.prod(sizes[name] for name in group if name in sizes)
        if len(unknown) == 1 and known and size % known == 0:
            sizes[unknown[0]] = size // known
        elif len(unknown) == 1 or (not unknown and known != size):
            raise ValueError(f"layout {layout!r}: axis {group} does not make {size} of shape {tuple(shape)}")
