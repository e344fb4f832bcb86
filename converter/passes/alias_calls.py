"""What calls do to memory, for `aliases`: torch's own functions by their names, converted ones by a summary of each."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, callees
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import argument_of
from maxcode.converter.passes.memory import (
    GROWING,
    PASSING,
    SHAPE,
    VIEWS,
    asks_inplace,
    is_inplace_name,
    is_passing_layer,
    may_pass,
)
from maxcode.converter.passes.storages import NOTHING, State, Storages, Summary, fresh, key_of


class Calls:
    """The part of `aliases.Follow` that follows calls; values, writes and gaps are noted by the whole."""

    context: Context
    graph: CallGraph
    function: Function
    types: Kinds
    summaries: dict[tuple[str, str], Summary]
    inplace: dict[str, bool]

    def value(self, node: ast.expr | None, state: State) -> Storages:
        """Memory that the value of an expression may share with a name."""
        raise NotImplementedError

    def write(self, memory: Storages, node: ast.AST, through: str | None, state: State) -> None:
        """A write into `memory`, after which only the name `through` is rebound."""
        raise NotImplementedError

    def gap(self, node: ast.AST, what: str, reason: str, hint: str) -> None:
        """Record a gap."""
        raise NotImplementedError

    def _arguments(self, node: ast.Call, state: State) -> tuple[list[Storages], dict[str | None, Storages]]:
        return [self.value(a, state) for a in node.args], {k.arg: self.value(k.value, state) for k in node.keywords}

    def _call(self, node: ast.Call, state: State) -> Storages:
        function = node.func
        method = function.attr if isinstance(function, ast.Attribute) else None
        if method in SHAPE:
            return NOTHING
        if isinstance(function, ast.Name) and function.id in ("isinstance", "len", "type", "hasattr", "super"):
            return NOTHING
        of_tensor = method is not None and self._is_tensor(function.value)
        receiver = (
            self.value(function.value, state) if method is not None and not self._is_static(function) else NOTHING
        )
        positional, named = self._arguments(node, state)
        targets = self.graph.targets(node, self.function.owner)
        if targets:
            return self._own(node, targets, positional, named, state)
        if method is not None and self._is_cache(function.value):
            return frozenset({("cache", ast.unparse(function))})
        short = method or tables.last(ast.unparse(function))
        if method in GROWING and not of_tensor and (key := key_of(function.value)) is not None:
            state.add(key, NOTHING.union(*positional, *named.values()))
            return receiver
        first = receiver if of_tensor else positional[0] if positional else named.get("input", NOTHING)
        return self._torch(node, short, first, positional, named, state, receiver)

    def _torch(
        self, node: ast.Call, short: str, first: Storages, positional: list, named: dict,
        state: State, receiver: Storages,
    ) -> Storages:  # fmt: skip
        if "out" in named:
            self.write(named["out"], node, None, state)
            return named["out"]
        if is_inplace_name(short) or asks_inplace(node) or self._is_inplace_layer(node):
            self.write(first, node, None, state)
            return first
        names = {tables.last(c) for c in callees(node)} | {short}
        if names & VIEWS:
            return first
        if names & PASSING:
            is_module = any(c.startswith("module:") for c in callees(node))  # called, it does not hand out itself
            owner = self.function.owner.qualified
            if is_module and not may_pass(self.context, owner, node.func, self._link_passes):
                return fresh()
            return NOTHING.union(NOTHING if is_module else receiver, *positional, *named.values())
        return fresh()

    def _own(self, node: ast.Call, targets: list[Function], positional: list, named: dict, state: State) -> Storages:
        """A call of a converted function: what it writes must come back, what it gives back may be an argument."""
        result = NOTHING
        back: frozenset[str] = getattr(node, "taken_back", frozenset())
        for target in targets:
            summary = self.summaries.get(target.key, Summary())
            names = target.parameters[1:] if target.is_method else target.parameters
            held = dict(zip(names, positional, strict=False)) | {k: v for k, v in named.items() if k is not None}
            for parameter in sorted(summary.writes & set(held)):
                if any(held[q] & held[parameter] for q in held if q != parameter):
                    reason = f"it writes into {parameter!r}, which shares memory with another argument"
                    self.gap(node, f"{target.node.name}()", reason, "pass a copy")
                argument = argument_of(node, names, parameter)
                key = key_of(argument) if argument is not None else None
                self.write(held[parameter], node, key if key in back else None, state)
            self._write_own(node, target, summary, state)
            result |= {("joint", node)} if summary.joint else fresh()
            kept = held if target.node.name == "__init__" else summary.returns  # an object may keep what it is made of
            result |= NOTHING.union(*(held[p] for p in kept if p in held))
        return result

    def _write_own(self, node: ast.Call, target: Function, summary: Summary, state: State) -> None:
        """What a method writes of its object's attributes, which the object has afterwards."""
        owner = node.func
        if isinstance(owner, ast.Attribute) and owner.attr == target.node.name:
            owner = owner.value
        made = isinstance(owner, ast.Call) and ast.unparse(owner.func) == "super"
        key = "self" if made else key_of(owner)
        if key is not None and target.node.name != "__init__":
            for attribute in sorted(summary.own):
                self.write(state.read(f"{key}.{attribute}"), node, f"{key}.{attribute}", state)

    def _is_inplace_layer(self, node: ast.Call) -> bool:
        known = self.inplace.get(f"{self.function.owner.qualified}:{ast.unparse(node.func)}")
        if known is not None:
            return known
        return any(self.inplace.get(tables.last(c), False) for c in callees(node) if c.startswith("module:"))

    def _link_passes(self, qualified: str) -> bool:
        """Whether a layer in a chain (`self.layers(x)`) may give its argument back."""
        own = self.graph.method(qualified, "forward")
        if own is not None:
            return bool(self.summaries.get(own.key, Summary()).returns)
        return is_passing_layer(qualified)

    def _is_static(self, function: ast.Attribute) -> bool:
        """Whether `a.b.c` names an imported function rather than a method of a value."""
        root = ast.unparse(function).split(".")[0]
        return root in self.function.owner.file.imports and root not in self.types.names

    def _is_cache(self, node: ast.expr) -> bool:
        named = isinstance(node, ast.Name) and node.id in tables.CACHE_ARGUMENTS
        return named or "cache" in self.types.of(node)

    def _is_tensor(self, node: ast.expr) -> bool:
        return bool(self.types.of(node) & {"tensor", "param"})
