"""Find in-place writes that JAX would lose: the written memory is read afterwards under another name.

Runs once the calls that hand back written arguments are in place (`return_mutated`) and before `InPlace` turns writes
into rebinding. What shares memory is told by `storages` and `memory`; functions are summed up by what they write and
give back.
"""

import ast

from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context
from maxcode.converter.example import unchanged
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import is_pairwise
from maxcode.converter.passes.alias_calls import Calls
from maxcode.converter.passes.memory import (
    SHAPE,
    VIEWS,
    inplace_layers,
    is_inplace_name,
    mark_running_loops,
    outer_writes,
    stores_item,
)
from maxcode.converter.passes.storages import NOTHING, State, Storages, Summary, fresh, key_of, root_of, run_block


def check_aliases(context: Context) -> None:
    """Record a gap for every in-place write that another name would have to show."""
    functions = (graph := CallGraph(context)).functions()
    types = {f.key: Kinds(context, f.owner, f.node) for f in functions}
    inplace = inplace_layers(context)
    for function in functions:
        mark_running_loops(context, function.owner.qualified, function.node)
    summaries: dict[tuple[str, str], Summary] = {f.key: Summary() for f in functions}
    before = None
    while before != (before := [(set(s.writes), set(s.own), set(s.returns), s.joint) for s in summaries.values()]):
        for function in functions:
            Follow(context, graph, function, types[function.key], summaries, inplace, report=False).run()
    for function in functions:
        Follow(context, graph, function, types[function.key], summaries, inplace, report=True).run()


