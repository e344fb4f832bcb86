"""Build the weight map of a model from the source's tensors, the module rules, and the emitted package's leaves.

Nothing is guessed: a source tensor without a JAX leaf, a leaf without a source, a stored tensor that nobody reads and
a shape that does not fit are collected, and all of them stand in the one error that is raised.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from maxcode.checkpoint_convert.source_conversions import expressions, with_layout
from maxcode.checkpoint_convert.source_tensors import SourceTensor, SourceTensors
from maxcode.converter.support.axis_layout import LayoutError, parse_layout
from maxcode.converter.support.tensor_files import TensorSpec, require_none
from maxcode.converter.support.weight_map import Piece, Row, Stored, Tie, Waiver, WeightMap

WeightRules = Callable[[str], Mapping[str, tuple[str, str]] | None]


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One parameter or persistent buffer of the emitted model: source-style dotted name, shape, NumPy dtype name."""

    fqn: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Leaf":
        """Read one entry of the list that a package worker prints."""
        return cls(raw["fqn"], tuple(raw["shape"]), raw["dtype"])


@dataclasses.dataclass
class _Faults:
    """Names that do not fit, by what is wrong with them."""

    no_leaf: list[str] = dataclasses.field(default_factory=list)
    no_source: list[str] = dataclasses.field(default_factory=list)
    not_stored: list[str] = dataclasses.field(default_factory=list)
    unused: list[str] = dataclasses.field(default_factory=list)
    misfit: list[str] = dataclasses.field(default_factory=list)

    def raise_if_any(self) -> None:
        require_none(
            {
                "source tensors without a JAX leaf (add a module rule, or waive them with a reason)": self.no_leaf,
                "JAX leaves without a source tensor": self.no_source,
                "source tensors that the checkpoint does not hold": self.not_stored,
                "checkpoint tensors that the source model does not use": self.unused,
                "shapes or dtypes that do not fit": self.misfit,
            },
            "weight map",
        )


def build_map(
    source: SourceTensors,
    rules: WeightRules,
    leaves: Iterable[Leaf],
    stored: Mapping[str, TensorSpec],
    waive: Mapping[str, str] | None = None,
) -> WeightMap:
    """The weight map of a model.

    `rules(qualified class)` gives {torch leaf: (JAX leaf, layout)} or None where the class has no module rule (its
    parameters then map as they are). `stored` are the checkpoint's tensors. `waive` {name: reason} leaves out tensors
    that the caller vouches for. Raises CheckpointError with the full lists of what does not fit, on both sides.
    """
    by_fqn = {leaf.fqn: leaf for leaf in leaves}
    waivers, faults = dict(waive or {}), _Faults()
    rows: dict[str, Row] = {}
    ties: list[Tie] = []
    pieces = _stored_pieces(source, stored)
    for group in _tie_groups(source, waivers):
        owner = _owner_of(group, pieces)
        if owner is None:
            faults.not_stored += [tensor.name for tensor in group]
            continue
        piece = pieces[owner.name]
        others = [_stored_name(tensor.name, pieces) for tensor in group if tensor is not owner]
        ties += [Tie(name, _stored_name(owner.name, pieces), stored.get(name)) for name in others]
        places = [(tensor, *_target_of(tensor, rules)) for tensor in group]
        if not any(target in by_fqn for _, target, _ in places):
            faults.no_leaf += [f"{tensor.name} -> {target}" for tensor, target, _ in places]
        copy = False
        for tensor, target, layout in places:
            if target in rows:
                faults.misfit.append(f"{target}: filled from {tensor.name} and from another tensor")
            elif target in by_fqn:
                rows[target] = Row(target, _fit(piece, layout, tensor, by_fqn[target], faults), copy)
                copy = True
    waived = tuple(Waiver(name, reason) for name, reason in waivers.items())
    waived += _account_for_stored(source, stored, pieces, rows.values(), ties, waivers, faults)
    faults.no_source += [fqn for fqn in by_fqn if fqn not in rows]
    faults.raise_if_any()
    return WeightMap(tuple(rows.values()), tuple(ties), waived)


def _tie_groups(source: SourceTensors, waivers: Mapping[str, str]) -> list[list[SourceTensor]]:
    """Tensors that share their storage, together; most groups have one member."""
    groups: dict[str, list[SourceTensor]] = {}
    for tensor in source.tensors:
        if tensor.name not in waivers:
            groups.setdefault(tensor.same_as or tensor.name, []).append(tensor)
    return list(groups.values())


def _owner_of(group: list[SourceTensor], pieces: Mapping[str, Piece]) -> SourceTensor | None:
    """The member whose tensor the files hold (a file may keep any one of the tied names)."""
    return next((tensor for tensor in group if tensor.name in pieces), None)


