"""Stored checkpoints: checked before they are read, never unpickled without leave."""

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from maxcode.evaluator.oracle import importing
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.lift import DTYPES
from maxcode.evaluator.oracle.target import Target

_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth")


def read_checkpoint(target: Target, dtype: str | None = None) -> nn.Module:
    """The model with its stored weights, as transformers loads it (which merges, splits and dequantises what it must).

    Args:
      dtype: of the parameters; None keeps the stored one.

    Raises:
      OracleError: missing, truncated or corrupt files, pickles without leave, tensors that the model lacks or misses.
    """
    cls, config = importing.model_class(target), importing.config_of(target)
    folder = Path(target["path"])
    if config is None:
        return _read_registered(cls, target, folder)
    options: dict[str, Any] = {"config": config, "dtype": DTYPES[dtype] if dtype else "auto", "local_files_only": True}
    if target["gguf_file"]:
        gguf = folder / target["gguf_file"]
        check_gguf(gguf, header_only=True)  # loading reads it all; that once takes seconds
        options |= {"gguf_file": str(target["gguf_file"])}
        options["dtype"] = DTYPES[dtype or "float32"]
    else:
        options["use_safetensors"] = check_files(folder, target["allow_pickle"])
    try:
        with _quiet():
            model, info = cls.from_pretrained(
                str(folder),
                output_loading_info=True,
                attn_implementation="eager",
                ignore_mismatched_sizes=True,  # they are refused below, by name
                **options,
            )
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        raise OracleError(str(folder), found, f"weights for {cls.__name__}", "check the checkpoint") from error
    _refuse_partial(folder, cls.__name__, info)
    importing.make_eager(model.config)
    return model.eval()


def _read_registered(cls: Any, target: Target, folder: Path) -> nn.Module:
    """A model of a layer library, which is built from its folder's arguments and holds the names in its files."""
    check_files(folder, target["allow_pickle"])
    try:
        with _quiet():
            model, info = cls.from_pretrained(str(folder), output_loading_info=True, local_files_only=True)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        raise OracleError(str(folder), found, f"weights for {cls.__name__}", "check the checkpoint") from error
    _refuse_partial(folder, cls.__name__, info)
    return model.eval()


def _mismatch(entry: Any) -> str:
    """(name, stored shape, the model's shape), as transformers lists them."""
    name, *shapes = entry if isinstance(entry, tuple) else (entry,)
    return f"{name} is {' where the model has '.join(str(list(shape)) for shape in shapes)}" if shapes else str(name)


def _refuse_partial(folder: Path, name: str, info: dict[str, Any]) -> None:
    missing = sorted(info.get("missing_keys", ()))
    wrong = [_mismatch(entry) for entry in sorted(info.get("mismatched_keys", ()), key=str)]
    if missing or wrong:
        found = "; ".join(wrong) if wrong else f"no value for {missing}"
        raise OracleError(
            str(folder), found, f"every tensor of {name}", "complete the checkpoint or name another class"
        )


def check_files(folder: Path, allow_pickle: bool) -> bool:
    """Checks that the folder's weights are whole. Returns True for safetensors, False for (allowed) pickles."""
    if not folder.is_dir():
        raise OracleError(str(folder), "no such folder", "a model folder", "check the path")
    files = safetensors_files(folder)
    for path in files:
        check_safetensors(path)
    if files:
        return True
    pickles = sorted(p for pattern in _PICKLES for p in folder.glob(pattern))
    if not pickles:
        raise OracleError(str(folder), "no weights", "model.safetensors or its index and shards", "add the weights")
    if not allow_pickle:
        do = "convert them to safetensors, or pass --allow-pickle (they are then read with weights_only=True)"
        raise OracleError(str(pickles[0]), "pickled weights, which can run code", "safetensors", do)
    for path in pickles:
        _check_pickle(path)
    return False


def safetensors_files(folder: Path) -> list[Path]:
    """The folder's weight files, as its index names them where it has one."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise OracleError(str(index), f"unreadable ({error!r})", "a weight_map", "fetch the index again") from error
        for name in names:
            if not (folder / name).is_file():
                found = f"missing, though {index.name} names it"
                raise OracleError(str(folder / name), found, "all shards", "fetch the missing shard")
        return [folder / name for name in names]
    return [path for path in (folder / "model.safetensors",) if path.is_file()] or sorted(folder.glob("*.safetensors"))


def check_safetensors(path: Path) -> None:
    """Header and length agree (safetensors verifies both on opening)."""
    try:
        with safe_open(path, "pt"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        expected = "a whole safetensors file"
        raise OracleError(str(path), f"corrupt or truncated ({error})", expected, "fetch it again") from error


def _check_pickle(path: Path) -> None:
    try:
        torch.load(path, map_location="meta", weights_only=True, mmap=_is_zip(path))
    except Exception as error:
        # Of torch's own text only what names the fault: the rest advises to load the code after all.
        code = re.search(r"GLOBAL ([\w.]+)", str(error))
        fault = f"it holds code, {code[1]}" if code else type(error).__name__
        found = f"unreadable as plain tensors ({fault})"
        raise OracleError(str(path), found, "a state dict of tensors", "convert it to safetensors") from error


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def check_gguf(path: Path, *, header_only: bool = False) -> None:
    """The file is there, is GGUF, and (unless only the header is looked at) its tensors end inside it."""
    if not path.is_file():
        raise OracleError(str(path), "no such file", "a GGUF file", "check the path")
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise OracleError(str(path), f"first bytes {magic!r}", "b'GGUF'", "give a GGUF file")
    if header_only:
        return
    try:
        from gguf import GGUFReader
    except ImportError:
        raise OracleError(str(path), "no gguf package", "gguf installed", "pip install gguf") from None
    try:
        GGUFReader(str(path))
    except Exception as error:
        found = f"corrupt or truncated ({type(error).__name__}: {error})"
        raise OracleError(str(path), found, "a whole GGUF file", "fetch it again") from error


@contextlib.contextmanager
def one_gguf_reader() -> Iterator[None]:
    """Within the block a GGUF file's header is parsed once, however often it is asked for: that takes seconds."""
    try:
        import gguf
    except ImportError:  # whoever opens the file says so
        yield
        return
    reader = gguf.GGUFReader
    read = functools.lru_cache(maxsize=1)(reader)
    gguf.GGUFReader = lambda path, *args, **options: read(os.path.realpath(path), *args, **options)
    try:
        yield
    finally:
        gguf.GGUFReader = reader


@contextlib.contextmanager
def _quiet():
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
