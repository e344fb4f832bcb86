"""Parameters that are items of a list or dictionary, not attributes of a module."""

import ast
from collections.abc import Callable

from maxcode.converter import registry
from maxcode.converter.context import Definition
from maxcode.converter.passes.needs import PARAMETER, class_name

_HOLDERS = ("torch.nn.ParameterList", "torch.nn.ParameterDict")
_FILLING = ("append", "extend", "insert", "update")


class HeldParameters(ast.NodeTransformer):
    """Rewrites `nn.Parameter(…)` in what a container is made of or filled with, by `convert`."""

    def __init__(self, definition: Definition, convert: Callable[[ast.Call], ast.expr]) -> None:
        self.definition, self.convert = definition, convert

    def fill(self, node: ast.Call) -> None:
        """Rewrite the parameters in the arguments of a call, if it makes or fills a container."""
        made = registry.canonical(class_name(self.definition, node) or "") in _HOLDERS
        if made or (isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING):
            node.args = [self.visit(argument) for argument in node.args]
            for keyword in node.keywords:
                keyword.value = self.visit(keyword.value)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        return self.convert(node) if class_name(self.definition, node) in PARAMETER else node
