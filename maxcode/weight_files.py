"""Cheap checks of weight files, by their headers: no tensor is read and nothing is unpickled."""

from pathlib import Path
from typing import Any

from maxcode.converter.support.tensor_files import CheckpointError, TensorFolder
from maxcode.errors import MaxCodeError

_AGAIN = "download or copy the file again"


def check_safetensors_folder(folder: Path) -> bool:
    """Check the header of every safetensors file of a folder; False when it holds none, nor an index of any.

    Raises:
      MaxCodeError: a missing, truncated or corrupt shard or index, or a shard without a tensor that the index promises.
    """
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.safetensors.index.json")):
        return False
    try:
        TensorFolder(folder)
    except CheckpointError as error:
        raise MaxCodeError("weights", str(error), "an intact checkpoint", _AGAIN) from None
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


def stored_bytes(target: dict[str, Any]) -> int | None:
    """Bytes of a target's weight files; None where weights are random."""
    if target.get("gguf_file"):
        return (Path(target["path"]) / target["gguf_file"]).stat().st_size
    if target["kind"] not in ("folder", "hub"):
        return None
    return sum(p.stat().st_size for s in ("*.safetensors", "*.bin") for p in Path(target["path"]).glob(s)) or None
