"""Substitution of a call's arguments into the body of a rule, on syntax trees."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from maxcode.converter import registry
from maxcode.converter.arguments import Bound, fact, is_dtype, is_int, is_sequence, literal
from maxcode.converter.facts import MISSING
from maxcode.converter.nodes import copied

SUPPORT = "maxcode.converter.support"

# What each name that a body may use stands for in emitted code.
IMPORTS = {
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "lax": "from jax import lax",
    "np": "import numpy as np",
    "math": "import math",
    "functools": "import functools",
    "itertools": "import itertools",
    "nnx": "from flax import nnx",
    "dataclass": "from dataclasses import dataclass",
    "NamedTuple": "from typing import NamedTuple",
    "float32": "float32 = jnp.float32",
}
_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Names(NamedTuple):
    """What a body's names need: import statements, and helpers of the emitted `ops` module."""

    imports: set[str]
    helpers: set[str]


def inline(function: Callable[..., Any], body: ast.expr, bound: Bound, *, drop_defaults: bool = False):
    """Return (body with the arguments in place, its `Names`), or None when only a helper call evaluates them once.

    A `keyword=parameter` whose argument was omitted disappears if the default is None or False, or any with
    `drop_defaults`; conditionals on known arguments are decided. New nodes carry no location.
    """
    template = _Fold(bound).visit(copy_expr(body))
    if any(isinstance(node, _SCOPES) for node in ast.walk(template)):
        return None
    if any(_uses(template, name) > 1 and not _is_trivial(value) for name, value in bound.given.items()):
        return None
    names = resolve(loaded_names(template) - set(bound.signature.parameters), function)
    template = _Qualify(names.helpers - set(bound.signature.parameters)).visit(template)
    return _Substitute(bound, drop_defaults).visit(template), names


def helper_call(name: str, bound: Bound) -> ast.expr:
    """Return `ops.name(...)` with the arguments as bound, positionally for as long as none is omitted."""
    args, keywords, positional = [], [], True
    for parameter in bound.signature.parameters.values():
        value = bound.given.get(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            args.extend(value or ())
        elif value is None:
            positional = False
        elif positional and parameter.kind is not parameter.KEYWORD_ONLY:
            args.append(value)
        else:
            keywords.append(ast.keyword(parameter.name, value))
    return ast.Call(_ops_attribute(name), args, keywords)


def free_names(node: ast.AST) -> set[str]:
    """Return the names that a function or expression reads from outside itself."""
    bound = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)}
    return loaded_names(node) - bound


