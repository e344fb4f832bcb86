"""Reading `target.json` (docs/interfaces.md §3). Here a target is a plain dictionary with every field present."""

import json
import sys
from pathlib import Path
from typing import Any

from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.script import CUTS, CutFinder

Target = dict[str, Any]

KINDS = ("transformers", "folder", "hub", "gguf", "module")
_DEFAULTS: Target = {
    "text": "",
    "kind": None,
    "module": None,
    "class_name": None,
    "config_module": None,
    "config_class": None,
    "config": None,
    "path": None,
    "gguf_file": None,
    "revision": None,
    "init": None,
    "inputs": None,
    "seed": 0,
    "allow_pickle": False,
    "trust_remote_code": False,
    "weights": None,
    "training": None,
}


def load_target(source: str | Path | Target) -> Target:
    """A target from its file, or completed from a dictionary.

    Raises:
      OracleError: no such file, no JSON object, or an unknown kind.
    """
    raw = source if isinstance(source, dict) else _read(Path(source))
    target = _DEFAULTS | raw
    if target["kind"] not in KINDS:
        raise OracleError("target.kind", repr(target["kind"]), " | ".join(KINDS), "resolve the target first")
    if target["weights"] is None:
        target["weights"] = "stored" if target["kind"] in ("folder", "hub", "gguf") else "noise"
    target["config"] = _floats(target["config"])
    if target["training"]:
        without_program(target["training"])
    return target


def without_program(training: dict[str, Any]) -> None:
    """From now on an import of a training program's file runs what it defines and not the program itself."""
    path = str(Path(training["file"]).resolve())
    if "until" in training and path not in CUTS:
        CUTS[path] = training["until"]
        sys.meta_path.insert(0, CutFinder())
        sys.path.insert(0, str(Path(path).parent))
        sys.argv = [path]  # for what parses arguments where it is imported


def _read(path: Path) -> Target:
    try:
        raw = json.loads(path.read_text())
    except FileNotFoundError:
        raise OracleError(str(path), "no such file", "a target.json", "check --target") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise OracleError(str(path), f"no JSON ({error})", "a target.json", "write the target again") from None
    if not isinstance(raw, dict):
        raise OracleError(str(path), type(raw).__name__, "a JSON object", "write the target again")
    return raw


def _floats(value: Any) -> Any:
    """Configurations may spell infinities as {"__float__": "Infinity"}, because strict JSON has none."""
    if isinstance(value, dict):
        if set(value) == {"__float__"}:
            return float(str(value["__float__"]).replace("Infinity", "inf").replace("NaN", "nan"))
        return {key: _floats(item) for key, item in value.items()}
    return [_floats(item) for item in value] if isinstance(value, list) else value


def write_target(target: Target, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(target, indent=1, default=str) + "\n")
