"""Readers of keyword plumbing: what a call binds and hands on, which keys of `**kwargs` are read, their defaults."""

import ast
import inspect

from maxcode.converter import registry
from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, Definition
from maxcode.converter.layer_values import DROPPED, is_layer_class
from maxcode.converter.nodes import is_none, with_defaults
from maxcode.converter.passes.needs import class_name, is_super_init, torch_base


def calls_in(node: ast.AST) -> list[ast.Call]:
    """Every call below a node."""
    return [n for n in ast.walk(node) if isinstance(n, ast.Call)]


def bindable(function: Function) -> list[str]:
    """Parameters that a caller can bind."""
    names = function.parameters
    return names[1:] if function.is_method else names


def bound_positionally(call: ast.Call, target: Function) -> set[str]:
    """Parameters of a function that a call binds by position, as far as its arguments can be counted."""
    counted = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), len(call.args))
    return set(bindable(target)[:counted])


def layer_parameters(call: ast.Call, owner: Definition) -> dict[str, ast.expr]:
    """Keyword -> default of the torch layer that a call makes, or whose constructor it runs from a class derived of it.

    Without what the call binds by position; empty where it makes no layer.
    """
    qualified = torch_base(owner) if is_super_init(call) else class_name(owner, call)
    if qualified is None or not is_layer_class(qualified):
        return {}
    rule = registry.entries(registry.MODULES, qualified)[0]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = [p for p in rule.signature.parameters.values() if p.kind in plain]
    free = [p for p in named[len(call.args) :] if p.name not in DROPPED]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        free = [p for p in named if p.name not in DROPPED]
    return {p.name: ast.Constant(None if p.default is p.empty else p.default) for p in free}


def is_forwarding(call: ast.Call, function: Function) -> bool:
    """Whether a call hands the function's own `**kwargs` on."""
    name = function.node.args.kwarg.arg if function.node.args.kwarg else None
    return any(k.arg is None and isinstance(k.value, ast.Name) and k.value.id == name for k in call.keywords)


def read_key(node: ast.AST, name: str) -> tuple[str, ast.expr | None] | None:
    """(key, default) when `node` reads one key of the keyword dictionary `name`."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return (key, None) if isinstance(key, str) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        value = node.func.value
        if isinstance(value, ast.Name) and value.id == name and node.args and isinstance(node.args[0], ast.Constant):
            return str(node.args[0].value), node.args[1] if len(node.args) > 1 else ast.Constant(None)
    return None


def default_set(node: ast.Call) -> tuple[str, ast.expr] | None:
    """(key, value) of `kwargs.setdefault("key", value)`."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault" and len(node.args) == 2):
        return None
    key = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    return (key, node.args[1]) if isinstance(key, str) else None


class Defaults:
    """Defaults of the keywords that take the place of `**kwargs`: those of the functions that read them in the end.

    A keyword handed on explicitly would otherwise override the reader's own default with None.
    """

    def __init__(
        self, context: Context, graph: CallGraph, functions: list[Function], extra: dict[tuple, list[str]]
    ) -> None:
        self.context, self.extra = context, extra
        self.found: dict[tuple[tuple, str], dict[str, ast.expr]] = {}
        for function in functions:
            self._read(function)
        calls = [(f, c, graph.targets(c, f.owner)) for f in functions for c in calls_in(f.node) if is_forwarding(c, f)]
        for function, call, targets in calls:
            for name, default in ({} if targets else layer_parameters(call, function.owner)).items():
                if name not in {k.arg for k in call.keywords}:
                    self._add(function, name, default)
        changed = True
        while changed:
            before = {k: set(v) for k, v in self.found.items()}
            for function, call, targets in calls:
                for target in targets:
                    self._hand_up(function, call, target)
            changed = before != {k: set(v) for k, v in self.found.items()}

    def of(self, function: Function, name: str) -> ast.expr:
        """The default of a keyword; several different ones are a gap."""
        found = self.found.get((function.key, name), {})
        if len(found) > 1:
            self.context.gap(
                "CV106", function.node, f"**{function.node.args.kwarg.arg if function.node.args.kwarg else 'kwargs'}",
                f"{name!r} is read with different defaults: {', '.join(sorted(map(ast.unparse, found.values())))}",
                "give it one default",
            )  # fmt: skip
        default = next(iter(found.values()), ast.Constant(None))
        if not is_none(default) and (call := _defaulting(function, name)) is not None:
            reason = f"{name!r} gets a default here, and is read with another one: {ast.unparse(default)}"
            self.context.gap("CV113", call, "dict.setdefault", reason, "name the keyword in the signature")
        return default

    def _read(self, function: Function) -> None:
        if function.node.args.kwarg is None:
            return
        for node in ast.walk(function.node):
            read = read_key(node, function.node.args.kwarg.arg)
            if read is not None and isinstance(read[1], ast.Constant):
                self._add(function, read[0], read[1])

    def _hand_up(self, function: Function, call: ast.Call, target: Function) -> None:
        given = {k.arg for k in call.keywords} | bound_positionally(call, target)
        own = _parameter_defaults(target)
        for name in self.extra.get(function.key, ()):
            if name in given:
                continue
            if isinstance(default := own.get(name), ast.Constant):
                self._add(function, name, default)
            for default in list(self.found.get((target.key, name), {}).values()):
                self._add(function, name, default)

    def _add(self, function: Function, name: str, default: ast.expr) -> None:
        if name in self.extra.get(function.key, ()):
            self.found.setdefault((function.key, name), {})[ast.dump(default)] = default


def _defaulting(function: Function, key: str) -> ast.Call | None:
    """The call in which a function gives a keyword of its own `**kwargs` a default."""
    found = (c for c in calls_in(function.node) if (made := default_set(c)) is not None and made[0] == key)
    return next(found, None)


def _parameter_defaults(function: Function) -> dict[str, ast.expr]:
    return {argument.arg: default for argument, default in with_defaults(function.node) if default is not None}


def swallow(call: ast.Call, targets: list[Function], extra: dict[tuple, list[str]]) -> None:
    """Where a call meets several functions and some read a keyword, those that only took it in `**kwargs` still do."""
    accepted = {t.key: {*t.parameters, *extra.get(t.key, ())} for t in targets}
    read = set().union(*accepted.values())
    for keyword in (k.arg for k in call.keywords if k.arg in read):
        for target in targets:
            if target.key in extra and keyword not in accepted[target.key]:
                extra[target.key] = sorted({*extra[target.key], keyword})
