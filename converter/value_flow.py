"""Where values come from: which parameters an expression is computed from, and whether a module's output takes part.

Only values count. `x.shape[0]` asks nothing of what `x` holds.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from maxcode.converter import plumbing as tables
from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import callees
from maxcode.converter.nodes import is_pairwise

_STATIC_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim", "itemsize", "config"})
_STATIC_METHODS = frozenset({"size", "dim", "numel", "stride", "element_size", "is_floating_point"})
_STATIC_CALLS = frozenset({"len", "isinstance", "hasattr", "type", "print"})
_FILLING = frozenset({"append", "extend", "insert", "update", "add"})  # methods by which a container takes a value
_MODULE = "module:"


@dataclass(frozen=True)
class Sources:
    """What an expression's value comes from: names of the function, and whether a module's output is among them."""

    names: frozenset[str] = frozenset()
    is_activation: bool = False

    def __or__(self, other: "Sources") -> "Sources":
        return Sources(self.names | other.names, self.is_activation or other.is_activation)


@dataclass
class _Known:
    """What is known of one function so far."""

    bound: dict[str, list[ast.expr]] = field(default_factory=dict)  # name -> what it is bound to or filled with
    returned: Sources = Sources()  # parameters that its result comes from
    activations: set[str] = field(default_factory=set)  # parameters that some caller gives a module's output


class ValueFlow:
    """Sources of expressions in all converted functions, across calls."""

    def __init__(self, graph: CallGraph) -> None:
        self.graph = graph
        self.functions = graph.functions()
        self._known = {f.key: _Known(_bindings(f.node)) for f in self.functions}
        self._settle(self._note_returns)
        self._settle(self._note_activations)

    def _settle(self, note) -> None:
        while sum(note(f) for f in self.functions):  # every function anew, until none changes
            pass

    def _note_returns(self, function: Function) -> bool:
        known = self._known[function.key]
        values = [n.value for n in _own_nodes(function.node) if isinstance(n, ast.Return) and n.value is not None]
        found = self.sources(function, values)
        found = Sources(found.names & frozenset(function.parameters), found.is_activation)
        changed = found != known.returned
        known.returned = found
        return changed

    def _note_activations(self, function: Function) -> bool:
        changed = False
        for node in ast.walk(function.node):
            for target in self.graph.targets(node, function.owner) if isinstance(node, ast.Call) else ():
                known = self._known.get(target.key)
                for parameter, value in arguments(node, target) if known else ():
                    if parameter not in known.activations and self.is_activation(function, [value]):
                        known.activations.add(parameter)
                        changed = True
        return changed

    def is_activation(self, function: Function, expressions: Iterable[ast.expr]) -> bool:
        """Whether a module's output takes part in a value, here or in a caller."""
        found = self.sources(function, expressions)
        return found.is_activation or bool(found.names & self._known[function.key].activations)

    def sources(self, function: Function, expressions: Iterable[ast.expr]) -> Sources:
        """All names that the values come from, by way of the function's own bindings."""
        bound = self._known[function.key].bound
        found, pending = Sources(), list(expressions)
        while pending:
            more = self._read(function, pending.pop())
            pending += [value for name in more.names - found.names for value in bound.get(name, ())]
            found |= more
        return found

    def _read(self, function: Function, node: ast.AST) -> Sources:
        """Names that an expression's value is computed from directly."""
        if isinstance(node, ast.Name):
            return Sources() if node.id in ("self", "cls") else Sources(frozenset({node.id}))
        if isinstance(node, ast.Attribute):
            return Sources() if node.attr in _STATIC_ATTRIBUTES else self._read(function, node.value)
        if isinstance(node, ast.Call):
            return self._read_call(function, node)
        found = Sources()
        for child in ast.iter_child_nodes(node):
            found |= self._read(function, child)
        return found

    def _read_call(self, function: Function, node: ast.Call) -> Sources:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in _STATIC_METHODS or (isinstance(node.func, ast.Name) and node.func.id in _STATIC_CALLS):
            return Sources()
        targets = self.graph.targets(node, function.owner)
        if _runs_module(node, targets) or _reads_cache(node):
            return Sources(is_activation=True)
        if targets:
            return self._read_own_call(function, node, targets)
        found = self._read(function, node.func.value) if method else Sources()
        if isinstance(node.func, ast.Name) and node.func.id in self._known[function.key].bound:
            found |= Sources(frozenset({node.func.id}))
        for value in (*node.args, *(k.value for k in node.keywords)):
            found |= self._read(function, value)
        return found

    def _read_own_call(self, function: Function, node: ast.Call, targets: list[Function]) -> Sources:
        found = Sources()
        for target in targets:
            returned = self._known[target.key].returned if target.key in self._known else Sources()
            found |= Sources(is_activation=returned.is_activation)
            for parameter, value in arguments(node, target):
                if parameter in returned.names:
                    found |= self._read(function, value)
        return found


def arguments(node: ast.Call, target: Function) -> Iterator[tuple[str, ast.expr]]:
    """(parameter, value) of a call of a converted function; after a starred argument only keywords are known."""
    parameters = target.parameters[1:] if target.is_method else target.parameters
    for parameter, value in zip(parameters, node.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        yield parameter, value
    yield from ((k.arg, k.value) for k in node.keywords if k.arg is not None)


def _runs_module(node: ast.Call, targets: list[Function]) -> bool:
    return any(name.startswith(_MODULE) for name in callees(node)) or any(t.node.name == "forward" for t in targets)


def _reads_cache(node: ast.Call) -> bool:
    return (
        isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in tables.CACHE_ARGUMENTS
    )


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Nodes of a function without those of functions inside it."""
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def _bindings(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """Name -> every expression that it is bound to, written into or filled with."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        for target, value in _bound_pairs(node):
            for name in _target_names(target):
                found.setdefault(name, []).append(value)
    return found


def _bound_pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if is_pairwise(target, node.value):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value
    elif isinstance(node, ast.AugAssign | ast.NamedExpr) or (isinstance(node, ast.AnnAssign) and node.value):
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.comprehension):
        yield from _loop_pairs(node.target, node.iter)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING:
        yield from ((node.func.value, value) for value in (*node.args, *(k.value for k in node.keywords)))


def _loop_pairs(target: ast.expr, iterable: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Loop variables with what they run over: of `zip` and `enumerate` each with its own."""
    called = ast.unparse(iterable.func) if isinstance(iterable, ast.Call) else ""
    parts = list(target.elts) if isinstance(target, ast.Tuple) else []
    if called == "zip" and len(parts) == len(iterable.args):
        yield from zip(parts, iterable.args, strict=True)
    elif called == "enumerate" and len(parts) == 2 and iterable.args:
        yield from _loop_pairs(parts[1], iterable.args[0])
    else:
        yield target, iterable


def _target_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _target_names(element)
        return
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
        target = target.value
    if isinstance(target, ast.Name) and target.id != "self":
        yield target.id
