"""List the arrays of an emitted package without allocating them: `python -m maxcode.leaf_table ROOT PACKAGE CONFIG`.

Prints one JSON list of {"fqn", "shape", "dtype"}, or {"gap": why} where a part without conversion keeps the model from
being built, or {"broken": why, "file", "line", "class"} where anything else does. A process of its own, because it runs
generated code.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> None:
    """Import the package from its root, build its model abstractly, print its leaves."""
    root, package, config = arguments
    sys.path.insert(0, root)
    try:
        module = importlib.import_module(package)
        model = module.Model.abstract(module.Config.from_json(Path(config)))
    except NotImplementedError as error:  # raised by the package's gaps.py
        sys.stdout.write(json.dumps({"gap": str(error)}) + "\n")
        return
    except Exception as error:  # generated code may raise anything
        sys.stdout.write(json.dumps(_broken(error, Path(root) / package)) + "\n")
        return
    leaves = importlib.import_module(f"{package}.pretrained").leaves(model)
    sys.stdout.write(json.dumps([leaf.to_json() for leaf in leaves.values()]) + "\n")


def _broken(error: Exception, folder: Path) -> dict[str, Any]:
    """Where in the package an exception came from: the last line of its model code, else of any file."""
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__) if Path(f.f_code.co_filename).is_relative_to(folder)]
    own = [f for f in frames if Path(f.f_code.co_filename).name == "modeling.py"] or frames
    text = " ".join(str(error).split())[:300]
    found: dict[str, Any] = {"broken": f"{type(error).__name__}: {text}", "file": "", "line": 0, "class": ""}
    if own:
        file = Path(own[-1].f_code.co_filename).relative_to(folder).as_posix()
        built = own[-1].f_locals.get("self")
        found |= {"file": file, "line": own[-1].f_lineno, "class": "" if built is None else type(built).__name__}
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
