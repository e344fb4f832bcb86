"""Compute what decides shapes at once: functions that read values of the entry's arguments become host functions.

Source such as `for t, h, w in grid.tolist()` builds tables whose sizes are numbers in a tensor. Where these numbers
come from arguments of the entry and from nothing that a module computes, the function runs as `@host_values`: what
follows from concrete arrays is computed while the rest is traced. The entry class lists the arguments that have to be
concrete then as `host_arguments`.
"""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, callees, seen
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import Kinds, annotation_kinds
from maxcode.converter.nodes import with_defaults
from maxcode.converter.value_flow import ValueFlow, arguments

_READING = frozenset({"tolist", "item"})
_NUMBERS = frozenset({"int", "float", "bool", "range"})
# torch functions whose result has a shape that values decide -> positions of the arguments that are read.
_DECIDING = {
    "nonzero": None, "argwhere": None, "unique": None, "unique_consecutive": None, "masked_select": None,
    "repeat_interleave": (1,), "arange": None, "bincount": None,
}  # fmt: skip
_SIZED = frozenset({"view", "reshape", "expand", "repeat", "zeros", "ones", "full", "empty", "split", "narrow"})
_NOT_VALUES = frozenset({"int", "float", "bool", "str", "dict", "cache"})


def mark_host_functions(context: Context) -> None:
    """Decorate host functions, mark the expressions in them that read values, list the entry's `host_arguments`."""
    graph = CallGraph(context)
    reads = {f.key: found for f in graph.functions() if (found := reads_values(context, f))}
    if not reads:
        return
    flow = ValueFlow(graph)
    own = {f.key: _traceable(flow, f, reads.get(f.key, [])) for f in flow.functions}
    needed = _needed_parameters(flow, own)
    hosts = [f for f in flow.functions if own[f.key] or _hands_on(flow, f, needed)]
    for function in hosts:
        name = context.use("host", "host_values")
        names = [ast.Constant(n) for n in function.parameters if n in needed[function.key]]
        function.node.decorator_list.append(ast.Call(name, names, []))
    _list_arguments(context, graph, needed)


def reads_values(context: Context, function: Function) -> list[tuple[ast.expr, list[ast.expr]]]:
    """(expression, the parts of it whose values are read) in a function."""
    if function.node.name == "__init__":
        return []
    types = Kinds(context, function.owner, function.node)
    found = []
    for node in ast.walk(function.node):
        parts = _read_parts(node, types)
        if parts:
            found.append((node, parts))
    return found


def _read_parts(node: ast.AST, types: Kinds) -> list[ast.expr]:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return _indices_read(node, types)
    if not isinstance(node, ast.Call):
        return []
    if isinstance(node.func, ast.Name) and node.func.id in _NUMBERS:
        return [a for a in node.args if types.is_tensor(a)]
    if not isinstance(node.func, ast.Attribute):
        return []
    method, receiver = node.func.attr, node.func.value
    on_tensor = types.is_tensor(receiver)
    if method in _READING:
        return [receiver] if on_tensor else []
    given = [*([receiver] if on_tensor else []), *node.args, *(k.value for k in node.keywords)]
    if method in _SIZED:
        return [a for a in _flat(given[1:]) if types.is_tensor(a)]
    if not on_tensor and not _is_torch(node, types):
        return []
    if method == "where":
        return given if len(given) == 1 else []
    if method not in _DECIDING or any(k.arg in ("output_size", "minlength") for k in node.keywords):
        return []
    if method == "repeat_interleave":
        repeats = [k.value for k in node.keywords if k.arg == "repeats"] or given[1:2]
        return [a for a in repeats if types.is_tensor(a)]
    return [a for a in given if types.is_tensor(a)]


def _flat(values: list[ast.expr]) -> list[ast.expr]:
    return [e for v in values for e in (v.elts if isinstance(v, ast.Tuple | ast.List) else [v])]


def _is_torch(node: ast.Call, types: Kinds) -> bool:
    if callees(node):
        return all(registry.canonical(c).startswith("torch.") for c in callees(node))
    root = ast.unparse(node.func).partition(".")[0]
    return f"{types.definition.file.qualify(root)}.".startswith("torch.")


