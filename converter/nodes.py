"""Small builders and readers of syntax trees that several passes share."""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from maxcode.converter.context import copy_facts, seen

COMMENT_FIELDS = (
    "leading",
    "trailing",
    "remarks",
    "following",
    "spaced",
    "file",
)  # what a statement carries beside its syntax


def name(identifier: str) -> ast.Name:
    """A loaded name."""
    return ast.Name(identifier, ast.Load())


def attribute(value: ast.expr | str, attr: str) -> ast.Attribute:
    """A loaded attribute of an expression or name."""
    return ast.Attribute(name(value) if isinstance(value, str) else value, attr, ast.Load())


def call(function: ast.expr | str, *args: ast.expr, **keywords: ast.expr) -> ast.Call:
    """A call; a string function is a dotted name."""
    target = dotted(function) if isinstance(function, str) else function
    return ast.Call(target, list(args), [ast.keyword(k, v) for k, v in keywords.items()])


def dotted(text: str) -> ast.expr:
    """An expression parsed from text."""
    return ast.parse(text, mode="eval").body


def assign(target: str | list[str], value: ast.expr, like: ast.stmt | None = None) -> ast.Assign:
    """`target = value`, or tuple unpacking for a list of names; placed and commented like the statement `like`."""
    names = [target] if isinstance(target, str) else target
    stores: list[ast.expr] = [ast.Name(n, ast.Store()) for n in names]
    node = ast.Assign([stores[0] if len(stores) == 1 else ast.Tuple(stores, ast.Store())], value)
    return dress(node, like) if like is not None else node


def dress(new: ast.stmt, old: ast.stmt) -> ast.stmt:
    """Give a statement the comments, spacing and position of the one it replaces."""
    for field in COMMENT_FIELDS:
        if hasattr(old, field):
            setattr(new, field, getattr(old, field))
    return ast.copy_location(new, old)


def is_none(node: ast.AST | None) -> bool:
    """Whether a node is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None


def with_defaults(function: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr | None]]:
    """Every named parameter with its default, if it has one."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    return [*zip(positional, missing + arguments.defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]


def union_options(annotation: ast.expr) -> list[ast.expr]:
    """The options of `A | B | …`."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return [*union_options(annotation.left), *union_options(annotation.right)]
    return [annotation]


def join_options(options: list[ast.expr]) -> ast.expr:
    """`A | B | …` of the options."""
    result = options[0]
    for option in options[1:]:
        result = ast.BinOp(result, ast.BitOr(), option)
    return result


def typed(new: ast.expr, old: ast.expr) -> ast.expr:
    """Give a made expression the facts of the value it stands for, but not the torch name that was called."""
    new.seen = {k: v for k, v in seen(old).items() if k != "callee"}
    if not new.seen and isinstance(old, ast.Call | ast.BinOp):
        del new.seen  # code that never ran: its kind is inferred
    new.fact = getattr(old, "fact", None)
    if hasattr(old, "file"):
        new.file = old.file
    return ast.copy_location(new, old)


def copied(node: ast.AST, mark: Callable[[Any, Any], Any] = copy_facts) -> Any:
    """A copy of a tree with its facts and places, or with what else `mark(new, old)` carries over."""
    fields = {
        field: [copied(v, mark) if isinstance(v, ast.AST) else v for v in value]
        if isinstance(value, list)
        else copied(value, mark)
        if isinstance(value, ast.AST)
        else value
        for field, value in ast.iter_fields(node)
    }
    return mark(type(node)(**fields), node)


def loads(nodes: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """Names read anywhere below the nodes."""
    for node in nodes:
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
                yield child


def stored(nodes: Iterable[ast.AST]) -> list[str]:
    """Names bound anywhere below the nodes (nested functions and comprehensions aside), in order of first binding."""
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef):
            targets = [node.name]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            targets = [node.id]
        else:
            targets = []
            if not isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
                for child in ast.iter_child_nodes(node):
                    visit(child)
        found.extend(t for t in targets if t not in found)

    for node in nodes:
        visit(node)
    return found


def read_before_write(body: list[ast.stmt], *, kept: bool = True) -> set[str]:
    """Names that a block may read before it binds them itself; with `kept` also those that a branch leaves alone."""
    bound: set[str] = set()
    early: set[str] = set()
    for statement in body:
        early |= {n.id for n in loads([_evaluated_first(statement)])} - bound
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            early |= {statement.target.id} - bound
        sure = _surely_bound(statement)
        if kept and isinstance(statement, ast.If):
            # A name bound in one branch only keeps its old value in the other: that is a read of it.
            early |= (set(stored(statement.body)) | set(stored(statement.orelse))) - sure - bound
        first = set(stored([statement.target])) if isinstance(statement, ast.For) else set()
        for block in _inner_blocks(statement):
            early |= read_before_write(block, kept=kept) - bound - first
        bound |= sure
    return early


def _inner_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return []
    blocks = [getattr(statement, f, None) or [] for f in ("body", "orelse", "finalbody")]
    return [*blocks, *(handler.body for handler in getattr(statement, "handlers", ()))]


def _surely_bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds on every way through it that goes on."""
    if isinstance(statement, ast.If):
        return bound_by(statement.body) & bound_by(statement.orelse)
    if isinstance(statement, ast.For | ast.While):
        return set()
    if isinstance(statement, ast.With):
        return set(stored([i.optional_vars for i in statement.items if i.optional_vars])) | bound_by(statement.body)
    if isinstance(statement, ast.Try):
        return bound_by(statement.finalbody)
    return set(stored([statement]))


def bound_by(body: list[ast.stmt]) -> set[str]:
    """Names that a block binds on every way through it that goes on."""
    return set().union(*map(_surely_bound, body)) if body else set()


def _evaluated_first(statement: ast.stmt) -> ast.AST:
    if isinstance(statement, ast.If | ast.While):
        return statement.test
    if isinstance(statement, ast.For):
        return statement.iter
    if isinstance(statement, ast.With):
        return ast.Tuple([i.context_expr for i in statement.items], ast.Load())
    if isinstance(statement, ast.Try):
        return ast.Pass()
    return statement


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every statement list at or below a node."""
    for child in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(child, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


class Replace(ast.NodeTransformer):
    """Replace loaded names by expressions."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.names and isinstance(node.ctx, ast.Load):
            return typed(dotted(ast.unparse(self.names[node.id])), node)
        return node


def argument_of(node: ast.Call, names: list[str], parameter: str) -> ast.expr | None:
    """What a call passes for `parameter` of a function with these parameter names."""
    for keyword in node.keywords:
        if keyword.arg == parameter:
            return keyword.value
    position = names.index(parameter)
    return node.args[position] if position < len(node.args) else None


def has_fields(node: ast.AST) -> bool:
    """Whether a class's annotations are its fields."""
    if not isinstance(node, ast.ClassDef):
        return False
    marks = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list] + node.bases
    return any(ast.unparse(mark).rpartition(".")[2] in ("dataclass", "NamedTuple") for mark in marks)


def is_pairwise(target: ast.expr, value: ast.expr) -> bool:
    """Whether `a, b = x, y` binds name by name."""
    if not (isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)):
        return False
    return len(target.elts) == len(value.elts) and not any(isinstance(e, ast.Starred) for e in target.elts)
