"""Stream weights between a source checkpoint and a converted package, both directions, and keep the ledger."""

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from maxcode.converter.support.source_writer import WAIVED, copy_side_files, write_source
from maxcode.converter.support.tensor_files import (
    CheckpointError,
    FolderWriter,
    TensorFolder,
    TensorSpec,
    byte_view,
    plan_shards,
    require_none,
    write_index,
)
from maxcode.converter.support.weight_map import Combined, Piece, SourceFile, WeightMap

SHARD_BYTES = 2_000_000_000
MAP, WEIGHTS = "weights.json", "weights"
_PLAN = ".plan"  # which conversion the shards beside it belong to, while it runs
Progress = Callable[[str, int, int], None]  # item, done, total (bytes)


@dataclasses.dataclass(frozen=True)
class WeightsReport:
    """The ledger of one conversion: what was filled from what, and what was left out for which reason."""

    rows: int
    tied: tuple[tuple[str, str], ...]
    waived: tuple[tuple[str, str], ...]
    source_tensors: int
    source_bytes: int
    written_bytes: int
    files: tuple[str, ...]
    resumed: tuple[str, ...]
    seconds: float
    changed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return dataclasses.asdict(self)


def convert_weights(
    source: Path,
    weight_map: WeightMap,
    out: Path,
    *,
    max_shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> tuple[WeightMap, WeightsReport]:
    """Write `out/weights/` in JAX names and layouts from a source folder, and `out/weights.json` with checksums.

    Stored dtypes are kept; waived tensors are copied to `out/waived/`. One leaf is in memory at a time; shards that an
    interrupted run of the same conversion has finished are kept. Raises CheckpointError for damaged files and for
    tensors that the map does not account for.
    """
    started = time.monotonic()
    files = TensorFolder(source)
    _check_account(weight_map, files)
    specs = {row.target: TensorSpec(_dtype(row.piece), row.shape) for row in weight_map.rows}
    shards = plan_shards(specs, max_shard_bytes)
    rows = {row.target: row for row in weight_map.rows}
    read = _Hashing(files)
    total, done = sum(spec.nbytes for spec in specs.values()), 0
    resumed = _finished_shards(out / WEIGHTS, shards, _fingerprint(weight_map, files, shards))
    for shard, tensors in shards.items():
        if shard in resumed:
            done += sum(spec.nbytes for spec in tensors.values())
            continue
        with FolderWriter(out / WEIGHTS, {shard: tensors}) as writer:
            for name, spec in tensors.items():
                index = tuple(slice(0, length) for length in spec.shape)
                writer.write(name, rows[name].piece.gather(read, index))
                done += spec.nbytes
                if progress is not None:
                    progress(name, done, total)
    if len(shards) > 1:
        write_index(out / WEIGHTS, shards)
    _keep_waived(weight_map, files, out / WAIVED)
    (out / WEIGHTS / _PLAN).unlink()
    finished = _with_checksums(weight_map, files, read)
    finished.save(out / MAP)
    report = WeightsReport(
        rows=len(finished.rows),
        tied=tuple((tie.name, tie.same_as) for tie in finished.tied),
        waived=tuple((waiver.name, waiver.reason) for waiver in finished.waived),
        source_tensors=len(files.entries),
        source_bytes=sum(entry.nbytes for entry in files.entries.values()),
        written_bytes=total,
        files=tuple(shards),
        resumed=tuple(resumed),
        seconds=time.monotonic() - started,
    )
    return finished, report


def _check_account(weight_map: WeightMap, files: TensorFolder) -> None:
    """Every stored tensor is read, tied or waived; every tensor that the map reads is there, with its shape."""
    expected = weight_map.specs()
    entries = files.entries
    known = expected.keys() | {item.name for item in (*weight_map.tied, *weight_map.waived)}
    wrong = [
        f"{name}: {entries[name].dtype} {entries[name].shape}, expected {spec.dtype} {spec.shape}"
        for name, spec in expected.items()
        if name in entries and (entries[name].dtype, entries[name].shape) != (spec.dtype, spec.shape)
    ]
    differing = [
        f"{tie.name} and {tie.same_as}"
        for tie in weight_map.tied
        if tie.stored is not None
        and tie.name in files
        and tie.same_as in files
        and not _same_bytes(files, tie.name, tie.same_as)
    ]
    require_none(
        {
            "missing": expected.keys() - entries.keys(),
            "unused": entries.keys() - known,
            "other shape or dtype": wrong,
            "tied by the source, but stored with other values": differing,
        },
        str(files.folder),
    )


def _same_bytes(files: TensorFolder, first: str, second: str) -> bool:
    return byte_view(files.read(first)) == byte_view(files.read(second))


def _dtype(piece: Piece) -> str:
    dtypes = sorted({part.dtype for part in piece.stored()})
    if len(dtypes) != 1:
        names = [part.name for part in piece.stored()]
        raise CheckpointError(f"one leaf is made of tensors of several dtypes {dtypes}: {names}")
    return dtypes[0]


def _keep_waived(weight_map: WeightMap, files: TensorFolder, folder: Path) -> None:
    """Copy the source's tensors that have no leaf, so that the way back loses nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    names = [waiver.name for waiver in weight_map.waived if waiver.name in files]
    if names:
        specs = {name: TensorSpec(files.entries[name].dtype, files.entries[name].shape) for name in names}
        with FolderWriter(folder, plan_shards(specs, SHARD_BYTES)) as writer:
            for name in names:
                writer.write(name, files.read(name))


class _Hashing:
    """Reads tensors and takes the SHA-256 of each the first time, while its pages are at hand."""

    def __init__(self, files: TensorFolder):
        self.files = files
        self.sums: dict[str, str] = {}

    def __call__(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        self.sum(name)
        return self.files.read(name, index)

    def sum(self, name: str) -> str:
        """The tensor's SHA-256."""
        if name not in self.sums:
            self.sums[name] = sha256(self.files.read(name))
        return self.sums[name]


def _fingerprint(weight_map: WeightMap, files: TensorFolder, shards: Mapping[str, Any]) -> str:
    """Changes with the map, the source's files and the cut into shards."""
    stats = [(file.path.name, file.path.stat().st_size, file.path.stat().st_mtime_ns) for file in files.files]
    what = json.dumps([weight_map.to_json(), stats, {name: list(tensors) for name, tensors in shards.items()}])
    return hashlib.sha256(what.encode()).hexdigest()


def _finished_shards(folder: Path, shards: Mapping[str, Any], fingerprint: str) -> list[str]:
    """Shards that an interrupted run of this very conversion left; what another run left is removed.

    The fingerprint lies beside the shards only while they are being written, so that the result depends on nothing but
    the source.
    """
    plan = folder / _PLAN
    folder.mkdir(parents=True, exist_ok=True)
    if plan.is_file() and plan.read_text() == fingerprint:
        return [shard for shard in shards if (folder / shard).is_file()]
    for path in folder.glob("model*.safetensors*"):
        path.unlink()
    plan.write_text(fingerprint)
    return []


def _with_checksums(weight_map: WeightMap, files: TensorFolder, read: _Hashing) -> WeightMap:
    """The map with each stored tensor's SHA-256 and the source's cut into files."""

    def mark(piece: Piece) -> Piece:
        if isinstance(piece, Combined):
            return dataclasses.replace(piece, pieces=tuple(mark(p) for p in piece.pieces))
        return dataclasses.replace(piece, sha256=read.sum(piece.name))

    rows = tuple(dataclasses.replace(row, piece=mark(row.piece)) for row in weight_map.rows)
    source = tuple(SourceFile(file.path.name, tuple(file.tensors), dict(file.metadata)) for file in files.files)
    return dataclasses.replace(weight_map, rows=rows, files=source)


def sha256(array: np.ndarray) -> str:
    """SHA-256 of an array's bytes in C order."""
    return hashlib.sha256(byte_view(array)).hexdigest()


def to_hf(package: Path, out: Path) -> WeightsReport:
    """Write a Hugging Face folder from a converted package: the source's names, dtypes, files and side files.

    `out` must not exist or be empty; it appears only when it is whole. The report's `changed` lists tensors whose bytes
    are no longer the source's (none, unless the package's weights were trained). Raises CheckpointError for a folder
    that is no converted package and for damaged weights.
    """
    started = time.monotonic()
    if not (package / MAP).is_file() or not (package / WEIGHTS).is_dir():
        raise CheckpointError(f"{package}: expected {MAP} and {WEIGHTS}/, as `maxcode convert` writes them")
    if out.exists() and any(out.iterdir()):
        raise CheckpointError(f"{out}: not empty; give a new folder")
    weight_map = WeightMap.load(package / MAP)
    files = TensorFolder(package / WEIGHTS)
    _check_leaves(weight_map, files)
    sums = {part.name: part.sha256 for row in weight_map.rows for part in row.piece.stored()}
    sums |= {tie.name: sums.get(tie.same_as) for tie in weight_map.tied}
    changed: list[str] = []

    def compare(name: str, values: np.ndarray) -> None:
        if sums[name] != sha256(values):
            changed.append(name)

    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        written = write_source(weight_map, weight_map.rows, temporary, files.read, compare, package / WAIVED)
        copy_side_files(package, temporary)
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return WeightsReport(
        rows=len(weight_map.rows),
        tied=tuple((tie.name, tie.same_as) for tie in weight_map.tied),
        waived=tuple((waiver.name, waiver.reason) for waiver in weight_map.waived),
        source_tensors=sum(map(len, written.values())),
        source_bytes=sum(entry.nbytes for entry in files.entries.values()),
        written_bytes=sum(spec.nbytes for specs in written.values() for spec in specs.values()),
        files=tuple(written),
        resumed=(),
        changed=tuple(changed),
        seconds=time.monotonic() - started,
    )


def _check_leaves(weight_map: WeightMap, files: TensorFolder) -> None:
    shapes = {row.target: row.shape for row in weight_map.rows}
    entries = files.entries
    require_none(
        {
            "missing": shapes.keys() - entries.keys(),
            "unexpected": entries.keys() - shapes.keys(),
            "other shape": [
                f"{name}: {entries[name].shape}, expected {shape}"
                for name, shape in shapes.items()
                if name in entries and entries[name].shape != shape
            ],
        },
        str(files.folder),
    )
