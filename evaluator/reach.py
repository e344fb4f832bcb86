"""Which lines of a package a model runs, and a fingerprint of what it computes; in a process of its own.

A seeded fault counts only on a line that runs, and only if it changes the program: the fingerprint covers the traced
programs (bfloat16 and lifted float64, forward, cached step, training mode), their constants and the loaded weights.
Prints one JSON line: {"lines": {file: [line, …]}} with "fingerprint" or, when asked, "values". These cover all outputs
of every recorded input in bfloat16 and in lifted float64, cached steps and gradients: an edit that leaves each bit of
them as it was (half of a table that holds everything twice, say) is no fault.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from maxcode.evaluator.checks.cache import stepwise
from maxcode.evaluator.package import (
    Package,
    Runner,
    cast_floats,
    named_outputs,
    new_cache,
    split_static,
    to_jax,
)
from maxcode.evaluator.recording import Recordings

FORWARD = ("exact", "float32", "long", "padding", "edges")  # scenarios whose inputs `values` runs


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="maxcode.evaluator.reach", description=__doc__.splitlines()[0])
    for name in ("--package", "--source", "--oracle"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--lines", action="store_true", help="also record the lines that run (slower)")
    parser.add_argument("--values", action="store_true", help="only compute what the programs give")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    package, lines = Package(options.package, options.source), {}
    if options.lines:
        sys.settrace(line_recorder(package.path, lines))
    oracle = Recordings(options.oracle)
    found = {"values": values(package, oracle)} if options.values else {"fingerprint": fingerprint(package, oracle)}
    sys.settrace(None)
    found["lines"] = {file: sorted(numbers) for file, numbers in lines.items()}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def line_recorder(folder: Path, lines: dict[str, set[int]]):
    """A trace function that collects executed lines of files below `folder`, by relative path."""
    start = f"{folder}/"

    def inside(frame, event, argument):
        if event == "line":
            lines.setdefault(frame.f_code.co_filename.removeprefix(start), set()).add(frame.f_lineno)
        return inside

    def trace(frame, event, argument):
        return inside if frame.f_code.co_filename.startswith(start) else None

    return trace


def fingerprint(package: Package, oracle: Recordings) -> str:
    """A digest that is equal only when the traced programs, their constants and the weights are."""
    digest = hashlib.sha256()
    inputs = oracle.get("exact").cases[0].inputs
    for dtype in ("bfloat16", "float64"):
        if dtype == "float64":
            package.lift()
        model = package.fresh(**package.overrides(dtype))
        _program(digest, model, cast_floats(inputs, dtype))
        if "cache" in oracle:
            case = oracle.get("cache").cases[0]
            given = cast_floats(case.inputs, dtype)
            batch = case.array("greedy").shape[0]
            _program(digest, model, given, new_cache(model, given, batch, case.record["length"] + 1))
    _bits(digest, nnx.state(model))
    if oracle.facts.get("batch_norm"):
        model.train()
        _program(digest, model, cast_floats(inputs, "float64"))
    return digest.hexdigest()


def values(package: Package, oracle: Recordings) -> str:
    """A digest that is equal only when every bit of every output, cached step and gradient is."""
    digest = hashlib.sha256()
    recorded = [case.inputs for name in FORWARD if name in oracle for case in oracle.get(name).cases]
    for dtype in ("bfloat16", "float64"):
        if dtype == "float64":
            package.lift()
        model = package.fresh(**package.overrides(dtype))
        runner = Runner(model)
        for inputs in recorded:
            _bits(digest, runner(cast_floats(inputs, dtype)))
    if "cache" in oracle:
        _bits(digest, stepwise(oracle.get("cache").cases[0], model)[0])
    if "gradients" in oracle:
        _bits(digest, _gradients(runner, cast_floats(oracle.get("gradients").cases[0].inputs, np.float64)))
    return digest.hexdigest()


def _bits(digest: Any, tree: Any) -> None:
    for leaf in jax.tree.leaves(tree):
        digest.update(np.asarray(leaf).tobytes())


def _gradients(runner: Runner, inputs: dict[str, Any]) -> Any:
    traced, static = split_static(runner.model, inputs)

    def loss(state, traced):
        outputs = named_outputs(nnx.merge(runner.graph, state)(**traced, **static))
        return sum((jax.numpy.sin(value).sum() for value in outputs.values()), start=0.0)

    return jax.jit(jax.grad(loss, allow_int=True))(runner.state, to_jax(traced))


def _program(digest: Any, model: nnx.Module, inputs: dict[str, Any], cache: Any = None) -> None:
    graph, state = nnx.split(model)
    traced, static = split_static(model, inputs)

    def forward(state, traced, cache):
        merged = nnx.merge(graph, state)
        outputs = merged(**traced, **static) if cache is None else merged(**traced, **static, cache=cache)
        return named_outputs(outputs), nnx.state(merged), getattr(outputs, "cache", None)

    program = jax.make_jaxpr(forward)(state, to_jax(traced), cache)
    digest.update(program.jaxpr.pretty_print(source_info=False).encode())
    _bits(digest, program.consts)


if __name__ == "__main__":
    sys.exit(main())
