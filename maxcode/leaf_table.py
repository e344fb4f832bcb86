"""List the arrays of an emitted package without allocating them: `python -m maxcode.leaf_table ROOT PACKAGE CONFIG`.

Prints one JSON list of {"fqn", "shape", "dtype"}, or {"gap": why} where a part without conversion keeps the model from
being built. A process of its own, because it runs generated code.
"""

import importlib
import json
import sys
from pathlib import Path


def main(root: str, package: str, config: str) -> None:
    """Import the package from `root`, build its model abstractly, print its leaves."""
    sys.path.insert(0, root)
    module = importlib.import_module(package)
    try:
        model = module.Model.abstract(module.Config.from_json(Path(config)))
    except NotImplementedError as error:  # raised by the package's gaps.py
        sys.stdout.write(json.dumps({"gap": str(error)}) + "\n")
        return
    leaves = importlib.import_module(f"{package}.pretrained").leaves(model)
    sys.stdout.write(json.dumps([leaf.to_json() for leaf in leaves.values()]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
