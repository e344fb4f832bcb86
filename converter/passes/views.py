"""Write through views: where a tensor is written under one of two names, the other shows it too.

`row = x[0]; row += 1` changes `x` in torch. In JAX a name is rebound alone, so the part is stored back (`x[0] = row`)
after every write, and taken again (`row = x[0]`) after one into `x`, which torch would see as no change. Only where the
other name is read later; what is left is for `aliases`.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from maxcode.converter.context import Context, Definition, copy_facts
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import blocks, copied, dotted, dress
from maxcode.converter.passes.memory import is_inplace_name, unchained
from maxcode.converter.passes.storages import root_of

# Methods that give the memory of a tensor another shape, the elements in their order.
_RESHAPED = ("view", "view_as", "unsqueeze", "squeeze", "unflatten")
_TURNED = ("T", "mT")


@dataclass(frozen=True)
class View:
    """`name = base[index]`, or another form of `base` with its memory."""

    name: str
    base: str
    made: ast.Assign


def write_through(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Give both names of shared memory what is written into one of them, in one function."""
    types = Kinds(context, definition, function)
    for block in list(blocks(function)):
        block[:] = [part for statement in block for one in _hoisted(statement, types) for part in unchained(one)]
    groups: dict[str, list[View]] = {}
    for view in _views(function, types):
        groups.setdefault(view.base, []).append(view)
    done: set[tuple[int, str]] = set()
    before = -1
    while before != (before := len(done)):  # a view of a view is written through both
        for views in groups.values():
            repeated = _loop_statements(function)
            for block in list(blocks(function)):
                block[:] = [part for s in block for part in _all_written(function, s, views, repeated, done)]


def _all_written(
    function: ast.FunctionDef, statement: ast.stmt, views: list[View], repeated: set[int], done: set[tuple[int, str]]
) -> list[ast.stmt]:
    """A statement, and after a write into a tensor or one of its views what gives the others the same.

    Only those that are read later.
    """
    base = views[0].base
    known = [v for v in views if getattr(statement, "lineno", 0) > v.made.lineno]
    written = next((v for v in known if _writes(statement, v.name)), None)
    seen_before = (id(statement), base) in done or getattr(statement, "base", None) == base
    if seen_before or not (written or (known and _writes(statement, base))):
        return [statement]
    done.add((id(statement), base))
    again = id(statement) in repeated
    stale = [v for v in known if v is not written and (again or _is_read_later(function, v.name, statement))]
    back = [_stored_back(statement, written)] if written else []
    if not (stale or again or _is_read_later(function, base, statement)):
        back = []
    return [statement, *back, *(_taken_again(statement, v) for v in stale)]


def _loop_statements(function: ast.FunctionDef) -> set[int]:
    """Statements that may run again, as `id`s."""
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.While)]
    return {id(n) for loop in loops for n in ast.walk(loop) if isinstance(n, ast.stmt)}


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
        base = _base(node.value, types)
        if base is None or not types.is_tensor(base) or base.id == node.targets[0].id:
            continue
        view = View(node.targets[0].id, base.id, node)
        if _is_settled(function, view):
            found.append(view)
    return found


def _base(value: ast.expr, types: Kinds) -> ast.Name | None:
    """The name `x` of a value that is `x`, a part of it, or `x` in another shape with the memory of `x`."""
    if isinstance(value, ast.Name):
        return value
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
        return value.value if types.is_tensor(value) and _is_basic(value.slice, types) else None
    if isinstance(value, ast.Attribute):
        return value.value if value.attr in _TURNED and isinstance(value.value, ast.Name) else None
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return None
    base, method, arguments = value.func.value, value.func.attr, [*value.args, *value.keywords]
    known = method in (*_RESHAPED, "transpose", "t") and isinstance(base, ast.Name)
    if not known or any("dtype" in types.of(getattr(a, "value", a)) for a in arguments if method == "view"):
        return None
    return base


def _is_basic(index: ast.expr, types: Kinds) -> bool:
    """Whether an index takes a view: numbers, slices, `...` and None, no tensor or list."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    bounds = [b for p in parts if isinstance(p, ast.Slice) for b in (p.lower, p.upper, p.step) if b is not None]
    plain = [p for p in parts if not isinstance(p, ast.Slice)]
    return all(
        isinstance(p, ast.Constant) or types.of(p) == {"int"} or isinstance(p, ast.UnaryOp) for p in (*plain, *bounds)
    )


def _is_settled(function: ast.FunctionDef, view: View) -> bool:
    """Whether the view's name, the base and what the view is taken by keep their meaning once it is taken."""
    read = {n.id for n in ast.walk(view.made.value) if isinstance(n, ast.Name)}
    loops = [n for n in ast.walk(function) if isinstance(n, ast.For | ast.While) and view.made in list(ast.walk(n))]
    unsure = {name for loop in loops for name, _ in _bindings(loop)}
    places = [found for statement in function.body for found in _bindings(statement)]
    unsure |= {name for name, node in places if getattr(node, "lineno", view.made.lineno + 1) > view.made.lineno}
    parameters = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    bound = [name for name, _ in places]
    return bound.count(view.name) == 1 and view.name not in parameters and not read & unsure


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.Name]]:
    """Names that are bound, and where; `x += 1` writes into a tensor, it binds nothing."""
    written = {id(n.target) for n in ast.walk(node) if isinstance(n, ast.AugAssign)}
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and id(child) not in written:
            yield child.id, child


