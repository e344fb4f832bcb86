"""`standalone`: the package imports and runs where torch, transformers and maxcode cannot be imported."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from maxcode.evaluator import standalone_probe
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.package import accepted, cast_floats
from maxcode.evaluator.peer import to_tree
from maxcode.evaluator.verdict import Check
from maxcode.evaluator.worker import last_error


@check("standalone", group="plain")
def standalone(context: Context) -> Check:
    """A fresh isolated interpreter with an import blocker loads the weights and runs one forward."""
    inputs = cast_floats(context.scenario("exact").cases[0].inputs, np.float32)
    package = context.package
    with tempfile.TemporaryDirectory() as folder:
        tree, tensors = to_tree(accepted(package.module.Model, inputs))
        path = Path(folder) / "inputs.npz"
        np.savez(path, tree=np.array(json.dumps(tree)), **tensors)
        command = [
            sys.executable,
            standalone_probe.__file__,
            str(package.root),
            package.name,
            str(package.source),
            str(path),
        ]
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "JAX_ENABLE_X64")}
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=1800, check=False
        )
    if done.returncode:
        last = last_error(done.stderr)
        return Check("standalone", "fail", detail=last)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    ok = not found["loaded"] and found["outputs"] > 0 and found["finite"]
    loaded = ", ".join(found["loaded"]) or "nothing"
    detail = f"{found['outputs']} outputs, finite: {found['finite']}; loaded although blocked: {loaded}"
    return Check("standalone", "pass" if ok else "fail", detail=detail)
