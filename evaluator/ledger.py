"""The rows of weights.json and what they promise (docs/interfaces.md section 4)."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from maxcode.evaluator.inverse_layout import parse, to_source

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole component of a name: a layer's or an expert's


@dataclasses.dataclass(frozen=True)
class Piece:
    """A stored tensor (or its `part`: axis, start, stop) that a leaf holds, and the leaf's values in its shape."""

    source: str
    dtype: str
    shape: tuple[int, ...]
    part: tuple[int, int, int] | None
    value: np.ndarray


@dataclasses.dataclass(frozen=True)
class Row:
    """One JAX leaf and the expression over stored tensors that makes it; `copy` = owned by another row."""

    target: str
    expression: dict[str, Any]
    copy: bool = False

    @classmethod
    def all(cls, weight_map: dict[str, Any]) -> list["Row"]:
        """Every row. Raises ValueError for a format this reader does not know."""
        if weight_map.get("format") != 1:
            raise ValueError(f"weights.json: format {weight_map.get('format')!r}, expected 1")
        return [cls(record["target"], record, record.get("copy", False)) for record in weight_map["rows"]]

    def sources(self) -> list[str]:
        """Names of the stored tensors, in order."""
        return [leaf["source"] for leaf in _stored(self.expression)]

    def pieces(self, leaf: np.ndarray) -> Iterator[Piece]:
        """What the leaf says its stored tensors are. Raises ValueError naming the row when a layout does not fit."""
        try:
            yield from _scatter(self.expression, leaf)
        except (ValueError, IndexError) as error:
            raise ValueError(f"weights.json, {self.target} of {self.sources()[:3]}: {error}") from error


def fitted(rows: list[Row], leaves: Iterable[str], shapes: Mapping[str, tuple[int, ...]]) -> list[Row]:
    """A row for each of `leaves`, of a model whose layers and sizes may differ from those that `rows` were written for.

    A leaf without a row of its own takes that of a leaf which differs in numbers only; stored tensors that `shapes`
    names have that shape. Leaves that nothing resembles are left out.
    """
    exact = {row.target: row for row in rows}
    alike = {_NUMBER.sub("#", row.target): row for row in reversed(rows)}
    found = []
    for leaf in leaves:
        row = exact.get(leaf) or alike.get(_NUMBER.sub("#", leaf))
        if row is not None:
            numbers = list(zip(_NUMBER.findall(row.target), _NUMBER.findall(leaf)))
            found.append(Row(leaf, _refit(row.expression, numbers, shapes), row.copy))
    return found


def _refit(expression: dict[str, Any], numbers: list[tuple[str, str]], shapes: Mapping[str, Any]) -> dict[str, Any]:
    if "sources" in expression:
        return expression | {"sources": [_refit(item, numbers, shapes) for item in expression["sources"]]}
    places = iter(numbers)

    def swap(match: re.Match) -> str:
        old, new = next(places, (None, ""))
        return new if match[0] == old else match[0]

    name = _NUMBER.sub(swap, expression["source"])
    return expression | {"source": name, "shape": shapes.get(name, expression["shape"])}


def _stored(expression: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "sources" in expression:
        for item in expression["sources"]:
            yield from _stored(item)
    else:
        yield expression


def _scatter(expression: dict[str, Any], leaf: np.ndarray) -> Iterator[Piece]:
    layout = expression.get("layout", "")
    if "sources" not in expression:
        part = tuple(expression["part"]) if expression.get("part") else None
        value = to_source(leaf, layout, part_shape(expression))
        yield Piece(expression["source"], expression.get("dtype", ""), tuple(expression["shape"]), part, value)
        return
    op, axis = expression["combine"]["op"], expression["combine"]["axis"]
    shapes = [_made_shape(item) for item in expression["sources"]]
    sizes = [1 if op == "stack" else shape[axis] for shape in shapes]
    whole = to_source(leaf, layout, _joined_shape(op, axis, shapes))
    start = 0
    for item, size in zip(expression["sources"], sizes, strict=True):
        index = (slice(None),) * axis + ((start,) if op == "stack" else (slice(start, start + size),))
        yield from _scatter(item, whole[index])
        start += size


def part_shape(expression: dict[str, Any]) -> tuple[int, ...]:
    """The shape of a stored tensor, or of the part of it that is meant."""
    shape = list(expression["shape"])
    if expression.get("part"):
        axis, start, stop = expression["part"]
        shape[axis] = stop - start
    return tuple(shape)


def _joined_shape(op: str, axis: int, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    first = shapes[0]
    if op == "stack":
        return (*first[:axis], len(shapes), *first[axis:])
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _made_shape(expression: dict[str, Any]) -> tuple[int, ...]:
    """The shape on the JAX side of an expression."""
    if "sources" in expression:
        shapes = [_made_shape(item) for item in expression["sources"]]
        shape = _joined_shape(expression["combine"]["op"], expression["combine"]["axis"], shapes)
    else:
        shape = part_shape(expression)
    layout = expression.get("layout", "")
    if not layout.strip():
        return shape
    left, _, right = layout.partition("->")
    sizes: dict[str, int] = {}
    source, target = parse(left, sizes), parse(right, sizes)
    for group, size in zip(source, shape, strict=True):
        unknown = [name for name in group if name not in sizes]
        if len(unknown) == 1:
            sizes[unknown[0]] = size // int(np.prod([sizes[n] for n in group if n in sizes], dtype=int))
    return tuple(int(np.prod([sizes[name] for name in group], dtype=int)) for group in target)
