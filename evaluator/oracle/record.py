"""`record`: runs scenarios on the PyTorch model and writes what happened."""

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from maxcode.evaluator.oracle.activations import dtypes, modules
from maxcode.evaluator.oracle.decode import cache
from maxcode.evaluator.oracle.describe import facts
from maxcode.evaluator.oracle.edges import edges
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.forward import exact, long, padding, rounded
from maxcode.evaluator.oracle.learning import gradients, training
from maxcode.evaluator.oracle.progress import progress
from maxcode.evaluator.oracle.session import NotApplicableError, Session
from maxcode.evaluator.oracle.store import Recording, write_json
from maxcode.evaluator.oracle.training_loop import loop

SCENARIOS: dict[str, Callable[[Session], Recording]] = {
    "exact": exact,
    "float32": rounded("float32"),
    "bfloat16": rounded("bfloat16"),
    "long": long,
    "padding": padding,
    "edges": edges,
    "cache": cache,
    "gradients": gradients,
    "training": training,
    "loop": loop,
    "modules": modules,
    "dtypes": dtypes,
}


def record(session: Session, out: Path, scenarios: list[str]) -> dict[str, Any]:
    """Runs every scenario, writes its two files below `out`, and returns the index (also in `index.json`, merged).

    Raises:
      OracleError: an unknown scenario (before anything runs), or a target that does not build.
    """
    if unknown := [name for name in scenarios if name not in SCENARIOS]:
        raise OracleError("--scenarios", ", ".join(unknown), f"some of {', '.join(SCENARIOS)}", "correct the option")
    index = _index(out)
    index["facts"] |= facts(session)
    for done, name in enumerate(scenarios):
        progress("record", name, done, len(scenarios))
        index["facts"]["reasons"].pop(name, None)
        index["facts"].get("failures", {}).pop(name, None)
        index["scenarios"] = [known for known in index["scenarios"] if known != name]
        try:
            SCENARIOS[name](session).write(out, target=session.target["text"], seed=session.seed)
            index["scenarios"].append(name)
        except NotApplicableError as reason:
            index["facts"]["reasons"][name] = str(reason)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError) as error:
            # The source refuses (one that insists on float32, say): the check is not run, and the verdict not shown.
            index["facts"].setdefault("failures", {})[name] = f"{type(error).__name__}: {error}"
        write_json(out / "index.json", index | {"versions": versions()})
    progress("record", "", len(scenarios), len(scenarios))
    return index


def _index(out: Path) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "index.json"
    if path.is_file():
        return json.loads(path.read_text())
    return {"format": 1, "scenarios": [], "facts": {"reasons": {}}}


def versions() -> dict[str, Any]:
    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("transformers", "safetensors")}
    return {"python": platform.python_version(), "torch": torch.__version__} | {k: v for k, v in loaded.items() if v}