def _stored_name(name: str, pieces: Mapping[str, Piece]) -> str:
    piece = pieces.get(name)
    return piece.name if isinstance(piece, Stored) else name


def _target_of(tensor: SourceTensor, rules: WeightRules) -> tuple[str, str]:
    """JAX leaf name and layout: the rule of the nearest class that has one, else the tensor's own name as is."""
    table = next((table for name in tensor.modules if (table := rules(name)) is not None), {})
    leaf, layout = table.get(tensor.leaf, (tensor.leaf, ""))
    return (f"{tensor.owner}.{leaf}" if tensor.owner else leaf), layout


def _stored_pieces(source: SourceTensors, stored: Mapping[str, TensorSpec]) -> dict[str, Piece]:
    """How the files hold each state dict tensor; tensors that they do not hold have no entry."""
    shapes = {tensor.name: tensor.shape for tensor in source.tensors}
    pieces: dict[str, Piece] = {
        name: Stored(name, stored[name].shape, stored[name].dtype) for name in shapes if name in stored
    }
    for conversion in source.conversions:
        pieces |= expressions(conversion, stored, shapes) or {}
    return pieces


def _fit(piece: Piece, layout: str, tensor: SourceTensor, leaf: Leaf, faults: _Faults) -> Piece:
    """The piece with the rule's layout, its open axis lengths settled by the leaf's shape."""
    try:
        if piece.target_shape != tensor.shape:
            faults.misfit.append(f"{tensor.name}: checkpoint gives {piece.target_shape}, the model has {tensor.shape}")
            return piece
        rule = parse_layout(layout)
        bound = rule.bind(tensor.shape, leaf.shape)
        try:
            rule.bind(tensor.shape)
        except LayoutError:  # only the leaf's shape settles a length, so it has to be written down
            layout = str(bound)
        if bound.target_shape(tensor.shape) != leaf.shape:
            faults.misfit.append(f"{tensor.name} {tensor.shape} -> {leaf.fqn} {leaf.shape}: layout {layout!r}")
    except LayoutError as error:
        faults.misfit.append(f"{tensor.name} {tensor.shape} -> {leaf.fqn} {leaf.shape}: {error}")
        return piece
    if _kind(tensor.dtype) != _kind(leaf.dtype):
        faults.misfit.append(f"{tensor.name}: {tensor.dtype} cannot fill {leaf.fqn}, which is {leaf.dtype}")
    if rule.is_identity:
        return piece
    return with_layout(piece, layout)


def _kind(dtype: str) -> str:
    """float, int, bool or complex, for dtype names of safetensors and of NumPy."""
    name = dtype.lower()
    kinds = {"bool": "bool", "c": "complex", "u": "int", "i": "int"}
    return next((kind for start, kind in kinds.items() if name.startswith(start)), "float")


def _account_for_stored(
    source: SourceTensors,
    stored: Mapping[str, TensorSpec],
    pieces: Mapping[str, Piece],
    rows: Iterable[Row],
    ties: Iterable[Tie],
    waivers: Mapping[str, str],
    faults: _Faults,
) -> tuple[Waiver, ...]:
    """Waive stored tensors that the source itself leaves unread; report the others, and tensors only partly read."""
    owned = [part for row in rows if not row.copy for part in row.piece.stored()]
    known = {part.name for piece in pieces.values() for part in piece.stored()}
    known |= {tie.name for tie in ties} | waivers.keys()
    waived = []
    for name in stored.keys() - known:
        pattern = source.ignoring(name)
        if name in source.computed:
            waived.append(Waiver(name, "non-persistent buffer: the source computes it and does not load it"))
        elif pattern is not None:
            waived.append(Waiver(name, f"the source ignores names like {pattern!r} on load"))
        else:
            faults.unused.append(name)
    faults.misfit += _partly_read(owned)
    return tuple(sorted(waived, key=lambda waiver: waiver.name))


def _partly_read(owned: Iterable[Stored]) -> list[str]:
    """Stored tensors that the rows read twice or not wholly."""
    reads: dict[str, list[Stored]] = {}
    for part in owned:
        reads.setdefault(part.name, []).append(part)
    faults = []
    for name, parts in reads.items():
        whole = len(parts) == 1 and parts[0].part is None
        cuts = sorted(part.part for part in parts if part.part is not None)
        axes = {axis for axis, _, _ in cuts}
        if not whole and (len(axes) != 1 or len(cuts) != len(parts) or not _tile(cuts, parts[0].shape)):
            faults.append(f"{name}: its parts {cuts} do not cover it exactly once")
    return faults


def _tile(cuts: list[tuple[int, int, int]], shape: tuple[int, ...]) -> bool:
    ends = [0, *(stop for _, _, stop in cuts)]
    return all(start == end for (_, start, _), end in zip(cuts, ends)) and ends[-1] == shape[cuts[0][0]]