def _indices_read(node: ast.Subscript, types: Kinds) -> list[ast.expr]:
    """Masks that select, and bounds of slices that are tensors."""
    if not types.of(node.value) & {"tensor", "param"}:
        return []
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    found = [p for p in parts if types.is_tensor(p) and _is_mask(p)]
    bounds = [b for p in parts if isinstance(p, ast.Slice) for b in (p.lower, p.upper) if b is not None]
    return found + [b for b in bounds if types.is_tensor(b)]


def _is_mask(node: ast.expr) -> bool:
    dtypes = set(seen(node).get("dtypes", ()))
    return bool(dtypes) and dtypes <= {"bool", "uint8"}


def _traceable(flow: ValueFlow, function: Function, reads: list) -> list[ast.expr]:
    """The parts read whose values come from no module; their expressions are marked `on_host`."""
    found = []
    for node, parts in reads:
        if not flow.is_activation(function, parts):
            node.on_host = True
            found += parts
    return found


def _needed_parameters(flow: ValueFlow, own: dict[tuple, list[ast.expr]]) -> dict[tuple, frozenset[str]]:
    """Parameters of every function whose values are read, in it or in what it calls."""
    needed: dict[tuple, frozenset[str]] = {f.key: frozenset() for f in flow.functions}
    changed = True
    while changed:
        changed = False
        for function in flow.functions:
            parts = own[function.key] + _handed(flow, function, needed)
            names = flow.sources(function, parts).names & frozenset(function.parameters)
            changed |= names != needed[function.key]
            needed[function.key] = names
    return needed


def _handed(flow: ValueFlow, function: Function, needed: dict[tuple, frozenset[str]]) -> list[ast.expr]:
    """Arguments that a function gives for parameters whose values are read."""
    calls = [n for n in ast.walk(function.node) if isinstance(n, ast.Call)]
    pairs = ((p, v, t) for c in calls for t in flow.graph.targets(c, function.owner) for p, v in arguments(c, t))
    return [v for p, v, t in pairs if p in needed.get(t.key, ()) and not flow.is_activation(function, [v])]


def _hands_on(flow: ValueFlow, function: Function, needed: dict[tuple, frozenset[str]]) -> bool:
    """Whether a function computes something whose value another one reads; handing on its own argument is no such."""
    if function.node.name == "__init__":
        return False
    bound = {n.id for n in ast.walk(function.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    plain = frozenset(function.parameters) - bound
    for value in _handed(flow, function, needed):
        is_given = isinstance(value, ast.Name) and value.id in plain
        if not is_given and flow.sources(function, [value]).names:
            return True
    return False


def _list_arguments(context: Context, graph: CallGraph, needed: dict[tuple, frozenset[str]]) -> None:
    entry = graph.method(context.entry, "forward")
    if entry is None:
        return
    parameters = [a for a, _ in with_defaults(entry.node) if a.arg in needed.get(entry.key, ())]
    names = [a.arg for a in parameters if a.arg not in tables.CACHE_ARGUMENTS and not _is_plain(a)]
    definition = context.definition(context.entry_forward)
    if not names or definition is None:
        return
    values = ast.Tuple([ast.Constant(n) for n in names], ast.Load())
    listed = ast.Assign([ast.Name("host_arguments", ast.Store())], values, lineno=definition.node.lineno)
    body = definition.node.body
    body.insert(1 if ast.get_docstring(definition.node, clean=False) is not None else 0, listed)


def _is_plain(argument: ast.arg) -> bool:
    found = annotation_kinds(argument.annotation)
    return bool(found) and found <= _NOT_VALUES


EXAMPLES = (
    Example(
        """
        def table(grid: torch.Tensor):
            return [torch.arange(n) for n in grid.tolist()]

        class Net(nn.Module):
            def forward(self, x: torch.Tensor, grid: torch.Tensor):
                return x, table(grid * 2)
        """,
        """
        @host_values("grid")
        def table(grid: torch.Tensor):
            return [torch.arange(n) for n in grid.tolist()]

        class Net(nn.Module):
            host_arguments = ("grid",)

            @host_values("grid")
            def forward(self, x: torch.Tensor, grid: torch.Tensor):
                return x, table(grid * 2)
        """,
    ),
    unchanged("def f(x: torch.Tensor):\n    return x.reshape(x.shape[0], -1)"),
)
