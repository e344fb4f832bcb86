"""Write through views: where a part of a tensor is written under a name of its own, the tensor itself is written too.

`row = x[0]; row += 1` changes `x` in torch. In JAX a name is rebound alone, so the part is stored back (`x[0] = row`)
after every write, which torch would see as no change. Only where `x` is read later; what is left is for `aliases`.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from maxcode.converter.context import Context, Definition, copy_facts
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import blocks, dotted, dress, stored
from maxcode.converter.passes.memory import is_inplace_name, unchained
from maxcode.converter.passes.storages import root_of


@dataclass(frozen=True)
class View:
    """`name = base[index]`, a part of `base` that keeps its memory."""

    name: str
    base: str
    made: ast.Assign


def write_through(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Store written views back into what they are views of, in one function."""
    types = Kinds(context, definition, function)
    for block in list(blocks(function)):
        block[:] = [part for statement in block for one in _hoisted(statement, types) for part in unchained(one)]
    for view in _views(function, types):
        if _is_read_later(function, view):
            for block in list(blocks(function)):
                block[:] = [part for statement in block for part in _stored_back(statement, view)]


def _hoisted(statement: ast.stmt, types: Kinds) -> list[ast.stmt]:
    """`return x.add_(y)` and `z = x.add_(y).abs()` as the write, and what is done with `x` afterwards."""
    if not isinstance(statement, ast.Return | ast.Assign) or statement.value is None:
        return [statement]
    receiver = _written(statement.value, types)
    if receiver is None and (outer := _first_written(statement.value, types)) is not None:
        write = dress(ast.Expr(outer.value), statement)
        receiver = _written(outer.value, types)
        outer.value = copy_facts(dotted(ast.unparse(receiver)), receiver)
        return [write, statement]
    if receiver is not None:
        write = dress(ast.Expr(statement.value), statement)
        if isinstance(statement, ast.Assign) and [ast.unparse(t) for t in statement.targets] == [ast.unparse(receiver)]:
            return [write]
        statement.value = copy_facts(dotted(ast.unparse(receiver)), receiver)
        return [write, statement]
    writes: list[ast.stmt] = []
    if isinstance(statement.value, ast.Tuple):
        for place, part in enumerate(statement.value.elts):
            if (receiver := _written(part, types)) is not None:
                writes.append(ast.copy_location(ast.Expr(part), statement))
                statement.value.elts[place] = copy_facts(dotted(ast.unparse(receiver)), receiver)
            elif not isinstance(part, ast.Name | ast.Attribute | ast.Constant):
                break  # it is worked out before what follows is written
    return [*writes, statement]


def _first_written(value: ast.expr, types: Kinds) -> ast.Attribute | ast.Subscript | None:
    """In a chain such as `x.ge_(p).div(q)[0]`, the part `….div` that starts from a write; it is worked out first."""
    while isinstance(value, ast.Call | ast.Attribute | ast.Subscript):
        if not isinstance(value, ast.Call) and _written(value.value, types) is not None:
            return value
        value = value.func if isinstance(value, ast.Call) else value.value
    return None


def _written(call: ast.expr, types: Kinds) -> ast.expr | None:
    """The tensor `x` of `x.add_(y)`, or of a chain of such calls."""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_inplace_name(call.func.attr)):
        return None
    receiver = call.func.value
    if isinstance(receiver, ast.Call):
        return _written(receiver, types)
    return receiver if isinstance(receiver, ast.Name | ast.Attribute) and types.is_tensor(receiver) else None


def _views(function: ast.FunctionDef, types: Kinds) -> list[View]:
    found = []
    for node in ast.walk(function):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        value = node.value
        if not (isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and types.is_tensor(value)):
            continue
        view = View(node.targets[0].id, value.value.id, node)
        if types.is_tensor(value.value) and _is_basic(value.slice, types) and _is_settled(function, view):
            found.append(view)
    return found


def _is_basic(index: ast.expr, types: Kinds) -> bool:
    """Whether an index takes a view: numbers, slices, `...` and None, no tensor or list."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    bounds = [b for p in parts if isinstance(p, ast.Slice) for b in (p.lower, p.upper, p.step) if b is not None]
    plain = [p for p in parts if not isinstance(p, ast.Slice)]
    return all(
        isinstance(p, ast.Constant) or types.of(p) == {"int"} or isinstance(p, ast.UnaryOp) for p in (*plain, *bounds)
    )


def _is_settled(function: ast.FunctionDef, view: View) -> bool:
    """Whether the view's name and the base keep their meaning: bound once, or parameters that nothing rebinds."""
    bindings = [name for statement in function.body for name in _bindings(statement)]
    index = {n.id for n in ast.walk(view.made.value) if isinstance(n, ast.Name)} - {view.base}
    return bindings.count(view.name) == 1 and bindings.count(view.base) <= 1 and not index & set(_loop_names(function))


