"""Evaluate what is constant: conditions on constants, branches never taken, names that hold only None or False."""

import ast
from typing import Any

from maxcode.converter.context import Context, Definition, kinds
from maxcode.converter.example import Example, unchanged

_UNKNOWN = object()
_PARTS = ("children", "modules", "named_children", "named_modules", "named_parameters", "parameters")
# Calls that a loop may run over without effect: what is left of a loop that only initialised random weights.
_LOOKING = frozenset(
    """buffers children dict enumerate items keys len list modules named_buffers named_children named_modules
    named_parameters parameters range reversed sorted tuple values zip""".split()  # noqa: SIM905
)


def value_of(node: ast.expr) -> Any:
    """The Python value of a constant expression, else a marker that `is_known` refuses."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = value_of(node.operand)
        return (not value) if is_known(value) else _UNKNOWN
    if isinstance(node, ast.Dict) and not node.keys:
        return {}
    return _UNKNOWN


def is_known(value: Any) -> bool:
    """Whether `value_of` found a value."""
    return value is not _UNKNOWN


def fold_constants(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Fold a function; a configuration is of no class that the package's `config.py` does without."""
    _Configurations(context, definition).visit(function)
    Fold().visit(function)


class _Configurations(ast.NodeTransformer):
    """Answer `isinstance(self.config, OtherConfig)`, where a file serves models of several configurations."""

    def __init__(self, context: Context, definition: Definition) -> None:
        self.context, self.definition = context, definition

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        asks = isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2
        if not asks or kinds(node.args[0]) != {"config"} or not isinstance(node.args[1], ast.Name):
            return node
        qualified = self.definition.file.qualify(node.args[1].id) or ""
        known = self.context.config_classes
        if ".configuration_" not in qualified or not known or qualified.rpartition(".")[2] in known:
            return node
        return ast.copy_location(ast.Constant(False), node)


class Fold(ast.NodeTransformer):
    """Fold constants bottom-up; statements that fall away leave their comments behind with them."""

    exact = False  # whether the value counts, not only its truth

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self._truth(node.operand) if isinstance(node.op, ast.Not) else self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            value = value_of(node.operand)
            if is_known(value):
                return ast.copy_location(ast.Constant(not value), node)
            if isinstance(node.operand, ast.Compare) and len(node.operand.ops) == 1:
                flipped = {ast.Is: ast.IsNot, ast.IsNot: ast.Is}.get(type(node.operand.ops[0]))
                if flipped:
                    node.operand.ops = [flipped()]
                    return node.operand
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        if self.exact:
            return node
        decisive = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for position, operand in enumerate(node.values):
            is_last = position == len(node.values) - 1
            value = value_of(operand)
            if is_known(value):
                if bool(value) == decisive:
                    if not kept:
                        return operand
                    kept.append(operand)
                    break
                last_dropped = operand
                if is_last and kept and isinstance(operand, ast.Dict):
                    kept.append(operand)  # `x or {}` is a dictionary, whatever x is
                continue
            if _is_repeated(operand, kept, is_last):
                continue
            if not decisive and all(map(_is_truth, kept)) and any(_contrary(operand, other) for other in kept):
                return ast.copy_location(ast.Constant(False), node)
            kept.append(operand)
        if not kept:
            return last_dropped
        if len(kept) == 1:
            return kept[0]
        node.values = kept
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        # `and`/`or` keep their truth when folded, not always their value, which a comparison would see.
        exact, self.exact = self.exact, True
        self.generic_visit(node)
        self.exact = exact
        if len(node.ops) != 1:
            return node
        left, right = value_of(node.left), value_of(node.comparators[0])
        operation = type(node.ops[0])
        if is_known(left) and is_known(right):
            result = _compare(left, operation, right)
            if result is not None:
                return ast.copy_location(ast.Constant(result), node)
        if operation in (ast.Is, ast.IsNot) and is_known(right) and _is_truth(node.left):
            # `(x is not None) is True` asks the same as `x is not None`.
            if right is None:
                return ast.copy_location(ast.Constant(operation is ast.IsNot), node)
            if isinstance(right, bool):
                same = right == (operation is ast.Is)
                return node.left if same else self.visit(ast.UnaryOp(ast.Not(), node.left))
        return node

    def _truth(self, node: ast.expr) -> ast.expr:
        """Visit an expression of which only the truth counts."""
        exact, self.exact = self.exact, False
        visited = self.visit(node)
        self.exact = exact
        return visited

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = self._truth(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        value = value_of(node.test)
        if is_known(value):
            return node.body if value else node.orelse
        if _same(node.body, node.orelse):
            return node.body
        subject = _not_none_subject(node.test)
        if subject is not None and _same(subject, node.body) and value_of(node.orelse) is None:
            return node.body
        return node

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        value = value_of(node.test)
        if is_known(value):
            return _spliced(node.body if value else node.orelse)
        if _only_pass(node.body):
            if _only_pass(node.orelse) or not node.orelse:
                return None
            node.test, node.body, node.orelse = self.visit(ast.UnaryOp(ast.Not(), node.test)), node.orelse, []
        if _only_pass(node.orelse):
            node.orelse = []
        return node

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        value = value_of(node.test)
        return None if is_known(value) and not value else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.body = _until_return(node.body) or [ast.Pass()]
        return node

    def visit_For(self, node: ast.For) -> ast.For | None:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        idle = _only_pass(node.body) and _only_looks(node.iter)
        return None if (idle or _only_measures(node)) and not node.orelse else node

    def visit_With(self, node: ast.With) -> ast.With:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node


def _until_return(body: list[ast.stmt]) -> list[ast.stmt]:
    for index, statement in enumerate(body):
        if isinstance(statement, ast.Return | ast.Raise):
            return body[: index + 1]
    return body


def _spliced(body: list[ast.stmt]) -> list[ast.stmt] | None:
    return [statement for statement in body if not isinstance(statement, ast.Pass)] or None


def _only_pass(body: list[ast.stmt]) -> bool:
    return bool(body) and all(isinstance(s, ast.Pass) for s in body)


def _only_measures(loop: ast.For) -> bool:
    """Whether a loop over a module's parts does nothing but name values: what initialising weights leaves behind."""
    iterable = loop.iter
    method = iterable.func.attr if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Attribute) else ""
    return method in _PARTS and all(map(_only_names, loop.body))


