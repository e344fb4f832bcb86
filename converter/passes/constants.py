"""Carry constants to where they are read: functions that only return one, locals that only ever hold one."""

import ast

from maxcode.converter.calls import CallGraph
from maxcode.converter.context import Context
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import stored
from maxcode.converter.passes.fold import Fold

_CARRIED = (type(None), bool)


def carry_constants(context: Context) -> None:
    """Replace calls of constant functions and reads of constant locals, fold, and repeat until nothing changes."""
    graph = CallGraph(context)
    constant = {f.key: value for f in graph.functions() if (value := _returned_constant(f.node)) is not None}
    for function in graph.functions():
        if function.node.name != "__init__":
            _Calls(graph, function.owner, constant).visit(function.node)
        for _ in range(3):
            if not _carry_locals(function.node):
                break
            Fold().visit(function.node)


def _returned_constant(function: ast.FunctionDef) -> ast.Constant | None:
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(body) == 1 and isinstance(body[0], ast.Return) and isinstance(body[0].value, ast.Constant):
        return body[0].value if isinstance(body[0].value.value, _CARRIED) else None
    return None


class _Calls(ast.NodeTransformer):
    def __init__(self, graph: CallGraph, owner, constant: dict) -> None:
        self.graph, self.owner, self.constant = graph, owner, constant

    def visit_Call(self, node: ast.Call) -> ast.expr:
        targets = self.graph.targets(node, self.owner)
        if len(targets) == 1 and targets[0].key in self.constant:
            return ast.copy_location(ast.Constant(self.constant[targets[0].key].value), node)
        self.generic_visit(node)
        return node


def _carry_locals(function: ast.FunctionDef) -> bool:
    """Replace reads of locals that are bound once, to None, True or False; True when there were any."""
    parameters = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
    bindings: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bindings[node.id] = bindings.get(node.id, 0) + 1
    changed = False
    for block in _outer_blocks(function):
        for index, statement in enumerate(block):
            if not (
                isinstance(statement, ast.Assign)
                and len(statement.targets) == 1
                and isinstance(statement.targets[0], ast.Name)
            ):
                continue
            name, value = statement.targets[0].id, statement.value
            if not (isinstance(value, ast.Constant) and isinstance(value.value, _CARRIED)) or name in parameters:
                continue
            if bindings[name] != 1 or name in stored([s for s in function.body if isinstance(s, ast.FunctionDef)]):
                continue
            reads = [n for s in block[index + 1 :] for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name]
            every = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
            if len(every) - 1 != len(reads) or not reads:
                continue  # read outside this block, where it may be unbound
            replace = _Read(name, value.value)
            block[index:] = [replace.visit(s) for s in block[index + 1 :]] or [ast.Pass()]
            changed = True
            break
    return changed


def _outer_blocks(function: ast.FunctionDef) -> list[list[ast.stmt]]:
    found = [function.body]
    for node in ast.walk(function):
        if isinstance(node, ast.If):
            found += [b for b in (node.body, node.orelse) if b]
    return found


class _Read(ast.NodeTransformer):
    def __init__(self, name: str, value: object) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        read = node.id == self.name and isinstance(node.ctx, ast.Load)
        return ast.copy_location(ast.Constant(self.value), node) if read else node


EXAMPLES = (
    Example(
        """
        def wants_more():
            return False

        def f(x):
            flag = wants_more()
            extra = None
            if flag:
                x = x + 1
            return x if extra is None else extra
        """,
        """
        def wants_more():
            return False

        def f(x):
            return x
        """,
    ),
    unchanged("def f(x):\n    flag = None\n    if x:\n        flag = True\n    return flag"),
)
