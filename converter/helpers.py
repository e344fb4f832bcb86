"""The emitted package's `ops` module: the sources of the helpers that a conversion uses."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from maxcode.converter import inline, registry

_OURS = ("op", "attribute", "helper")


class HelperSource(NamedTuple):
    """One helper: its source without our decorators, import statements, and the helpers that it calls."""

    source: str
    imports: frozenset[str]
    helpers: frozenset[str]


def helper_source(name: str) -> HelperSource:
    """Return the source of a helper. Raises KeyError for a name that no rule file defines."""
    registry.load()
    if name not in registry.HELPERS:
        raise KeyError(f"no helper {name!r}; expected a rule function or a @helper of converter/rules/")
    value = registry.HELPERS[name]
    source = textwrap.dedent(inspect.getsource(value))
    definition = ast.parse(source).body[0]
    lines = source.splitlines()
    kept = [d for d in definition.decorator_list if _root(d) not in _OURS]
    head = [f"@{ast.unparse(decorator)}" for decorator in kept]
    body = lines[definition.lineno - 1 :]  # `lineno` is that of def or class, below the decorators
    definition.decorator_list = kept
    names = inline.resolve(inline.free_names(definition) - {name}, value)
    return HelperSource("\n".join(head + body).rstrip(), frozenset(names.imports), frozenset(names.helpers))


def closure(names: Iterable[str]) -> list[str]:
    """Return `names` and every helper that they call, in the order in which the rule files define them."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(helper_source(name).helpers)
    return sorted(found, key=_position)


def ops_module(names: Iterable[str]) -> str:
    """Return the text of `ops.py` with the given helpers and all that they call; "" when there are none."""
    sources = [helper_source(name) for name in closure(names)]
    if not sources:
        return ""
    statements = set().union(*(source.imports for source in sources))
    imports, constants = [], []
    for statement in sorted(statements):
        (imports if statement.startswith(("import ", "from ")) else constants).append(statement)
    relative = [line for line in imports if line.startswith("from .")]
    absolute = [line for line in imports if line not in relative]
    head = "\n\n".join("\n".join(group) for group in (absolute, relative, constants) if group)
    return (
        "\n\n\n".join(
            ['"""Torch functions that have no one-line JAX form."""\n\n' + head, *(s.source for s in sources)]
        )
        + "\n"
    )


def _root(decorator: ast.expr) -> str:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return function.id if isinstance(function, ast.Name) else ""


def _position(name: str) -> tuple[bool, str, int]:
    # Classes first: signatures may name them.
    value = registry.HELPERS[name]
    module = sys.modules[value.__module__]
    return not inspect.isclass(value), module.__name__, inspect.getsourcelines(value)[1]
