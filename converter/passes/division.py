"""Keep divisions exact where their result is truncated to an integer.

XLA computes `x / scalar` as a product with the reciprocal, which may fall one ulp short of an integer and truncate to
the one below. Such a division is written so that XLA divides (`ops.divide`): bucket indices then equal torch's.
"""

import ast

from maxcode.converter.context import Context, Definition, seen
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import call, typed

_TRUNCATING = frozenset({"long", "int", "floor", "ceil", "round", "trunc", "short", "fix", "floor_divide"})
_INTEGERS = frozenset(
    {"torch.long", "torch.int64", "torch.int32", "torch.int", "torch.int16", "torch.int8", "torch.uint8"}
)


def divide_exactly(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the divisions of tensors by numbers that feed a truncation in a function."""
    types = Kinds(context, definition, function)
    marked: list[ast.AST] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _truncates(node, types):
            marked += [node.func, *node.args]
    assigned = {
        t.id: n.value
        for n in ast.walk(function)
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    for root in list(marked):
        marked += [assigned[n.id] for n in ast.walk(root) if isinstance(n, ast.Name) and n.id in assigned]
    divisions = {id(n) for root in marked for n in ast.walk(root) if isinstance(n, ast.BinOp) and _by_number(n, types)}
    if divisions:
        _Divide(context, divisions).visit(function)


def _truncates(node: ast.Call, types: Kinds) -> bool:
    name = ast.unparse(node.func).rsplit(".", 1)[-1]
    if name in _TRUNCATING and isinstance(node.func, ast.Attribute):
        return types.is_tensor(node.func.value) or ast.unparse(node.func.value) == "torch"
    values = [ast.unparse(v) for v in (*node.args, *(k.value for k in node.keywords))]
    return name in ("to", "type") and bool(_INTEGERS & set(values))


def _by_number(node: ast.BinOp, types: Kinds) -> bool:
    if not isinstance(node.op, ast.Div) or not types.is_tensor(node.left):
        return False
    return not types.is_tensor(node.right) or seen(node.right).get("ndims") == [0]


class _Divide(ast.NodeTransformer):
    def __init__(self, context: Context, divisions: set[int]) -> None:
        self.context, self.divisions = context, divisions

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if id(node) not in self.divisions:
            return node
        self.context.helpers.add("divide")
        self.context.imports.add("from . import ops")
        return typed(call("ops.divide", node.left, node.right), node)


EXAMPLES = (
    Example(
        "def f(x: torch.Tensor):\n    return (x / 3).long()",
        "def f(x: torch.Tensor):\n    return ops.divide(x, 3).long()",
    ),
    unchanged("def f(x: torch.Tensor):\n    return x / 3"),
)
