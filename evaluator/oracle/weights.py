"""Weights in and out: stored checkpoints, the run folder's `source/`, and the list of tensors (`tensors.json`)."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from maxcode.evaluator.oracle import importing, stored
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.flatten import dtype_name
from maxcode.evaluator.oracle.noise import persistent_buffers
from maxcode.evaluator.oracle.store import save_tensors
from maxcode.evaluator.oracle.target import Target

WEIGHTS, TENSORS = "model.safetensors", "tensors.json"


def read_state(target: Target, source_dir: str | Path | None) -> dict[str, Tensor]:
    """The state dict under the model's own names, in the stored dtypes.

    Read from `source_dir` where `materialise` wrote it, else from the target's checkpoint.
    """
    if source_dir is not None and (Path(source_dir) / TENSORS).is_file():
        about = json.loads((Path(source_dir) / TENSORS).read_text())
        if not about.get("linked"):
            return _read_materialised(Path(source_dir), about)
    return stored.read_checkpoint(target).state_dict()


def _read_materialised(folder: Path, about: dict[str, Any]) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    state = {}
    try:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                state[name] = file.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise OracleError(
            str(path), f"unreadable ({error})", "the file that materialise wrote", "materialise again"
        ) from error
    for name, facts in about["tensors"].items():
        if facts["tied_to"]:
            state[name] = state[facts["tied_to"]]
    return state


def load_into(model: nn.Module, state: dict[str, Tensor], where: Any = None) -> None:
    """Copies `state` into `model`, which has to hold exactly these names (`extra_state` is left alone).

    Raises:
      OracleError: names or shapes differ; all of them are listed.
    """
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        expected = f"the {len(model.state_dict())} tensors of {type(model).__name__}"
        raise OracleError(
            str(where or "weights"), str(error), expected, "check that weights and configuration agree"
        ) from error


def require_names(model: nn.Module, state: dict[str, Tensor], where: Any = None) -> None:
    """As `load_into`, of a model without storage: the same names and shapes, or an OracleError that lists them."""
    own = model.state_dict()
    wrong = [f"missing {name}" for name in own.keys() - state.keys()]
    wrong += [f"unexpected {name}" for name in state.keys() - own.keys()]
    wrong += [
        f"{name} is {list(state[name].shape)}, expected {list(own[name].shape)}"
        for name in own.keys() & state.keys()
        if torch.is_tensor(own[name]) and own[name].shape != state[name].shape
    ]
    if wrong:
        expected = f"the {len(own)} tensors of {type(model).__name__}"
        do = "check that weights and configuration agree"
        raise OracleError(str(where or "weights"), "; ".join(sorted(wrong)), expected, do)


def tensor_table(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Rows of tensors.json: every persistent tensor by fqn, tied ones pointing at the first name of their storage."""
    buffers = persistent_buffers(model)
    table: dict[str, dict[str, Any]] = {}
    first: dict[tuple, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not torch.is_tensor(tensor):
            continue
        owner = type(model.get_submodule(name.rpartition(".")[0]))
        same = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        tied = first.setdefault(same, name) if tensor.numel() else name
        table[name] = {
            "shape": list(tensor.shape),
            "dtype": dtype_name(tensor.dtype),
            "tied_to": None if tied == name else tied,
            "persistent_buffer": name in buffers,
            "module_class": _qualified(owner),
            "module_bases": [_qualified(base) for base in owner.__mro__[1:] if issubclass(base, nn.Module)][:-1],
        }
    return table


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def write_source(target: Target, model: nn.Module, out: Path, files_from: Path | None) -> dict[str, Any]:
    """Writes `model.safetensors`, `tensors.json`, configuration and tokenizer files into `out`; returns the table.

    Args:
      files_from: folder whose configuration and tokenizer files are copied; without it the model's are written.
    """
    out.mkdir(parents=True, exist_ok=True)
    table = tensor_table(model)
    state = model.state_dict()
    kept = {name: state[name].detach().contiguous() for name, facts in table.items() if not facts["tied_to"]}
    try:
        save_tensors(kept, out / WEIGHTS)
    except (SafetensorError, OSError) as error:
        raise OracleError(str(out / WEIGHTS), str(error), "room to write the weights", "free some space") from error
    if files_from is not None:
        copy_side_files(files_from, out)
    _write_configuration(target, model, out)
    return write_table(out, table, linked=False)


def write_table(out: Path, table: dict[str, dict[str, Any]], *, linked: bool, **extra: Any) -> dict[str, Any]:
    """Writes tensors.json. `linked`: the weights stay in the user's folder, under the names stored there."""
    about = {"format": 1, "linked": linked, "tensors": table, **extra}
    about["tied"] = [[name, facts["tied_to"]] for name, facts in table.items() if facts["tied_to"]]
    out.mkdir(parents=True, exist_ok=True)
    (out / TENSORS).write_text(json.dumps(about, indent=1) + "\n")
    return about


def _write_configuration(target: Target, model: nn.Module, out: Path) -> None:
    config = importing.config_of(target)
    if config is None:
        return
    if not (out / "config.json").exists():
        content = config.to_dict() | {"architectures": [target["class_name"]]}
        (out / "config.json").write_text(json.dumps(content, indent=2, sort_keys=True, default=str) + "\n")
    generation = getattr(model, "generation_config", None)
    if generation is not None and not (out / "generation_config.json").exists():
        (out / "generation_config.json").write_text(json.dumps(generation.to_diff_dict(), indent=2, default=str) + "\n")


SIDE_FILES = (
    "LICENSE*",
    "config.json",
    "generation_config.json",
    "*token*",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.jinja",
)
_WEIGHT_ENDINGS = (".safetensors", ".bin", ".gguf", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".index.json")


def copy_side_files(folder: Path, out: Path) -> None:
    """Configuration, tokenizer and licence files of a checkpoint folder."""
    for path in sorted(_matching(folder, SIDE_FILES)):
        if not path.name.endswith(_WEIGHT_ENDINGS) and path.stat().st_size < 1 << 28:
            (out / path.name).write_bytes(path.read_bytes())


def _matching(folder: Path, patterns: Iterable[str]) -> set[Path]:
    return {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
