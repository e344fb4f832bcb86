"""`materialise`: the target's weights as the run folder's `source/`."""

import contextlib
from pathlib import Path
from typing import Any

from maxcode.evaluator.oracle import loading, stored, weights
from maxcode.evaluator.oracle.build import build_model
from maxcode.evaluator.oracle.target import Target


def materialise(target: Target, out: Path) -> dict[str, Any]:
    """Writes `source/` for a resolved target; returns the content of tensors.json.

    Random weights and GGUF files become model.safetensors. A folder that already holds safetensors is not copied: only
    tensors.json is written, with `linked` and the `path`.

    Raises:
      OracleError: the target does not build, or its checkpoint is incomplete, corrupt or pickled without leave.
    """
    if target["weights"] != "stored":
        return weights.write_source(target, build_model(target), out, None)
    with stored.one_gguf_reader():
        return _materialise_stored(target, out)


def _materialise_stored(target: Target, out: Path) -> dict[str, Any]:
    model = stored.read_checkpoint(target)
    folder = Path(target["path"])
    if target["kind"] == "gguf" or not target["config_class"] or not any(folder.glob("*.safetensors")):
        about = weights.write_source(target, model, out, folder)
        if target["gguf_file"]:
            _write_tokenizer(folder, target["gguf_file"], out)
        return about
    facts = loading.loading_facts(model, folder)
    return weights.write_table(out, weights.tensor_table(model), linked=True, path=str(folder.resolve()), **facts)


def _write_tokenizer(folder: Path, gguf_file: str, out: Path) -> None:
    """The tokenizer that the file holds, as tokenizer.json; left out where transformers cannot rebuild it."""
    from transformers import AutoTokenizer

    with contextlib.suppress(ValueError, ImportError, KeyError, OSError, NotImplementedError):
        AutoTokenizer.from_pretrained(str(folder), gguf_file=gguf_file, local_files_only=True).save_pretrained(str(out))
