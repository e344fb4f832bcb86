"""Return the arguments that a function writes in place, and take them back at its call sites.

A state fetched from a cache and updated in place by a helper (`conv_state.copy_(…)`) is put back into the cache after
the call.
"""

import ast
import itertools

from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import blocks, call, dress, loads, name, stored, typed
from maxcode.converter.passes.memory import is_inplace_name

_GETTERS = {"get_conv_state": "set_conv_state", "get_recurrent_state": "set_recurrent_state"}


def return_mutated(context: Context) -> None:
    """Rewrite every function that writes into a parameter, and every call to one; run before `InPlace`."""
    graph = CallGraph(context)
    written = {f.key: _written(f, Kinds(context, f.owner, f.node)) for f in graph.functions()}
    needed: set[tuple[str, str]] = set()
    for function in graph.functions():
        for block in list(blocks(function.node)):
            for index in range(len(block) - 1, -1, -1):
                statement = block[index]
                if isinstance(statement, ast.Assign | ast.Expr) and isinstance(statement.value, ast.Call):
                    _take_back(graph, function, written, needed, block, index)
    for function in graph.functions():
        _First(graph, function.owner, needed).visit(function.node)
    for function in graph.functions():
        if function.key in needed:
            _return_too(context, function, written[function.key])


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
        target = statement.targets[0]
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _rebound_before(function: Function, target: ast.Name) -> bool:
    earlier = [s for s in ast.walk(function.node) if isinstance(s, ast.Assign) and s.lineno < target.lineno]
    return target.id in stored(earlier)


def _take_back(
    graph: CallGraph,
    function: Function,
    written: dict,
    needed: set,
    block: list[ast.stmt],
    index: int,
) -> None:
    statement = block[index]
    targets = [t for t in graph.targets(statement.value, function.owner) if written.get(t.key)]
    if not targets:
        return
    target = targets[0]
    arguments = [_argument(statement.value, target, p) for p in written[target.key]]
    names = [a.id for a in arguments if isinstance(a, ast.Name)]
    rebound = set(stored([statement]))  # the result takes the name: what was written is not read again
    if len(names) != len(arguments) or not any(
        _is_read_later(function, n, statement) for n in names if n not in rebound
    ):
        return
    if len(targets) > 1 or len(set(names)) != len(names):
        return
    needed.add(target.key)
    result = statement.targets[0] if isinstance(statement, ast.Assign) else ast.Name("_", ast.Store())
    statement.value.taken_back = frozenset(names)
    block[index] = dress(
        ast.Assign([ast.Tuple([result, *(_received(n, rebound) for n in names)], ast.Store())], statement.value),
        statement,
    )
    for put in reversed([s for n in names if (s := _put_back(function, n)) is not None]):
        block.insert(index + 1, put)


def _received(variable: str, rebound: set[str]) -> ast.Name:
    return ast.Name("_" if variable in rebound else variable, ast.Store())


def _argument(node: ast.Call, target: Function, parameter: str) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == parameter:
            return keyword.value
    position = target.parameters.index(parameter) - (1 if target.is_method else 0)
    return node.args[position] if position < len(node.args) else None


def _is_read_later(function: Function, variable: str, statement: ast.stmt) -> bool:
    return _getter(function, variable) is not None or any(
        n.id == variable and n.lineno > (statement.end_lineno or 0)
        for n in loads([function.node])
        if hasattr(n, "lineno")
    )


def _getter(function: Function, variable: str) -> ast.Call | None:
    for node in ast.walk(function.node):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and ast.unparse(node.targets[0]) == variable
            and node.value.func.attr in _GETTERS
        ):
            return node.value
    return None


def _put_back(function: Function, variable: str) -> ast.stmt | None:
    getter = _getter(function, variable)
    if getter is None:
        return None
    setter = ast.Attribute(getter.func.value, _GETTERS[getter.func.attr], ast.Load())
    node = call(setter, name(variable), *getter.args, **{k.arg: k.value for k in getter.keywords if k.arg})
    return ast.Expr(node)


def _return_too(context: Context, function: Function, parameters: list[str]) -> None:
    body = function.node.body
    if not isinstance(body[-1], ast.Return | ast.Raise):
        body.append(ast.Return(ast.Constant(None)))
    kept = {p: _keep_written(context, function, p) for p in parameters}
    for node in _own_nodes(body):
        if isinstance(node, ast.Return):
            handed = [name(f"written_{p}" if node in kept[p] else p) for p in parameters]
            node.value = ast.Tuple([node.value or ast.Constant(None), *handed], ast.Load())
            node.hands_back = True


def _keep_written(context: Context, function: Function, parameter: str) -> list[ast.AST]:
    """Name what a parameter holds before it is bound to another value; returns the nodes below, which see that name.

    A rebinding in a branch or loop leaves open which value comes back, and a write after it may reach the first value
    through a view: gaps.
    """
    body = function.node.body
    first = next((i for i, s in enumerate(body) if _rebindings(s, parameter)), None)
    if first is None:
        return []
    below = _own_nodes(body[first:])
    written = (n for n in below if isinstance(t := _write_target(n), ast.Name) and t.id == parameter)
    nested = (n for s in body[first:] for n in _rebindings(s, parameter) if n is not s)
    unclear = next(itertools.chain(nested, written), None)
    if unclear is not None:
        reason = f"{parameter!r} is written in place, and bound to another value in a branch or between two writes"
        context.gap("CV134", unclear, f"{function.node.name}()", reason, "use another name for the new value")
        return []
    copy = ast.Assign([ast.Name(f"written_{parameter}", ast.Store())], name(parameter))
    body.insert(first, ast.copy_location(copy, body[first]))
    return below


def _rebindings(statement: ast.stmt, parameter: str) -> list[ast.AST]:
    """Nodes that bind the name to another value: no in-place operator, no nested function."""
    found = []
    for node in _own_nodes([statement]):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.With | ast.NamedExpr):
            heads = [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]
            found += [node] if parameter in stored(heads) else []
    return found


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
            if twice:
                t = t * 2
            return t.mean(), t

        def entry(x: torch.Tensor):
            s, x = fill(x, False)
            return x * s
        """,
        gap="CV134",
    ),
    unchanged(
        "def fill(t: torch.Tensor):\n    t[0] = 1.0\n    return t * 2\n\ndef entry(x):\n    x = fill(x)\n    return x"
    ),
    unchanged(
        "def double(n: int):\n    n += n\n    return n\n\ndef entry(n: int):\n    m = double(n)\n    return n + m"
    ),
)
