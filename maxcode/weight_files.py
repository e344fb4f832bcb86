"""Cheap checks of weight files, by their headers: no tensor is read and nothing is unpickled."""

import json
import math
import struct
from pathlib import Path
from typing import Any

from maxcode.errors import MaxCodeError

_MAX_HEADER = 100_000_000
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "I16": 16, "U16": 16, "F16": 16,
    "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_AGAIN = "download or copy the file again"


def read_safetensors_header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file, checked against its size: name -> {"dtype", "shape", "data_offsets"}.

    Raises:
      MaxCodeError: the file is missing, truncated or corrupt.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else -1
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                found = f"{size} bytes with a header of {length} bytes" if length >= 0 else f"{size} bytes"
                raise _damaged(path, f"not a safetensors file, or truncated ({found})")
            header = json.loads(file.read(length))
    except OSError as error:
        raise MaxCodeError(str(path), f"cannot be read ({error.strerror})", "a safetensors file", _AGAIN) from None
    except ValueError:
        raise _damaged(path, "the safetensors header is no JSON") from None
    if not isinstance(header, dict):
        raise _damaged(path, "the safetensors header is no object")
    header.pop("__metadata__", None)
    _check_offsets(path, header, size - 8 - length)
    return header


def _check_offsets(path: Path, header: dict[str, Any], data_bytes: int) -> None:
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        try:
            begin, end = entry["data_offsets"]
            expected = math.prod(entry["shape"]) * _BITS[entry["dtype"]] // 8
        except (KeyError, TypeError, ValueError):
            raise _damaged(path, f"the header entry of {name!r} is {entry!r}") from None
        if end - begin != expected:
            raise _damaged(path, f"{name!r} has {end - begin} bytes where shape and dtype need {expected}")
        spans.append((begin, end))
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise _damaged(path, f"a gap or overlap in the data at byte {position}")
        position = end
    if position != data_bytes:
        kind = "truncated" if position > data_bytes else "too long"
        raise _damaged(path, f"{kind}: {data_bytes} bytes of data where the header needs {position}")


def check_safetensors_folder(folder: Path) -> bool:
    """Check every shard of a folder; False when it holds no safetensors.

    Raises:
      MaxCodeError: a missing, truncated or corrupt shard or index, or a shard without a tensor that the index promises.
    """
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        files = sorted(folder.glob("*.safetensors"))
        for path in files:
            read_safetensors_header(path)
        return bool(files)
    try:
        weight_map = json.loads(index.read_text())["weight_map"]
        shards = {shard: {n for n, s in weight_map.items() if s == shard} for shard in sorted(set(weight_map.values()))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(index, "not a safetensors index with a weight_map") from None
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        names = ", ".join(missing)
        raise MaxCodeError(str(folder), f"{len(missing)} of {len(shards)} shards missing: {names}", do="download them")
    for shard, names in shards.items():
        lost = sorted(names - read_safetensors_header(folder / shard).keys())
        if lost:
            raise _damaged(folder / shard, f"{len(lost)} tensors of the index are not in it, first {lost[0]!r}")
    return True


def read_gguf_architecture(path: Path) -> str:
    """The `general.architecture` of a GGUF file whose header and size are sound.

    Raises:
      MaxCodeError: not a GGUF file, or truncated, or no architecture named.
    """
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise MaxCodeError(str(path), f"starts with {magic!r}", "a GGUF file (b'GGUF')", _AGAIN)
    import gguf  # reading the header takes long enough to be worth the wait only for GGUF targets

    try:
        reader = gguf.GGUFReader(path)
        field = reader.get_field("general.architecture")
        end = max((int(t.data_offset) + int(t.n_bytes) for t in reader.tensors), default=0)
    except (ValueError, IndexError, KeyError, OverflowError, TypeError, OSError) as error:
        raise _damaged(path, f"the GGUF header cannot be read ({error})") from None
    if end > path.stat().st_size:
        raise _damaged(path, f"truncated: {path.stat().st_size} bytes where the header needs {end}")
    if field is None:
        raise _damaged(path, "the GGUF header names no architecture")
    return str(field.contents())


def _damaged(path: Path, found: str) -> MaxCodeError:
    return MaxCodeError(str(path), found, "an intact file", _AGAIN)
