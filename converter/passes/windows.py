"""Slices that start where a cache ends: the start is known when the program runs, only the size when it is compiled.

`x[:, past : past + n]` becomes `ops.window(x, past, n, 1)`, with `past` a parameter or a name that the cache's length
went into.
"""

import ast

from maxcode.converter.context import Context, Definition, kinds
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import call, typed
from maxcode.converter.rule import OPS_IMPORT

_LENGTH = "get_seq_length"


def convert_windows(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the slices of one function."""
    if function.name != "__init__":
        Windows(context, _late_names(function)).visit(function)


def _late_names(function: ast.FunctionDef) -> frozenset[str]:
    """Names that may hold a traced integer: parameters that are numbers, and what is made of a cache's length."""
    arguments = function.args
    parameters = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    numbers = {
        n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.id in parameters and "int" in kinds(n) and kinds(n) <= {"int", "none"}
    }
    made = {
        t.id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and any(isinstance(a, ast.Attribute) and a.attr == _LENGTH for a in ast.walk(n))
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    return frozenset(numbers | made)


class Windows(ast.NodeTransformer):
    """The subscripts of one function."""

    def __init__(self, context: Context, late: frozenset[str]) -> None:
        self.context, self.late = context, late

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return node
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found = [(axis, part) for axis, part in enumerate(parts) if not _is_whole(part)]
        if len(found) != 1 or not isinstance(found[0][1], ast.Slice):
            return node
        axis, window = found[0]
        size = self._size(window)
        if size is None:
            return node
        self.context.helpers.add("window")
        self.context.imports.add(OPS_IMPORT)
        return typed(call("ops.window", node.value, window.lower, size, ast.Constant(axis)), node)

    def _size(self, window: ast.Slice) -> ast.expr | None:
        """`n` of the slice `a : a + n`, where `a` may be traced."""
        start, end = window.lower, window.upper
        if not (isinstance(start, ast.Name) and start.id in self.late) or window.step is not None:
            return None
        if not (isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add)):
            return None
        sides = {ast.unparse(end.left): end.right, ast.unparse(end.right): end.left}
        return sides.get(start.id)


def _is_whole(part: ast.expr) -> bool:
    return isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None


EXAMPLES = (
    Example(
        """
        def rows(table, cache, n: int, past: int = 0):
            length = cache.get_seq_length() if cache is not None else 0
            return table[:, length : n + length] + table[past : past + n]  # past: int
        """,
        """
        def rows(table, cache, n: int, past: int = 0):
            length = cache.get_seq_length() if cache is not None else 0
            return ops.window(table, length, n, 1) + ops.window(table, past, n, 0)  # past: int
        """,
    ),
    unchanged(
        """
        def parts(x, start: int, size):
            first = size * 2
            return x[..., first : first + 3], x[start:first], x[start : start + 2, 0]  # start: int
        """
    ),
)
