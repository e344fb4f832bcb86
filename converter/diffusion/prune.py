"""What is left of a pipeline's loop once its plumbing is gone: callbacks, progress, devices, parts that are absent."""

import ast
import copy
from typing import Any

from maxcode.converter.nodes import dress, name, stored
from maxcode.converter.passes.fold import Fold

_BARS = ("progress_bar", "xm")  # names whose methods only show how far a run has come
_SCOPES = ("cache_context", "progress_bar")  # context managers without effect on values
_DEVICES = ("is_available", "is_built")


class Prune(ast.NodeTransformer):
    """Fold what a recording knows of names; `self.x` of a value becomes the name `x`.

    Args:
      known: names ("x" or "self.x") -> None, True or False, where every scenario had that.
      parts: attributes of the pipeline that are models.
      values: attributes of the pipeline that are numbers, texts, tensors or lists.
      bound: names that the statements bind themselves, which the recording does not speak of.
    """

    def __init__(self, known: dict[str, Any], parts: set[str], values: set[str], bound: set[str]) -> None:
        self.known = {n: v for n, v in known.items() if n not in bound}
        self.parts, self.values = parts, values

    def run(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements that remain."""
        files = {id(n.file): n.file for s in body for n in ast.walk(s) if hasattr(n, "file")}
        body = self._block(copy.deepcopy(body, files))  # nodes are copied, the file that they point at is not
        for _ in range(4):
            holder = ast.Module(body, [])
            Fold().visit(holder)
            body = _without_idle(_propagated(holder.body))
        return body

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            result = self.visit(statement)
            made += result if isinstance(result, list) else [result] if result is not None else []
        return made

    def visit_With(self, node: ast.With) -> Any:
        calls = [i.context_expr for i in node.items if isinstance(i.context_expr, ast.Call)]
        names = [c.func.attr for c in calls if isinstance(c.func, ast.Attribute)]
        if len(names) == len(node.items) and all(n in _SCOPES for n in names):
            return self._block(node.body)
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[0] in _BARS:
            return None
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and target.attr.startswith("_"):
            return None  # what the pipeline notes for its callers
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        text = ast.unparse(node.func)
        if text.startswith("torch.backends.") and text.endswith(_DEVICES):
            return ast.copy_location(ast.Constant(False), node)
        if text.endswith(".to") and len(node.args) == 1 and self._is_dtype_of_part(node.args[0]) and not node.keywords:
            return self.visit(node.func.value)
        self.generic_visit(node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if self._is_dtype_of_part(node.left) and ast.unparse(node.comparators[0]) == "torch.float16":
            return ast.copy_location(ast.Constant(False), node)
        self.generic_visit(node)
        return node

    def _is_dtype_of_part(self, node: ast.expr) -> bool:
        text = ast.unparse(node)
        return text.startswith("self.") and text.endswith(".dtype") and text.split(".")[1] in self.parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.known:
            return ast.copy_location(ast.Constant(self.known[node.id]), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        text = ast.unparse(node)
        if isinstance(node.ctx, ast.Load) and text in self.known:
            return ast.copy_location(ast.Constant(self.known[text]), node)
        if text.startswith("self.") and text.count(".") == 1 and node.attr in self.values:
            made = ast.copy_location(name(node.attr), node)
            made.seen, made.file = getattr(node, "seen", {}), getattr(node, "file", None)
            return made
        self.generic_visit(node)
        return node


def _propagated(body: list[ast.stmt]) -> list[ast.stmt]:
    """Without `x = True` and the like, where that is the only thing that binds x."""
    names = [n for s in body for n in stored([s])]
    found = {
        s.targets[0].id: s.value.value
        for s in body
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and isinstance(s.value, ast.Constant)
        if (s.value.value is None or isinstance(s.value.value, bool)) and names.count(s.targets[0].id) == 1
    }
    kept = [s for s in body if not (isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) in found)]
    holder = ast.Module(kept, [])
    Prune(found, set(), set(), set()).generic_visit(holder)
    return holder.body


def _without_idle(body: list[ast.stmt]) -> list[ast.stmt]:
    """Without branches that do nothing."""
    kept = []
    for statement in body:
        if isinstance(statement, ast.If):
            statement.body = _without_idle(statement.body)
            statement.orelse = _without_idle(statement.orelse)
            if not statement.body and not statement.orelse:
                continue
            if not statement.body:
                turned = ast.If(ast.UnaryOp(ast.Not(), statement.test), statement.orelse, [])
                statement = dress(turned, statement)
        if not isinstance(statement, ast.Pass | ast.Continue):
            kept.append(statement)
    return kept
