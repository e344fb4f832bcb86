"""A training script as a module: which of its statements define things, and which are the program."""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Files of which only what defines things is run when they are imported, with the line where the program begins.
CUTS: dict[str, int] = {}


def has_program(tree: ast.Module) -> bool:
    """Whether running the file does something: a main guard, a loop or a call at the top level."""
    return any(is_guard(s) or isinstance(s, ast.For | ast.While | ast.With) or _is_call(s) for s in tree.body)


def is_guard(statement: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    sides = [statement.test.left, *statement.test.comparators]
    names = {s.id for s in sides if isinstance(s, ast.Name)} | {s.value for s in sides if isinstance(s, ast.Constant)}
    return names == {"__name__", "__main__"}


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)


def first_line(tree: ast.Module) -> int:
    """Line of the first statement that only a run of the script reaches; past the end where there is none."""
    return next((s.lineno for s in tree.body if is_guard(s)), 1 << 30)


def cut(tree: ast.Module, line: int) -> ast.Module:
    """The module without the program: imports, definitions, and what else stands above `line`."""
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree.body = [s for s in tree.body if isinstance(s, kept) or (s.lineno < line and not is_guard(s))]
    return tree


class CutFinder(importlib.abc.MetaPathFinder):
    """Imports the files of `CUTS` without their programs; others are left to the ordinary finders."""

    def find_spec(self, fullname: str, path: Iterable[str] | None = None, target: Any = None) -> Any:
        """A spec with the cutting loader, or None."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin not in CUTS:
            return None
        spec.loader = CutLoader(fullname, spec.origin)
        return spec


class CutLoader(importlib.machinery.SourceFileLoader):
    """Loads a file of `CUTS`."""

    def get_code(self, fullname: str) -> Any:
        """Compile what defines things."""
        tree = cut(ast.parse(Path(self.path).read_bytes(), self.path), CUTS[self.path])
        return compile(tree, self.path, "exec", dont_inherit=True)


class RunAsMain(ast.NodeTransformer):
    """The main guard holds, whatever the module is called."""

    def visit_If(self, node: ast.If) -> ast.If:
        """Replace the guard's test."""
        if is_guard(node):
            node.test = ast.copy_location(ast.Constant(True), node.test)
        self.generic_visit(node)
        return node
