"""The framework's tables of activations: of classes, of functions, and the one entry that has a weight."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import copy_facts, seen

_CLASSES, _FUNCTIONS = "ACT2CLS", "ACT2FN"
_WEIGHTED = {"prelu": "torch.nn.modules.activation.PReLU"}  # name in the tables -> the layer behind it


def made_activation(node: ast.Call) -> ast.Subscript | None:
    """`ACT2CLS[name]()`, a new activation, as `ACT2FN[name]`; None for other calls."""
    table = node.func
    if not (isinstance(table, ast.Subscript) and _is_table(table, _CLASSES)) or node.args or node.keywords:
        return None
    return copy_facts(ast.Subscript(table.value, table.slice, ast.Load()), node)


def weighted_activation(node: ast.Subscript) -> ast.IfExp | None:
    """`ACT2FN[name]` as `nn.PReLU() if name == "prelu" else ACT2FN[name]`, where a run got the layer with a weight."""
    found = [name for name, layer in _WEIGHTED.items() if f"module:{layer}" in seen(node).get("names", ())]
    if not found or not _is_table(node, _FUNCTIONS, _CLASSES):
        return None
    made = ast.Call(ast.Attribute(ast.Name("nn", ast.Load()), "PReLU", ast.Load()), [], [])
    made.seen = {"kinds": ["module"], "callee": [_WEIGHTED[found[0]]]}
    test = ast.Compare(node.slice, [ast.Eq()], [ast.Constant(found[0])])
    plain = copy_facts(ast.Subscript(node.value, node.slice, ast.Load()), node)
    return copy_facts(ast.IfExp(test, ast.copy_location(made, node), plain), node)


def _is_table(node: ast.Subscript, *names: str) -> bool:
    """Whether a subscript reads one of the framework's tables."""
    file = getattr(node.value, "file", None)
    if not isinstance(node.value, ast.Name) or file is None:
        return False
    qualified = file.qualify(node.value.id) or ""
    is_framework = f"{qualified.split('.')[0]}." in tables.FRAMEWORKS
    return tables.last(qualified) in names and is_framework and tables.supported(qualified) is not None
