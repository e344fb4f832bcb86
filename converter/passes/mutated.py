"""Return the arguments that a function writes in place, and take them back at its call sites.

A state fetched from a cache and updated in place by a helper (`conv_state.copy_(…)`) is put back into the cache after
the call.
"""

import ast

from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import assign, blocks, call, dotted, dress, is_none, loads, name, stored, typed
from maxcode.converter.passes.memory import is_inplace_name, stores_item
from maxcode.converter.passes.storages import key_of
from maxcode.converter.passes.views import drop_unread

_GETTERS = {"get_conv_state": "set_conv_state", "get_recurrent_state": "set_recurrent_state"}


def return_mutated(context: Context) -> None:
    """Rewrite every function that writes into a parameter, and every call to one; run before `InPlace`."""
    graph = CallGraph(context)
    functions = graph.functions()
    written = _written_below(graph, functions, {f.key: _written(f, Kinds(context, f.owner, f.node)) for f in functions})
    needed: set[tuple[str, str]] = set()
    before = -1
    while before != (before := len(needed)):  # what a function hands back, those that it calls have to hand back
        for function in functions:
            passed_on = written[function.key] if function.key in needed else []
            for block in list(blocks(function.node)):
                for index in range(len(block) - 1, -1, -1):
                    statement = block[index]
                    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) and isinstance(
                        statement.value, ast.Call
                    ):
                        _take_back(graph, function, written, needed, block, index, passed_on)
    for function in functions:
        _First(graph, function.owner, needed).visit(function.node)
    for function in functions:
        if function.key in needed:
            _return_too(function, written[function.key])
        drop_unread(function.node)


class _First(ast.NodeTransformer):
    """Take the first of what a rewritten function returns, at the calls that need no written argument back."""

    def __init__(self, graph: CallGraph, owner: Definition, needed: set[tuple[str, str]]) -> None:
        self.graph, self.owner, self.needed = graph, owner, needed

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        called = {t.key for t in self.graph.targets(node, self.owner)}
        if hasattr(node, "taken_back") or not called & self.needed:
            return node
        return typed(ast.Subscript(node, ast.Constant(0), ast.Load()), node)


def _written(function: Function, types: Kinds) -> list[str]:
    """Parameters written in place before they are rebound."""
    parameters = [p for p in function.parameters if p != "self"]
    found = []
    for statement in ast.walk(function.node):
        target = _write_target(statement)
        if (
            isinstance(target, ast.Name)
            and target.id in parameters
            and "dict" not in types.of(target)
            and (types.is_tensor(target) or getattr(statement, "target", None) is not target)
            and not _rebound_before(function, target)
        ):
            found.append(target.id)
    return list(dict.fromkeys(found))


def _write_target(statement: ast.AST) -> ast.expr | None:
    """What a statement writes into: `x` of `x.add_(1)`, `x[0] = 1` and `x += 1` (which rebinds what is no tensor)."""
    target = None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        method = statement.value.func
        if isinstance(method, ast.Attribute) and is_inplace_name(method.attr):
            target = method.value
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        target = None if stores_item(statement) else statement.targets[0]
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _rebound_before(function: Function, target: ast.Name) -> bool:
    earlier = [s for s in ast.walk(function.node) if isinstance(s, ast.Assign) and s.lineno < target.lineno]
    return target.id in stored(earlier)


def _written_below(graph: CallGraph, functions: list[Function], written: dict) -> dict[tuple[str, str], list[str]]:
    """Parameters written by a function or by those that it hands them to."""
    changed = True
    while changed:
        changed = False
        for function in functions:
            for node in ast.walk(function.node):
                for target in graph.targets(node, function.owner) if isinstance(node, ast.Call) else ():
                    handed = (_argument(node, target, p) for p in written.get(target.key, ()))
                    for given in (a for a in handed if isinstance(a, ast.Name) and a.id in function.parameters):
                        if given.id not in ("self", *written[function.key]) and not _rebound_before(function, given):
                            written[function.key] = [*written[function.key], given.id]
                            changed = True
    return written


