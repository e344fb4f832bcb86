"""Write positions that follow a start as the start plus a count: the start may be a cache's length.

`torch.arange(past, past + n)` has `n` elements whatever `past` is, which only its spelling says: while decoding is
compiled the start is not known, and the size has to be.
"""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import stored, typed


def count_ranges(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite such ranges of a function."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for variable in stored(node.targets):
                assigned.setdefault(variable, []).append(node.value)
    _Count({n: values[0] for n, values in assigned.items() if len(values) == 1}).visit(function)


class _Count(ast.NodeTransformer):
    def __init__(self, assigned: dict[str, ast.expr]) -> None:
        self.assigned = assigned

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func) != "torch.arange" or len(node.args) != 2:
            return node
        start, end = node.args
        end = self.assigned.get(end.id, end) if isinstance(end, ast.Name) else end
        count = _added(end, ast.unparse(start))
        if count is None or isinstance(start, ast.Constant) or not _is_plain(start):
            return node
        counted = ast.copy_location(ast.Call(node.func, [count], node.keywords), node)
        return typed(ast.BinOp(counted, ast.Add(), start), node)


def _added(end: ast.expr, start: str) -> ast.expr | None:
    """What an end adds to its start."""
    if not (isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add)):
        return None
    if ast.unparse(end.left) == start:
        return end.right
    return end.left if ast.unparse(end.right) == start else None


def _is_plain(start: ast.expr) -> bool:
    """Whether a start is a name or an attribute, which a second reading does not change."""
    return isinstance(start, ast.Name) or (isinstance(start, ast.Attribute) and _is_plain(start.value))


EXAMPLES = (
    Example(
        """
        def f(x: torch.Tensor, past: int):
            end = x.shape[1] + past
            return torch.arange(past, end, device=x.device) + torch.arange(past, past + x.shape[1])
        """,
        """
        def f(x: torch.Tensor, past: int):
            end = x.shape[1] + past
            return torch.arange(x.shape[1], device=x.device) + past + (torch.arange(x.shape[1]) + past)
        """,
    ),
    unchanged("def f(a: int, b: int):\n    return torch.arange(a, b) + torch.arange(2, 2 + b)"),
)
