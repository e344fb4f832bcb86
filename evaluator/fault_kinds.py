"""Faults of conversion as edits of code shapes: each kind finds its sites in any emitted module, whatever the model.

A kind is a function `(node) -> replacement text | None`, asked for every node of a module's syntax tree.
"""

import ast
from collections.abc import Callable

Kind = Callable[[ast.AST], str | None]
KINDS: dict[str, Kind] = {}

TRANSCENDENTAL = frozenset({"cos", "sin", "exp", "rsqrt", "softmax", "silu", "gelu", "tanh", "sigmoid", "softplus"})


def kind(name: str) -> Callable[[Kind], Kind]:
    """Register a fault kind."""

    def register(function: Kind) -> Kind:
        KINDS[name] = function
        return function

    return register


def text(node: ast.AST) -> str:
    """A node's code, in parentheses where a neighbour could bind tighter."""
    code = ast.unparse(node)
    return code if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant) else f"({code})"


def called(node: ast.AST) -> str:
    """The last name of what a call calls; "" for other nodes."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def name_of(node: ast.AST) -> str:
    """The last name of a variable or attribute; "" for other nodes."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def mentions(node: ast.AST, *names: str) -> bool:
    """Whether an attribute or variable of one of these names is used inside."""
    return any(name_of(inner) in names for inner in ast.walk(node))


def is_op(node: ast.AST, operator: type) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, operator)


@kind("rope theta")
def rope_theta(node: ast.AST) -> str | None:
    if is_op(node, ast.Div) and isinstance(node.left, ast.Constant) and is_op(node.right, ast.Pow):
        return f"({text(node.left)} / ({text(node.right.left)} * 1.02) ** {text(node.right.right)})"
    return None


@kind("rotation sign")
def rotation_sign(node: ast.AST) -> str | None:
    if called(node) in ("concatenate", "stack") and node.args and isinstance(node.args[0], ast.Tuple | ast.List):
        parts = node.args[0].elts
        if len(parts) == 2 and isinstance(parts[0], ast.UnaryOp) and isinstance(parts[0].op, ast.USub):
            swapped = f"({text(parts[0].operand)}, -{text(parts[1])})"
            return ast.unparse(node).replace(ast.unparse(node.args[0]), swapped, 1)
    return None


@kind("norm eps")
def norm_eps(node: ast.AST) -> str | None:
    """An epsilon of another size, also where the source's is so small (1e-12) that ten of it would be noise."""
    if called(node) in ("rsqrt", "sqrt") and len(node.args) == 1 and is_op(node.args[0], ast.Add):
        inner = node.args[0]
        return f"{ast.unparse(node.func)}({text(inner.left)} + {text(inner.right)} * 10 + 1e-6)"
    return None


@kind("swapped gate and up")
def swapped_gate(node: ast.AST) -> str | None:
    """f(g(x)) * u(x) -> f(u(x)) * g(x), also with the factors turned round or already in variables."""
    if not is_op(node, ast.Mult):
        return None
    for act, other in ((node.left, node.right), (node.right, node.left)):
        if not (isinstance(act, ast.Call) and len(act.args) == 1 and not act.keywords):
            continue
        gate = act.args[0]
        both_calls = isinstance(gate, ast.Call) and isinstance(other, ast.Call)
        both_names = isinstance(gate, ast.Name) and isinstance(other, ast.Name)
        same_input = both_calls and [ast.dump(a) for a in gate.args] == [ast.dump(a) for a in other.args]
        if (same_input or both_names) and ast.dump(gate) != ast.dump(other) and "norm" not in ast.unparse(act.func):
            return f"({ast.unparse(act.func)}({text(other)}) * {text(gate)})"
    return None


@kind("dropped bias")
def dropped_bias(node: ast.AST) -> str | None:
    if is_op(node, ast.Add) and mentions(node.right, "bias") and not mentions(node.left, "bias"):
        return text(node.left)
    return None


@kind("mask off by one")
def mask_edge(node: ast.AST) -> str | None:
    return _compare(node, {ast.LtE: "<", ast.GtE: ">"})


