"""Axis layouts: how a stored tensor's axes are named, grouped and ordered on the two sides of a weight map.

`"o i -> i o"` transposes, `"(h=4 d) e -> e h d"` splits a grouped axis, `"c 1 k -> k c"` drops an axis of length one.
The inverse is the same text with its sides swapped; nothing else has to be written for the way back.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence

import numpy as np

Groups = tuple[tuple[str, ...], ...]
Index = tuple[slice, ...]
_TOKEN = re.compile(r"\s*(\(|\)|[A-Za-z_][A-Za-z_0-9]*(?:=[0-9]+)?|1(?![0-9]))")


class LayoutError(ValueError):
    """A layout that cannot be read, or a shape that does not fit it."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """A one-to-one rearrangement of axes: `left` is the stored (source) side, `right` the JAX side.

    An empty text is the identity on any shape. A group of axes is one array axis, the first name outermost.
    """

    left: Groups
    right: Groups
    sizes: tuple[tuple[str, int], ...] = ()
    identity: bool = False

    def __str__(self) -> str:
        if self.identity:
            return ""
        written = dict(self.sizes)
        return " -> ".join((_side_text(self.left, written), _side_text(self.right, {})))

    @property
    def is_identity(self) -> bool:
        """True where the array passes through unchanged."""
        return self.left == self.right

    def inverse(self) -> "Layout":
        """The layout of the way back."""
        return dataclasses.replace(self, left=self.right, right=self.left)

    def bind(self, source_shape: Sequence[int] | None = None, target_shape: Sequence[int] | None = None) -> "Layout":
        """The same layout with every axis length known, from the shape of either side or of both.

        Raises LayoutError where a shape does not fit or a length stays open.
        """
        if self.identity:
            return self
        sizes = dict(self.sizes)
        sides = [(g, s) for g, s in ((self.left, source_shape), (self.right, target_shape)) if s is not None]
        for _ in range(2):  # the second round uses what the other side has settled
            for groups, shape in sides:
                self._solve(groups, tuple(shape), sizes)
        unknown = sorted({name for group in self.left for name in group} - set(sizes))
        if unknown:
            raise LayoutError(
                f"layout {str(self)!r}: length of {unknown} unknown; write it, as in '({unknown[0]}=4 …)'"
            )
        return dataclasses.replace(self, sizes=tuple(sizes.items()))

    def _solve(self, groups: Groups, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        if len(groups) != len(shape):
            raise LayoutError(f"layout {str(self)!r} has {len(groups)} axes on a side that has shape {shape}")
        for group, length in zip(groups, shape, strict=True):
            open_axes = [name for name in group if name not in sizes]
            known = math.prod(sizes[name] for name in group if name in sizes)
            if len(open_axes) == 1 and known and length % known == 0:
                sizes[open_axes[0]] = length // known
            elif (len(open_axes) == 0 and known != length) or len(open_axes) == 1:
                raise LayoutError(f"layout {str(self)!r} does not fit shape {shape}: axis {group} has length {length}")

    def target_shape(self, source_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the JAX side for a stored tensor of `source_shape`."""
        if self.identity:
            return tuple(source_shape)
        sizes = dict(self.bind(source_shape).sizes)
        return tuple(math.prod(sizes[name] for name in group) for group in self.right)

    def apply(self, array):
        """Rearrange a NumPy or JAX array from the stored to the JAX side (a view where NumPy can give one)."""
        if self.identity:
            return array
        return self._arrange(array, dict(self.bind(array.shape).sizes))

    def _arrange(self, array, sizes: dict[str, int]):
        flat_left = [name for group in self.left for name in group]
        flat_right = [name for group in self.right for name in group]
        array = array.reshape([sizes[name] for name in flat_left])
        array = array.transpose([flat_left.index(name) for name in flat_right])
        return array.reshape([math.prod(sizes[name] for name in group) for group in self.right])

    def take(self, fetch: Callable[[Index], np.ndarray], source_shape: Sequence[int], index: Index) -> np.ndarray:
        """`apply(source)[index]`, where `fetch(source_index)` reads only a part of the source.

        `index` holds one slice of step 1 per axis of the JAX side; one inside a group is cut after reading.
        """
        if self.identity:
            return fetch(_bounded(index, source_shape))
        sizes = dict(self.bind(source_shape).sizes)
        bounded = _bounded(index, self.target_shape(source_shape))
        parts = {g[0]: s for g, s in zip(self.right, bounded, strict=True) if len(g) == 1}
        for group in self.left:  # an axis that is not the outermost of its group is not one range of the stored axis
            for name in group[1:]:
                parts.pop(name, None)
        source_index = tuple(_range_of(group, parts, sizes) for group in self.left)
        sizes |= {name: part.stop - part.start for name, part in parts.items()}
        rest = tuple(
            slice(None) if len(g) == 1 and g[0] in parts else s for g, s in zip(self.right, bounded, strict=True)
        )
        return self._arrange(fetch(source_index), sizes)[rest]


