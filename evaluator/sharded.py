"""One sharded forward against an unsharded one, in a process of its own with simulated devices.

Prints one JSON line: {"error", "leaves", "sharded" (leaves that are really split), "divisible" (leaves with an axis
that the rules name and the mesh divides evenly; none in a model of odd sizes, or of sizes that do not say what they
are)}.
"""

import argparse
import json
import sys
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
from flax import nnx

from maxcode.evaluator.checks.outputs import compare_outputs
from maxcode.evaluator.package import Package, Runner, cast_floats
from maxcode.evaluator.recording import Recordings


def variables(model: nnx.Module) -> list[nnx.Variable]:
    """Every variable of the model, once."""
    return jax.tree.leaves(nnx.state(model), is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def _is_divisible(variable: nnx.Variable, sharding: ModuleType, sizes: dict[str, int]) -> bool:
    axes, shape = variable.get_metadata().get(sharding.AXES) or (), variable.get_raw_value().shape
    return any(
        sizes.get(mesh_axis, 1) > 1 and size and size % sizes[mesh_axis] == 0
        for axis, size in zip(axes, shape, strict=False)
        for mesh_axis in _mesh_axes(sharding, axis)
    )


def _mesh_axes(sharding: ModuleType, axis: str | None) -> tuple[str, ...]:
    """The mesh axes that the package's rules give for a logical axis: none, one by its name, or several."""
    rule = sharding.LOGICAL_AXIS_RULES.get(axis or "") or ()
    return (rule,) if isinstance(rule, str) else tuple(rule)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="maxcode.evaluator.sharded", description=__doc__.splitlines()[0])
    for name in ("--package", "--source", "--oracle"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--scenario", required=True)
    options = parser.parse_args(arguments)
    package = Package(options.package, options.source)
    package.lift()
    inputs = cast_floats(Recordings(options.oracle).get(options.scenario).cases[0].inputs, np.float64)
    overrides = package.overrides("float64")
    expected = Runner(package.build(**overrides))(inputs)
    mesh = package.submodule("sharding").make_mesh(fsdp=len(jax.devices()) // 2, tensor=2)
    model = package.module.Model.from_pretrained(str(options.source), mesh=mesh, **overrides)
    leaves = jax.tree.leaves(nnx.state(model))
    split = sum(leaf.addressable_shards[0].data.shape != leaf.shape for leaf in leaves)
    sharding, sizes = package.submodule("sharding"), dict(mesh.shape)
    divisible = sum(_is_divisible(variable, sharding, sizes) for variable in variables(model))
    with jax.set_mesh(mesh):
        actual = Runner(model)(inputs)
    error = compare_outputs(actual, expected).worst.error
    found = {"error": error, "leaves": len(leaves), "sharded": split, "divisible": divisible}
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
