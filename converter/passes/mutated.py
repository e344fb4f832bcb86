"""Return the arguments that a function writes in place, and take them back at its call sites.

A state fetched from a cache and updated in place by a helper (`conv_state.copy_(…)`) is put back into the cache after the call.
"""

import ast

from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context
from maxcode.converter.nodes import blocks, call, dress, loads, name, stored
from maxcode.converter.passes.inplace import _is_inplace_name

_GETTERS = {"get_conv_state": "set_conv_state", "get_recurrent_state": "set_recurrent_state"}


def return_mutated(context: Context) -> None:
    """Rewrite every function that writes into a parameter, and every call to one; run before `InPlace`."""
    graph = CallGraph(context)
    written = {f.key: _written(f) for f in graph.functions()}
    needed: set[tuple[str, str]] = set()
    for function in graph.functions():
        for block in list(blocks(function.node)):
            for index in range(len(block) - 1, -1, -1):
                statement = block[index]
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                    _take_back(context, graph, function, written, needed, block, index)
    for function in graph.functions():
        if function.key in needed:
            _return_too(function, written[function.key])


def _written(function: Function) -> list[str]:
    """Parameters written in place before they are rebound."""
    parameters = [p for p in function.parameters if p != "self"]
    found = []
    for statement in ast.walk(function.node):
        target = None
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            method = statement.value.func
            if isinstance(method, ast.Attribute) and _is_inplace_name(method.attr):
                target = method.value
        elif isinstance(statement, ast.Assign | ast.AugAssign):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            target = target if isinstance(target, ast.Subscript) else None
        while isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name) and target.id in parameters and not _rebound_before(function, target):
            found.append(target.id)
    return list(dict.fromkeys(found))


def _rebound_before(function: Function, target: ast.Name) -> bool:
    earlier = [s for s in ast.walk(function.node) if isinstance(s, ast.Assign) and s.lineno < target.lineno]
    return target.id in stored(earlier)


def _take_back(
    context: Context,
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
    if len(names) != len(arguments) or not any(_is_read_later(function, n, statement) for n in names):
        return
    needed.add(target.key)
    result = statement.targets[0]
    block[index] = dress(
        ast.Assign([ast.Tuple([result, *(ast.Name(n, ast.Store()) for n in names)], ast.Store())], statement.value),
        statement,
    )
    for put in reversed([s for n in names if (s := _put_back(function, n)) is not None]):
        block.insert(index + 1, put)


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
        ):
            if ast.unparse(node.targets[0]) == variable and node.value.func.attr in _GETTERS:
                return node.value
    return None


def _put_back(function: Function, variable: str) -> ast.stmt | None:
    getter = _getter(function, variable)
    if getter is None:
        return None
    setter = ast.Attribute(getter.func.value, _GETTERS[getter.func.attr], ast.Load())
    node = call(setter, name(variable), *getter.args, **{k.arg: k.value for k in getter.keywords if k.arg})
    return ast.Expr(node)


def _return_too(function: Function, parameters: list[str]) -> None:
    for node in ast.walk(function.node):
        if isinstance(node, ast.Return):
            node.value = ast.Tuple([node.value or ast.Constant(None), *(name(p) for p in parameters)], ast.Load())
