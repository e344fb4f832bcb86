"""Convert each model of the list in a process of its own, as a user would on the command line; a row for each."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxcode.atlas.rows import cause_of
from maxcode.evaluator.sandbox import end_tree
from maxcode.processes import last_record, python_module
from maxcode.third_party.models import Model

Row = dict[str, Any]


def run_model(model: Model, site: Path, out: Path, seconds: float, *, gate: bool = True) -> Row:
    """The row of one model: package, version, model, status, cause, checks, seconds. Never an exception.

    Without `gate` what has no gap is "not_shown".
    """
    start = time.monotonic()
    folder = out / "packages" / model.slug
    arguments = ["convert", model.target(site), "--init", json.dumps(model.init), "--inputs", json.dumps(model.inputs)]
    arguments += [] if gate else ["--no-gate"]
    command = python_module("maxcode.cli", *arguments, "-o", folder, "--force", "--json", "--quiet")
    log = out / "logs" / f"{model.slug}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True, env=_environment(site)
        )
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            said = ""
        finally:
            end_tree(process)
    found = _record(said)
    row = {"package": model.package, "version": model.version(site), "model": model.model}
    if found is None:
        took = time.monotonic() - start
        text = f"over {seconds:.0f} s" if took >= seconds else f"ended with status {process.returncode}"
        return row | {
            "status": "error",
            "cause": {"code": "process", "text": text},
            "checks": [],
            "seconds": round(took),
        }
    return row | {
        "status": found["status"],
        "cause": _cause(found),
        "checks": [{"name": c["name"], "status": c["status"], "value": c.get("value")} for c in found["checks"]],
        "assumptions": len(found.get("assumptions", ())),
        "gaps": len(found.get("gaps", ())),
        "seconds": round(time.monotonic() - start),
    }


def _record(said: str) -> Mapping[str, Any] | None:
    try:
        return json.loads(said)
    except ValueError:
        return last_record(said)


def _cause(record: Mapping[str, Any]) -> dict[str, Any] | None:
    return cause_of(record) if record["status"] != "verified" else None


def _environment(site: Path) -> dict[str, str]:
    """The user's environment, with the site folder last on the path, so that nothing there hides what is installed."""
    before = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in (before, str(site)) if p)}
