"""Rope tables that depend on the length of a call: read the frequencies through the support library's update.

The framework's decorator rewrites a buffer before each call; here the same choice is made where the buffer is read.
"""

import ast

from maxcode.converter.context import Context
from maxcode.converter.nodes import attribute, blocks, call, name, typed

DECORATOR = "dynamic_rope_update"
_BUFFER = "inv_freq"
_ORIGINAL = "original_inv_freq"
_BOOKKEEPING = frozenset({_ORIGINAL, "max_seq_len_cached", "original_max_seq_len"})


def update_rope(context: Context, function: ast.FunctionDef) -> None:
    """Rewrite the buffer reads of a function that carried the framework's decorator."""
    parameters = [a.arg for a in function.args.args]
    if "position_ids" not in parameters:
        context.gap("CV111", function, DECORATOR, "the decorated function takes no position_ids", "")
        return
    reader = _Reads(context, "layer_type" if "layer_type" in parameters else None)
    function.body = [reader.visit(statement) for statement in function.body]


def drop_bookkeeping(node: ast.ClassDef) -> None:
    """Take out of a constructor what only the framework's decorator would read: first frequencies, longest length.

    A name that the class reads itself stays.
    """
    read = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}
    for block in (b for s in node.body if isinstance(s, ast.FunctionDef) and s.name == "__init__" for b in blocks(s)):
        block[:] = [s for s in block if not _is_bookkeeping(s, read)] or [ast.Pass()]


def _is_bookkeeping(statement: ast.stmt, read: set[str]) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)]):
            return attr in _BOOKKEEPING - read
        case ast.Expr(value=ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="self"), key, _])):
            return any(
                isinstance(n, ast.Constant) and str(n.value).endswith(_ORIGINAL) and _ORIGINAL not in read
                for n in ast.walk(key)
            )
    return False


class _Reads(ast.NodeTransformer):
    def __init__(self, context: Context, layer_type: str | None) -> None:
        self.context, self.layer_type = context, layer_type

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.attr == _BUFFER and ast.unparse(node.value) == "self":
            return self._updated(node)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) == "getattr" and _ends_with_buffer(node.args[1]):
            return self._updated(node)
        self.generic_visit(node)
        return node

    def _updated(self, node: ast.expr) -> ast.expr:
        rope_type: ast.expr = attribute("self", "rope_type")
        arguments = [node, attribute("self", "config"), name("position_ids")]
        if self.layer_type:
            rope_type = ast.Subscript(rope_type, name(self.layer_type), ast.Load())
        arguments.append(rope_type)
        if self.layer_type:
            arguments.append(name(self.layer_type))
        return typed(call(self.context.use("rope", "update_frequencies"), *arguments), node)


def _ends_with_buffer(node: ast.expr) -> bool:
    if isinstance(node, ast.JoinedStr):
        last = node.values[-1]
        return (
            isinstance(last, ast.Constant)
            and str(last.value).endswith(f"_{_BUFFER}")
            and "original" not in str(last.value)
        )
    return isinstance(node, ast.Constant) and str(node.value) == _BUFFER