def loaded_names(node: ast.AST) -> set[str]:
    """Return every name that is read anywhere in a tree."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def resolve(names: set[str], function: Callable[..., Any]) -> Names:
    """Sort the names that a rule's body reads into imports and helpers; parameters and builtins need neither.

    Raises NameError for a name that emitted code could not have.
    """
    imports, helpers = set(), set()
    own = vars(sys.modules[function.__module__])
    for name in sorted(names):
        value = own.get(name, MISSING)
        if name in IMPORTS:
            imports |= {IMPORTS[name]} | ({IMPORTS["jnp"]} if name == "float32" else set())
        elif name in registry.HELPERS and value is registry.HELPERS[name]:
            helpers.add(name)
        elif (statement := _support_import(name, value)) is not None:
            imports.add(statement)
        elif value is not MISSING or not hasattr(builtins, name):
            raise NameError(
                f"{function.__module__}.{function.__qualname__} uses {name!r}, which emitted code does not have; "
                "make it a @helper, a support function or a parameter"
            )
    return Names(imports, helpers)


@functools.cache
def support_definitions() -> dict[str, str]:
    """Return {class or function: module} of the support library's public top-level definitions."""
    found: dict[str, str] = {}
    for file in sorted((Path(__file__).parent / "support").glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                found.setdefault(node.name, file.stem)
    return found


def _support_import(name: str, value: Any) -> str | None:
    if isinstance(value, ModuleType) and value.__name__.startswith(f"{SUPPORT}."):
        return f"from . import {value.__name__.rsplit('.', 1)[1]}"
    origin = getattr(value, "__module__", None) or ""
    if origin.startswith(f"{SUPPORT}."):
        return f"from .{origin.rsplit('.', 1)[1]} import {name}"
    return None


def copy_expr(node: ast.AST) -> Any:
    """Copy a tree with its facts, without source locations and without links to parents."""
    return copied(node, _with_fact)


def _with_fact(new: Any, old: Any) -> Any:
    if hasattr(old, "fact"):
        new.fact = old.fact
    return new


class _Fold(ast.NodeTransformer):
    """Decides conditional expressions on arguments that are known."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        decision = _decide(node.test, self.bound)
        if decision is None:
            return self.generic_visit(node)
        return self.visit(node.body if decision else node.orelse)


def _decide(test: ast.expr, bound: Bound) -> bool | None:
    match test:
        case ast.UnaryOp(op=ast.Not()):
            inner = _decide(test.operand, bound)
            return None if inner is None else not inner
        case ast.BoolOp():
            parts = [_decide(value, bound) for value in test.values]
            settling = isinstance(test.op, ast.Or)
            if settling in parts:
                return settling
            return None if None in parts else not settling
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)], left=ast.Name()):
            found = _is_none(test.left.id, bound)
            return found if found is None or isinstance(test.ops[0], ast.Is) else not found
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Constant()], left=ast.Name()):
            value = _value(test.left.id, bound)
            same = value == test.comparators[0].value
            return None if value is MISSING else same == isinstance(test.ops[0], ast.Eq)
        case ast.Compare(ops=[ast.Eq()], comparators=[ast.Tuple(elts=[])], left=ast.Name()):
            return _is_empty(test.left.id, bound)
        case ast.Name() if (value := _value(test.id, bound)) is not MISSING:
            return bool(value)
    return None


def _value(name: str, bound: Bound) -> Any:
    if name in bound.defaults:
        return bound.defaults[name]
    return literal(bound.given.get(name))


def _is_none(name: str, bound: Bound) -> bool | None:
    value = _value(name, bound)
    if value is not MISSING:
        return value is None
    node = bound.given.get(name)
    if isinstance(node, list | ast.Tuple | ast.List | ast.BinOp | ast.JoinedStr | ast.Compare) or is_dtype(node):
        return False
    return None if fact(node).kind in ("unknown", "none") else False


def _is_empty(name: str, bound: Bound) -> bool | None:
    """Whether an argument is the empty tuple."""
    value, node = _value(name, bound), bound.given.get(name)
    if value is not MISSING:
        return value == ()
    if isinstance(node, ast.Tuple) and not all(isinstance(e, ast.Starred) for e in node.elts):
        return False
    return None if fact(node).kind in ("unknown", "tuple", "list") else False


class _Qualify(ast.NodeTransformer):
    """Writes the helpers among a body's names as attributes of the emitted `ops` module."""

    def __init__(self, helpers: set[str]) -> None:
        self.helpers = helpers

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return _ops_attribute(node.id) if node.id in self.helpers else node


class _Substitute(ast.NodeTransformer):
    """Puts arguments in the place of parameters and drops keywords whose argument was omitted."""

    def __init__(self, bound: Bound, drop_defaults: bool) -> None:
        self.bound = bound
        self.drop_defaults = drop_defaults
        self.placed: set[int] = set()

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.keywords = [k for k in node.keywords if not self._is_dropped(k.value)]
        args: list[ast.expr] = []
        for arg in node.args:
            inner = arg.value if isinstance(arg, ast.Starred) else None
            values = self.bound.given.get(inner.id) if isinstance(inner, ast.Name) else None
            values = values.elts if isinstance(values, ast.Tuple | ast.List) else values
            args.extend(map(self._place, values) if isinstance(values, list) else [arg])
        node.args = [arg if id(arg) in self.placed else self.visit(arg) for arg in args]
        node.func = self.visit(node.func)
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.bound.defaults:
            return ast.Constant(self.bound.defaults[node.id])
        value = self.bound.given.get(node.id)
        if value is None:
            return node
        return self._place(_as_sequence(value) if isinstance(value, list) else value)

    def _place(self, value: ast.expr) -> ast.expr:
        value = copy_expr(value) if id(value) in self.placed else value
        self.placed.add(id(value))
        return value

    def _is_dropped(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Name):
            return False
        given, default = self.bound.given.get(value.id), self.bound.defaults.get(value.id, MISSING)
        if isinstance(given, ast.Constant) and given.value is None:
            # None may mean something of its own where the default is another value (batch norm's momentum).
            return self.bound.signature.parameters[value.id].default in (None, inspect.Parameter.empty)
        return default is not MISSING and (self.drop_defaults or default is None or default is False)


def _as_sequence(values: list[ast.expr]) -> ast.expr:
    # `f(*dims)` takes both f(0, 1) and f((0, 1)); a single value of unknown kind is the sequence.
    if (
        len(values) == 1
        and not isinstance(values[0], ast.Starred)
        and (is_sequence(values[0]) or not is_int(values[0]))
    ):
        return values[0]
    return ast.Tuple(values, ast.Load())


def _uses(template: ast.expr, name: str) -> int:
    return sum(isinstance(node, ast.Name) and node.id == name for node in ast.walk(template))


def _is_trivial(value: ast.expr | list[ast.expr]) -> bool:
    """Whether evaluating the argument twice costs nothing and changes nothing."""
    match value:
        case list():
            return all(map(_is_trivial, value))
        case ast.Name() | ast.Constant():
            return True
        case ast.Attribute():
            return _is_trivial(value.value)
        case ast.UnaryOp():
            return isinstance(value.operand, ast.Constant)
        case ast.Tuple() | ast.List():
            return all(map(_is_trivial, value.elts))
    return False


def _ops_attribute(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("ops", ast.Load()), name, ast.Load())
