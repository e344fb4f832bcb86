"""Dictionaries that a model fills as it goes: one layer stores what a later one reads."""

import ast
from collections.abc import Iterable

from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, Definition
from maxcode.converter.nodes import argument_of


class Filled:
    """Which parameters of which functions are stored into, directly or by what they call.

    For use after in-place writes to tensors have become rebinding: what is still stored into is a dictionary or list.
    """

    def __init__(self, context: Context) -> None:
        self.graph = CallGraph(context)
        functions = self.graph.functions()
        self.parameters: dict[tuple[str, str], set[str]] = {f.key: set() for f in functions}
        changed = True
        while changed:
            changed = False
            for function in functions:
                found = _stored_into(function.node) | self.names(function.owner, ast.walk(function.node))
                found &= set(function.parameters)
                changed |= not found <= self.parameters[function.key]
                self.parameters[function.key] |= found

    def names(self, owner: Definition, nodes: Iterable[ast.AST]) -> set[str]:
        """Names that are handed, among `nodes`, to a parameter that is stored into."""
        found = set()
        for node in nodes:
            for target in self.graph.targets(node, owner) if isinstance(node, ast.Call) else ():
                found |= set(self._handed(node, target))
        return found

    def _handed(self, node: ast.Call, target: Function) -> Iterable[str]:
        names = target.parameters[1:] if target.is_method else target.parameters
        for parameter in self.parameters.get(target.key, ()):
            argument = argument_of(node, names, parameter)
            options = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
            yield from (option.id for option in options if isinstance(option, ast.Name))


def _stored_into(function: ast.FunctionDef) -> set[str]:
    """Names `x` of `x[key] = …`."""
    return {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    }