def drop_unread(function: ast.FunctionDef) -> None:
    """Drop the stores that were made for a caller, once it is known that no caller wants the parameter back."""
    repeated = _loop_statements(function)
    for block in list(blocks(function)):
        block[:] = [s for s in block if not _is_idle(function, s) or id(s) in repeated] or [ast.Pass()]


def _is_idle(function: ast.FunctionDef, statement: ast.stmt) -> bool:
    if not hasattr(statement, "stores_back"):
        return False
    target = root_of(statement.targets[0])
    return isinstance(target, ast.Name) and not _reads_below(function, target.id, statement)


def _is_read_later(function: ast.FunctionDef, name: str, statement: ast.stmt) -> bool:
    """Whether a name is read below a statement, or may be by the caller since it is a parameter."""
    parameters = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
    return name in parameters or _reads_below(function, name, statement)


def _reads_below(function: ast.FunctionDef, name: str, statement: ast.stmt) -> bool:
    """Whether a name is read on the lines of a statement or below, outside it; made names are read at the end."""
    own = {id(n) for n in ast.walk(statement)}
    return any(
        isinstance(n, ast.Name)
        and n.id == name
        and isinstance(n.ctx, ast.Load)
        and getattr(n, "lineno", statement.lineno) >= statement.lineno
        and id(n) not in own
        for n in ast.walk(function)
    )


def _stored_back(statement: ast.stmt, view: View) -> ast.stmt:
    """The store of a written view into its base."""
    value, name = view.made.value, dotted(view.name)
    target: ast.expr = ast.Name(view.base, ast.Store())
    if isinstance(value, ast.Subscript):
        target = copied(value)
        target.ctx = ast.Store()
    elif isinstance(value, ast.Attribute) or (isinstance(value, ast.Call) and value.func.attr == "t"):
        name = dotted(f"{view.name}.{'mT' if getattr(value, 'attr', '') == 'mT' else 'T'}")
    elif isinstance(value, ast.Call) and value.func.attr == "transpose":
        given = ", ".join(
            ast.unparse(a.value if isinstance(a, ast.keyword) else a) for a in (*value.args, *value.keywords)
        )
        name = dotted(f"{view.name}.swapaxes({given})")  # its own inverse
    elif isinstance(value, ast.Call):
        name = dotted(f"{view.name}.reshape({view.base}.shape)")
    return _placed(ast.Assign([target], name), statement, view.name, view.base)


def _taken_again(statement: ast.stmt, view: View) -> ast.stmt:
    """The view, taken anew from its written base."""
    again = ast.Assign([ast.Name(view.name, ast.Store())], copied(view.made.value))
    return _placed(again, statement, view.base, view.base)


def _placed(made: ast.Assign, statement: ast.stmt, written: str, base: str) -> ast.Assign:
    """Mark a statement that gives one of two names of the same memory what was written into the other."""
    made.stores_back, made.base = written, base
    for node in ast.walk(made):
        ast.copy_location(node, statement)
    return made


def _writes(statement: ast.stmt, name: str) -> bool:
    """Whether a statement writes into the memory of `name`, or gives it what was written into another one."""
    if hasattr(statement, "stores_back") and _is(root_of(statement.targets[0]), name):
        return True
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
        """
        def f(x: torch.Tensor):
            y = x
            rows = x.view(-1, 2)
            turned = x.transpose(0, 1)
            y += 1
            x[1] = 0.0
            turned[0] = 2.0
            return x, y, rows
        """,
        """
        def f(x: torch.Tensor):
            y = x
            rows = x.view(-1, 2)
            turned = x.transpose(0, 1)
            y += 1
            x = y
            rows = x.view(-1, 2)
            turned = x.transpose(0, 1)
            x[1] = 0.0
            y = x
            rows = x.view(-1, 2)
            turned = x.transpose(0, 1)
            turned[0] = 2.0
            x = turned.swapaxes(0, 1)
            y = x
            rows = x.view(-1, 2)
            return x, y, rows
        """,
    ),
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
        _HEAD + "x.mul_(2)\n    x.add_(1)\n    x.exp_()\n    y = x\n    y.scatter_(0, i, x)\n    x = y\n    return y",
    ),
    Example(
        _HEAD + "x = x.ge_(0.1).div(0.9).detach()\n    y = x.add_(1)[0].neg()\n    return y",
        _HEAD + "x.ge_(0.1)\n    x = x.div(0.9).detach()\n    x.add_(1)\n    y = x[0].neg()\n    return y",
    ),
    Example(
        "def f(x: torch.Tensor):\n    x.mul_(0.9).add_(1.0)\n    return x * 2",
        "def f(x: torch.Tensor):\n    x.mul_(0.9)\n    x.add_(1.0)\n    return x * 2",
    ),
    unchanged(_HEAD + "y = x * 2\n    row = y[0]\n    row += 1\n    return row"),
    Example(
        _HEAD + "return x.exp_(), x.sum(), x.log_()",
        _HEAD + "x.exp_()\n    return x, x.sum(), x.log_()",
    ),
    unchanged(_HEAD + "return x.clone().add_(1)"),
    unchanged("def f(x: torch.Tensor, i: torch.Tensor):\n    row = x[i]\n    row += 1\n    return x"),
)
