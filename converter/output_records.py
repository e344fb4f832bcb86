"""Which classes are output records of a framework: the package gets records of the same names and fields."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context


def is_record(context: Context, qualified: str) -> bool:
    """Whether a name is an output record of the framework or one derived from it."""
    for _ in range(6):
        if tables.last(qualified) in tables.RECORDS:
            return True
        located = context.project.outline(qualified)
        if located is None or not isinstance(located[1], ast.ClassDef):
            return False
        file, node, _ = located
        names = [ast.unparse(b) for b in node.bases]
        # A class may derive from an imported one of the same name.
        bases = [file.imports.get(n) if n == node.name else file.qualify(n.split(".")[0]) for n in names]
        if not bases or bases[0] is None:
            return False
        qualified = bases[0]
    return False