def _bindings(node: ast.AST) -> Iterator[str]:
    """Names that are bound; `x += 1` writes into a tensor, it binds nothing."""
    written = {id(n.target) for n in ast.walk(node) if isinstance(n, ast.AugAssign)}
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and id(child) not in written:
            yield child.id


def _loop_names(function: ast.FunctionDef) -> list[str]:
    return [n for loop in ast.walk(function) if isinstance(loop, ast.For | ast.While) for n in stored([loop])]


def _is_read_later(function: ast.FunctionDef, view: View) -> bool:
    """Whether the base is read below the line on which the view is taken."""
    line = view.made.lineno
    return any(
        isinstance(n, ast.Name) and n.id == view.base and isinstance(n.ctx, ast.Load) and n.lineno > line
        for n in ast.walk(function)
    )


def _stored_back(statement: ast.stmt, view: View) -> list[ast.stmt]:
    if not _writes(statement, view.name):
        return [statement]
    target = dotted(ast.unparse(view.made.value))
    target.ctx = ast.Store()
    back = ast.copy_location(ast.Assign([target], ast.Name(view.name, ast.Load())), statement)
    for node in ast.walk(back):
        ast.copy_location(node, statement)
    back.stores_back = view.name
    return [statement, back]


def _writes(statement: ast.stmt, name: str) -> bool:
    """Whether a statement writes into the memory of `name`."""
    if isinstance(statement, ast.Assign):
        return any(isinstance(t, ast.Subscript) and _is(root_of(t), name) for t in statement.targets)
    if isinstance(statement, ast.AugAssign):
        return _is(root_of(statement.target), name)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return False
    return is_inplace_name(call.func.attr) and _is(root_of(call.func.value), name)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


_HEAD = "def f(x: torch.Tensor):\n    "
EXAMPLES = (
    Example(
        _HEAD + "row = x[0]\n    for i in range(1, 3):\n        row[i] = x[i, 0]\n    return row",
        _HEAD + "row = x[0]\n    for i in range(1, 3):\n        row[i] = x[i, 0]\n        x[0] = row\n    return row",
    ),
    Example(
        """
        def f(x: torch.Tensor):
            part = x[:, 1:]
            part.mul_(2).add_(1)
            part += 1
            return x
        """,
        """
        def f(x: torch.Tensor):
            part = x[:, 1:]
            part.mul_(2)
            x[:, 1:] = part
            part.add_(1)
            x[:, 1:] = part
            part += 1
            x[:, 1:] = part
            return x
        """,
    ),
    Example(
        _HEAD + "x = x.mul_(2).add_(1)\n    y = x.exp_()\n    return y.scatter_(0, i, x)",
        _HEAD + "x.mul_(2)\n    x.add_(1)\n    x.exp_()\n    y = x\n    y.scatter_(0, i, x)\n    return y",
    ),
    Example(
        _HEAD + "x = x.ge_(0.1).div(0.9).detach()\n    y = x.add_(1)[0].neg()\n    return y",
        _HEAD + "x.ge_(0.1)\n    x = x.div(0.9).detach()\n    x.add_(1)\n    y = x[0].neg()\n    return y",
    ),
    Example(
        "def f(x: torch.Tensor):\n    x.mul_(0.9).add_(1.0)\n    return x * 2",
        "def f(x: torch.Tensor):\n    x.mul_(0.9)\n    x.add_(1.0)\n    return x * 2",
    ),
    unchanged(_HEAD + "row = x[0]\n    row += 1\n    return row"),
    Example(
        _HEAD + "return x.exp_(), x.sum(), x.log_()",
        _HEAD + "x.exp_()\n    return x, x.sum(), x.log_()",
    ),
    unchanged(_HEAD + "return x.clone().add_(1)"),
    unchanged("def f(x: torch.Tensor, i: torch.Tensor):\n    row = x[i]\n    row += 1\n    return x"),
)
