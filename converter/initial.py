"""Statements of a constructor that give a layer's weights other initial values: a checkpoint overwrites them."""

import ast

_WEIGHTS = ("weight", "bias")


def is_initialiser(name: str) -> bool:
    """Whether a method is a constructor or one that constructors call to set weights."""
    return name == "__init__" or "init_weights" in name or name.startswith(("_init", "init_", "reset_param"))


def is_weight_write(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but change the values of a weight that exists already.

    `self.head.weight.data.mul_(0.1)`, `self.head.weight.data *= 0.1`, `self.emb.weight.data[0] = 0` and
    `self.head.weight = nn.Parameter(…)` do; `self.head.weight = self.emb.weight`, which ties two, does not.
    """
    if isinstance(statement, ast.Expr):
        function = statement.value.func if isinstance(statement.value, ast.Call) else None
        return isinstance(function, ast.Attribute) and _is_in_place(function.attr) and _is_weight(function.value)
    if isinstance(statement, ast.AugAssign):
        return _is_weight(statement.target)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if isinstance(target, ast.Subscript):
        return _is_weight(target.value)
    is_made = isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func).endswith("Parameter")
    return is_made and _is_weight(target) and isinstance(target, ast.Attribute) and _is_layers(target.value)


def _is_in_place(method: str) -> bool:
    return method.endswith("_") and not method.endswith("__")


def _is_weight(node: ast.expr) -> bool:
    """`….weight`, `….bias`, or the data of any parameter."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return isinstance(node.value, ast.Attribute)
    return isinstance(node, ast.Attribute) and node.attr in _WEIGHTS and _is_layers(node.value)


def _is_layers(node: ast.expr) -> bool:
    """An attribute of the module, which holds the weight: not the module itself."""
    return isinstance(node, ast.Attribute | ast.Subscript) and ast.unparse(node).startswith("self.")
