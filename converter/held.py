"""Arrays that a module keeps in other ways than as parameter or buffer: in a list or dictionary, or as it is."""

import ast
from collections.abc import Callable

from maxcode.converter import registry
from maxcode.converter.context import Context, Definition
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


def keeps_table(context: Context, definition: Definition, target: ast.Attribute) -> bool:
    """Whether a constructor keeps a tensor that is neither parameter nor buffer, and nothing else sets it.

    Reads of it then are reads of a constant, which later passes learn from the facts.
    """
    kept, tables = (
        context.class_facts(definition.qualified).get(target.attr, []),
        context.facts.setdefault("tables", []),
    )
    name = f"{definition.qualified}.{target.attr}"
    if ast.unparse(target.value) != "self" or (kept != ["tensor"] and name not in tables):
        return False
    attributes = [n for n in ast.walk(definition.node) if isinstance(n, ast.Attribute) and n.attr == target.attr]
    if sum(isinstance(n.ctx, ast.Store) for n in attributes) != 1:
        return False
    kept[:] = ["constant"]
    tables.append(name)
    return True
