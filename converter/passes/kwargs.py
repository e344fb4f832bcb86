"""Replace `**kwargs` plumbing by the keywords that really travel through it.

A function keeps a keyword only if something below it reads that name and some caller provides it; everything else that
call sites throw into `**kwargs` is dropped.
"""

import ast

from maxcode.converter import nodes
from maxcode.converter import plumbing as tables
from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, Definition, broken, callees
from maxcode.converter.example import Example, unchanged
from maxcode.converter.passes.keywords import (
    Defaults,
    bindable,
    bound_positionally,
    calls_in,
    default_set,
    is_forwarding,
    layer_parameters,
    read_key,
    swallow,
)

_CHANGING = ("update", "setdefault", "clear", "popitem", "__setitem__")


def specialise_kwargs(context: Context) -> None:
    """Rewrite every converted function with a `**kwargs` parameter, and every call to one."""
    graph = CallGraph(context)
    functions = graph.functions()
    extra = _extra_parameters(context, graph, functions)
    defaults = Defaults(context, graph, functions, extra)
    found = [{n: defaults.of(f, n) for n in extra.get(f.key, [])} for f in functions]
    for function in functions:
        _Rewrite(context, graph, function, extra).run()
    for function, names in zip(functions, found, strict=True):
        _declare(function, names)


def _extra_parameters(context: Context, graph: CallGraph, functions: list[Function]) -> dict[tuple, list[str]]:
    """For each function with `**kwargs`, the names that both arrive in it and are read below it."""
    open_functions = [f for f in functions if f.node.args.kwarg]
    calls = {f.key: [(c, graph.targets(c, f.owner)) for c in calls_in(f.node)] for f in functions}
    dispatched = _dispatched(graph, functions)
    needed: dict[tuple, set[str]] = {
        f.key: _read_directly(f) | (tables.ATTENTION_KEYWORDS if f.key in dispatched else set()) for f in open_functions
    }
    provided: dict[tuple, set[str]] = {f.key: _set_directly(f) for f in open_functions}
    changed = True
    while changed:
        changed = False
        for function in functions:
            for call, targets in calls[function.key]:
                forwards = is_forwarding(call, function)
                explicit = {k.arg for k in call.keywords if k.arg}
                if forwards and not targets:
                    changed |= _grow(needed[function.key], set(layer_parameters(call, function.owner)) - explicit)
                for target in targets:
                    if forwards and function.key in needed:
                        wants = (
                            (set(bindable(target)) | needed.get(target.key, set()))
                            - explicit
                            - bound_positionally(call, target)
                        )
                        changed |= _grow(needed[function.key], wants)
                    if target.key in provided:
                        gives = explicit - set(target.parameters)
                        if forwards and function.key in provided:
                            gives |= provided[function.key] - set(target.parameters)
                        changed |= _grow(provided[target.key], gives)
    extra = {f.key: sorted((needed[f.key] & provided[f.key]) - set(f.parameters)) for f in open_functions}
    for call, targets in (pair for pairs in calls.values() for pair in pairs if len(pair[1]) > 1):
        swallow(call, targets, extra)
    return extra


def _dispatched(graph: CallGraph, functions: list[Function]) -> set[tuple]:
    """Functions that stand in a dispatch table beside the support library's backends, so share their signature."""
    found = set()
    for function in functions:
        for node in calls_in(function.node):
            if ast.unparse(node.func) == "get_attention" and isinstance(node.args[1], ast.Name):
                qualified = function.owner.file.qualify(node.args[1].id)
                target = graph.by_qualified.get(qualified) if qualified else None
                found |= {Function(target, f).key for f in target.functions()} if target else set()
    return found


def _grow(into: set[str], names: set[str]) -> bool:
    before = len(into)
    into |= names
    return len(into) > before


def _read_directly(function: Function) -> set[str]:
    """Names read as `kwargs["x"]`, `kwargs.get("x")` or `kwargs.pop("x")`."""
    name = function.node.args.kwarg.arg
    found = set()
    for node in ast.walk(function.node):
        key = read_key(node, name)
        if key:
            found.add(key[0])
    return found


def _set_directly(function: Function) -> set[str]:
    """Names that a function itself puts into its keywords: `kwargs["x"] = …`, `kwargs.update(x=…)`, `setdefault`."""
    name = function.node.args.kwarg.arg
    found = set()
    for node in ast.walk(function.node):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and (key := read_key(node, name)):
            found.add(key[0])
        elif isinstance(node, ast.Call) and _changes(node, name):
            found |= {k.arg for k in node.keywords if k.arg}
            found |= {default[0]} if (default := default_set(node)) else set()
    return found


