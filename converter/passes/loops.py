"""Turn a counted loop over tensors into `lax.fori_loop`: its compiled size does not grow with the trip count."""

import ast

from maxcode.converter.context import TENSORS, Context, Definition, kinds, seen
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import assign, call, dress, loads, name, read_before_write, stored

# Calls whose result has another shape than what they are given.
RESHAPING = frozenset({
    "cat", "concat", "concatenate", "stack", "unsqueeze", "squeeze", "pad", "flatten", "unflatten", "repeat", "tile",
    "repeat_interleave", "unfold", "narrow", "expand", "hstack", "vstack", "dstack", "diff", "chunk", "split",
})  # fmt: skip
_UNROLLED = 4  # loops with a constant count up to this stay Python loops


def scan_loops(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the convertible `for i in range(…)` loops of a function; others stay Python loops, traced unrolled."""
    types = Kinds(context, definition, function)
    for node in ast.walk(function):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
                continue
            for index, statement in enumerate(block):
                if isinstance(statement, ast.For):
                    rewritten = _rewritten(context, types, function, statement)
                    if rewritten is not None:
                        block[index : index + 1] = rewritten


def _rewritten(context: Context, types: Kinds, function: ast.FunctionDef, loop: ast.For) -> list[ast.stmt] | None:
    bounds = _bounds(loop)
    if bounds is None or not isinstance(loop.target, ast.Name) or not _is_straight(loop.body):
        return None
    index = loop.target.id
    if not _indexes_only(loop.body, index):
        return None
    end = loop.end_lineno or loop.lineno
    after = {n.id for n in loads([function]) if getattr(n, "lineno", 0) > end}
    bound = stored(loop.body)
    early = read_before_write(loop.body)
    carry = [n for n in bound if n in early or n in after]
    if (
        not carry
        or any(n not in early for n in carry)
        or not all(types.names.get(n, frozenset()) & {"tensor", "param"} for n in carry)
        or not all(_keeps_shape(loop.body, n) for n in carry)
    ):
        return None
    packed = ast.Tuple([name(n) for n in carry], ast.Load()) if len(carry) > 1 else name(carry[0])
    parameters = [ast.arg(index), ast.arg("carry" if len(carry) > 1 else carry[0])]
    opened = [assign(carry, name("carry"))] if len(carry) > 1 else []
    step = ast.FunctionDef(
        f"{index}_step" if len(index) > 1 else "step",
        ast.arguments([], parameters, None, [], [], None, []), [*opened, *loop.body, ast.Return(packed)], [], None,
        type_params=[],
    )  # fmt: skip
    dress(step, loop)
    context.imports.add("from jax import lax")
    run = call("lax.fori_loop", *bounds, name(step.name), packed)
    result = assign(carry, run)
    result.spaced = True
    return [step, result]


def _keeps_shape(body: list[ast.stmt], variable: str) -> bool:
    """Whether a carried name has one shape in every iteration, as far as runs and spelling tell."""
    names = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == variable]
    values = [s.value for s in body if isinstance(s, ast.Assign) and variable in stored(s.targets)]
    ranks = {tuple(seen(n).get("ndims", ())) for n in (*names, *values) if seen(n) and seen(n).get("ndims")}
    reshaped = any(
        isinstance(v, ast.Call) and isinstance(v.func, ast.Attribute) and v.func.attr in RESHAPING for v in values
    )
    return len(ranks) <= 1 and not reshaped


def _bounds(loop: ast.For) -> tuple[ast.expr, ast.expr] | None:
    if not (
        isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "range" and 1 <= len(loop.iter.args) <= 2
    ):
        return None
    low = loop.iter.args[0] if len(loop.iter.args) == 2 else ast.Constant(0)
    high = loop.iter.args[-1]
    if isinstance(high, ast.Constant) and isinstance(low, ast.Constant) and high.value - low.value <= _UNROLLED:
        return None
    return low, high


def _is_straight(body: list[ast.stmt]) -> bool:
    return all(isinstance(s, ast.Assign | ast.AugAssign) for s in body)


def _indexes_only(body: list[ast.stmt], index: str) -> bool:
    """Whether the index is used only to pick single positions (`x[:, i]`), never as a slice bound, size or number."""
    allowed = set()
    for statement in body:
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Subscript) and kinds(node.value) <= TENSORS
            ):  # a list of layers takes no traced index
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                allowed |= {id(p) for p in parts if isinstance(p, ast.Name) and p.id == index}
    return all(id(n) in allowed for n in loads(body) if n.id == index)


EXAMPLES = (
    Example(
        """
        def f(x: torch.Tensor, h: torch.Tensor, n: int):
            for t in range(n):
                h = h * 0.5 + x[:, t]
            return h
        """,
        """
        def f(x: torch.Tensor, h: torch.Tensor, n: int):
            def step(t, h):
                h = h * 0.5 + x[:, t]
                return h

            h = lax.fori_loop(0, n, step, h)
            return h
        """,
    ),
    unchanged(
        """
        def f(self, x: torch.Tensor, y: torch.Tensor, n: int):
            for t in range(n):
                y[:, t] = self.layers[t](x[:, t])  # self.layers: module
            return y
        """
    ),
    unchanged("def f(x: torch.Tensor, n: int):\n    for _ in range(n):\n        x = x.unsqueeze(-1)\n    return x"),
    unchanged("def f(x: torch.Tensor):\n    for t in range(3):\n        x = x * 2\n    return x"),
    unchanged("def f(x: torch.Tensor, n: int):\n    for t in range(n):\n        x = x[:t]\n    return x"),
    unchanged("def f(x: torch.Tensor, n: int):\n    for t in range(n):\n        x = x * t\n    return x"),
)