@kind("window off by one")
def window_edge(node: ast.AST) -> str | None:
    return _compare(node, {ast.Lt: "<=", ast.Gt: ">="})


def _compare(node: ast.AST, swaps: dict[type, str]) -> str | None:
    # Comparisons with numbers and of lengths are Python control flow, not masks.
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in swaps:
        right = node.comparators[0]
        plain = any(
            isinstance(side, ast.Constant) or mentions(side, "shape", "ndim", "len") for side in (node.left, right)
        )
        return None if plain else f"({text(node.left)} {swaps[type(node.ops[0])]} {text(right)})"
    return None


@kind("cache off by one")
def cache_start(node: ast.AST) -> str | None:
    if called(node) == "dynamic_update_slice_in_dim" and len(node.args) >= 3:
        return _with_argument(node, 2, f"{text(node.args[2])} + 1")
    if called(node) == "advance" and len(node.args) == 2:  # the cache's count of written positions
        return _with_argument(node, 1, f"{text(node.args[1])} + 1")
    if called(node) == "dynamic_update_slice" and len(node.args) >= 3 and isinstance(node.args[2], ast.Tuple):
        starts = [text(e) for e in node.args[2].elts]
        traced = [i for i, e in enumerate(node.args[2].elts) if not isinstance(e, ast.Constant)]
        if traced:
            starts[traced[-1]] += " + 1"
            return _with_argument(node, 2, f"({', '.join(starts)},)")
    return None


def _with_argument(node: ast.Call, position: int, code: str) -> str:
    arguments = [ast.unparse(a) for a in node.args]
    arguments[position] = code
    keywords = [ast.unparse(k) for k in node.keywords]
    return f"{ast.unparse(node.func)}({', '.join([*arguments, *keywords])})"


@kind("dropped upcast")
def dropped_upcast(node: ast.AST) -> str | None:
    if called(node) == "astype" and node.args and name_of(node.args[0]) == "float32":
        return text(node.func.value)
    return None


@kind("added upcast")
def added_upcast(node: ast.AST) -> str | None:
    """A cast back to the input's dtype is lost, so that a wide value goes on."""
    if called(node) == "astype" and node.args and "dtype" in name_of(node.args[0]):
        return text(node.func.value)
    return None


@kind("added downcast")
def added_downcast(node: ast.AST) -> str | None:
    if called(node) in TRANSCENDENTAL and node.args and name_of(node.func).islower() and _is_library(node.func):
        value = text(node.args[0])
        return _with_argument(node, 0, f"{value}.astype(jnp.bfloat16).astype({value}.dtype)")
    return None


def _is_library(function: ast.AST) -> bool:
    return isinstance(function, ast.Attribute) and mentions(function, "jnp", "jax", "lax")


@kind("index off by one")
def index_shift(node: ast.AST) -> str | None:
    """A table looked up one row too low (JAX clamps or wraps silently)."""
    table = isinstance(node, ast.Subscript) and mentions(node.value, "embedding", "weight", "table")
    if table and isinstance(node.slice, ast.Name) and isinstance(node.ctx, ast.Load):
        return f"{text(node.value)}[{text(node.slice)} - 1]"
    if called(node) == "take" and len(node.args) >= 2:
        return _with_argument(node, 1, f"{text(node.args[1])} - 1")
    return None