def _take_back(
    graph: CallGraph,
    function: Function,
    written: dict,
    needed: set,
    block: list[ast.stmt],
    index: int,
    passed_on: list[str],
) -> None:
    statement = block[index]
    targets = [t for t in graph.targets(statement.value, function.owner) if written.get(t.key)]
    if not targets or hasattr(statement.value, "taken_back"):
        return
    target = targets[0]
    arguments = [_argument(statement.value, target, p) for p in written[target.key]]
    names = [key for a in arguments if a is not None and (key := key_of(a)) is not None]
    rebound = set(stored([statement]))  # the result takes the name: what was written is not read again
    others = {n: _same_value(block, index, n) for n in names}
    if len(names) != len(arguments) or not any(
        n in passed_on or (n not in rebound and _is_read_later(function, n, statement))
        or any(_is_read_later(function, other, statement) for other in others[n])
        for n in names
    ):  # fmt: skip
        return
    if len(targets) > 1 or len(set(names)) != len(names):
        return
    needed.add(target.key)
    result = ast.Name("_", ast.Store()) if isinstance(statement, ast.Expr) else _target(statement)
    statement.value.taken_back = frozenset(names)
    received = [_received(n, rebound, others[n]) for n in names]
    block[index] = dress(ast.Assign([ast.Tuple([result, *received], ast.Store())], statement.value), statement)
    after = [s for n in names if (s := _put_back(function, n)) is not None]
    for value, n in zip(received, names, strict=True):
        after += [assign(o, dotted(ast.unparse(value)), like=statement) for o in others[n] if o != ast.unparse(value)]
    block[index + 1 : index + 1] = after


def _target(statement: ast.Assign | ast.AnnAssign) -> ast.expr:
    return statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]


def _received(variable: str, rebound: set[str], others: list[str]) -> ast.expr:
    """Where a written argument goes: its own name, or where the result takes that, another one of the same value."""
    target = dotted(next(iter(others), "_") if variable in rebound else variable)
    target.ctx = ast.Store()
    return target


def _same_value(block: list[ast.stmt], index: int, variable: str) -> list[str]:
    """Names that hold what `variable` holds at a statement: `other = variable` above it, and neither bound since."""
    found: list[str] = []
    for place in range(index):
        statement = block[place]
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name)):
            continue
        pair = [ast.unparse(t) for t in statement.targets] + [statement.value.id]
        since = stored(block[place + 1 : index])
        plain = all(isinstance(t, ast.Name) for t in statement.targets)
        if plain and variable in pair and not set(pair) & set(since):
            found += [n for n in pair if n != variable and n not in found]
    return found


def _argument(node: ast.Call, target: Function, parameter: str) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == parameter:
            return keyword.value
    position = target.parameters.index(parameter) - (1 if target.is_method else 0)
    return node.args[position] if position < len(node.args) else None


def _is_read_later(function: Function, variable: str, statement: ast.stmt) -> bool:
    root = variable.partition(".")[0]
    if root == "self" or _getter(function, variable) is not None:
        return True  # it outlives the call
    below = statement.end_lineno or 0
    return any(n.id == root and n.lineno > below for n in loads([function.node]) if hasattr(n, "lineno"))


