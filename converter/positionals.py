"""Positional arguments of parameters that a function has lost: they go from its calls too."""

import ast

from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context


def drop_positionals(context: Context) -> None:
    """Drop from call sites the positional arguments of parameters that `Plumbing` took away from the functions."""
    graph = CallGraph(context)
    for function in graph.functions():
        for node in ast.walk(function.node):
            if isinstance(node, ast.Call) and node.args:
                for target in graph.targets(node, function.owner):
                    _drop_arguments(node, target)


def _drop_arguments(node: ast.Call, target: Function) -> None:
    dropped = getattr(target.node, "dropped", None)
    if dropped and not any(isinstance(a, ast.Starred) for a in node.args):
        shift = 1 if target.is_method else 0
        node.args = [a for i, a in enumerate(node.args) if getattr(a, "position", i) + shift not in dropped]