class _Rewrite(ast.NodeTransformer):
    def __init__(self, context: Context, graph: CallGraph, function: Function, extra: dict[tuple, list[str]]) -> None:
        self.context, self.graph, self.function, self.extra = context, graph, function, extra
        self.name = function.node.args.kwarg.arg if function.node.args.kwarg else None
        self.own = extra.get(function.key, [])

    def run(self) -> None:
        holder = ast.Module(self.function.node.body, [])
        self.function.node.body = self.generic_visit(holder).body or [ast.Pass()]

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        target = node.targets[0]
        read = read_key(target, self.name) if self.name and len(node.targets) == 1 else None
        if read is None:
            self.generic_visit(node)
            return node
        if read[0] not in self.own:
            return None  # nothing below reads it
        node.targets = [ast.Name(read[0], ast.Store())]
        node.value = self.visit(node.value)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        read = read_key(node, self.name) if self.name else None
        if read:
            return ast.Name(read[0], ast.Load()) if read[0] in self.own else ast.Constant(None)
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt] | None:
        if self.name and read_key(node.value, self.name):
            return None
        if self.name and isinstance(node.value, ast.Call) and _changes(node.value, self.name):
            if (default := default_set(node.value)) is not None:
                return self._defaulted(node, *default)
            if not node.value.args:
                return self._updated(node, node.value.keywords)
        self.generic_visit(node)
        return node

    def _defaulted(self, node: ast.Expr, key: str, value: ast.expr) -> ast.stmt:
        """`kwargs.setdefault("a", 1)` as `if a is None: a = 1`: what was not given is None then (`Defaults`)."""
        if key not in self.own:
            return ast.Pass()
        text = f"the keyword {key!r} of {self.function.node.name}() counts as not given when it is None"
        self.context.assume(node, text)
        test = ast.Compare(ast.Name(key, ast.Load()), [ast.Is()], [ast.Constant(None)])
        made = ast.Assign([ast.Name(key, ast.Store())], self.visit(value))
        return nodes.dress(ast.If(test, [ast.copy_location(made, node)], []), node)

    def _updated(self, node: ast.Expr, keywords: list[ast.keyword]) -> ast.stmt | list[ast.stmt]:
        """`kwargs.update(a=…)` as `a = …`, for the keywords that something below reads."""
        if node.value.func.attr != "update" or any(k.arg is None for k in keywords):
            self.generic_visit(node)
            return node
        kept = [k for k in keywords if k.arg in self.own]
        made = [ast.Assign([ast.Name(k.arg, ast.Store())], self.visit(k.value), lineno=node.lineno) for k in kept]
        return made or ast.Pass()

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if self.name and _changes(node, self.name):
            reason = "the keywords that a function was given are changed in place"
            self.context.gap("CV113", node, f"dict.{node.func.attr}", reason, "name the keyword in the signature")
        read = read_key(node, self.name) if self.name else None
        if read:
            if read[0] not in self.own:
                return read[1] or ast.Constant(None)
            given = ast.Name(read[0], ast.Load())
            if read[1] is None or isinstance(read[1], ast.Constant):
                return given
            test = ast.Compare(given, [ast.IsNot()], [ast.Constant(None)])
            return ast.IfExp(test, given, read[1])
        targets = self.graph.targets(node, self.function.owner)
        forwards = is_forwarding(node, self.function)
        keywords = [k for k in node.keywords if not (forwards and k.arg is None and _is_name(k.value, self.name))]
        if targets:
            keywords = self._bound(node, targets, keywords, forwards)
        elif forwards and (read := layer_parameters(node, self.function.owner)):
            names = [n for n in self.own if n in read and n not in {k.arg for k in keywords}]
            keywords += [ast.keyword(n, ast.Name(n, ast.Load())) for n in names]
        elif not callees(node) and forwards and self.own:
            given = {k.arg for k in keywords}
            keywords += [ast.keyword(n, ast.Name(n, ast.Load())) for n in self.own if n not in given]
        node.keywords = keywords
        self.generic_visit(node)
        return node

    def _bound(
        self, node: ast.Call, targets: list[Function], keywords: list[ast.keyword], forwards: bool
    ) -> list[ast.keyword]:
        accepted: set[str] = set()
        open_ended = False
        for target in targets:
            accepted |= self._accepted(target)
            open_ended |= target.node.args.kwarg is not None
        given = {k.arg for k in keywords}
        positional = set().union(*(bound_positionally(node, t) for t in targets))
        if open_ended:
            keywords = [k for k in keywords if k.arg is None or k.arg in accepted]
        if forwards:
            arriving = [n for n in self.own if n in accepted and n not in given and n not in positional]
            knowing = [self._accepted(target) for target in targets]
            knowing += [set()] * (len(callees(node)) > len(targets))  # one is no function of ours: a layer, say
            common = {n for n in arriving if all(n in known for known in knowing)}
            keywords += [ast.keyword(n, ast.Name(n, ast.Load())) for n in arriving if n in common]
            if partly := [n for n in arriving if n not in common]:
                # Of the modules that this site calls only some know the name: what was not given is not handed on.
                present = nodes.call(
                    self.context.use("module", "given"), **{n: ast.Name(n, ast.Load()) for n in partly}
                )
                keywords.append(ast.keyword(None, present))
        return keywords

    def _accepted(self, target: Function) -> set[str]:
        return set(target.parameters) | set(self.extra.get(target.key, []))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if self.name and node.id == self.name and isinstance(node.ctx, ast.Load):
            entries = [(ast.Constant(n), ast.Name(n, ast.Load())) for n in self.own]
            return ast.Dict([k for k, _ in entries], [v for _, v in entries])
        return node


