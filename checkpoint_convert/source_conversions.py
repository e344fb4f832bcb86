"""Checkpoint tensors that the source framework renames, merges or splits while loading, as weight map expressions.

The oracle process writes down what the framework would do (it alone can ask it); nothing is loaded here. A conversion:
`{"targets": [state dict names], "sources": [[stored names] per pattern], "operations": [[name, {attribute: value}]]}`.
Every operation is a rearrangement, so the way back follows from the expression.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from maxcode.converter.support.tensor_files import CheckpointError, TensorSpec
from maxcode.converter.support.weight_map import Combined, Piece, Stored

Groups = list[list[Piece]]
_AXES = "abcdefgh"


@dataclasses.dataclass(frozen=True)
class Conversion:
    """How one or several state dict tensors are made of stored tensors."""

    targets: tuple[str, ...]
    sources: tuple[tuple[str, ...], ...]
    operations: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Conversion":
        """Read one entry of `conversions` in tensors.json."""
        operations = tuple((name, dict(attributes)) for name, attributes in raw.get("operations", ()))
        return cls(tuple(raw["targets"]), tuple(map(tuple, raw["sources"])), operations)


def expressions(
    conversion: Conversion, stored: Mapping[str, TensorSpec], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Piece] | None:
    """The expression of every target; None where a stored tensor is not there.

    `shapes` are the state dict's. Raises CheckpointError for an operation that is no known rearrangement.
    """
    if any(name not in stored for names in conversion.sources for name in names):
        return None
    groups: Groups = [
        [Stored(name, stored[name].shape, stored[name].dtype) for name in names] for names in conversion.sources
    ]
    targets = [shapes[name] for name in conversion.targets]
    for name, attributes in conversion.operations:
        if name not in _OPERATIONS:
            raise CheckpointError(
                f"{conversion.targets[0]}: the source's loading operation {name!r} is not known here; known: "
                f"{sorted(_OPERATIONS)}; save the model with save_pretrained(..., save_original_format=False) first"
            )
        groups = _OPERATIONS[name](groups, attributes, targets)
    pieces = [piece for group in groups for piece in group]
    if len(pieces) != len(conversion.targets):
        raise CheckpointError(f"{conversion.targets}: {len(pieces)} tensors come out of {conversion.operations}")
    return dict(zip(conversion.targets, pieces))


def _merge(groups: Groups, attributes: Mapping[str, Any], targets: Sequence[tuple[int, ...]]) -> Groups:
    return [[Combined("stack", attributes.get("dim", 0), tuple(group))] for group in groups]


def _concatenate(groups: Groups, attributes: Mapping[str, Any], targets: Sequence[tuple[int, ...]]) -> Groups:
    return [[Combined("concat", attributes.get("dim", 0), tuple(piece for group in groups for piece in group))]]


def _split(groups: Groups, attributes: Mapping[str, Any], targets: Sequence[tuple[int, ...]]) -> Groups:
    (piece,) = (piece for group in groups for piece in group)
    axis = attributes.get("dim", 0)
    if not isinstance(piece, Stored) or piece.part is not None or piece.layout:
        raise CheckpointError(f"splitting is known for stored tensors only, not after other operations: {piece}")
    ends = [0]
    for shape in targets:
        ends.append(ends[-1] + shape[axis])
    if ends[-1] != piece.shape[axis]:
        raise CheckpointError(f"{piece.name} {piece.shape}: parts of lengths {ends} do not make axis {axis}")
    return [[dataclasses.replace(piece, part=(axis, start, stop))] for start, stop in itertools.pairwise(ends)]


def _split_list(groups: Groups, attributes: Mapping[str, Any], targets: Sequence[tuple[int, ...]]) -> Groups:
    """One stored tensor into one target per index: length-one parts whose axis is dropped."""
    (piece,) = (piece for group in groups for piece in group)
    axis = attributes.get("dim", 0)
    widened = [(*shape[:axis], 1, *shape[axis:]) for shape in targets]
    parts = [part for group in _split([[piece]], attributes, widened) for part in group]
    names = [_AXES[i] for i in range(len(piece.target_shape) - 1)]
    layout = f"{' '.join([*names[:axis], '1', *names[axis:]])} -> {' '.join(names)}"
    return [[dataclasses.replace(part, layout=layout)] for part in parts]


def _transpose(groups: Groups, attributes: Mapping[str, Any], targets: Sequence[tuple[int, ...]]) -> Groups:
    def swap(piece: Piece) -> Piece:
        shape = piece.target_shape
        if attributes.get("check_dims") and shape == targets[0]:
            return piece
        names = list(_AXES[: len(shape)])
        first, second = attributes.get("dim0", 0), attributes.get("dim1", 1)
        swapped = list(names)
        swapped[first], swapped[second] = names[second], names[first]
        return with_layout(piece, f"{' '.join(names)} -> {' '.join(swapped)}")

    return [[swap(piece) for piece in group] for group in groups]


def _interleave(groups: Groups, attributes: Mapping[str, Any], targets: Sequence[tuple[int, ...]]) -> Groups:
    def mix(piece: Piece) -> Piece:
        names = list(_AXES[: len(piece.target_shape)])
        axis = attributes.get("dim", 0)
        pair, rest = "two=2", names[axis]
        before, after = (
            (f"({pair} {rest})", f"({rest} two)")
            if attributes.get("inverse")
            else (
                f"({rest} {pair})",
                f"(two {rest})",
            )
        )
        left, right = list(names), list(names)
        left[axis], right[axis] = before, after
        return with_layout(piece, f"{' '.join(left)} -> {' '.join(right)}")

    return [[mix(piece) for piece in group] for group in groups]


def with_layout(piece: Piece, layout: str) -> Piece:
    """The piece, rearranged once more."""
    if piece.layout:
        return Combined("concat", 0, (piece,), layout)
    return dataclasses.replace(piece, layout=layout)


_OPERATIONS: Mapping[str, Callable[[Groups, Mapping[str, Any], Sequence[tuple[int, ...]]], Groups]] = {
    "MergeModulelist": _merge,
    "SplitModulelist": _split_list,
    "Concatenate": _concatenate,
    "Chunk": _split,  # equal parts, as the targets' shapes say
    "Split": _split,
    "Transpose": _transpose,
    "Interleave": _interleave,
}
