"""Names in a source file that stand for an optional package's kernels, none of which a converted model has.

Two spellings are met: an import in one branch of a module-level `if` or `try` with None in another, and kernels that a
constructor loads into `global` names.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from maxcode.converter import plumbing as tables
from maxcode.converter.source import SourceFile

_UNKNOWN = object()


def absent_names(file: SourceFile) -> dict[str, Any]:
    """Global names with the value that they have where the packages are missing: None, or what is made of it."""
    if not hasattr(file, "absent"):
        file.absent = _find(file.tree)
    return file.absent


def _find(tree: ast.Module) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.If | ast.Try):
            known |= dict.fromkeys(_imported(statement) & _bound_to_none(statement))
    loading = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and _declared_global(f)]
    before = -1
    while before != len(known):
        before = len(known)
        for name, value in _assigned(tree.body):
            if any(isinstance(n, ast.Name) and n.id in known for n in ast.walk(value)):
                _note(known, name, _value(value, known))
        for function in loading:
            _load(function, known)
    return known


def _load(function: ast.FunctionDef, known: dict[str, Any]) -> None:
    """What a function that loads kernels leaves in its `global` names."""
    found, shared = dict(known), _declared_global(function)
    for name, value in _assigned(function.body):
        _note(found, name, result := _value(value, found))
        if name in shared:
            _note(known, name, result)


def _note(known: dict[str, Any], name: str, value: Any) -> None:
    if value is not _UNKNOWN:
        known[name] = value


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and node.value in (None, True, False):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id, _UNKNOWN)
    if not isinstance(node, ast.Call):
        return _UNKNOWN
    name = tables.last(ast.unparse(node.func))
    if tables.CONSTANT_CALLS.get(name, _UNKNOWN) is None:
        return None
    if name == "getattr" and len(node.args) == 3 and _value(node.args[0], known) is None:
        return _value(node.args[2], known)
    if name in ("all", "any") and len(node.args) == 1 and isinstance(node.args[0], ast.Tuple | ast.List):
        values = [_value(element, known) for element in node.args[0].elts]
        return _UNKNOWN if _UNKNOWN in values else (all if name == "all" else any)(values)
    return _UNKNOWN


def _imported(statement: ast.stmt) -> set[str]:
    imports = [n for n in ast.walk(statement) if isinstance(n, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _bound_to_none(statement: ast.stmt) -> set[str]:
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign):
            found |= {name for name, value in _pairs(node) if isinstance(value, ast.Constant) and value.value is None}
    return found


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        if isinstance(statement, ast.Assign):
            yield from _pairs(statement)


def _pairs(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Names and what they are bound to, of `a = b = x` and `a, b = x, y`."""
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            named = zip(target.elts, node.value.elts, strict=False)
            yield from ((t.id, value) for t, value in named if isinstance(t, ast.Name))


def _declared_global(function: ast.FunctionDef) -> set[str]:
    return {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