def _changes(node: ast.Call, name: str) -> bool:
    """Whether a call changes the keywords `name` themselves: `kwargs.update(…)`."""
    function = node.func
    return isinstance(function, ast.Attribute) and function.attr in _CHANGING and _is_name(function.value, name)


def _is_name(node: ast.expr, name: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _declare(function: Function, names: dict[str, ast.expr]) -> None:
    arguments = function.node.args
    if arguments.kwarg is None:
        return
    arguments.kwarg = None
    for name, default in names.items():
        arguments.kwonlyargs.append(ast.arg(name))
        arguments.kw_defaults.append(default)


def ensures(context: Context, definition: Definition) -> list[str]:
    """No function takes `**kwargs`, so none can hand it on."""
    return [broken(f, "still takes ** keywords") for f in definition.functions() if f.args.kwarg is not None]


EXAMPLES = (
    Example(
        """
        def inner(x, *, scale=1.0):
            return x * scale

        def outer(x, **kwargs):
            return inner(x, **kwargs)

        def entry(x):
            return outer(x, scale=2.0, unread=True) + outer(x)
        """,
        """
        def inner(x, *, scale=1.0):
            return x * scale

        def outer(x, *, scale=1.0):
            return inner(x, scale=scale)

        def entry(x):
            return outer(x, scale=2.0) + outer(x)
        """,
    ),
    Example(
        """
        def outer(x, **kwargs):
            return x * kwargs.get("scale", 1.0) + kwargs.pop("never", 0)

        def entry(x):
            return outer(x, scale=2.0)
        """,
        """
        def outer(x, *, scale=1.0):
            return x * scale + 0

        def entry(x):
            return outer(x, scale=2.0)
        """,
    ),
    Example(
        """
        def a(x, *, scale=1.0):
            return x * scale

        def b(x, *, scale=2.0):
            return x * scale

        def outer(x, **kwargs):
            return a(x, **kwargs) + b(x, **kwargs)

        def entry(x):
            return outer(x, scale=3.0)
        """,
        """
        def a(x, *, scale=1.0):
            return x * scale

        def b(x, *, scale=2.0):
            return x * scale

        def outer(x, *, scale=1.0):
            return a(x, scale=scale) + b(x, scale=scale)

        def entry(x):
            return outer(x, scale=3.0)
        """,
        gap="CV106",
    ),
    Example(
        """
        def inner(x, scale=None, shift=0.0, more=1):
            return x if scale is None else x * scale + shift

        def outer(x, big: bool, **kwargs):
            kwargs["shift"] = 2.0
            if big:
                kwargs.setdefault("scale", 3.0)
                kwargs.setdefault("unread", 1.0)
            return inner(x, **kwargs)

        def entry(x):
            return outer(x, True) + outer(x, False, scale=2.0)
        """,
        """
        def inner(x, scale=None, shift=0.0, more=1):
            return x if scale is None else x * scale + shift

        def outer(x, big: bool, *, scale=None, shift=0.0):
            shift = 2.0
            if big:
                if scale is None:
                    scale = 3.0
                pass
            return inner(x, scale=scale, shift=shift)

        def entry(x):
            return outer(x, True) + outer(x, False, scale=2.0)
        """,
    ),
    Example(
        """
        def inner(x, scale=1.0):
            return x * scale

        def outer(x, **kwargs):
            kwargs.setdefault("scale", 3.0)
            return inner(x, **kwargs)

        def entry(x):
            return outer(x)
        """,
        """
        def inner(x, scale=1.0):
            return x * scale

        def outer(x, *, scale=1.0):
            if scale is None:
                scale = 3.0
            return inner(x, scale=scale)

        def entry(x):
            return outer(x)
        """,
        gap="CV113",
    ),
    unchanged("def f(x, *, scale=1.0):\n    return x * scale"),
)
