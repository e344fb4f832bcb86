"""The weight map (`weights.json`): how every JAX leaf is made of stored source tensors, and back.

A row is a small expression: a stored tensor, or a part of it; several of them stacked or concatenated; each with an
axis layout. Reading it left to right makes the leaf, reading it right to left makes the stored tensors again.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .axis_layout import Index, LayoutError, parse_layout
from .tensor_files import DTYPES, CheckpointError, TensorSpec, plan_shards

FORMAT = 1
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")  # a whole dotted component: the number of a layer or an expert
Fetch = Callable[[str, Index], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Stored:
    """One stored tensor (`shape`, `dtype` as in its file), or its part `start:stop` of one axis, then a layout."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str = ""
    part: tuple[int, int, int] | None = None  # axis, start, stop
    sha256: str | None = None

    def stored(self) -> Iterator["Stored"]:
        """Every stored tensor that this expression reads."""
        yield self

    @property
    def part_shape(self) -> tuple[int, ...]:
        if self.part is None:
            return self.shape
        axis, start, stop = self.part
        return (*self.shape[:axis], stop - start, *self.shape[axis + 1 :])

    @property
    def target_shape(self) -> tuple[int, ...]:
        return parse_layout(self.layout).target_shape(self.part_shape)

    @property
    def part_index(self) -> Index:
        index = [slice(0, length) for length in self.shape]
        if self.part is not None:
            index[self.part[0]] = slice(self.part[1], self.part[2])
        return tuple(index)

    def gather(self, fetch: Fetch, index: Index) -> np.ndarray:
        """`leaf[index]`, reading through `fetch(name, source index)`."""
        starts = [part.start for part in self.part_index]

        def read(part: Index) -> np.ndarray:
            moved = (slice(p.start + start, p.stop + start) for p, start in zip(part, starts, strict=True))
            return fetch(self.name, tuple(moved))

        return parse_layout(self.layout).take(read, self.part_shape, index)

    def scatter(self, leaf: np.ndarray) -> Iterator[tuple["Stored", np.ndarray]]:
        """The stored tensors (or their parts) that make `leaf`."""
        layout = parse_layout(self.layout).bind(self.part_shape, leaf.shape)
        yield self, layout.inverse().apply(leaf)


@dataclasses.dataclass(frozen=True)
class Combined:
    """Pieces stacked on a new axis, or concatenated along an existing one, then a layout."""

    op: str  # "stack" | "concat"
    axis: int
    pieces: tuple["Piece", ...]
    layout: str = ""

    def stored(self) -> Iterator[Stored]:
        """Every stored tensor that this expression reads."""
        for piece in self.pieces:
            yield from piece.stored()

    @property
    def combined_shape(self) -> tuple[int, ...]:
        shapes = [piece.target_shape for piece in self.pieces]
        if self.op == "stack":
            return (*shapes[0][: self.axis], len(shapes), *shapes[0][self.axis :])
        return (*shapes[0][: self.axis], sum(shape[self.axis] for shape in shapes), *shapes[0][self.axis + 1 :])

    @property
    def target_shape(self) -> tuple[int, ...]:
        return parse_layout(self.layout).target_shape(self.combined_shape)

    def gather(self, fetch: Fetch, index: Index) -> np.ndarray:
        """`leaf[index]`, reading only the pieces that the index touches."""

        def read(part: Index) -> np.ndarray:
            out = np.empty([p.stop - p.start for p in part], DTYPES[next(self.stored()).dtype])
            for piece, inner, place in self._cuts(part) if out.size else ():
                out[place] = piece.gather(fetch, inner)
            return out

        return parse_layout(self.layout).take(read, self.combined_shape, index)

    def _cuts(self, part: Index) -> Iterator[tuple["Piece", Index, Index]]:
        """For every piece that `part` touches: the index into the piece and its place in the result."""
        before, wanted, after = part[: self.axis], part[self.axis], part[self.axis + 1 :]
        around = tuple(slice(None) for _ in before)
        start = 0
        for piece in self.pieces:
            length = 1 if self.op == "stack" else piece.target_shape[self.axis]
            low, high = max(wanted.start, start), min(wanted.stop, start + length)
            if low < high:
                place = (*around, slice(low - wanted.start, high - wanted.start))
                if self.op == "stack":
                    yield piece, (*before, *after), (*around, low - wanted.start)
                else:
                    yield piece, (*before, slice(low - start, high - start), *after), place
            start += length

    def scatter(self, leaf: np.ndarray) -> Iterator[tuple[Stored, np.ndarray]]:
        """The stored tensors (or their parts) that make `leaf`."""
        whole = parse_layout(self.layout).bind(self.combined_shape, leaf.shape).inverse().apply(leaf)
        around = (slice(None),) * self.axis
        start = 0
        for piece in self.pieces:
            length = 1 if self.op == "stack" else piece.target_shape[self.axis]
            place = start if self.op == "stack" else slice(start, start + length)
            yield from piece.scatter(whole[(*around, place)])
            start += length


