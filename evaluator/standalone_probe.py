"""Run by path in a bare interpreter: the package must import and run where torch, transformers and maxcode cannot be.

    python standalone_probe.py PACKAGE_ROOT PACKAGE_NAME SOURCE INPUTS.npz

INPUTS holds "tree", the arguments as JSON with {"$tensor": name} for its other arrays. Prints output shapes as JSON.
This file imports nothing of the evaluator.
"""

import importlib
import importlib.abc
import json
import sys

BLOCKED = ("torch", "transformers", "maxcode")


class Blocker(importlib.abc.MetaPathFinder):
    """Refuses the blocked packages as if they were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"{name} is blocked: the package must work without it", name=name)


def fill(node, arrays):
    if isinstance(node, dict):
        return arrays[node["$tensor"]] if set(node) == {"$tensor"} else {k: fill(v, arrays) for k, v in node.items()}
    return [fill(v, arrays) for v in node] if isinstance(node, list) else node


def main(root, name, source, inputs):
    sys.meta_path.insert(0, Blocker())
    sys.path[:] = [root, *(p for p in sys.path[1:])]  # not this file's own folder
    import jax.numpy as jnp
    import numpy as np

    arrays = dict(np.load(inputs))
    arguments = fill(json.loads(str(arrays.pop("tree"))), {k: jnp.asarray(v) for k, v in arrays.items()})
    package = importlib.import_module(name)
    model = package.Model.from_pretrained(source)
    import jax

    leaves = [leaf for leaf in jax.tree.leaves(model(**arguments)) if hasattr(leaf, "shape")]
    loaded = [m for m in sys.modules if m.partition(".")[0] in BLOCKED]
    finite = all(bool(jnp.isfinite(x).any()) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating) and x.size)
    sys.stdout.write(json.dumps({"outputs": len(leaves), "finite": finite, "loaded": loaded}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
