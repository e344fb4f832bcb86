"""A package that cannot be built although its conversion found no gap: one more gap, with what raised and where."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxcode.errors import MaxCodeError
from maxcode.excerpts import excerpt

CODE = "CV190"


class BrokenPackageError(MaxCodeError):
    """The emitted package raises when its model is built.

    Args:
      reason: the exception's type and text.
      place: file of the package and line that raised, and the class that was being built ("" where there is none).
    """

    def __init__(self, reason: str, place: tuple[str, int, str]) -> None:
        self.reason, self.place = reason, place
        super().__init__("weights", f"the package cannot be built ({reason})", "a model", "report this with the target")


def as_gap(error: BrokenPackageError, conversion: Any, facts: Mapping[str, Any], package: str) -> dict[str, Any]:
    """The gap's record: in the source's class where that is known, and in the emitted line."""
    name, line, cls = error.place
    qualified = conversion.classes.get(cls, "")
    source = (facts.get("classes", {}).get(qualified) or {}).get("file") or ""
    gap = {
        "code": CODE,
        "file": source or f"{package}/{name}",
        "line": _line_of(source, cls) if source else line,
        "torch_name": qualified or cls or package,
        "reason": f"the converted class cannot be built: {error.reason}",
        "hint": "report this with the target",
    }
    if name not in conversion.files:
        return gap
    return gap | {"jax_file": f"{package}/{name}", "jax_line": line, "jax_lines": excerpt(conversion.files[name], line)}


def _line_of(path: str, cls: str) -> int:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    return next((n.lineno for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == cls), 0)