Piece = Stored | Combined


@dataclasses.dataclass(frozen=True)
class Row:
    """One JAX leaf (in source-style dotted naming) and the expression that makes it."""

    target: str
    piece: Piece
    copy: bool = False  # made of tensors that another row owns (tied weights); skipped on the way back

    @property
    def shape(self) -> tuple[int, ...]:
        return self.piece.target_shape


@dataclasses.dataclass(frozen=True)
class Tie:
    """A source name that holds the same values as another; `stored` gives its spec where the files repeat it."""

    name: str
    same_as: str
    stored: TensorSpec | None = None


@dataclasses.dataclass(frozen=True)
class Waiver:
    """A source tensor that has no JAX leaf, and why that is right."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """One file of the source checkpoint: its tensors in the order of their bytes, and its metadata."""

    name: str
    tensors: tuple[str, ...]
    metadata: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class WeightMap:
    """The whole map of a model; the contents of `weights.json`."""

    rows: tuple[Row, ...]
    tied: tuple[Tie, ...] = ()
    waived: tuple[Waiver, ...] = ()
    files: tuple[SourceFile, ...] = ()

    def specs(self) -> dict[str, TensorSpec]:
        """Every source tensor that the rows and stored ties account for."""
        found = {s.name: TensorSpec(s.dtype, s.shape) for row in self.rows for s in row.piece.stored()}
        return found | {tie.name: tie.stored for tie in self.tied if tie.stored is not None}

    def leaves_out(self, name: str) -> bool:
        """Whether a stored name is tied or waived (in any layer)."""
        return any_number(name) in {any_number(item.name) for item in (*self.tied, *self.waived)}

    def source_files(
        self, specs: Mapping[str, TensorSpec], max_bytes: int
    ) -> tuple[dict[str, dict[str, TensorSpec]], dict[str, Mapping[str, str]]]:
        """Files to write the source's tensors to, and their metadata: cut as the source was, if it had these."""
        recorded = {file.name: {name: specs[name] for name in file.tensors if name in specs} for file in self.files}
        if sorted(name for names in recorded.values() for name in names) == sorted(specs):
            return recorded, {file.name: file.metadata for file in self.files}
        files = plan_shards(dict(sorted(specs.items())), max_bytes)
        return files, {file: {"format": "pt"} for file in files}

    def to_json(self) -> dict[str, Any]:
        """The map as plain JSON values."""
        return {
            "format": FORMAT,
            "source": {"files": [dataclasses.asdict(file) for file in self.files]},
            "rows": [
                {"target": row.target, **piece_to_json(row.piece), **({"copy": True} if row.copy else {})}
                for row in self.rows
            ],
            "tied": [_tie_json(tie) for tie in self.tied],
            "waived": [{"source": waiver.name, "reason": waiver.reason} for waiver in self.waived],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "WeightMap":
        """The inverse of `to_json`. Raises CheckpointError on another format number."""
        if raw.get("format") != FORMAT:
            raise CheckpointError(f"weights.json has format {raw.get('format')!r}, expected {FORMAT}; convert again")
        return cls(
            rows=tuple(Row(item["target"], piece_from_json(item), item.get("copy", False)) for item in raw["rows"]),
            tied=tuple(_tie(item) for item in raw["tied"]),
            waived=tuple(Waiver(item["source"], item["reason"]) for item in raw["waived"]),
            files=tuple(
                SourceFile(file["name"], tuple(file["tensors"]), file["metadata"]) for file in raw["source"]["files"]
            ),
        )

    def save(self, path: Path) -> None:
        """Write the map, replacing an older one only when the new one is whole."""
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(json.dumps(self.to_json(), indent=1) + "\n")
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> "WeightMap":
        """Read `weights.json`. Raises CheckpointError where it is missing or not such a file."""
        try:
            return cls.from_json(json.loads(path.read_text()))
        except FileNotFoundError:
            raise CheckpointError(f"{path}: no weight map; expected beside the package") from None
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: not a weight map ({error!r}); convert again") from error


def piece_to_json(piece: Piece) -> dict[str, Any]:
    if isinstance(piece, Combined):
        combine = {"op": piece.op, "axis": piece.axis}
        return {"sources": [piece_to_json(p) for p in piece.pieces], "combine": combine, "layout": piece.layout}
    part = {"part": list(piece.part)} if piece.part is not None else {}
    out = {"source": piece.name, "layout": piece.layout, "shape": list(piece.shape), "dtype": piece.dtype, **part}
    return out | ({"sha256": piece.sha256} if piece.sha256 is not None else {})


def piece_from_json(item: Mapping[str, Any]) -> Piece:
    if "sources" in item:
        pieces = tuple(piece_from_json(p) for p in item["sources"])
        return Combined(item["combine"]["op"], item["combine"]["axis"], pieces, item["layout"])
    part = tuple(item["part"]) if "part" in item else None
    return Stored(item["source"], tuple(item["shape"]), item["dtype"], item["layout"], part, item.get("sha256"))


def _tie_json(tie: Tie) -> dict[str, Any]:
    spec = {"dtype": tie.stored.dtype, "shape": list(tie.stored.shape)} if tie.stored else {}
    return {"source": tie.name, "same_as": tie.same_as, **spec}


def _tie(item: Mapping[str, Any]) -> Tie:
    stored = TensorSpec(item["dtype"], tuple(item["shape"])) if "dtype" in item else None
    return Tie(item["source"], item["same_as"], stored)


def any_number(name: str) -> str:
    """The name with every layer or expert number replaced by `#`."""
    return _NUMBER.sub("#", name)


def resize_row(row: Row, target: str, shape: tuple[int, ...], stored: Mapping[str, TensorSpec] | None) -> Row:
    """The row of another layer number or of other sizes, for a leaf `target` of `shape`.

    `stored` are the tensors at hand (loading); without them the stored shapes follow from the leaf's (saving). Parts
    and combined tensors keep their sizes. Raises CheckpointError where the row cannot serve.
    """
    numbers = list(zip(_NUMBER.findall(row.target), _NUMBER.findall(target)))
    piece = row.piece if row.target == target else _renumber(row.piece, numbers)
    if stored is not None:
        return Row(target, _with_shapes(piece, stored), row.copy)
    if isinstance(piece, Stored) and piece.part is None and piece.target_shape != shape:
        try:
            layout = parse_layout(piece.layout)
            piece = dataclasses.replace(
                piece, shape=layout.bind(None, shape).inverse().target_shape(shape), sha256=None
            )
        except LayoutError as error:
            raise CheckpointError(f"{target}: {error}; convert again at this size") from error
    if piece.target_shape != shape:
        raise CheckpointError(f"{target}: shape {shape}, the weight map has {piece.target_shape}; convert at this size")
    return Row(target, piece, row.copy)


def _renumber(piece: Piece, numbers: list[tuple[str, str]]) -> Piece:
    """The piece with the target's numbers (old, new) replaced in its names, in their order; further numbers stay."""
    if isinstance(piece, Combined):
        return dataclasses.replace(piece, pieces=tuple(_renumber(p, numbers) for p in piece.pieces))
    places = iter(numbers)

    def swap(match: re.Match) -> str:
        old, new = next(places, (None, ""))
        return new if match[0] == old else match[0]

    return dataclasses.replace(piece, name=_NUMBER.sub(swap, piece.name), sha256=None)


def _with_shapes(piece: Piece, stored: Mapping[str, TensorSpec]) -> Piece:
    if isinstance(piece, Combined):
        return dataclasses.replace(piece, pieces=tuple(_with_shapes(p, stored) for p in piece.pieces))
    spec = stored.get(piece.name)
    if spec is None or (spec.shape == piece.shape and spec.dtype == piece.dtype):
        return piece
    if piece.part is not None and spec.shape != piece.shape:
        raise CheckpointError(f"{piece.name}: shape {spec.shape}, converted at {piece.shape}; convert at this size")
    return dataclasses.replace(piece, shape=spec.shape, dtype=spec.dtype)
