"""Statements of a constructor that give a layer's weights other initial values: a checkpoint overwrites them."""

import ast

from maxcode.converter.context import callees, kinds

_WEIGHTS = ("weight", "bias")


def is_initialiser(name: str) -> bool:
    """Whether a method is a constructor or one that constructors call to set weights."""
    return name == "__init__" or "init_weights" in name or name.startswith(("_init", "init_", "reset_param"))


def is_weight_write(statement: ast.stmt, function: ast.FunctionDef | None = None) -> bool:
    """Whether a statement of `function` does nothing but change the values of a weight that exists already.

    `self.head.weight.data.mul_(0.1)`, `self.head.weight.data *= 0.1`, `self.emb.weight.data[0] = 0` and
    `self.head.weight = nn.Parameter(…)` do; `self.head.weight = self.emb.weight`, which ties two, does not.
    """
    if isinstance(statement, ast.Expr):
        method = statement.value.func if isinstance(statement.value, ast.Call) else None
        if not (isinstance(method, ast.Attribute) and _is_in_place(method.attr)):
            return False
        written = method.value
        while isinstance(written, ast.Subscript):
            written = written.value
        return _is_weight(written)
    if isinstance(statement, ast.AugAssign):
        return _is_weight(statement.target)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if isinstance(target, ast.Subscript):
        return _is_weight(target.value)
    is_made = isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func).endswith("Parameter")
    if is_made and function is not None and _is_without(target, function):
        return False  # `self.qkv.bias = nn.Parameter(…)` of a layer that was built without one
    return is_made and _is_weight(target) and isinstance(target, ast.Attribute) and _is_layers(target.value)


def _is_without(target: ast.expr, function: ast.FunctionDef) -> bool:
    """Whether the layer of `self.layer.bias` may have been built without it: `Linear(…, bias=…)`."""
    if not isinstance(target, ast.Attribute):
        return False
    made = [
        n.value
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and [ast.unparse(t) for t in n.targets] == [ast.unparse(target.value)]
    ]
    given = [k.value for m in made if isinstance(m, ast.Call) for k in m.keywords if k.arg == target.attr]
    return any(not (isinstance(value, ast.Constant) and value.value) for value in given)


def is_first_value(statement: ast.Expr, function: ast.FunctionDef | None) -> bool:
    """Whether a statement writes into a weight of a module that the same function has just built: `new.bias.copy_(…)`.

    A checkpoint overwrites that, too.
    """
    method = statement.value.func if isinstance(statement.value, ast.Call) else None
    if function is None or not (isinstance(method, ast.Attribute) and _is_in_place(method.attr)):
        return False
    weight = method.value.value if ast.unparse(method.value).endswith(".data") else method.value
    owner = weight.value if isinstance(weight, ast.Attribute) else None
    if not isinstance(owner, ast.Name) or owner.id == "self" or kinds(owner) != {"module"}:
        return False
    bindings = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == owner.id]
    stored = [n for n in bindings if isinstance(n.ctx, ast.Store)]
    made = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and any(t in stored for t in n.targets)]
    return bool(made) and len(made) == len(stored) and all(_is_built(n.value) for n in made)


def _is_built(value: ast.expr) -> bool:
    """Whether a value is a module made here, by its class."""
    names = callees(value) if isinstance(value, ast.Call) else ()
    return kinds(value) == {"module"} and bool(names) and all(n.rpartition(".")[2][:1].isupper() for n in names)


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
