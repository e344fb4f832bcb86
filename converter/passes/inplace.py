"""Turn writes into rebinding: `x[i] = v` becomes `x = x.at[i].set(v)`, `x.add_(y)` becomes `x = x.add(y)`.

JAX arrays never change, so a write through one name must not have been meant to show under another: a name that is a view
of a written tensor and is read after the write is a gap.
"""

import ast
from typing import Any

from maxcode.converter.context import Context, Definition, copy_facts, kinds
from maxcode.converter.infer import Kinds

_AUGMENTED = {ast.Add: "add", ast.Sub: "add", ast.Mult: "multiply", ast.Div: "divide"}
_SET = {"copy_": "set", "fill_": "set"}
_VIEWS = frozenset({"view", "transpose", "permute", "t", "squeeze", "unsqueeze", "expand", "narrow", "select", "chunk", "split", "unbind", "view_as", "T", "mT", "diagonal", "flatten", "detach"})  # fmt: skip
_NOT_INPLACE = frozenset({"__init__", "requires_grad_"})


class InPlace(ast.NodeTransformer):
    """One function; nested functions are visited with it."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef) -> None:
        self.context, self.types = context, Kinds(context, definition, function)
        self.function = function

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        if (
            len(node.targets) == 1
            and isinstance(node.targets[0], ast.Subscript)
            and self._is_array(node.targets[0].value)
        ):
            return self._store(node, node.targets[0], "set", node.value)
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and "config" in self.types.of(target.value):
            return self._replace_field(node, target)
        return node

    def _replace_field(self, node: ast.Assign, target: ast.Attribute) -> ast.stmt:
        """`config.x = v` becomes `config = config.replace(x=v)`: configurations are frozen."""
        replaced = ast.Call(
            ast.Attribute(_load(target.value), "replace", ast.Load()), [], [ast.keyword(target.attr, node.value)]
        )
        replaced.seen = {"kinds": ["config"]}
        return self._rebind(node, target.value, replaced)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        target = node.target
        if isinstance(target, ast.Subscript) and self._is_array(target.value):
            method = _AUGMENTED.get(type(node.op))
            if method is None:
                read = ast.Subscript(target.value, target.slice, ast.Load())
                return self._store(node, target, "set", ast.BinOp(read, node.op, node.value))
            value = ast.UnaryOp(ast.USub(), node.value) if isinstance(node.op, ast.Sub) else node.value
            return self._store(node, target, method, value)
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        call = node.value
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and _is_inplace_name(call.func.attr)
        ):
            return node
        receiver = call.func.value
        if not self._is_array(receiver):
            return node
        if call.func.attr in _SET:
            return self._overwrite(node, receiver, call)
        if isinstance(receiver, ast.Subscript):
            value = self._functional(call, ast.Subscript(receiver.value, receiver.slice, ast.Load()))
            return self._store(node, receiver, "set", value)
        if not isinstance(receiver, ast.Name | ast.Attribute):
            self.context.gap(
                "CV130", node, ast.unparse(call.func), "writes into a temporary value", "assign the result"
            )
            return node
        return self._rebind(node, receiver, self._functional(call, receiver))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func) in ("copy.deepcopy", "copy.copy", "deepcopy") and "config" in self.types.of(
            node.args[0]
        ):
            return node.args[0]
        if (
            isinstance(node.func, ast.Attribute)
            and _is_inplace_name(node.func.attr)
            and self._is_array(node.func.value)
        ):
            if isinstance(node.func.value, ast.Call):
                return self._functional(node, node.func.value)
        return node

    def _functional(self, call: ast.Call, receiver: ast.expr) -> ast.expr:
        """The same call out of place, under the method's name without its underscore."""
        name = call.func.attr.rstrip("_")
        new = ast.Call(ast.Attribute(receiver, name, ast.Load()), call.args, call.keywords)
        record = dict(getattr(call, "seen", None) or {})
        record["callee"] = [f"torch.Tensor.{name}"]
        new.seen = record
        return copy_facts(new, call)

    def _overwrite(self, node: ast.Expr, receiver: ast.expr, call: ast.Call) -> ast.stmt:
        if isinstance(receiver, ast.Subscript):
            return self._store(node, receiver, "set", call.args[0])
        at = ast.Subscript(ast.Attribute(_load(receiver), "at", ast.Load()), ast.Constant(...), ast.Load())
        return self._rebind(node, receiver, ast.Call(ast.Attribute(at, "set", ast.Load()), [call.args[0]], []))

    def _store(self, node: ast.stmt, target: ast.Subscript, method: str, value: ast.expr) -> ast.stmt:
        base = target.value
        if not isinstance(base, ast.Name | ast.Attribute):
            if isinstance(base, ast.Subscript) and isinstance(base.value, ast.Name):
                # x[i][j] = v writes into the view x[i].
                inner = ast.Subscript(base.value, base.slice, ast.Load())
                at = ast.Subscript(ast.Attribute(inner, "at", ast.Load()), target.slice, ast.Load())
                return self._store(node, base, "set", ast.Call(ast.Attribute(at, method, ast.Load()), [value], []))
            self.context.gap(
                "CV131", node, "torch.Tensor.__setitem__", "writes into a temporary view", "index the tensor once"
            )
            return node
        at = ast.Subscript(ast.Attribute(_load(base), "at", ast.Load()), target.slice, ast.Load())
        return self._rebind(node, base, ast.Call(ast.Attribute(at, method, ast.Load()), [value], []))

    def _rebind(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt:
        if isinstance(target, ast.Name):
            self._check_views(node, target.id)
        name = (
            ast.Name(target.id, ast.Store())
            if isinstance(target, ast.Name)
            else ast.Attribute(target.value, target.attr, ast.Store())
        )
        if not hasattr(value, "seen") and hasattr(target, "seen"):
            value.seen, value.fact = target.seen, target.fact
        new = ast.Assign([name], value)
        for attribute in ("leading", "trailing", "spaced", "file"):
            if hasattr(node, attribute):
                setattr(new, attribute, getattr(node, attribute))
        return ast.copy_location(new, node)

    def _check_views(self, write: ast.stmt, name: str) -> None:
        for node in ast.walk(self.function):
            if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
                continue
            alias = node.targets[0].id
            if alias == name or not _is_view_of(node.value, name) or node.lineno >= write.lineno:
                continue
            if any(n.id == alias and n.lineno > write.lineno for n in _loads(self.function)):
                self.context.gap("CV132", write, f"write to {name!r}", f"{alias!r} is a view of it and is read afterwards",
                                 f"copy {alias!r} or write before taking it")  # fmt: skip

    def _is_array(self, node: ast.expr) -> bool:
        return self.types.is_tensor(node)


def _is_inplace_name(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__") and name not in _NOT_INPLACE


def _load(node: ast.expr) -> ast.expr:
    new = (
        ast.Name(node.id, ast.Load())
        if isinstance(node, ast.Name)
        else ast.Attribute(node.value, node.attr, ast.Load())
    )
    return copy_facts(new, node)


def _loads(function: ast.FunctionDef) -> list[ast.Name]:
    return [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and hasattr(n, "lineno")
    ]


def _is_view_of(value: ast.expr, name: str) -> bool:
    if isinstance(value, ast.Subscript):
        return isinstance(value.value, ast.Name) and value.value.id == name and "tensor" in kinds(value.value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS:
        return isinstance(value.func.value, ast.Name) and value.func.value.id == name
    return False