class Follow(Calls):
    """One function, followed in the order in which it runs."""

    def __init__(
        self, context: Context, graph: CallGraph, function: Function, types: Kinds, summaries: dict, inplace: dict,
        *, report: bool,
    ) -> None:  # fmt: skip
        self.context, self.graph, self.function, self.types = context, graph, function, types
        self.summaries, self.inplace, self.report = summaries, inplace, report
        self.summary: Summary = summaries[function.key]
        self.nested: set[str] = set()

    def run(self) -> None:
        """Follow the body; fills the summary, and with `report` records gaps."""
        arguments = self.function.node.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
        state = State({n: frozenset({("parameter", n)}) for n in names if n != "self"})
        run_block(self.function.node.body, state, self.statement, self.head)

    # --- statements

    def head(self, node: ast.stmt, state: State) -> None:
        """The part of a compound statement that runs before its body."""
        if isinstance(node, ast.For | ast.AsyncFor):
            self.bind(node.target, self.value(node.iter, state), state)
        elif isinstance(node, ast.If | ast.While):
            self.value(node.test, state)
        elif isinstance(node, ast.Match):
            self.value(node.subject, state)
        else:
            for item in node.items:
                held = self.value(item.context_expr, state)
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, held, state)

    def statement(self, node: ast.stmt, state: State) -> None:
        """A plain statement."""
        if hasattr(node, "stores_back"):
            self._stored_back(node, state)
        elif isinstance(node, ast.Assign):
            self._assign(node, state)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.bind(node.target, self.value(node.value, state), state)
        elif isinstance(node, ast.AugAssign):
            self._augmented(node, state)
        elif isinstance(node, ast.Return):
            # What a rewritten function hands back beside its result is bound to its own name again by the caller.
            handed = node.value.elts[1:] if getattr(node, "hands_back", False) else []
            result = node.value.elts[0] if handed else node.value
            held = self.value(result, state) if result is not None else NOTHING
            for written in handed:
                self.value(written, state)  # it must hold every write, those through views too
            self.summary.joint |= self._is_joint(result, state)
            self.summary.returns |= {str(s[1]) for s in held if s[0] == "parameter"}
        elif isinstance(node, ast.Expr):
            self._expression(node, state)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._nested(node)
        else:
            for child in (c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)):
                self.value(child, state)

    def _stored_back(self, node: ast.Assign, state: State) -> None:
        """`x[0] = row` that `views` wrote after a write into `row`: both names now hold what torch's memory would."""
        state.stale.pop(node.stores_back, None)
        self.value(node.value, state)
        state.stale.pop(key_of(root_of(node.targets[0])), None)

    def _is_joint(self, node: ast.expr | None, state: State) -> bool:
        if not isinstance(node, ast.Tuple | ast.List | ast.Call):
            return False
        if isinstance(node, ast.Call) and "record" not in self.types.of(node):
            return False  # makes something new of its arguments
        parts = node.elts if not isinstance(node, ast.Call) else [*node.args, *(k.value for k in node.keywords)]
        held = [self.value(p, state) for p in parts]
        return any(a & b for i, a in enumerate(held) for b in held[:i])

    def _assign(self, node: ast.Assign, state: State) -> None:
        held = self.value(node.value, state)
        for target in node.targets:
            if is_pairwise(target, node.value):
                parts = [self.value(v, state) for v in node.value.elts]
                for element, part in zip(target.elts, parts, strict=True):
                    self.bind(element, part, state)
            elif isinstance(target, ast.Subscript) and stores_item(node):
                self._keep(target, held, state)
            else:
                self.bind(target, held, state)

    def bind(self, target: ast.expr, held: Storages, state: State) -> None:
        """Bind a target; storing into a tensor's position is a write."""
        if isinstance(target, ast.Tuple | ast.List):
            # What a call makes anew is different memory for each of its results.
            new = {s for s in held if s[0] == "new" and not any(s in other for other in state.held.values())}
            for element in target.elts:
                self.bind(element, held - new | fresh() if new else held, state)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, held, state)
        elif isinstance(target, ast.Subscript):
            self._store(target, held, state)
        elif (key := key_of(target)) is not None:
            state.bind(key, held)

    def _store(self, target: ast.Subscript, held: Storages, state: State) -> None:
        if not self._may_be_tensor(target.value):
            self._keep(target, held, state)
            return
        self.value(target.slice, state)
        self.write(self.value(target.value, state), target, key_of(root_of(target)), state)

    def _keep(self, target: ast.Subscript, held: Storages, state: State) -> None:
        """Let a list or dictionary hold more."""
        self.value(target.slice, state)
        self.value(target.value, state)
        if (key := key_of(root_of(target))) is not None:
            state.add(key, held)

    def _augmented(self, node: ast.AugAssign, state: State) -> None:
        held = self.value(node.value, state)
        target = node.target
        if isinstance(target, ast.Subscript):
            self._store(target, held, state)
            if not self._may_be_tensor(target.value) and self._may_be_tensor(target):
                self.write(self.value(target.value, state), target, key_of(root_of(target)), state)
            return
        key = key_of(target)
        if key is None:
            return
        memory = self._read(key, target, state)
        if self._may_be_tensor(target):
            self.write(memory, node, key, state)
        elif self.types.of(target) & {"list", "tuple"}:
            state.add(key, held)
        else:
            state.bind(key, fresh())

    def _expression(self, node: ast.Expr, state: State) -> None:
        made = node.value
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and is_inplace_name(made.func.attr):
            receiver = made.func.value
            if self._may_be_tensor(receiver) and key_of(root_of(receiver)) is not None:
                memory = self.value(receiver, state)
                self._arguments(made, state)
                self.write(memory, made, key_of(root_of(receiver)), state)
                return
        self.value(made, state)

    def _nested(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function inside: writes into names of the outer one are not followed."""
        for child, target in outer_writes(node):
            if self._may_be_tensor(target):
                reason = "a nested function writes into a tensor of the outer one"
                self.gap(child, f"write to {target.id!r}", reason, "return the tensor from the nested function")

    # --- expressions

    def value(self, node: ast.expr | None, state: State) -> Storages:
        """Memory that the value of an expression may share with a name; notes reads and writes on the way."""
        if node is None or isinstance(node, ast.Constant | ast.Lambda | ast.JoinedStr):
            return NOTHING
        if isinstance(node, ast.Name | ast.Attribute):
            return self._path(node, state)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, state)
        if isinstance(node, ast.Call):
            return self._call(node, state)
        if isinstance(node, ast.NamedExpr):
            held = self.value(node.value, state)
            self.bind(node.target, held, state)
            return held
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            return self._comprehension(node, state)
        parts = [self.value(c, state) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        passes = isinstance(
            node, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Starred | ast.IfExp | ast.BoolOp | ast.Await
        )
        if passes or (isinstance(node, ast.BinOp) and self.types.of(node) & {"tuple", "list", "dict"}):
            return NOTHING.union(*parts)
        return fresh()

    def _path(self, node: ast.Name | ast.Attribute, state: State) -> Storages:
        if isinstance(node, ast.Attribute):
            if node.attr in SHAPE:
                return NOTHING
            if node.attr in VIEWS and self._may_be_tensor(node.value):
                return self.value(node.value, state)
        key = key_of(node)
        if key is None:
            return self.value(node.value, state)
        return self._read(key, node, state)

    def _read(self, key: str, node: ast.expr, state: State) -> Storages:
        parts = key.split(".")
        for end in range(1, len(parts) + 1):
            prefix = ".".join(parts[:end])
            write = state.stale.get(prefix)
            if write is not None:
                self._stale(prefix, write, node)
        return state.read(key)

    def _subscript(self, node: ast.Subscript, state: State) -> Storages:
        held = self.value(node.value, state)
        index = self.value(node.slice, state)
        if not self._may_be_tensor(node.value):
            return held
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        gathered = any(self.types.is_tensor(p) or isinstance(p, ast.List) for p in parts) or index is None
        return fresh() if gathered else held

    def _comprehension(self, node: ast.expr, state: State) -> Storages:
        inner = state.copy()
        for generator in node.generators:
            self.bind(generator.target, self.value(generator.iter, inner), inner)
            for test in generator.ifs:
                self.value(test, inner)
        elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        held = NOTHING.union(*(self.value(e, inner) for e in elements))
        state.stale |= {k: w for k, w in inner.stale.items() if k in state.held}
        return held

    # --- writes

    def write(self, memory: Storages, node: ast.AST, through: str | None, state: State) -> None:
        """A write into `memory`, after which only the name `through` is rebound."""
        state.write(memory, node, through)
        self.summary.writes |= {str(s[1]) for s in memory if s[0] == "parameter"}
        for kind, what in memory:
            if kind == "path" and str(what).startswith("self."):
                self.summary.own.add(str(what).removeprefix("self."))
            if kind == "path" and through != what and str(what).startswith("self."):
                reason = "the write goes through another name, so the module would not keep it"
                self.gap(node, f"write to {what}", reason, f"write to {what} itself")
            elif kind == "cache" and through not in getattr(node, "taken_back", ()):
                reason = "the write goes into a cache's own array"
                self.gap(node, f"write to {what}()", reason, "set it in the cache afterwards")

    def _stale(self, key: str, write: ast.AST, node: ast.AST) -> None:
        line = getattr(node, "lineno", 0)
        self.gap(write, "in-place write", f"{key!r} shares the written memory and is read afterwards (line {line})",
                 f"write to a copy, or read {key!r} before")  # fmt: skip

    def gap(self, node: ast.AST, what: str, reason: str, hint: str) -> None:
        """Record a gap, in the reporting round only."""
        if self.report:
            self.context.gap("CV132", node, what, reason, hint)

    def _may_be_tensor(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute) and self._is_cache(node.value):
            return False  # a table of the cache object, which is one object on both sides
        found = self.types.of(node)
        return not found or bool(found & {"tensor", "param", "unknown"})


_HEAD = "def f(x: torch.Tensor):\n    "
EXAMPLES = (
    unchanged(_HEAD + "y = x\n    y += 1\n    return x", gap="CV132"),
    unchanged(
        _HEAD + "rows = []\n    for i in range(3):\n        x += 1\n        rows.append(x)\n    return rows",
        gap="CV132",
    ),
    unchanged(_HEAD + "y = x.clone()\n    y += 1\n    return x"),
    unchanged(_HEAD + "y = x\n    y += 1\n    return y, x.shape"),
)
