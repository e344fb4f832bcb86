"""`weights`: the two-sided ledger, and JAX -> HF byte for byte."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx

from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.ledger import Piece, Row
from maxcode.evaluator.package import PackageError, value_of, variable
from maxcode.evaluator.tensors import DTYPES, TensorFolder
from maxcode.evaluator.verdict import Check

SHOWN = 5


@check("weights", group="plain", cheap=True)
def weights(context: Context) -> Check:
    """Every source tensor used once or waived, every JAX leaf filled once, JAX -> HF byte-identical.

    The bytes are compared twice: as loaded from the source's files, and from the package's own `weights/`.
    """
    weight_map = context.package.weight_map()
    source = TensorFolder(context.source)
    rows = Row.all(weight_map)
    overrides = storage_overrides(context, source)
    model = context.package.build(**overrides)
    faults = [*_names(weight_map, rows, source), *_leaves(rows, model), *_bytes(rows, model, source)]
    del model  # one model in memory at a time
    own = context.package.delivered(**overrides)
    if own is not None:
        faults += [f"weights/: {fault}" for fault in _bytes(rows, own, source)]
    context.save_evidence("weights", {"rows": weight_map["rows"], "faults": faults})
    shown = "; ".join(faults[:SHOWN]) + (f"; {len(faults) - SHOWN} more" if len(faults) > SHOWN else "")
    detail = shown or f"{len(rows)} leaves of {len(source.names())} tensors, {_size(source):,} bytes identical"
    detail += "" if shown or own is None else ", in weights/ too"
    return Check.of("weights", len(faults), 0, detail)


def _size(source: TensorFolder) -> int:
    return sum(source[name].nbytes for name in source)


def storage_overrides(context: Context, source: TensorFolder) -> dict[str, Any]:
    """Storage wide enough that no source value is rounded, unscanned so that every leaf has one name."""
    wide = any(source[name].dtype == np.float64 for name in source)
    dtype = "float64" if wide and jax.config.jax_enable_x64 else "float32"
    return context.package.overrides(dtype, scan_layers=False)


def _names(weight_map: dict[str, Any], rows: list[Row], source: TensorFolder) -> Iterator[str]:
    """Source tensors used not at all or twice, waived without a reason, or not there; ties that are none."""
    waived, tied = weight_map.get("waived", []), weight_map.get("tied", [])
    yield from (f"{w['source']} is waived without a reason" for w in waived if not w.get("reason"))
    used = Counter(name for row in rows if not row.copy for name in set(row.sources()))
    known = set(used) | {w["source"] for w in waived} | {t["source"] for t in tied}
    yield from (f"source tensor {name} is not used" for name in source if name not in known)
    yield from (f"weights.json reads {name}, which the source lacks" for name in used if name not in source)
    for tie in tied:
        if tie["source"] in source and tie["same_as"] in source:
            if source[tie["source"]].tobytes() != source[tie["same_as"]].tobytes():
                yield f"{tie['source']} is called tied to {tie['same_as']}, their bytes differ"
        elif tie["same_as"] not in used and tie["same_as"] not in known:
            yield f"{tie['source']} is tied to {tie['same_as']}, which no row fills"


def _leaves(rows: list[Row], model: nnx.Module) -> Iterator[str]:
    """JAX leaves filled twice or never."""
    filled: dict[int, str] = {}
    for row in rows:
        try:
            leaf = variable(model, row.target)
        except PackageError as error:
            yield str(error)
            continue
        if id(leaf) in filled:
            yield f"{row.target} is filled by the row of {filled[id(leaf)]} and again by {row.sources()[:2]}"
        filled[id(leaf)] = row.target
    for path, leaf in nnx.iter_graph(model):
        if isinstance(leaf, nnx.Variable) and not isinstance(leaf, nnx.RngState) and id(leaf) not in filled:
            yield f"leaf {'.'.join(map(str, path))} is filled by no row"


def _bytes(rows: list[Row], model: nnx.Module, source: TensorFolder) -> Iterator[str]:
    """Rebuild every source tensor from the leaves and compare bytes; parts must cover their tensor exactly once."""
    covered: Counter[str] = Counter()
    shown: set[str] = set()
    for row in (row for row in rows if not row.copy):
        try:
            for piece in row.pieces(np.asarray(value_of(variable(model, row.target)))):
                covered[piece.source] += piece.value.size
                if piece.source in source and (fault := _piece_fault(row, piece, source[piece.source])):
                    yield fault
        except (PackageError, ValueError) as error:
            yield str(error)
            shown |= set(row.sources())
    for name, size in covered.items():
        if name in source and name not in shown and size != source[name].size:
            yield f"source tensor {name}: {size} of {source[name].size} values are used (each must be, once)"


def _piece_fault(row: Row, piece: Piece, stored: np.ndarray) -> str | None:
    if stored.shape != piece.shape or (piece.dtype and DTYPES.get(piece.dtype) != stored.dtype):
        return f"{piece.source}: weights.json has {piece.dtype} {piece.shape}, the source {stored.dtype} {stored.shape}"
    if piece.part:
        axis, start, stop = piece.part
        stored = stored[(slice(None),) * axis + (slice(start, stop),)]
    if piece.value.astype(stored.dtype).tobytes() == stored.tobytes():
        return None
    gap = np.abs(piece.value.astype(np.float64) - stored.astype(np.float64)).max(initial=0.0)
    return f"{piece.source} <- {row.target}: bytes differ (max |difference| {gap:.3g})"