@functools.cache
def parse_layout(text: str) -> Layout:
    """Read a layout such as `"o i -> i o"`. Raises LayoutError on anything that is not one-to-one."""
    if not text.strip():
        return Layout((), (), identity=True)
    sides = text.split("->")
    if len(sides) != 2:
        raise LayoutError(f"layout {text!r}: expected one '->', as in 'o i -> i o'")
    sizes: dict[str, int] = {}
    left, right = (_parse_side(side, text, sizes) for side in sides)
    names = [sorted(name for group in side for name in group) for side in (left, right)]
    if names[0] != names[1] or len(set(names[0])) != len(names[0]):
        raise LayoutError(
            f"layout {text!r}: both sides must name the same axes, each once; found {names[0]}, {names[1]}"
        )
    return Layout(left, right, tuple(sizes.items()))


def _parse_side(side: str, text: str, sizes: dict[str, int]) -> Groups:
    groups: list[list[str]] = []
    position, inside = 0, False
    side = side.rstrip()
    while position < len(side):
        match = _TOKEN.match(side, position)
        token = match[1] if match else None
        if match is None or token is None or token == ("(" if inside else ")"):
            raise LayoutError(
                f"layout {text!r}: cannot read {side[position:]!r}; expected axis names or one level of ()"
            )
        position = match.end()
        if token in "()":
            inside = token == "("
            groups += [[]] if inside else []
            continue
        name, _, length = token.partition("=")
        if length and sizes.setdefault(name, int(length)) != int(length):
            raise LayoutError(f"layout {text!r}: axis {name!r} has two lengths")
        names = [] if name == "1" else [name]
        groups[-1:] = [groups[-1] + names] if inside else [*groups[-1:], names]
    if inside:
        raise LayoutError(f"layout {text!r}: '(' is not closed")
    return tuple(tuple(group) for group in groups)


def _side_text(groups: Groups, sizes: dict[str, int]) -> str:
    words = []
    for group in groups:
        names = [f"{name}={sizes[name]}" if name in sizes else name for name in group]
        words.append("1" if not names else names[0] if len(names) == 1 else f"({' '.join(names)})")
    return " ".join(words)


def _bounded(index: Index, shape: Sequence[int]) -> Index:
    ranges = [slice(*part.indices(length)) for part, length in zip(index, shape, strict=True)]
    if any(part.step != 1 for part in ranges):
        raise LayoutError(f"index {index}: only slices of step 1 are read")
    return tuple(slice(part.start, max(part.start, part.stop)) for part in ranges)


def _range_of(group: tuple[str, ...], parts: dict[str, slice], sizes: dict[str, int]) -> slice:
    inner = math.prod(sizes[name] for name in group[1:])
    if group and group[0] in parts:
        part = parts[group[0]]
        return slice(part.start * inner, part.stop * inner)
    return slice(0, math.prod(sizes[name] for name in group))
