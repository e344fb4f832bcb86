"""What torch's names do with the memory of their arguments: share it, write into it, or neither."""

import ast
from collections.abc import Callable, Iterator

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context
from maxcode.converter.nodes import dress
from maxcode.converter.passes.storages import root_of

# Functions and methods whose result may share memory with their first argument.
VIEWS = frozenset({
    "T", "H", "mT", "mH", "data", "real", "imag", "adjoint", "alias", "as_strided", "atleast_1d", "atleast_2d",
    "atleast_3d", "broadcast_tensors", "broadcast_to", "chunk", "contiguous", "detach", "diagonal", "double", "dropout",
    "dsplit", "expand", "expand_as", "flatten", "float", "half", "bfloat16", "hsplit", "int", "long", "bool", "movedim",
    "moveaxis", "narrow", "permute", "ravel", "reshape", "reshape_as", "select", "split", "split_with_sizes", "squeeze",
    "swapaxes", "swapdims", "t", "tensor_split", "to", "transpose", "type", "type_as", "unbind", "unflatten", "unfold",
    "unsqueeze", "view", "view_as", "view_as_complex", "view_as_real", "vsplit", "cpu", "cuda", "requires_grad_",
})  # fmt: skip

# What a write does not change.
SHAPE = frozenset({
    "shape", "dtype", "device", "ndim", "size", "dim", "numel", "stride", "is_floating_point", "element_size", "layout",
})  # fmt: skip

# Functions, methods and layers of which any argument may come out again.
PASSING = frozenset({
    "tuple", "as_tuple", "list", "dict", "set", "zip", "enumerate", "reversed", "sorted", "iter", "next", "getattr",
    "filter",
    "map", "items", "values", "get", "pop", "copy", "setdefault", "chain", "Sequential", "Identity", "Flatten",
    "Unflatten",
    "Dropout",
})  # fmt: skip

GROWING = frozenset({"append", "extend", "insert", "update", "add", "setdefault", "appendleft"})
_NOT_WRITING = frozenset({"requires_grad_", "retain_grad", "share_memory_"})
_INPLACE_LAST = frozenset({  # layers whose last argument is `inplace`
    "ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardtanh", "Hardswish", "Hardsigmoid",
    "Threshold", "RReLU", "Dropout",
})  # fmt: skip


def is_passing_layer(qualified: str) -> bool:
    """Whether a layer of torch may give its argument back: unchanged, or written into."""
    short = tables.last(qualified)
    return short in PASSING | _INPLACE_LAST or not qualified.startswith("torch.nn.modules.")


def may_pass(context: Context, owner: str, function: ast.expr, passes: Callable[[str], bool]) -> bool:
    """Whether a chain of layers that instances of `owner` hold as `self.x` may give its argument back.

    It may if every link does, and where the chain is not known; `passes` says so of a link by its class.
    """
    if not (isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self"):
        return True
    tree = context.facts.get("tree", {})
    paths = [f"{fqn}.{function.attr}".lstrip(".") for fqn, row in tree.items() if row["class"] == owner]
    chains = [[r["class"] for fqn, r in tree.items() if fqn.rpartition(".")[0] == path] for path in paths]
    return not all(chains) or not chains or any(all(map(passes, chain)) for chain in chains)


def mark_running_loops(context: Context, owner: str, function: ast.FunctionDef) -> None:
    """Note the loops over a module's own list of layers, which every instance has some of: their body runs."""
    tree = context.facts.get("tree", {})
    held = [fqn for fqn, row in tree.items() if row["class"] == owner]
    for loop in (n for n in ast.walk(function) if isinstance(n, ast.For)):
        found = loop.iter
        while isinstance(found, ast.Call) and ast.unparse(found.func) in ("enumerate", "reversed") and found.args:
            found = found.args[0]
        if isinstance(found, ast.Attribute) and ast.unparse(found.value) == "self" and held:
            loop.never_empty = all(f"{fqn}.{found.attr}.0".lstrip(".") in tree for fqn in held)


def is_inplace_name(name: str) -> bool:
    """Whether a torch name writes into its first argument: `add_`, not `__add__`."""
    return name.endswith("_") and not name.endswith("__") and name not in _NOT_WRITING


def stores_item(statement: ast.Assign) -> bool:
    """Whether `x[i] = v` is of a dictionary or list: tensors take neither texts as indices nor tuples as values."""
    target = statement.targets[0]
    options = [target.slice.body, target.slice.orelse] if isinstance(target.slice, ast.IfExp) else [target.slice]
    text = any(isinstance(o, ast.Constant) and isinstance(o.value, str) for o in options)
    none = isinstance(statement.value, ast.Constant) and statement.value.value is None
    return text or none or isinstance(statement.value, ast.Tuple | ast.Dict)


def inplace_layers(context: Context) -> dict[str, bool]:
    """`self.x` and class names of layers: whether calling them writes into their input (`nn.ReLU(inplace=True)`)."""
    found: dict[str, bool] = {}
    for definition in context.definitions:
        for node in ast.walk(definition.node):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        found[f"{definition.qualified}:{ast.unparse(target)}"] = _is_inplace_layer(node.value)
            if isinstance(node, ast.Call) and _is_inplace_layer(node):
                found[tables.last(ast.unparse(node.func))] = True
    return found


def _is_inplace_layer(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if asks_inplace(node):
        return True
    short = tables.last(ast.unparse(node.func))
    if short in ("Sequential", "ModuleList") and node.args:
        return _is_inplace_layer(node.args[0])
    last = node.args[-1] if node.args else None
    return short in _INPLACE_LAST and isinstance(last, ast.Constant) and last.value is True


def asks_inplace(node: ast.Call) -> bool:
    """Whether a call has `inplace=` with anything but a false constant."""
    return any(
        k.arg == "inplace" and not (isinstance(k.value, ast.Constant) and not k.value.value) for k in node.keywords
    )


def outer_writes(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[ast.AST, ast.Name]]:
    """Writes of a nested function into names that it does not bind itself: the place and the name."""
    own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for child in ast.walk(node):
        target = None
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and is_inplace_name(child.func.attr):
            target = root_of(child.func.value)
        elif isinstance(child, ast.Subscript) and isinstance(child.ctx, ast.Store):
            target = root_of(child)
        if isinstance(target, ast.Name) and target.id not in own:
            yield child, target


def unchained(statement: ast.stmt) -> list[ast.stmt]:
    """`x.mul_(a).add_(b)` as two statements, each of which writes into `x`."""
    outer = statement.value if isinstance(statement, ast.Expr) else None
    if not (isinstance(outer, ast.Call) and isinstance(outer.func, ast.Attribute)):
        return [statement]
    inner = outer.func.value
    if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)):
        return [statement]
    if not (is_inplace_name(outer.func.attr) and is_inplace_name(inner.func.attr)):
        return [statement]
    receiver = inner.func.value
    if any(isinstance(n, ast.Call) for n in ast.walk(receiver)) and not unchained(ast.Expr(inner))[1:]:
        return [statement]  # a temporary value is written, not a variable
    while isinstance(receiver, ast.Call):
        receiver = receiver.func.value
    second = ast.copy_location(ast.Expr(outer), statement)
    outer.func.value = receiver
    first = unchained(ast.copy_location(ast.Expr(inner), statement))
    dress(first[0], statement)
    return [*first, second]
