"""Reading safetensors without unpickling and without a framework, bfloat16 and float8 included."""

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

DTYPES = {
    "F64": np.dtype("f8"), "F32": np.dtype("f4"), "F16": np.dtype("f2"), "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn), "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("i8"), "I32": np.dtype("i4"), "I16": np.dtype("i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("u8"), "U32": np.dtype("u4"), "U16": np.dtype("u2"), "U8": np.dtype("u1"), "BOOL": np.dtype("?"),
}  # fmt: skip


class TensorFile:
    """One safetensors file, mapped into memory: `names()`, `[name]` -> array of the stored dtype."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            if length > size - 8:
                raise ValueError(f"{path}: {size} bytes with a header of {length} is no whole safetensors file")
            self.header = json.loads(file.read(length))
        self.header.pop("__metadata__", None)
        self._data = np.memmap(self.path, np.uint8, "r", offset=8 + length) if size > 8 + length else np.empty(0, "u1")

    def names(self) -> list[str]:
        return list(self.header)

    def __contains__(self, name: str) -> bool:
        return name in self.header

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.header:
            raise KeyError(f"{self.path}: no tensor {name!r}; it holds {len(self.header)}: {self.names()[:5]} …")
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        if end - begin != math.prod(entry["shape"]) * dtype.itemsize or end > self._data.size:
            raise ValueError(f"{self.path}: {name!r} takes bytes {begin}..{end}, the file holds {self._data.size}")
        return np.frombuffer(self._data[begin:end], dtype).reshape(entry["shape"])


class TensorFolder:
    """All safetensors files of a Hugging Face folder (one, or shards) as one mapping name -> array."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        files = sorted(self.folder.glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"{folder}: no *.safetensors; the source's weights were expected there")
        self._where: dict[str, TensorFile] = {}
        for file in map(TensorFile, files):
            for name in file.names():
                if name in self._where:
                    raise ValueError(f"{name!r} is in both {self._where[name].path} and {file.path}")
                self._where[name] = file

    def names(self) -> list[str]:
        return list(self._where)

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._where:
            raise KeyError(f"{self.folder}: no tensor {name!r} in any shard")
        return self._where[name][name]


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray]) -> None:
    """Write arrays of any of DTYPES as one safetensors file."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    header, offset = {}, 0
    arrays = {name: np.ascontiguousarray(value).reshape(np.shape(value)) for name, value in tensors.items()}
    for name, value in arrays.items():
        header[name] = {
            "dtype": names[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + value.nbytes],
        }
        offset += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with Path(path).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in arrays.values():
            file.write(value.tobytes())
