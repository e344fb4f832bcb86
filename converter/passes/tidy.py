"""Remove what the other passes left behind: unused local names, device bookkeeping, statements without effect."""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import blocks
from maxcode.converter.passes.fold import Fold

_PURE = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.Subscript,
    ast.Tuple,
    ast.List,
    ast.IfExp,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Dict,
)


def tidy(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Fold and drop until nothing changes; blocks start without a blank line."""
    Fold().visit(function)
    while remove_unused(function):
        pass
    _mark_unused(function)
    for block in blocks(function):
        if block:
            block[0].spaced = False


def remove_unused(function: ast.FunctionDef) -> bool:
    """Drop assignments of pure expressions to names that are never read; True when something was dropped."""
    used = _used(function)
    used |= {ast.unparse(n.target) for n in ast.walk(function) if isinstance(n, ast.AugAssign)}
    dropper = _Drop(used)
    function.body = dropper.block(function.body) or [ast.Pass()]
    return dropper.dropped


def _used(function: ast.FunctionDef) -> set[str]:
    """Names that a function reads, or that it shares with others as globals."""
    shared = {n for node in ast.walk(function) if isinstance(node, ast.Global) for n in node.names}
    return shared | {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _mark_unused(function: ast.FunctionDef) -> None:
    """Write `_` for a part of an unpacked value that nothing reads any more; what the source left unread stays."""
    used = _used(function)
    if "_" in used:
        return
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            if ast.unparse(node.value).endswith(".shape"):
                continue  # names of sizes say what the axes are
            for element in node.targets[0].elts:
                if isinstance(element, ast.Name) and element.id not in used:
                    element.id = "_"


class _Drop:
    def __init__(self, used: set[str]) -> None:
        self.used, self.dropped = used, False

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        kept = []
        for statement in body:
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, None)
                if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                    setattr(statement, name, self.block(inner) or ([ast.Pass()] if name == "body" else []))
            if self._is_dead(statement):
                self.dropped = True
            else:
                kept.append(statement)
        return kept

    def _is_dead(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets: list[ast.expr] = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            return False
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        return len(names) == len(targets) and not set(names) & self.used and is_pure(statement.value)


def is_pure(node: ast.expr) -> bool:
    """Whether evaluating an expression has no effect and calls nothing."""
    return all(isinstance(n, _PURE) or not isinstance(n, ast.expr) for n in ast.walk(node))


EXAMPLES = (
    Example(
        """
        def f(x):
            unused = x.shape
            twice = unused
            return x
        """,
        """
        def f(x):
            return x
        """,
    ),
    Example("def f(x):\n    y, z = g(x)\n    return y", "def f(x):\n    y, _ = g(x)\n    return y"),
    unchanged("def f(x):\n    row = x[0]\n    row += 1\n    return x"),
    unchanged("def f(x):\n    called = x.pop()\n    return x"),
)
