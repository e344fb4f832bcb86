"""Which backends a package lists, read from its source without running it."""

import ast
from pathlib import Path

FIELDS = {"attention": "attention", "moe": "experts"}  # module that lists BACKENDS -> configuration field
DEFAULTS = frozenset({"eager", "auto"})


def listed_backends(package: Path) -> dict[str, list[str]]:
    """Names by configuration field: the keys or items of a module-level BACKENDS, the default left out."""
    found = {}
    for module, field in FIELDS.items():
        path = package / f"{module}.py"
        if path.exists() and (names := _backends(ast.parse(path.read_text()))):
            found[field] = [name for name in names if name not in DEFAULTS]
    return found


def _backends(tree: ast.Module) -> list[str]:
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "BACKENDS":
            items = node.value.keys if isinstance(node.value, ast.Dict) else getattr(node.value, "elts", [])
            return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return []


def backend_checks(package: Path) -> list[str]:
    """One check name for each listed backend."""
    return [f"backend:{name}" for names in listed_backends(package).values() for name in names]
