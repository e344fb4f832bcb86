"""Turn writes into rebinding: `x[i] = v` becomes `x = x.at[i].set(v)`, `x.add_(y)` becomes `x = x.add(y)`.

JAX arrays never change, so a write through one name must not have been meant to show under another: `aliases` has
looked for such names before.
"""

import ast
from typing import Any

from maxcode.converter.context import Context, Definition, broken, copy_facts, kinds, seen
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import COMMENT_FIELDS, dress
from maxcode.converter.passes.memory import is_inplace_name

_AUGMENTED = {ast.Add: "add", ast.Sub: "add", ast.Mult: "multiply", ast.Div: "divide"}
_SET = frozenset({"copy_", "fill_", "zero_"})
# Tests in place write ones and zeros of the tensor's own dtype: rules stand under these very names.
_TESTS = frozenset({"eq_", "ne_", "lt_", "le_", "gt_", "ge_", "logical_and_", "logical_or_", "logical_not_"})


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

    def _grow_field(self, node: ast.Expr, grown: ast.Call) -> list[ast.stmt] | None:
        """`config.x.append(v)` in a constructor becomes `config = config.replace(x=[*config.x, v])`.

        The object is one for all models below it in the source: a gap where another function reads the field.
        """
        field = grown.func.value if isinstance(grown.func, ast.Attribute) else None
        is_growing = isinstance(field, ast.Attribute) and grown.func.attr in ("append", "extend") and grown.args
        if not is_growing or "config" not in self.types.of(field.value) or self.function.name != "__init__":
            return None
        reads = [
            n for d in self.context.definitions for f in d.functions() if f is not self.function for n in ast.walk(f)
        ]
        if any(isinstance(n, ast.Attribute) and n.attr == field.attr for n in reads):
            reason = "a list of the configuration grows here, and is read elsewhere too"
            self.context.gap("CV134", node, f"{ast.unparse(field)}.{grown.func.attr}", reason, "make a list of its own")
            return None
        more = ast.Starred(grown.args[0], ast.Load()) if grown.func.attr == "extend" else grown.args[0]
        value = ast.List([ast.Starred(field, ast.Load()), more], ast.Load())
        result = [self._replace_field(ast.copy_location(ast.Assign([field], value), node), field)]
        parameters = {a.arg for a in ast.walk(self.function.args) if isinstance(a, ast.arg)}
        held = ast.unparse(field.value).removeprefix("self.")
        if held in parameters and isinstance(field.value, ast.Attribute):  # the same object to the source
            same = ast.Assign([ast.Name(held, ast.Store())], field.value)
            result.append(ast.copy_location(same, node))
        return result

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        target = node.target
        if isinstance(target, ast.Subscript) and self._is_array(target.value):
            method = _AUGMENTED.get(type(node.op))
            if self._is_mask(target.slice):
                return self._store(node, target, "set", self._masked(node, target))
            if method is None or self._may_repeat(target.slice):
                read = ast.Subscript(target.value, target.slice, ast.Load())
                return self._store(node, target, "set", ast.BinOp(read, node.op, node.value))
            value = ast.UnaryOp(ast.USub(), node.value) if isinstance(node.op, ast.Sub) else node.value
            return self._store(node, target, method, value)
        return node

    def _masked(self, node: ast.AugAssign, target: ast.Subscript) -> ast.expr:
        """New values of the chosen positions: of all positions, then chosen, where the operand allows."""
        chosen = isinstance(node.value, ast.Subscript) and ast.unparse(node.value.slice) == ast.unparse(target.slice)
        if not (chosen or self._is_number(node.value)):
            return ast.BinOp(ast.Subscript(target.value, target.slice, ast.Load()), node.op, node.value)
        every = ast.BinOp(target.value, node.op, node.value.value if chosen else node.value)
        every.seen = dict(seen(target.value))
        return ast.Subscript(every, target.slice, ast.Load())

    def _may_repeat(self, index: ast.expr) -> bool:
        """Whether a tensor index may name a position twice: torch then adds once, `.at[…].add` twice."""
        return any(seen(p).get("dtypes") != ["bool"] for p in self._gathered(index))

    def _is_gathered(self, index: ast.expr) -> bool:
        """Whether indexing makes a copy."""
        return bool(self._gathered(index))

    def _gathered(self, index: ast.expr) -> list[ast.expr]:
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        return [p for p in parts if isinstance(p, ast.List) or self.types.is_tensor(p)]

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)
        call = node.value
        if isinstance(call, ast.Call) and (grown := self._grow_field(node, call)) is not None:
            return grown
        if not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and is_inplace_name(call.func.attr)
        ):
            return node
        receiver = call.func.value
        if not self._is_array(receiver):
            return node
        if call.func.attr in _SET:
            return self._overwrite(node, receiver, call)
        if isinstance(receiver, ast.Subscript):
            value = self._functional(call, ast.Subscript(receiver.value, receiver.slice, ast.Load()))
            return self._item(node, receiver, "set", value)
        if not isinstance(receiver, ast.Name | ast.Attribute) or self._is_view(receiver):
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
            and is_inplace_name(node.func.attr)
            and isinstance(node.func.value, ast.Call | ast.BinOp | ast.UnaryOp)
            and self._is_array(node.func.value)
        ):
            return self._functional(node, node.func.value)
        return node

    def _functional(self, call: ast.Call, receiver: ast.expr) -> ast.expr:
        """The same call out of place: under the method's name without its underscore, where that keeps the dtype."""
        name = call.func.attr if call.func.attr in _TESTS else call.func.attr.rstrip("_")
        new = ast.Call(ast.Attribute(receiver, name, ast.Load()), call.args, call.keywords)
        record = dict(getattr(call, "seen", None) or {})
        record["callee"] = [f"torch.Tensor.{name}"]
        new.seen = record
        return copy_facts(new, call)

    def _overwrite(self, node: ast.Expr, receiver: ast.expr, call: ast.Call) -> ast.stmt:
        value = call.args[0] if call.args else call.keywords[0].value if call.keywords else ast.Constant(0)
        if isinstance(receiver, ast.Subscript):
            if self._is_array(receiver.value):
                return self._item(node, receiver, "set", value)
            read = ast.Subscript(receiver.value, receiver.slice, ast.Load())
            return self._item(node, receiver, "set", _at(read, ast.Constant(...), "set", value))
        return self._rebind(node, receiver, _at(_load(receiver), ast.Constant(...), "set", value))

    def _item(self, node: ast.stmt, target: ast.Subscript, method: str, value: ast.expr) -> ast.stmt:
        """Write into `x[i]` through the view that it is: of a tensor, or an item of a list or dictionary."""
        if not self._is_array(target.value):
            return dress(ast.Assign([ast.Subscript(target.value, target.slice, ast.Store())], value), node)
        if self._is_gathered(target.slice):
            return self._into_copy(node)
        return self._store(node, target, method, value)

    def _into_copy(self, node: ast.stmt) -> ast.stmt:
        reason = "writes into a copy: a tensor index gathers"
        self.context.gap("CV133", node, "torch.Tensor.__getitem__", reason, "index the tensor once")
        return node

    def _store(self, node: ast.stmt, target: ast.Subscript, method: str, value: ast.expr) -> ast.stmt:
        base = target.value
        if isinstance(base, ast.Subscript) and isinstance(base.value, ast.Name | ast.Attribute):
            # x[i][j] = v writes into the view x[i].
            inner = _at(ast.Subscript(base.value, base.slice, ast.Load()), target.slice, method, value)
            return self._item(node, base, "set", inner)
        if not isinstance(base, ast.Name | ast.Attribute) or self._is_view(base):
            self.context.gap(
                "CV131", node, "torch.Tensor.__setitem__", "writes into a temporary view", "index the tensor once"
            )
            return node
        chosen = self._where(base, target.slice, value) if method == "set" else None
        return self._rebind(node, base, chosen or _at(_load(base), target.slice, method, value))

    def _where(self, base: ast.expr, mask: ast.expr, value: ast.expr) -> ast.expr | None:
        """`where(mask, value, base)` for a store of one number through a mask, which `.at[mask]` cannot trace."""
        same = isinstance(value, ast.Subscript) and ast.unparse(value.slice) == ast.unparse(mask)
        if not self._is_mask(mask) or not (same or self._is_number(value)):
            return None
        ranks = [seen(n).get("ndims", ()) for n in (base, mask)]
        if any(len(r) != 1 for r in ranks):
            return None
        missing = ranks[0][0] - ranks[1][0]
        if missing:
            mask = ast.Subscript(
                mask, ast.Tuple([ast.Constant(...), *([ast.Constant(None)] * missing)], ast.Load()), ast.Load()
            )
        value = value.value if same else value
        if self.types.is_tensor(value) and seen(value).get("dtypes") != seen(base).get("dtypes"):
            dtype = ast.Attribute(_load(base), "dtype", ast.Load())
            value = ast.Call(ast.Attribute(value, "astype", ast.Load()), [dtype], [])
            value.seen = {"kinds": ["tensor"]}
        chosen = ast.Call(
            ast.Attribute(ast.Name("jnp", ast.Load()), "where", ast.Load()), [mask, value, _load(base)], []
        )
        chosen.seen = dict(seen(base)) or {"kinds": ["tensor"]}
        return chosen

    def _is_mask(self, index: ast.expr) -> bool:
        return self.types.is_tensor(index) and seen(index).get("dtypes") == ["bool"]

    def _is_number(self, value: ast.expr) -> bool:
        found = self.types.of(value)
        return bool(found) and (
            found <= {"int", "float", "bool"} or (self.types.is_tensor(value) and seen(value).get("ndims") == [0])
        )

    def _is_view(self, node: ast.expr) -> bool:
        """Whether an attribute is another view of a tensor (`x.T`), which cannot be assigned."""
        return isinstance(node, ast.Attribute) and self._is_array(node.value)

    def _rebind(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt:
        name = (
            ast.Name(target.id, ast.Store())
            if isinstance(target, ast.Name)
            else ast.Attribute(target.value, target.attr, ast.Store())
        )
        if not hasattr(value, "seen") and hasattr(target, "seen"):
            value.seen, value.fact = target.seen, target.fact
        new = ast.Assign([name], value)
        for attribute in COMMENT_FIELDS:
            if hasattr(node, attribute):
                setattr(new, attribute, getattr(node, attribute))
        return ast.copy_location(new, node)

    def _is_array(self, node: ast.expr) -> bool:
        return self.types.is_tensor(node)


def _at(array: ast.expr, index: ast.expr, method: str, value: ast.expr) -> ast.expr:
    """`array.at[index].method(value)`."""
    at = ast.Subscript(ast.Attribute(array, "at", ast.Load()), index, ast.Load())
    return ast.Call(ast.Attribute(at, method, ast.Load()), [value], [])


def _load(node: ast.expr) -> ast.expr:
    new = (
        ast.Name(node.id, ast.Load())
        if isinstance(node, ast.Name)
        else ast.Attribute(node.value, node.attr, ast.Load())
    )
    return copy_facts(new, node)


def ensures(context: Context, definition: Definition) -> list[str]:
    """No statement writes into a tensor that the run saw."""
    found = []
    for node in ast.walk(definition.node):
        target = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            target = node.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            target = function.value if isinstance(function, ast.Attribute) and is_inplace_name(function.attr) else None
        if target is not None and kinds(target) and kinds(target) <= {"tensor", "param"}:
            found.append(broken(node, "still writes into a tensor"))
    return found


EXAMPLES = (
    Example(
        """
        def f(x: torch.Tensor, y: torch.Tensor):
            x[0] = y
            x[:, 1] += 2
            x[:, 1] -= y
            x[1][2] = 0.0
            return x
        """,
        """
        def f(x: torch.Tensor, y: torch.Tensor):
            x = x.at[0].set(y)
            x = x.at[:, 1].add(2)
            x = x.at[:, 1].add(-y)
            x = x.at[1].set(x[1].at[2].set(0.0))
            return x
        """,
    ),
    Example(
        """
        def f(x: torch.Tensor, y: torch.Tensor):
            x.mul_(y)
            x.copy_(y)
            x.zero_()
            x[0].add_(1)
            return x
        """,
        """
        def f(x: torch.Tensor, y: torch.Tensor):
            x = x.mul(y)
            x = x.at[...].set(y)
            x = x.at[...].set(0)
            x = x.at[0].set(x[0].add(1))
            return x
        """,
    ),
    Example(
        """
        def f(x, m, y):
            # x: tensor[2]
            # y: tensor[2]
            # m: tensor[bool]
            x[m] = 0.0
            x[m] = y[m]
            x[m] += 1
            return x
        """,
        """
        def f(x, m, y):
            # x: tensor[2]
            # y: tensor[2]
            # m: tensor[bool]
            x = jnp.where(m, 0.0, x)
            x = jnp.where(m, y, x)
            x = jnp.where(m, x + 1, x)
            return x
        """,
    ),
    Example(
        """
        def f(x: torch.Tensor, i: torch.Tensor):
            x[i] += 1
            return x
        """,
        """
        def f(x: torch.Tensor, i: torch.Tensor):
            x = x.at[i].set(x[i] + 1)
            return x
        """,
    ),
    Example(
        """
        def f(x: torch.Tensor):
            parts = [x, x]
            # parts: list
            # parts[0]: tensor
            parts[0].add_(1)
            parts[1] = x
            return parts
        """,
        """
        def f(x: torch.Tensor):
            parts = [x, x]
            # parts: list
            # parts[0]: tensor
            parts[0] = parts[0].add(1)
            parts[1] = x
            return parts
        """,
    ),
    unchanged("def f(table: dict, x: int):\n    table['a'] = x\n    x += 1\n    return table"),
    unchanged("def f(x: torch.Tensor, i: torch.Tensor):\n    x[i][0] = 1.0\n    return x", gap="CV133"),
    unchanged("def f(x: torch.Tensor):\n    x.view(-1)[0] = 1.0\n    return x", gap="CV131"),
)
