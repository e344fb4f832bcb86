"""Write a Hugging Face folder back from JAX leaves: the source's names, layouts, dtypes, files and side files."""

import math
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from .tensor_files import DTYPES, CheckpointError, FolderWriter, TensorFolder, TensorSpec
from .weight_map import Row, WeightMap

WAIVED = "waived"  # folder beside the package with the source's tensors that have no leaf
SHARD_BYTES = 5_000_000_000  # where the source's own cut into files does not apply
_SIDE_FILES = (
    "config.json",
    "generation_config.json",
    "LICENSE*",
    "*token*",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.jinja",
)


def write_source(
    weight_map: WeightMap,
    rows: Iterable[Row],
    folder: Path,
    read_leaf: Callable[[str], np.ndarray],
    note: Callable[[str, np.ndarray], None] | None = None,
    waived: Path | None = None,
) -> dict[str, dict[str, TensorSpec]]:
    """Write the source's tensors, made of the leaves, into files cut as the source's own were; returns the files.

    `note(name, values)` sees every tensor as it is written. `waived`, if it exists, holds tensors of the source that
    have no leaf; they are copied.
    """
    rows = list(rows)
    specs = WeightMap(tuple(rows), weight_map.tied).specs()
    kept = TensorFolder(waived) if waived is not None and waived.is_dir() else None
    if kept is not None:
        specs |= {name: TensorSpec(entry.dtype, entry.shape) for name, entry in kept.entries.items()}
    files, metadata = weight_map.source_files(specs, SHARD_BYTES)
    repeated: dict[str, list[str]] = {}
    for tie in weight_map.tied:
        if tie.stored is not None:
            repeated.setdefault(tie.same_as, []).append(tie.name)
    with FolderWriter(folder, files, metadata) as out:
        for name, values in write_back(rows, read_leaf):
            for written in (name, *repeated.get(name, ())):
                out.write(written, values)
                if note is not None:
                    note(written, values)
        if kept is not None:
            for name in kept.entries:
                out.write(name, kept.read(name))
    return files


def write_back(rows: Iterable[Row], read_leaf: Callable[[str], np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """The stored source tensors, made of the leaves; one leaf is read at a time.

    A stored tensor whose parts lie in several leaves is held until its last part has come. Values are cast to the
    stored dtype.
    """
    open_tensors: dict[str, tuple[np.ndarray, int]] = {}
    for row in rows:
        if row.copy:
            continue
        for stored, values in row.piece.scatter(read_leaf(row.target)):
            values = values.astype(DTYPES[stored.dtype], copy=False)
            if stored.part is None:
                yield stored.name, values
                continue
            whole, left = open_tensors.pop(stored.name, (None, math.prod(stored.shape)))
            whole = np.empty(stored.shape, values.dtype) if whole is None else whole
            whole[stored.part_index] = values
            left -= values.size
            if left:
                open_tensors[stored.name] = whole, left
            else:
                yield stored.name, whole
    if open_tensors:
        raise CheckpointError(f"weight map: no row holds the rest of {sorted(open_tensors)}; convert again")


def copy_side_files(source: Path, folder: Path) -> None:
    """Copy configuration, licence and tokenizer files."""
    for path in sorted({path for pattern in _SIDE_FILES for path in source.glob(pattern) if path.is_file()}):
        if path.resolve() != (folder / path.name).resolve():
            shutil.copyfile(path, folder / path.name)
