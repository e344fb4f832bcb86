"""`scan`: scanned equals unscanned; sharded on eight simulated devices equals unsharded."""

import json
import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.outputs import compare_outputs
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.package import Runner, cast_floats
from maxcode.evaluator.verdict import Check
from maxcode.evaluator.worker import last_error

DEVICES = 8


@check("scan", group="x64")
def scan(context: Context) -> Check:
    """Float64: error between the two forms <= 1e-10, and every parameter's shards together are the parameter."""
    name = "long" if "long" in context.oracle else "exact"
    case = context.scenario(name).cases[0]
    inputs = cast_floats(case.inputs, np.float64)
    context.package.lift()
    unrolled = Runner(context.package.build(**context.package.overrides("float64", scan_layers=False)))
    expected, leaves = unrolled(inputs), len(jax.tree.leaves(unrolled.state))
    scanned = Runner(context.package.build(**context.package.overrides("float64", scan_layers=True)))
    outcome = compare_outputs(scanned(inputs), expected)
    stacked = leaves - len(jax.tree.leaves(scanned.state))
    shapes = f"{stacked} leaves fewer when scanned" if stacked else f"nothing is scanned: {_reasons(scanned.model)}"
    ok, sharded = run_sharded(context, name)
    detail = f"{name}: {shapes}; {outcome}; {sharded}"
    return Check.of("scan", outcome.worst.error, tolerance.SCAN, detail, ok=ok)


def _reasons(model: nnx.Module) -> str:
    found = {
        str(m.reason) for _, m in nnx.iter_graph(model) if isinstance(m, nnx.Module) and getattr(m, "reason", None)
    }
    return "; ".join(sorted(found)) or "the model has no stack of layers"


def run_sharded(context: Context, scenario: str) -> tuple[bool, str]:
    """Run the sharded forward in a process with simulated devices. Returns success and what to say."""
    if context.package.submodule("sharding") is None:
        return False, f"{context.package.name} has no sharding.py"
    command = [sys.executable, "-m", "maxcode.evaluator.sharded", "--package", str(context.package.path)]
    command += ["--source", str(context.package.source), "--oracle", str(context.oracle.folder), "--scenario", scenario]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    environment = {**os.environ, "XLA_FLAGS": flags.strip(), "JAX_ENABLE_X64": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        last = last_error(done.stderr)
        return False, f"sharded run ended with status {done.returncode}: {last}"
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    ok = result["error"] <= tolerance.SCAN and (result["sharded"] > 0 or not result["divisible"])
    split = f"{result['sharded']} of {result['leaves']} leaves split"
    split += "" if result["divisible"] else " (none has an axis that the rules name and these devices divide evenly)"
    return ok, f"sharded over {DEVICES} devices: error {result['error']:.1e}, {split}"
