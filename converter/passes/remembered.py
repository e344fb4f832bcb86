"""Keep in the cache what a module remembers from one call of a generation to the next.

A multimodal source leaves `self.offsets = …` behind on its first call and reads it on the later ones. A converted
module has no memory between calls; the cache, which lives exactly as long as such a value is meant to, holds it.
"""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import blocks, call, dress, is_none, name, typed

_LENGTH = "get_seq_length"


def keep_in_cache(context: Context) -> None:
    """Rewrite attributes that start as None and that one method, which has the cache, both reads and writes."""
    for definition in context.definitions:
        for attr in sorted(_starting_empty(definition)):
            users = [f for f in _methods(context) if any(_is_own(n, attr) for n in ast.walk(f))]
            writers = [f for f in users if any(_is_own(n, attr, ast.Store) for n in ast.walk(f))]
            if not writers:
                continue
            cache = _cache_of(writers[0])
            if len(users) == 1 and users[0] in definition.functions() and cache and not _reads_after(writers[0], attr):
                _Kept(context, definition, attr, cache).visit(writers[0])
                _ask_cache(context, writers[0], cache)
                _drop_start(definition, attr)
            else:
                reason = (
                    f"`self.{attr}` is kept from one call to the next, and not by a single method that has the cache"
                )
                context.gap("CV126", writers[0], f"self.{attr}", reason, "hand the value on as an argument")


def _methods(context: Context) -> list[ast.FunctionDef]:
    return [f for d in context.definitions if d.is_class for f in d.functions() if f.name != "__init__"]


def _starting_empty(definition: Definition) -> set[str]:
    """Attributes that the constructor of a class sets to None."""
    if not definition.is_class:
        return set()
    return {s.targets[0].attr for f in definition.functions() if f.name == "__init__" for s in f.body if _is_empty(s)}


def _is_empty(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and is_none(statement.value)
        and isinstance(statement.targets[0], ast.Attribute)
        and ast.unparse(statement.targets[0].value) == "self"
    )


def _is_own(node: ast.AST, attr: str, context: type = ast.expr_context) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == attr
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and isinstance(node.ctx, context)
    )


def _cache_of(function: ast.FunctionDef) -> str | None:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return next((n for n in tables.CACHE_ARGUMENTS if n in names), None)


def _reads_after(function: ast.FunctionDef, attr: str) -> bool:
    """Whether the attribute may be read after it was written in the same call."""
    for block in blocks(function):
        written = False
        for statement in block:
            if written and any(_is_own(n, attr, ast.Load) for n in ast.walk(statement)):
                return True
            written |= any(_is_own(n, attr, ast.Store) for n in ast.walk(statement))
    loops = (n for n in ast.walk(function) if isinstance(n, ast.For | ast.While))
    return any(_is_own(n, attr, ast.Store) for loop in loops for n in ast.walk(loop))


class _Kept(ast.NodeTransformer):
    def __init__(self, context: Context, definition: Definition, attr: str, cache: str) -> None:
        self.context, self.attr, self.cache = context, attr, cache
        self.key = f"{definition.name}.{attr}"

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not _is_own(node, self.attr, ast.Load):
            self.generic_visit(node)
            return node
        read = call(self.context.use("memory", "recalled"), name(self.cache), ast.Constant(self.key))
        return typed(read, node)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        node.value = self.visit(node.value)
        if not any(_is_own(t, self.attr, ast.Store) for t in node.targets):
            return node
        kept = call(self.context.use("memory", "remember"), name(self.cache), ast.Constant(self.key), node.value)
        return dress(ast.Expr(kept), node)


def _ask_cache(context: Context, function: ast.FunctionDef, cache: str) -> None:
    """`length == 0` and `length > 0` of the cache's length as a question that needs no traced value."""
    lengths = {
        n.targets[0].id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and _is_length(n.value, cache)
    }
    _Asked(context, cache, lengths).visit(function)


def _is_length(node: ast.expr, cache: str) -> bool:
    if isinstance(node, ast.IfExp):
        values = [v for v in (node.body, node.orelse) if not (isinstance(v, ast.Constant) and v.value == 0)]
        return len(values) == 1 and _is_length(values[0], cache)
    return isinstance(node, ast.Call) and ast.unparse(node.func) == f"{cache}.{_LENGTH}" and not node.args


class _Asked(ast.NodeTransformer):
    def __init__(self, context: Context, cache: str, lengths: set[str]) -> None:
        self.context, self.cache, self.lengths = context, cache, lengths

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        is_length = _is_length(node.left, self.cache) or (
            isinstance(node.left, ast.Name) and node.left.id in self.lengths
        )
        zero = node.comparators[0]
        if not (is_length and len(node.ops) == 1 and isinstance(zero, ast.Constant) and zero.value == 0):
            return node
        asked = call(self.context.use("memory", "has_past"), name(self.cache))
        if isinstance(node.ops[0], ast.Eq):
            return ast.copy_location(ast.UnaryOp(ast.Not(), asked), node)
        return ast.copy_location(asked, node) if isinstance(node.ops[0], ast.Gt | ast.NotEq) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`arange(length, length + n)` with a length that is traced: n numbers, from the length on."""
        self.generic_visit(node)
        if not (ast.unparse(node.func).endswith("arange") and len(node.args) == 2):
            return node
        start, end = node.args
        is_count = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add) and ast.dump(end.left) == ast.dump(start)
        if not (is_count and isinstance(start, ast.Name) and start.id in self.lengths):
            return node
        node.args = [end.right]
        return typed(ast.BinOp(node, ast.Add(), start), node)


def _drop_start(definition: Definition, attr: str) -> None:
    for function in definition.functions():
        if function.name == "__init__":
            function.body = [s for s in function.body if not (_is_empty(s) and s.targets[0].attr == attr)]


EXAMPLES = (
    Example(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.offset = None

            def place(self, ids, cache):
                length = 0 if cache is None else cache.get_seq_length()
                if self.offset is None or length == 0:
                    places = ids * 2
                    self.offset = places.max()
                else:
                    places = length + self.offset
                return places

            def forward(self, ids, cache=None):
                return self.place(ids, cache)
        """,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()

            def place(self, ids, cache):
                length = 0 if cache is None else cache.get_seq_length()
                if recalled(cache, 'Net.offset') is None or not has_past(cache):
                    places = ids * 2
                    remember(cache, 'Net.offset', places.max())
                else:
                    places = length + recalled(cache, 'Net.offset')
                return places

            def forward(self, ids, cache=None):
                return self.place(ids, cache)
        """,
    ),
    unchanged(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = None

            def forward(self, ids, cache=None):
                return ids if self.head is None else ids * 2
        """
    ),
)
