"""Arrays that a module keeps in other ways than as parameter or buffer: in a list or dictionary, or as it is."""

import ast
from collections.abc import Callable

from maxcode.converter import registry
from maxcode.converter.context import Context, Definition, seen
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


def is_parameter(definition: Definition, node: ast.AST | None) -> bool:
    """Whether an expression makes a parameter."""
    return isinstance(node, ast.Call) and class_name(definition, node) in PARAMETER


def becomes_attribute(function: ast.FunctionDef, variable: str) -> bool:
    """Whether a local name is returned, or set as an attribute: a parameter under it stays one.

    Otherwise its value is only computed with, and the module has no parameter of it.
    """
    for node in ast.walk(function):
        value = node.value if isinstance(node, ast.Return | ast.Assign) else None
        is_kept = isinstance(node, ast.Return) or any(
            isinstance(t, ast.Attribute) for t in getattr(node, "targets", ())
        )
        if is_kept and isinstance(value, ast.Name) and value.id == variable:
            return True
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "self.register_parameter"
        and any(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(node))
        for node in ast.walk(function)
    )


def registers_items(definition: Definition, function: ast.FunctionDef, target: ast.Attribute, value: ast.expr) -> bool:
    """Whether a constructor keeps layers in a plain list, and registers them one by one under names of their own."""
    if not isinstance(value, ast.List | ast.ListComp) or ast.unparse(target.value) != "self":
        return False
    reads = [n for n in ast.walk(definition.node) if isinstance(n, ast.Attribute) and n.attr == target.attr]
    holds = any("module" in seen(n).get("elements", ()) for n in (value, *reads))
    is_added = (isinstance(n, ast.Call) and ast.unparse(n).startswith("setattr(self, ") for n in ast.walk(function))
    return holds and any(is_added)