def _only_names(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(map(_only_names, (*statement.body, *statement.orelse)))
    if isinstance(statement, ast.Assign):
        return all(isinstance(t, ast.Name) for t in statement.targets)
    return isinstance(statement, ast.Pass)


def _only_looks(iterable: ast.expr) -> bool:
    """Whether running through an iterable changes nothing."""
    calls = (n.func for n in ast.walk(iterable) if isinstance(n, ast.Call))
    return all(ast.unparse(function).rpartition(".")[2] in _LOOKING for function in calls)


def _compare(left: Any, operation: type, right: Any) -> bool | None:
    try:
        table = {
            ast.Is: lambda: left is right, ast.IsNot: lambda: left is not right, ast.Eq: lambda: left == right,
            ast.NotEq: lambda: left != right, ast.Lt: lambda: left < right, ast.LtE: lambda: left <= right,
            ast.Gt: lambda: left > right, ast.GtE: lambda: left >= right, ast.In: lambda: left in right,
            ast.NotIn: lambda: left not in right,
        }  # fmt: skip
        return bool(table[operation]()) if operation in table else None
    except TypeError:
        return None


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression is a comparison, so always True or False."""
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _not_none_subject(test: ast.expr) -> ast.expr | None:
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and value_of(test.comparators[0]) is None:
        return test.left
    return None


def _is_repeated(operand: ast.expr, kept: list[ast.expr], is_last: bool) -> bool:
    """Whether an operand was asked before, so adds nothing: calls may differ, the last one is the whole's value."""
    if any(isinstance(n, ast.Call | ast.NamedExpr | ast.Await) for n in ast.walk(operand)):
        return False
    return any(_same(operand, other) for other in (kept[-1:] if is_last else kept))


def _same(left: ast.AST, right: ast.AST) -> bool:
    return ast.dump(left) == ast.dump(right)


def _contrary(left: ast.expr, right: ast.expr) -> bool:
    """Whether one operand is `a is None` and the other `a is not None`."""
    if not (isinstance(left, ast.Compare) and isinstance(right, ast.Compare)):
        return False
    operations = {type(left.ops[0]), type(right.ops[0])}
    return (
        operations == {ast.Is, ast.IsNot}
        and _same(left.left, right.left)
        and _same(left.comparators[0], right.comparators[0])
    )


EXAMPLES = (
    Example(
        """
        def f(self, made):
            for name, layer in self.named_modules():
                if isinstance(layer, nn.Linear):
                    pass
            for layer in self.build(made):
                pass
            return made
        """,
        """
        def f(self, made):
            for layer in self.build(made):
                pass
            return made
        """,
    ),
    Example(
        """
        def f(x):
            if None is not None:
                return 0
            y = x if True else 1
            if False and x:
                y = 2
            else:
                y = 3
            return y
            y = 4
        """,
        """
        def f(x):
            y = x
            y = 3
            return y
        """,
    ),
    Example(
        """
        def f(x):
            if x is None:
                pass
            else:
                x = x + 1
            while False:
                x = 0
            return x
        """,
        """
        def f(x):
            if x is not None:
                x = x + 1
            return x
        """,
    ),
    unchanged("def f(x, y):\n    return (x and y) is True"),
)
