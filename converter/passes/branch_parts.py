"""What `branches` asks of the parts of a branch: what it binds, does and leaves, and in which shapes."""

import ast
from collections.abc import Iterator

from maxcode.converter.context import seen
from maxcode.converter.nodes import is_none, name, stored
from maxcode.converter.passes.loops import RESHAPING


def own(statement: ast.stmt) -> Iterator[ast.AST]:
    """Nodes of a statement without those of functions in it; none of one that defines a function."""
    pending: list[ast.AST] = [] if isinstance(statement, ast.FunctionDef) else [statement]
    while pending:
        node = pending.pop()
        yield node
        pending += [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.FunctionDef | ast.Lambda)]


def leaves(node: ast.If) -> bool:
    """Whether a branch without an `else` ends with `break` or `continue`."""
    return isinstance(node.body[-1], ast.Break | ast.Continue) and not node.orelse


def only_raises(body: list[ast.stmt]) -> bool:
    """Whether a block does nothing but raise."""
    return isinstance(body[-1], ast.Raise) and all(isinstance(s, ast.Raise | ast.Assign) for s in body)


def returns(body: list[ast.stmt]) -> bool:
    """Whether a block returns a value on every way through it."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return returns(last.body) and returns(last.orelse)
    return isinstance(last, ast.Return) and last.value is not None and not is_none(last.value)


def effect(node: ast.stmt, *, may_return: bool = False) -> str | None:
    """What a branch does beside binding names; None when that is all it does."""
    for child in own(node):
        if isinstance(child, ast.Attribute | ast.Subscript) and isinstance(child.ctx, ast.Store):
            return f"it sets {ast.unparse(child)}, which a compiled branch cannot"
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            return f"it calls {ast.unparse(child.value.func)} for an effect"
        if isinstance(child, ast.Break | ast.Continue | ast.Raise | ast.Yield | ast.Global | ast.Nonlocal):
            return f"it has a `{type(child).__name__.lower()}`"
        if isinstance(child, ast.Return) and not may_return:
            return "it returns from within a loop"
    return None


def assigned(node: ast.AST, variable: str) -> list[ast.expr]:
    """The values that a name gets within a statement."""
    found = [s for s in ast.walk(node) if isinstance(s, ast.Assign) and variable in stored([s])]
    return [s.value for s in found]


def shapes(node: ast.If, side: list[ast.stmt], variable: str) -> set[tuple[int, ...]]:
    """Shapes that runs saw a name have at the end of a branch; empty where none came to it."""
    assigned = [s for statement in side for s in ast.walk(statement) if isinstance(s, ast.Assign)]
    last = [s.value for s in assigned if [ast.unparse(t) for t in s.targets] == [variable]][-1:]
    if not last:
        last = [] if variable in stored(side) else [n for n in ast.walk(node) if reads_name(n, variable)][:1]
    return {tuple(shape) for value in last for shape in seen(value).get("shapes", ())}


def reshapes(side: list[ast.stmt], variable: str) -> bool:
    """Whether a branch that no run took cuts or joins what a name holds."""
    for statement in side:
        value = statement.value if isinstance(statement, ast.Assign) else None
        if value is None or [ast.unparse(t) for t in statement.targets] != [variable] or seen(value):
            continue
        if isinstance(value, ast.Subscript) and any(isinstance(n, ast.Slice) for n in ast.walk(value.slice)):
            return True
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in RESHAPING:
            return True
    return False


def reads_name(node: ast.AST, variable: str) -> bool:
    return isinstance(node, ast.Name) and node.id == variable and isinstance(node.ctx, ast.Load)


def packed(names: list[str]) -> ast.expr:
    """One name, or a tuple of several."""
    return name(names[0]) if len(names) == 1 else ast.Tuple([name(n) for n in names], ast.Load())


def function(title: str, parameters: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """A local function."""
    arguments = ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, [])
    return ast.FunctionDef(title, arguments, body or [ast.Pass()], [], None, type_params=[], lineno=0, col_offset=0)
