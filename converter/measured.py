"""What was measured of the rules: the stored results, hashes that say whether they still hold, and the rates.

`coverage.json` is written by `maxcode rules coverage`; reading it needs neither torch nor JAX's compiler.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from maxcode.converter import helpers, inline, registry
from maxcode.converter.rule import Rule

Row = dict[str, Any]
RESULTS = Path(__file__).with_name("coverage.json")
FORMAT = 1  # of how a row is measured: raise it when older rows no longer mean the same
MOST_UNDER_A_LIMIT = 0.2  # of an op's samples; a wider limit is a miss in both rates
_SUPPORT = Path(__file__).parent / "support"


def read(path: Path = RESULTS) -> dict[str, Any]:
    """The stored results: {"overridable": {owner: names}, "rows": {"op NAME" | "module NAME": row}}."""
    return json.loads(path.read_text()) if path.is_file() else {"overridable": {}, "rows": {}}


def agrees(row: Row) -> bool:
    """Whether a row counts: every sample agrees, and there is one."""
    return 0 < row["samples"] == row["agree"]


def agrees_apart_from_limits(row: Row) -> bool:
    """Whether every sample agrees or lies under a declared limit, none of which covers more than a fifth of them."""
    limited = sum(row["limits"].values())
    narrow = all(count <= MOST_UNDER_A_LIMIT * row["samples"] for count in row["limits"].values())
    return row["agree"] > 0 and narrow and row["agree"] + limited == row["samples"]


def rates(rows: Iterable[Row]) -> dict[str, Any]:
    """{"rate", "rate_with_limits", "count", "agree"} over the rows that count."""
    counted = [row for row in rows if row["left_out"] is None]
    count = len(counted)
    good, narrow = (sum(map(test, counted)) for test in (agrees, agrees_apart_from_limits))
    return {
        "rate": round(good / count, 4) if count else 0.0,
        "rate_with_limits": round(narrow / count, 4) if count else 0.0,
        "count": count,
        "agree": good,
    }


def stamp(names: Iterable[str]) -> str:
    """A hash of all code that converts these torch names: entries, helpers, the support modules that they use."""
    digest = hashlib.sha256(str(FORMAT).encode())
    registry.load()
    for name in sorted(names):
        digest.update(name.encode())
        for table in (registry.OPS, registry.ATTRIBUTES, registry.MODULES):
            for rule in registry.entries(table, name):
                digest.update(_code_of(rule).encode())
    return digest.hexdigest()[:12]


@functools.cache
def _code_of(rule: Rule) -> str:
    body = ast.Module(rule.definition.body, [])
    names = inline.resolve(inline.free_names(body) - set(rule.signature.parameters), rule.function)
    called = helpers.closure(names.helpers)
    sources = [helpers.helper_source(name) for name in called]
    imports = names.imports.union(*(source.imports for source in sources))
    predicates = [rule.when, *rule.limits.values()]
    parts = [inspect.getsource(rule.function), *(source.source for source in sources)]
    parts += [inspect.getsource(predicate) for predicate in predicates if predicate is not None]
    parts += [*rule.limits, str(sorted(rule.weights.items()))]
    return "\n".join([*parts, *(_module_text(stem) for stem in sorted(_support_closure(imports)))])


def _support_closure(statements: Iterable[str]) -> set[str]:
    """Support modules that import statements name, with all that those import in turn."""
    found: set[str] = set()
    waiting = [stem for statement in statements for stem in _support_names(ast.parse(statement))]
    while waiting:
        stem = waiting.pop()
        if stem not in found:
            found.add(stem)
            waiting += _support_names(ast.parse(_module_text(stem)))
    return found


def _support_names(tree: ast.Module) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found += [node.module] if node.module else [alias.name for alias in node.names]
    return [stem for stem in found if (_SUPPORT / f"{stem}.py").is_file()]


@functools.cache
def _module_text(stem: str) -> str:
    return (_SUPPORT / f"{stem}.py").read_text()


def stale(rows: Mapping[str, Row]) -> list[str]:
    """Keys of rows that were measured with other code than that of the rules now."""
    return sorted(key for key, row in rows.items() if row.get("stamp") != stamp(row.get("names", ())))