@kind("negative index")
def negative_index(node: ast.AST) -> str | None:
    """The last part of an array taken from the other end: x[..., n:] for x[..., :n]."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and isinstance(node.ctx, ast.Load):
        last = node.slice.elts[-1]
        if isinstance(last, ast.Slice) and last.lower is None and last.upper is not None and last.step is None:
            front = ", ".join(ast.unparse(e) for e in node.slice.elts[:-1])
            return f"{text(node.value)}[{front}, -{text(last.upper)} :]"
    return None


@kind("activation flavour")
def activation(node: ast.AST) -> str | None:
    if called(node) == "gelu" and _is_library(node.func):
        exact = any(k.arg == "approximate" and getattr(k.value, "value", True) is False for k in node.keywords)
        return f"{ast.unparse(node.func)}({ast.unparse(node.args[0])}, approximate={exact})"
    if called(node) in ("silu", "relu") and _is_library(node.func):
        return f"jax.nn.gelu({ast.unparse(node.args[0])})"
    if isinstance(node, ast.Subscript) and name_of(node.value) == "ACT2FN":
        key = ast.unparse(node.slice)
        return f"ACT2FN['gelu' if {key} != 'gelu' else 'gelu_pytorch_tanh']"
    return None


@kind("scaling factor")
def scaling(node: ast.AST) -> str | None:
    if is_op(node, ast.Mult):
        for side in (node.left, node.right):
            if "scal" in name_of(side) and name_of(side) not in ("scale",):
                return f"({text(node.left)} * {text(node.right)} * 1.02)"
    return None


@kind("softmax axis")
def softmax_axis(node: ast.AST) -> str | None:
    if called(node) in ("softmax", "log_softmax"):
        for keyword in node.keywords:
            if keyword.arg == "axis" and ast.unparse(keyword.value) == "-1":
                return ast.unparse(node).replace("axis=-1", "axis=-2")
        if len(node.args) == 1 and _is_library(node.func) and not node.keywords:
            return f"{ast.unparse(node.func)}({ast.unparse(node.args[0])}, axis=-2)"
    return None


@kind("dropped residual")
def dropped_residual(node: ast.AST) -> str | None:
    if is_op(node, ast.Add):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if "residual" in name_of(side):
                return text(other)
    return None


@kind("norm weight plus one")
def norm_weight(node: ast.AST) -> str | None:
    if is_op(node, ast.Mult):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if mentions(side, "scale", "weight") and mentions(side, "self") and not mentions(other, "self"):
                return f"(({ast.unparse(side)} + 1) * {text(other)})"
    return None


@kind("head grouping")
def head_grouping(node: ast.AST) -> str | None:
    """Key and value heads tiled instead of repeated."""
    if called(node) == "repeat" and _is_library(node.func) and len(node.args) >= 2:
        value, times = text(node.args[0]), text(node.args[1])
        return f"jnp.tile({value}, (1, {times}) + (1,) * ({value}.ndim - 2))"
    if called(node) == "broadcast_to" and len(node.args) == 2 and isinstance(node.args[0], ast.Subscript):
        shape = node.args[1]
        if (
            isinstance(shape, ast.Tuple)
            and len(shape.elts) >= 4
            and ast.unparse(node.args[0].slice).startswith("(:, :, None")
        ):
            sizes = [ast.unparse(e) for e in shape.elts]
            sizes[1], sizes[2] = sizes[2], sizes[1]
            return f"jnp.broadcast_to({text(node.args[0].value)}[:, None], ({', '.join(sizes)}))"
    return None


@kind("router normalisation")
def router_normalisation(node: ast.AST) -> str | None:
    if is_op(node, ast.Div) and any(called(inner) == "sum" for inner in ast.walk(node.right)):
        return text(node.left)
    return None


@kind("router choice")
def router_choice(node: ast.AST) -> str | None:
    if called(node) == "top_k" and len(node.args) >= 2 and _is_library(node.func):
        return _with_argument(node, 0, f"-{text(node.args[0])}")
    return None


@kind("batch norm momentum")
def momentum(node: ast.AST) -> str | None:
    if is_op(node, ast.Mult) and any(mentions(side, "momentum") for side in (node.left, node.right)):
        return f"({text(node.left)} * {text(node.right)} * 0.5)"
    return None


@kind("position order")
def position_order(node: ast.AST) -> str | None:
    if called(node) == "arange" and _is_library(node.func) and len(node.args) == 1 and not node.keywords:
        return f"{ast.unparse(node)}[::-1]"
    return None


@kind("swapped halves")
def swapped_halves(node: ast.AST) -> str | None:
    """The two results of a split given to each other's names."""
    pair = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) == 2
    if pair and called(node.value) in ("split", "chunk", "array_split"):
        first, second = (ast.unparse(e) for e in node.targets[0].elts)
        return f"{second}, {first} = {ast.unparse(node.value)}"
    return None