def _getter(function: Function, variable: str) -> ast.Call | None:
    """The call that fetches a state from a cache, if the name holds one (or None, where there is no cache)."""
    for node in ast.walk(function.node):
        if not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == variable):
            continue
        options = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
        made = [o for o in options if not is_none(o)]
        method = made[0].func if len(made) == 1 and isinstance(made[0], ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in _GETTERS:
            return made[0]
    return None


def _put_back(function: Function, variable: str) -> ast.stmt | None:
    getter = _getter(function, variable)
    if getter is None:
        return None
    setter = ast.Attribute(getter.func.value, _GETTERS[getter.func.attr], ast.Load())
    node = call(setter, name(variable), *getter.args, **{k.arg: k.value for k in getter.keywords if k.arg})
    return ast.Expr(node)


def _return_too(function: Function, parameters: list[str]) -> None:
    body = function.node.body
    if not isinstance(body[-1], ast.Return | ast.Raise):
        body.append(ast.Return(ast.Constant(None)))
    kept = {p: _keep_written(function, p) for p in parameters}
    for node in _own_nodes(body):
        if isinstance(node, ast.Return):
            handed = [name(f"written_{p}" if node in kept[p] else p) for p in parameters]
            node.value = ast.Tuple([node.value or ast.Constant(None), *handed], ast.Load())
            node.hands_back = True


def _keep_written(function: Function, parameter: str) -> list[ast.AST]:
    """Name what a parameter holds before it is bound to another value; returns the nodes below, which see that name.

    Whether a later write still reaches that value, through a view or in a branch that binds no other, `aliases` tells.
    """
    body = function.node.body
    first = next((i for i, s in enumerate(body) if _rebinds(s, parameter)), None)
    if first is None:
        return []
    copy = ast.Assign([ast.Name(f"written_{parameter}", ast.Store())], name(parameter))
    body.insert(first, ast.copy_location(copy, body[first]))
    return _own_nodes(body[first + 1 :])


def _rebinds(statement: ast.stmt, parameter: str) -> bool:
    """Whether a statement binds the name to another value: no in-place operator, no nested function."""
    for node in _own_nodes([statement]):
        if isinstance(node, ast.Assign) and parameter in getattr(node.value, "taken_back", ()):
            continue  # it is what was written
        if hasattr(node, "stores_back"):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.With | ast.NamedExpr):
            heads = [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]
            if parameter in stored(heads):
                return True
    return False


def _own_nodes(body: list[ast.stmt]) -> list[ast.AST]:
    """Nodes of a body without those of functions inside it, whose returns are their own."""
    found, pending = [], list(body)
    while pending:
        node = pending.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)
    return found


EXAMPLES = (
    Example(
        """
        def fill(t: torch.Tensor, v: float):
            t[0] = v
            return t.sum()

        def shift(t: torch.Tensor):
            t += 1

        def entry(x: torch.Tensor):
            s = fill(x, 2.0)
            shift(x)
            return x * s
        """,
        """
        def fill(t: torch.Tensor, v: float):
            t[0] = v
            return t.sum(), t

        def shift(t: torch.Tensor):
            t += 1
            return None, t

        def entry(x: torch.Tensor):
            s, x = fill(x, 2.0)
            _, x = shift(x)
            return x * s
        """,
    ),
    Example(
        """
        def fill(t: torch.Tensor):
            t[0] = 1.0
            return t.sum()

        def entry(x: torch.Tensor):
            s = fill(x)
            return x * s + fill(x * 1)
        """,
        """
        def fill(t: torch.Tensor):
            t[0] = 1.0
            return t.sum(), t

        def entry(x: torch.Tensor):
            s, x = fill(x)
            return x * s + fill(x * 1)[0]
        """,
    ),
    Example(
        """
        def fill(t: torch.Tensor, early: bool):
            t[0] = 1.0
            if early:
                return t.sum()
            t = t * 2
            return t.mean()

        def entry(x: torch.Tensor):
            s = fill(x, False)
            return x * s
        """,
        """
        def fill(t: torch.Tensor, early: bool):
            t[0] = 1.0
            if early:
                return t.sum(), t
            written_t = t
            t = t * 2
            return t.mean(), written_t

        def entry(x: torch.Tensor):
            s, x = fill(x, False)
            return x * s
        """,
    ),
    Example(
        """
        def fill(t: torch.Tensor, twice: bool):
            t[0] = 1.0
            if twice:
                t = t * 2
            return t.mean()

        def entry(x: torch.Tensor):
            s = fill(x, False)
            return x * s
        """,
        """
        def fill(t: torch.Tensor, twice: bool):
            t[0] = 1.0
            written_t = t
            if twice:
                t = t * 2
            return t.mean(), written_t

        def entry(x: torch.Tensor):
            s, x = fill(x, False)
            return x * s
        """,
    ),
    unchanged(
        "def fill(t: torch.Tensor):\n    t[0] = 1.0\n    return t * 2\n\ndef entry(x):\n    x = fill(x)\n    return x"
    ),
    unchanged(
        "def double(n: int):\n    n += n\n    return n\n\ndef entry(n: int):\n    m = double(n)\n    return n + m"
    ),
)
