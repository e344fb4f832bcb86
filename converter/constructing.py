"""What rewriting a constructor asks of its parts."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.calls import CallGraph
from maxcode.converter.context import Definition, seen
from maxcode.converter.passes.needs import is_super_init

_UNFILLED = ("empty", "zeros", "randn", "rand", "Tensor", "FloatTensor")


def fqn(node: ast.expr) -> ast.expr:
    """`self.head.weight` as the name below the module, a constant."""
    return ast.Constant(ast.unparse(node).removeprefix("self."))


def is_unfilled(value: ast.expr) -> bool:
    """Whether a value only says how large a tensor is."""
    return isinstance(value, ast.Call) and tables.last(ast.unparse(value.func)) in _UNFILLED


def rank_of(node: ast.expr, value: ast.expr) -> int | None:
    """Dimensions of a parameter made by `node` from `value`; None where that is not known."""
    ranks = seen(node).get("ndims") or seen(value).get("ndims") or ()
    if len(ranks) == 1:
        return ranks[0]
    if isinstance(value, ast.Call) and is_unfilled(value):
        sizes = value.args
        if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
            return len(sizes[0].elts)
        return len(sizes)
    return None


def all_bases(graph: CallGraph, definition: Definition) -> list[ast.expr]:
    """Base class expressions of a class and of its converted bases."""
    found: list[ast.expr] = []
    current: Definition | None = definition
    while current is not None and isinstance(current.node, ast.ClassDef):
        found += current.node.bases
        current = graph.base(current)
    return found


def after_docstring(node: ast.ClassDef) -> int:
    """Where a class's body starts, below its docstring."""
    first = node.body[0] if node.body else None
    return (
        1
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        else 0
    )


def after_super(body: list[ast.stmt]) -> int:
    """Where a constructor goes on, below its `super().__init__(…)` or docstring."""
    for index, statement in enumerate(body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and is_super_init(statement.value):
            return index + 1
    first = body[0] if body else None
    return 1 if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else 0
