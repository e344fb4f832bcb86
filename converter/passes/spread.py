"""Write out `*args` and `**keywords` that a function hands to torch and has just put together itself.

A name counts where it is bound once, to a tuple or dictionary that stands there, or to what a function gives back that
does nothing but `return args`. Values that may have changed since are read from the name: `args[0]`, `keywords["a"]`.
"""

import ast
import itertools
from dataclasses import dataclass

from maxcode.converter.calls import CallGraph
from maxcode.converter.context import Context, Definition, callees
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import blocks, copied, name, typed

_PLACES = ("device", "dtype")  # attributes that a write does not change


@dataclass(frozen=True)
class _Display:
    """`name = (…)` or `name = {…}`: its values by position or key."""

    made: ast.Assign
    values: dict[int | str, ast.expr]


def spread_arguments(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the calls of one function."""
    displays = _displays(CallGraph(context), definition, function)
    _Spread(definition, function, displays).visit(function)


class _Spread(ast.NodeTransformer):
    def __init__(self, definition: Definition, function: ast.FunctionDef, displays: dict[str, _Display]) -> None:
        self.definition, self.displays = definition, displays
        self.bound = [n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        loops = (n for n in ast.walk(function) if isinstance(n, ast.For | ast.While))
        self.repeated = {n.id for loop in loops for n in ast.walk(loop) if n in self.bound and isinstance(n, ast.Name)}
        self.next = _followers(function)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if not self._is_torch(node):
            return node
        keywords: list[ast.keyword] = []
        for keyword in node.keywords:
            found = self._values(keyword.value, node) if keyword.arg is None else None
            keywords += [keyword] if found is None else [ast.keyword(str(k), v) for k, v in found.items()]
        if len({k.arg for k in keywords}) == len(keywords):
            node.keywords = keywords
        if any(c.startswith("torch.nn.functional.") for c in callees(node)):
            node.args = [part for argument in node.args for part in self._parts(argument, node)]
        return node

    def _is_torch(self, node: ast.Call) -> bool:
        """Whether torch is called: its rules bind arguments one by one."""
        named = self.definition.file.qualify(ast.unparse(node.func).partition(".")[0]) or ""
        return f"{named}.".startswith("torch.") or any(c.startswith("torch.") for c in callees(node))

    def _parts(self, argument: ast.expr, call: ast.Call) -> list[ast.expr]:
        found = self._values(argument.value, call) if isinstance(argument, ast.Starred) else None
        return [argument] if found is None else list(found.values())

    def _values(self, handed: ast.expr, call: ast.Call) -> dict[int | str, ast.expr] | None:
        if isinstance(handed, ast.Dict):
            return _of_dictionary(handed)
        display = self.displays.get(handed.id) if isinstance(handed, ast.Name) else None
        if display is None:
            return None
        at_once = any(call is n for n in ast.walk(self.next.get(id(display.made), ast.Pass())))
        return {
            key: copied(value) if at_once or self._is_settled(value, display) else _read(handed.id, key, value)
            for key, value in display.values.items()
        }

    def _is_settled(self, value: ast.expr, display: _Display) -> bool:
        """Whether an expression still means what it did where the display was made."""
        inner = value.value if isinstance(value, ast.Attribute) and value.attr in _PLACES else value
        if isinstance(inner, ast.Constant):
            return True
        if not isinstance(inner, ast.Name) or inner.id in self.repeated:
            return False
        return not any(n.id == inner.id and n.lineno > display.made.lineno for n in self.bound)


def _read(holder: str, key: int | str, value: ast.expr) -> ast.expr:
    return typed(ast.Subscript(name(holder), ast.Constant(key), ast.Load()), value)


def _displays(graph: CallGraph, definition: Definition, function: ast.FunctionDef) -> dict[str, _Display]:
    """Names that are bound once, and to a display that nothing changes."""
    bound = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    bound += [a.arg for a in ast.walk(function) if isinstance(a, ast.arg)]
    found = {}
    for node in ast.walk(function):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        target = node.targets[0].id
        handed = _handed_back(graph, definition, node.value)
        values = _of_dictionary(node.value) or _of_tuple(handed or node.value)
        if values is None or bound.count(target) != 1 or not _only_spread(function, target):
            continue
        if handed is not None:
            node.value = handed
        found[target] = _Display(node, values)
    return found


def _of_dictionary(value: ast.expr) -> dict[int | str, ast.expr] | None:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "dict" and not value.args:
        pairs = [(k.arg, k.value) for k in value.keywords]
    elif isinstance(value, ast.Dict):
        pairs = [(k.value if isinstance(k, ast.Constant) else None, v) for k, v in zip(value.keys, value.values)]
    else:
        return None
    return dict(pairs) if pairs and all(isinstance(key, str) for key, _ in pairs) else None


def _of_tuple(value: ast.expr) -> dict[int | str, ast.expr] | None:
    if not isinstance(value, ast.Tuple) or any(isinstance(e, ast.Starred) for e in value.elts):
        return None
    return dict(enumerate(value.elts))


def _handed_back(graph: CallGraph, definition: Definition, value: ast.expr) -> ast.Tuple | None:
    """The arguments that a function gives back as they come: `def f(first, *args): return args`."""
    targets = graph.targets(value, definition) if isinstance(value, ast.Call) else []
    if len(targets) != 1 or value.keywords or any(isinstance(a, ast.Starred) for a in value.args):
        return None
    function = targets[0]
    rest, body = function.node.args.vararg, function.node.body
    if rest is None or len(body) != 1 or not isinstance(body[0], ast.Return) or function.is_method:
        return None
    given = value.args[len(function.parameters) :]
    returned = body[0].value
    return ast.Tuple(given, ast.Load()) if isinstance(returned, ast.Name) and returned.id == rest.arg else None


def _only_spread(function: ast.FunctionDef, holder: str) -> bool:
    """Whether a name is read only as `*name`, `**name` and `name[…]`: nothing else can change what it holds."""
    reads = [
        n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == holder and isinstance(n.ctx, ast.Load)
    ]
    spread = {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Starred | ast.keyword) and _hands_on(n)}
    spread |= {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)}
    return all(id(read) in spread for read in reads)


def _hands_on(node: ast.Starred | ast.keyword) -> bool:
    return isinstance(node, ast.Starred) or node.arg is None


def _followers(function: ast.FunctionDef) -> dict[int, ast.stmt]:
    """By the `id` of a statement, the one that runs next."""
    found = {}
    for block in blocks(function):
        for statement, following in itertools.pairwise(block):
            while isinstance(following, ast.With):
                following = following.body[0]
            found[id(statement)] = following
    return {k: v for k, v in found.items() if isinstance(v, ast.Assign | ast.Expr | ast.Return)}


EXAMPLES = (
    Example(
        """
        def f(x: torch.Tensor, n: int):
            kinds = {"device": x.device, "dtype": x.dtype}
            sizes = dict(other=n, alpha=x.sum())
            n = n + 1
            y = torch.zeros(n, **kinds)
            z = torch.add(x, **sizes) + torch.neg(**{"input": x})
            return y, z, g(x, **sizes)
        """,
        """
        def f(x: torch.Tensor, n: int):
            kinds = {"device": x.device, "dtype": x.dtype}
            sizes = dict(other=n, alpha=x.sum())
            n = n + 1
            y = torch.zeros(n, device=x.device, dtype=x.dtype)
            z = torch.add(x, other=sizes["other"], alpha=sizes["alpha"]) + torch.neg(input=x)
            return y, z, g(x, **sizes)
        """,
    ),
    unchanged("def f(x, **kwargs):\n    more = {'a': 1}\n    more.update(b=2)\n    return torch.add(x, **more)"),
    unchanged("def f(x, a):\n    more = {'a': 1}\n    if a:\n        more = {'a': 2}\n    return torch.add(x, **more)"),
    unchanged("def f(x, a):\n    more = {'a': 1}\n    return torch.add(x, a=2, **more)"),
)
