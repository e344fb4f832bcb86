"""Write what dropped plumbing has left behind the way a person would.

Names assigned to themselves, casts of a value to its own dtype, tests inside the same test, one configuration replaced
field by field, and remarks on arguments that are gone.
"""

import ast

from maxcode.converter.context import Context, Definition, kinds
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import blocks, stored
from maxcode.converter.passes.fold import Fold
from maxcode.converter.passes.tidy import is_pure

_COMMENTS = ("leading", "following")


def simplify(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Simplify one function until nothing changes."""
    _Casts(context).visit(function)
    Fold().visit(function)
    changed = True
    while changed:
        changed = False
        for block in blocks(function):
            before = len(block)
            block[:] = _joined(_decided(block)) or [ast.Pass()]
            changed |= len(block) != before
            for statement in block:
                changed |= isinstance(statement, ast.If) and _merge_tests(statement)
    _drop_remarks(function)


class _Casts(ast.NodeTransformer):
    """Drop `x.astype(x.dtype)`, and fields of output records that are None anyway."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and "record" in kinds(node):
            node.keywords = [
                k for k in node.keywords if not (isinstance(k.value, ast.Constant) and k.value.value is None)
            ]
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "astype" and len(node.args) == 1):
            return node
        value, dtype = node.func.value, node.args[0]
        own = isinstance(dtype, ast.Attribute) and dtype.attr == "dtype" and _same(dtype.value, value)
        return value if own and is_pure(value) else node


def _decided(block: list[ast.stmt]) -> list[ast.stmt]:
    """A block without assignments that change nothing and with tests answered by the test around them."""
    kept: list[ast.stmt] = []
    for statement in block:
        if _is_idle(statement) or (kept and _same(kept[-1], statement) and _is_plain(statement)):
            continue
        if isinstance(statement, ast.If):
            statement.body = _assuming(statement.test, statement.body, True) or [ast.Pass()]
            statement.orelse = _assuming(statement.test, statement.orelse, False)
        kept.append(statement)
    return kept


def _assuming(test: ast.expr, body: list[ast.stmt], outcome: bool) -> list[ast.stmt]:
    """A block that runs where `test` was `outcome`: it does not ask the same again before what `test` reads changes."""
    if not is_pure(test):
        return body
    read = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
    for index, statement in enumerate(body):
        if isinstance(statement, ast.If):
            answer = _answer(test, statement.test)
            if answer is not None:
                taken = statement.body if answer == outcome else statement.orelse
                _keep_comments(statement, taken)
                return [*body[:index], *_assuming(test, taken, outcome), *body[index + 1 :]]
        attributes = any(isinstance(n, ast.Attribute | ast.Call) for n in ast.walk(statement))
        if read & set(stored([statement])) or ("self" in read and attributes):
            break
    return body


def _answer(known: ast.expr, asked: ast.expr) -> bool | None:
    """Whether `asked` has the outcome of `known` (True), the contrary one (False), or neither is certain."""
    if _same(known, asked):
        return True
    if isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not) and _same(known, asked.operand):
        return False
    both = isinstance(known, ast.Compare) and isinstance(asked, ast.Compare)
    if both and len(known.ops) == len(asked.ops) == 1 and _same(known.left, asked.left):
        contrary = {type(known.ops[0]), type(asked.ops[0])} == {ast.Is, ast.IsNot}
        if contrary and _same(known.comparators[0], asked.comparators[0]):
            return False
    return None


def _merge_tests(outer: ast.If) -> bool:
    """`if a:` with nothing but `if b:` in it becomes `if a and b:`."""
    inner = outer.body[0]
    if len(outer.body) != 1 or not isinstance(inner, ast.If) or outer.orelse or inner.orelse:
        return False
    if any(getattr(inner, field, None) for field in (*_COMMENTS, "trailing")):
        return False  # the remark is about the inner test
    parts = [v for t in (outer.test, inner.test) for v in (t.values if _is_and(t) else [t])]
    outer.test = ast.copy_location(ast.BoolOp(ast.And(), parts), outer.test)
    outer.body = inner.body
    return True


def _joined(block: list[ast.stmt]) -> list[ast.stmt]:
    """`c = x; c = c.replace(a=1); c = c.replace(b=2)` as one statement, where `c` is a configuration."""
    kept: list[ast.stmt] = []
    for statement in block:
        previous = kept[-1] if kept else None
        call = _replacing(statement)
        if call is None or not isinstance(previous, ast.Assign) or not _same(previous.targets[0], statement.targets[0]):
            kept.append(statement)
            continue
        target, earlier = statement.targets[0].id, previous.value
        reads = any(isinstance(n, ast.Name) and n.id == target for k in call.keywords for n in ast.walk(k.value))
        if reads:
            kept.append(statement)
        elif isinstance(earlier, ast.Call) and _is_replace(earlier):
            given = {k.arg for k in call.keywords}
            earlier.keywords = [k for k in earlier.keywords if k.arg not in given] + call.keywords
            _keep_comments(statement, [previous])
        elif isinstance(previous.value, ast.Name | ast.Attribute):
            call.func.value = previous.value
            previous.value = call
            _keep_comments(statement, [previous])
        else:
            kept.append(statement)
    return kept


def _replacing(statement: ast.stmt) -> ast.Call | None:
    """The call of `c = c.replace(…)` on a configuration."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return None
    value = statement.value
    if not (isinstance(value, ast.Call) and _is_replace(value)):
        return None
    return value if ast.unparse(value.func.value) == statement.targets[0].id else None


def _is_replace(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "replace" and "config" in kinds(node)


def _keep_comments(gone: ast.stmt, stand: list[ast.stmt]) -> None:
    if stand and getattr(gone, "leading", None):
        stand[0].leading = [*gone.leading, *getattr(stand[0], "leading", [])]


def _drop_remarks(function: ast.FunctionDef) -> None:
    """Drop the remarks that stood beside an argument which is no longer passed."""
    for statement in ast.walk(function):
        for text, keyword in getattr(statement, "remarks", ()):
            passed = {n.arg for n in ast.walk(statement) if isinstance(n, ast.keyword)}
            if keyword not in passed and getattr(statement, "trailing", ""):
                statement.trailing = statement.trailing.replace(text, "").strip()


def _is_idle(statement: ast.stmt) -> bool:
    """`x = x`."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return False
    target, value = statement.targets[0], statement.value
    return isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id == value.id


def _is_plain(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and is_pure(statement.value)


def _is_and(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)


def _same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)


EXAMPLES = (
    Example(
        """
        def f(x, labels):
            labels = labels
            return x.astype(x.dtype) * labels
        """,
        """
        def f(x, labels):
            return x * labels
        """,
    ),
    Example(
        """
        def f(x, cache, flag):
            if cache is not None:
                if cache is None:
                    cache = 1
                x = x + cache
            if not flag:
                if not flag:
                    x = x * 2
            if x > 0:
                if flag:
                    x = x - 1
            return x
        """,
        """
        def f(x, cache, flag):
            if cache is not None:
                x = x + cache
            if not flag:
                x = x * 2
            if x > 0 and flag:
                x = x - 1
            return x
        """,
    ),
    unchanged("def f(x, c):\n    if c is None:\n        c = x\n        if c is None:\n            x = 1\n    return x"),
    unchanged("def f(x, y):\n    return x.astype(y.dtype)"),
)
