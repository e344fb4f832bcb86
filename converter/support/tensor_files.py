"""Safetensors folders, read by slices and written shard by shard, with nothing else in memory.

The format is a little-endian u64 header length, a JSON header {name: {dtype, shape, data_offsets}}, then the bytes.
It is read here rather than through a library because shards are checked against their file size before any tensor
is touched, slices are mapped from disk, and bfloat16 and the 8-bit floats arrive as NumPy (ml_dtypes) arrays.
"""

import dataclasses
import json
import math
import mmap
import os
import struct
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import ml_dtypes
import numpy as np

DTYPES = types.MappingProxyType(
    {
        "BOOL": np.dtype(bool),
        "U8": np.dtype(np.uint8),
        "I8": np.dtype(np.int8),
        "U16": np.dtype(np.uint16),
        "I16": np.dtype(np.int16),
        "U32": np.dtype(np.uint32),
        "I32": np.dtype(np.int32),
        "U64": np.dtype(np.uint64),
        "I64": np.dtype(np.int64),
        "F16": np.dtype(np.float16),
        "BF16": np.dtype(ml_dtypes.bfloat16),
        "F32": np.dtype(np.float32),
        "F64": np.dtype(np.float64),
        "C64": np.dtype(np.complex64),
        "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
        "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
        "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    }
)
NAMES = types.MappingProxyType({dtype: name for name, dtype in DTYPES.items()})
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit of the format


class CheckpointError(ValueError):
    """Weights that are missing, damaged or do not fit; the message lists everything that was found."""


@dataclasses.dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies: file, dtype name of the format, shape and the byte range in the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    @property
    def numpy_dtype(self) -> np.dtype:
        return DTYPES[self.dtype]


@dataclasses.dataclass(frozen=True)
class TensorFile:
    """The checked header of one file: its tensors in the order of their bytes, and its metadata."""

    path: Path
    tensors: Mapping[str, TensorEntry]
    metadata: Mapping[str, str]


def read_header(path: Path) -> TensorFile:
    """Read and check the header of a safetensors file.

    Raises CheckpointError where the file is missing, is truncated, or holds ranges that do not fit its tensors.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; the checkpoint is incomplete, download or copy it again")
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(_LENGTH_BYTES)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == _LENGTH_BYTES else size
        if length > min(size - _LENGTH_BYTES, _MAX_HEADER_BYTES):
            raise CheckpointError(f"{path}: {size} bytes hold no whole safetensors header; truncated or another format")
        raw = file.read(length)
    try:
        header = json.loads(raw)
        metadata = header.pop("__metadata__", None) or {}
        entries = {name: _entry(path, name, item, _LENGTH_BYTES + length) for name, item in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path}: damaged safetensors header ({error}); copy the file again") from error
    entries = dict(sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)))
    _check_ranges(path, entries, _LENGTH_BYTES + length, size)
    return TensorFile(path, entries, metadata)


def _entry(path: Path, name: str, item: Mapping, base: int) -> TensorEntry:
    if item["dtype"] not in DTYPES:
        raise CheckpointError(
            f"{path}: {name}: dtype {item['dtype']!r} is not supported; expected one of {list(DTYPES)}"
        )
    start, stop = (base + int(offset) for offset in item["data_offsets"])
    return TensorEntry(path, item["dtype"], tuple(int(n) for n in item["shape"]), start, stop)


def _check_ranges(path: Path, entries: Mapping[str, TensorEntry], start: int, size: int) -> None:
    for name, entry in entries.items():
        expected = math.prod(entry.shape) * entry.numpy_dtype.itemsize
        if min(entry.shape, default=0) < 0 or entry.nbytes != expected:
            raise CheckpointError(
                f"{path}: {name}: {entry.nbytes} bytes for shape {entry.shape} {entry.dtype}, expected {expected}"
            )
        if entry.start != start:
            raise CheckpointError(f"{path}: {name}: bytes start at {entry.start}, expected {start}; damaged header")
        start = entry.stop
    if start != size:
        what = "truncated" if size < start else "longer than its header says"
        raise CheckpointError(f"{path}: {size} bytes, the header needs {start}: the file is {what}; copy it again")


class TensorFolder:
    """All tensors of a folder: `model.safetensors`, an index with shards, or any safetensors files in it.

    Raises CheckpointError listing every missing shard, name without bytes, and name that two files hold.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        paths, listed = _files_of(self.folder)
        missing = [str(path) for path in paths if not path.is_file()]
        if missing:
            raise CheckpointError(f"{self.folder}: missing shards: {missing}; download or copy the checkpoint again")
        self.files = tuple(read_header(path) for path in paths)
        self.entries: dict[str, TensorEntry] = {}
        for file in self.files:
            twice = sorted(self.entries.keys() & file.tensors.keys())
            if twice:
                raise CheckpointError(f"{file.path}: tensors stored in another file too: {twice}")
            self.entries.update(file.tensors)
        absent = sorted(name for name, file in listed.items() if file != self._file_name(name))
        if absent:
            raise CheckpointError(f"{self.folder}: the index lists tensors that their shard does not hold: {absent}")

    def _file_name(self, name: str) -> str | None:
        return self.entries[name].file.name if name in self.entries else None

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def read(self, name: str, index: tuple[slice, ...] | None = None) -> np.ndarray:
        """The tensor, or the part that `index` cuts, as a read-only array mapped from disk (no bytes copied yet)."""
        entry = self.entries[name]
        if entry.nbytes == 0:
            return np.zeros(entry.shape, entry.numpy_dtype)[index or ...]
        offset = entry.start % mmap.ALLOCATIONGRANULARITY
        with entry.file.open("rb") as file:
            # One mapping per tensor, gone with its last view: resident memory never grows to the whole file.
            mapped = mmap.mmap(
                file.fileno(), entry.nbytes + offset, access=mmap.ACCESS_READ, offset=entry.start - offset
            )
        array = np.ndarray(entry.shape, entry.numpy_dtype, buffer=mapped, offset=offset)
        return array[index] if index else array  # an empty index would make a scalar


def _files_of(folder: Path) -> tuple[list[Path], dict[str, str]]:
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    if len(indexes) > 1:
        raise CheckpointError(f"{folder}: several indexes: {[i.name for i in indexes]}; keep the one to load")
    if (folder / "model.safetensors").is_file():  # a whole file wins over an index, as in transformers
        return [folder / "model.safetensors"], {}
    if indexes:
        try:
            listed = dict(json.loads(indexes[0].read_text())["weight_map"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{indexes[0]}: expected JSON with a 'weight_map'; found {error!r}") from error
        return [folder / name for name in sorted(set(listed.values()))], listed
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        others = sorted(path.name for path in folder.glob("*") if path.suffix in {".bin", ".pt", ".pth", ".gguf"})
        found = f"found {others}, which are not read here" if others else "found no weights"
        raise CheckpointError(f"{folder}: expected model.safetensors, or an index with its shards; {found}")
    return paths, {}


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """What will be written under a name: dtype name of the format and shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def spec_of(array) -> TensorSpec:
    """The spec of an array or of anything with `.dtype` and `.shape`."""
    return TensorSpec(NAMES[np.dtype(array.dtype)], tuple(array.shape))


class TensorWriter:
    """One safetensors file, tensors given in any order; it appears under its name only when all are written.

    Bytes are written at their place as they come, so that nothing but the current tensor is held.
    """

    def __init__(self, path: Path, specs: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None):
        self.path, self.specs = path, dict(specs)
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        header: dict[str, dict] = {"__metadata__": dict(metadata)} if metadata else {}
        self.offsets, end = {}, 0
        for name, spec in self.specs.items():
            self.offsets[name], end = end, end + spec.nbytes
            header[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [self.offsets[name], end]}
        raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        raw += b" " * (-len(raw) % _LENGTH_BYTES)
        self.base = _LENGTH_BYTES + len(raw)
        self.left = set(self.specs)
        self.file = self.temporary.open("wb")
        self.file.write(struct.pack("<Q", len(raw)) + raw)
        self.file.truncate(self.base + end)

    def write(self, name: str, array: np.ndarray) -> None:
        """Write one tensor; its dtype and shape must be those announced."""
        if name not in self.left or spec_of(array) != self.specs[name]:
            raise CheckpointError(f"{self.path}: {name}: got {spec_of(array)}, expected {self.specs.get(name)}, once")
        self.file.seek(self.base + self.offsets[name])
        self.file.write(byte_view(array))
        self.left.remove(name)

    def close(self) -> None:
        """Put the finished file in place. Raises CheckpointError naming every tensor that was not written."""
        if self.left:
            raise CheckpointError(f"{self.path}: tensors not written: {sorted(self.left)}")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        self.temporary.replace(self.path)

    def discard(self) -> None:
        """Remove the unfinished file."""
        self.file.close()
        self.temporary.unlink(missing_ok=True)


class FolderWriter:
    """Several files written together: `with FolderWriter(...) as out: out.write(name, array)`.

    `files` gives each file's tensors; where there is more than one file an index is written last. If the block
    raises, no file of it stays.
    """

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, Mapping[str, TensorSpec]],
        metadata: Mapping[str, Mapping[str, str]] = types.MappingProxyType({}),
    ):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.files = files
        self.place = {name: file for file, specs in files.items() for name in specs}
        self.writers = {file: TensorWriter(folder / file, specs, metadata.get(file)) for file, specs in files.items()}

    def __enter__(self) -> Self:
        return self

    def write(self, name: str, array: np.ndarray) -> None:
        """Write one tensor into the file that it was planned for."""
        if name not in self.place:
            raise CheckpointError(f"{self.folder}: {name!r} was not announced")
        self.writers[self.place[name]].write(name, array)

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            if error is None:
                for writer in self.writers.values():
                    writer.close()
                if len(self.files) > 1:
                    write_index(self.folder, self.files)
        finally:
            for writer in self.writers.values():
                writer.discard()


def write_index(folder: Path, files: Mapping[str, Mapping[str, TensorSpec]]) -> None:
    """Write the index that says which file holds which tensor."""
    total = sum(spec.nbytes for specs in files.values() for spec in specs.values())
    place = {name: file for file, specs in files.items() for name in specs}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(place.items()))}
    temporary = folder / f".index.{os.getpid()}.tmp"
    temporary.write_text(json.dumps(index, indent=2) + "\n")
    temporary.replace(folder / "model.safetensors.index.json")


def plan_shards(specs: Mapping[str, TensorSpec], max_bytes: int) -> dict[str, dict[str, TensorSpec]]:
    """Split tensors, in their order, into files of at most `max_bytes` (a larger tensor has its own file)."""
    shards: list[dict[str, TensorSpec]] = [{}]
    used = 0
    for name, spec in specs.items():
        if shards[-1] and used + spec.nbytes > max_bytes:
            shards.append({})
            used = 0
        shards[-1][name] = spec
        used += spec.nbytes
    if len(shards) == 1:
        return {"model.safetensors": shards[0]}
    return {f"model-{i:05}-of-{len(shards):05}.safetensors": shard for i, shard in enumerate(shards, 1)}


def byte_view(array: np.ndarray) -> memoryview:
    """The bytes of an array in C order (a copy only where it is not contiguous)."""
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat).cast("B")


def require_none(kinds: Mapping[str, Iterable[str]], where: str) -> None:
    """Raise CheckpointError with the full lists if any of the named lists is not empty."""
    found = {kind: sorted(names) for kind, names in kinds.items()}
    lines = [f"  {kind} ({len(names)}): {', '.join(names)}" for kind, names in found.items() if names]
    if lines:
        raise CheckpointError("\n".join([f"{where}: the weights do not fit:", *lines]))
