"""Calls with `**` of one of two dictionaries: the choice is made between two calls, whose keywords are written out."""

import ast

from maxcode.converter.context import copy_facts
from maxcode.converter.nodes import copied, loads

_PLAIN = (
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.Compare,
    ast.operator, ast.unaryop, ast.cmpop, ast.expr_context, ast.Slice,
)  # fmt: skip


def choose_keywords(function: ast.FunctionDef) -> None:
    """Rewrite the calls of one function.

    `options = {"size": size} if size else {"scale_factor": 2}; f(x, **options)` becomes
    `f(x, size=size) if size else f(x, scale_factor=2)`. The dictionary has to be bound once, of plain expressions whose
    names keep their values until the call, and be used for nothing but such calls.
    """
    tables = {name: value for name, value in _tables(function).items() if _is_settled(function, name, value)}
    if tables:
        _Spread(tables).visit(function)


def _tables(function: ast.FunctionDef) -> dict[str, ast.Assign]:
    found: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node)
    return {name: made[0] for name, made in found.items() if len(made) == 1 and _is_choice(made[0].value)}


def _is_choice(value: ast.expr) -> bool:
    return isinstance(value, ast.IfExp) and _is_written_out(value)


def _is_written_out(value: ast.expr) -> bool:
    """Whether a value is a dictionary of named, plain items, or a choice between such."""
    if isinstance(value, ast.IfExp):
        return _is_plain(value.test) and _is_written_out(value.body) and _is_written_out(value.orelse)
    is_named = isinstance(value, ast.Dict) and all(
        isinstance(k, ast.Constant) and isinstance(k.value, str) and k.value.isidentifier() for k in value.keys
    )
    return is_named and all(_is_plain(v) for v in value.values)


def _is_plain(node: ast.expr) -> bool:
    return all(isinstance(n, _PLAIN) for n in ast.walk(node))


def _is_settled(function: ast.FunctionDef, name: str, made: ast.Assign) -> bool:
    """Whether a dictionary is read by `**` alone, and nothing that it is made of changes below its line."""
    spread = {id(k.value) for n in ast.walk(function) if isinstance(n, ast.Call) for k in n.keywords if k.arg is None}
    reads = [n for n in loads([function]) if n.id == name]
    parts = {n.id for n in loads([made.value])}
    changed = {
        n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load) and n.lineno > made.lineno
    }
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.While) and made in ast.walk(n)]
    is_once = all(isinstance(n.ctx, ast.Load) or n is made.targets[0] for n in _named(function, name))
    return bool(reads) and is_once and not loops and all(id(n) in spread for n in reads) and not parts & changed


def _named(function: ast.FunctionDef, name: str) -> list[ast.Name]:
    return [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]


class _Spread(ast.NodeTransformer):
    def __init__(self, tables: dict[str, ast.Assign]) -> None:
        self.tables = tables

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        self.generic_visit(node)
        return None if node in self.tables.values() else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        for at, keyword in enumerate(node.keywords):
            if keyword.arg is None and isinstance(keyword.value, ast.Name) and keyword.value.id in self.tables:
                return self._chosen(node, at, self.tables[keyword.value.id].value)
        return node

    def _chosen(self, node: ast.Call, at: int, value: ast.expr) -> ast.expr:
        if isinstance(value, ast.IfExp):
            branches = [self._chosen(node, at, branch) for branch in (value.body, value.orelse)]
            return copy_facts(ast.IfExp(copied(value.test), *branches), node)
        given = [ast.keyword(k.value, copied(v)) for k, v in zip(value.keys, value.values, strict=True)]
        keywords = [*node.keywords[:at], *given, *node.keywords[at + 1 :]]
        made = ast.Call(node.func, node.args, keywords)
        return self.visit(copy_facts(made, node))
