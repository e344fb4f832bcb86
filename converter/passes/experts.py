"""Replace the loop over experts by sorted, dropless dispatch.

The loop picks, for each expert that any token chose, the rows routed to it (`slot, token = where(mask[expert])`), runs
them through that expert's slice of the stacked weights, and adds the weighted result back. Sorting the rows by expert
lets one grouped product per weight do the same for all experts at once.
"""

import ast
from dataclasses import dataclass

from maxcode.converter.context import Context, Definition
from maxcode.converter.nodes import assign, attribute, blocks, call, dress, loads, name, typed

_TENSOR = {"kinds": ["tensor"]}


def _array(new: ast.expr, old: ast.expr) -> ast.expr:
    """`new` with the facts of `old`, and known to be a tensor even where the loop never ran."""
    new = typed(new, old)
    if not getattr(new, "seen", None):
        new.seen = dict(_TENSOR)
    return new


@dataclass
class _Loop:
    """What was recognised."""

    statement: ast.For
    expert: str
    mask: str
    token: str
    slot: str
    router: ast.expr
    num_experts: ast.expr


def dispatch_experts(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite every expert loop of a function."""
    for block in list(blocks(function)):
        for index, statement in enumerate(block):
            if isinstance(statement, ast.For):
                loop = _recognise(block[:index], statement)
                if loop is not None:
                    block[:] = _rewritten(context, block, index, loop)
                    break


def _recognise(before: list[ast.stmt], statement: ast.For) -> _Loop | None:
    if not isinstance(statement.target, ast.Name):
        return None
    for inner in statement.body:
        if not (
            isinstance(inner, ast.Assign)
            and isinstance(inner.targets[0], ast.Tuple)
            and isinstance(inner.value, ast.Call)
        ):
            continue
        where, names = inner.value, inner.targets[0].elts
        if not (ast.unparse(where.func).endswith("where") and len(where.args) == 1 and len(names) == 2):
            continue
        chosen = where.args[0]
        if not (isinstance(chosen, ast.Subscript) and isinstance(chosen.value, ast.Name)):
            continue
        one_hot = _one_hot(before, chosen.value.id)
        if one_hot is None:
            return None
        slot, token = (n.id for n in names)
        classes = one_hot.keywords[0].value if one_hot.keywords else one_hot.args[1]
        return _Loop(
            statement, statement.target.id, chosen.value.id, token, slot, one_hot.args[0], _without_mask_class(classes)
        )
    return None


def _one_hot(before: list[ast.stmt], mask: str) -> ast.Call | None:
    """The `one_hot(indices, num_classes=…)` that a mask was made by, through permutes of the same name."""
    for statement in before:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == mask:
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("one_hot"):
                    return node
    return None


def _without_mask_class(classes: ast.expr) -> ast.expr:
    if isinstance(classes, ast.BinOp) and isinstance(classes.op, ast.Add) and ast.unparse(classes.right) == "1":
        return classes.left
    return classes


def _rewritten(context: Context, block: list[ast.stmt], index: int, loop: _Loop) -> list[ast.stmt]:
    """The block with the loop's body run once over all experts."""
    total = _accumulator(loop)
    helpers = {loop.mask} | {n.id for n in loads([loop.statement.iter])}
    zeros = next((s.value for s in block[:index] if _assigns(s, {total})), None)
    kept = [s for s in block[:index] if not _assigns(s, helpers | {total})]
    groups = assign(
        "groups", call(context.use("moe", "group_by_expert"), loop.router, loop.num_experts), loop.statement
    )
    body = _Grouped(loop, total, zeros)
    inner = [new for s in loop.statement.body if (new := body.statement(s)) is not None]
    if inner:
        inner[0].spaced = False
    return [*kept, groups, *inner, *block[index + 1 :]]


def _assigns(statement: ast.stmt, names: set[str]) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id in names
    )


def _accumulator(loop: _Loop) -> str:
    for node in ast.walk(loop.statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "index_add_":
            return ast.unparse(node.func.value)
    return ""


class _Grouped(ast.NodeTransformer):
    def __init__(self, loop: _Loop, total: str, zeros: ast.expr | None) -> None:
        self.loop, self.total = loop, total
        # The accumulator was made like the hidden states, so asking its dtype is asking theirs.
        self.like = zeros.args[0] if isinstance(zeros, ast.Call) and zeros.args else name(total)

    def statement(self, node: ast.stmt) -> ast.stmt | None:
        expert = self.loop.expert
        if _assigns(node, {expert}) or (isinstance(node, ast.If) and expert in {n.id for n in loads([node.test])}):
            return None
        if isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Continue):
            asked = {n.id for n in loads([node.test])}
            if asked & {self.loop.token, self.loop.slot} and not node.orelse:
                return None  # an expert without tokens: its group is empty
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func).endswith("where")
        ):
            return None
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == f"{self.total}.index_add_"
        ):
            combined = call(attribute("groups", "combine"), self.visit(node.value.args[2]))
            return assign(self.total, _array(combined, node.value.func.value), node)
        return dress(self.visit(node), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        short = ast.unparse(node.func).rsplit(".", 1)[-1]
        weights = [w for w in (self._stacked(a) for a in node.args[1:]) if w is not None]
        if short == "linear" and len(weights) == len(node.args) - 1 and weights:
            arguments = [self.visit(node.args[0]), *weights]
            return _array(call(attribute("groups", "linear"), *arguments), node)
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        weight = self._stacked(node.right)
        if isinstance(node.op, ast.MatMult) and weight is not None:
            return _array(call(attribute("groups", "matmul"), self.visit(node.left), weight), node)
        self.generic_visit(node)
        return node

    def _stacked(self, node: ast.expr) -> ast.expr | None:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == self.loop.expert:
            return node.value
        return None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        parts = {self.loop.token: "token", self.loop.slot: "slot", self.loop.expert: "expert"}
        if isinstance(node.ctx, ast.Load) and node.id in parts:
            return _array(attribute("groups", parts[node.id]), node)
        if isinstance(node.ctx, ast.Load) and node.id == self.total:
            return typed(ast.parse(ast.unparse(self.like), mode="eval").body, node)
        return node
