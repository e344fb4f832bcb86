"""Hidden states that a source asks its own parts for: who asks, whose layers record, and how the request travels.

The framework collects them with forward hooks behind the keyword `output_hidden_states`. Converted, a forward that its
callers ask takes the keyword, its decorator (`capture_outputs` of the support library) opens a scope, and the layers
that the class names in `_can_record_outputs` record into it.
"""

import ast
import copy
from dataclasses import dataclass
from typing import Any

from maxcode.converter import plumbing as tables
from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, Definition, seen
from maxcode.converter.nodes import Replace, call

ARGUMENT, FIELD = "output_hidden_states", "hidden_states"
CAPTURES = "capture_outputs"  # the framework's decorator, and the support library's
_FILTERS = "filter_output_hidden_states"  # asks what it calls, and leaves the hidden states out of its own record
_SELECTS = "select_hidden_states"  # asks what it calls for some of them
DECORATORS = frozenset({CAPTURES, _FILTERS, _SELECTS})
_TABLE, _RECORDER, _MODEL = "_can_record_outputs", "OutputRecorder", "PreTrainedModel"


@dataclass(frozen=True)
class Recorder:
    """One entry of `_can_record_outputs`: which modules, and what of their output."""

    target: str  # qualified class, or the end of a module's path
    index: int
    initial: bool
    layer_name: str

    def matches(self, path: str, mro: list[str]) -> bool:
        """Whether the module at `path` below its model, of a class with that `mro`, records."""
        named = f".{self.layer_name.strip('.')}." in f".{path}." if self.layer_name else True
        return named and (self.target in mro or ("." not in self.target and path.endswith(self.target)))


def mark(function: ast.FunctionDef) -> None:
    """Note on a function what its decorators say about hidden states; they are dropped afterwards."""
    for decorator in function.decorator_list:
        made = decorator.func if isinstance(decorator, ast.Call) else decorator
        short = tables.last(ast.unparse(made))
        if short == CAPTURES:
            function.captures = decorator.keywords if isinstance(decorator, ast.Call) else []
        function.filters = getattr(function, "filters", False) or short == _FILTERS
        if short == _FILTERS:
            function.asks = ast.Constant(True)
        elif short == _SELECTS:
            function.asks = _selection(decorator)


def _selection(decorator: ast.expr) -> ast.expr:
    """Which hidden states `select_hidden_states` asks for: an argument of the function, or what a lambda gives."""
    given = decorator.args[0] if isinstance(decorator, ast.Call) and decorator.args else ast.Constant(True)
    if isinstance(given, ast.Lambda):
        return Replace({given.args.args[0].arg: ast.Name("self", ast.Load())}).visit(given.body)
    is_argument = isinstance(given, ast.Constant) and isinstance(given.value, str)
    return ast.Name(given.value, ast.Load()) if is_argument else given


def is_asked(node: ast.expr) -> bool:
    """Whether the value of an `output_hidden_states` was ever true in a run."""
    values = [node.value] if isinstance(node, ast.Constant) else seen(node).get("literals", ())
    return any(values) or bool({"list", "tuple"} & set(seen(node).get("kinds", ())))


def is_asked_function(function: ast.FunctionDef) -> bool:
    """Whether a function with the argument was ever asked."""
    return any(is_asked(n) for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == ARGUMENT)


def attach(context: Context) -> None:
    """Hand requests on to the forwards that collect, and decorate those and their layers."""
    graph = CallGraph(context)
    functions = [f for f in graph.functions() if f.node.name != "__init__"]
    for function in functions:
        if (asked := getattr(function.node, "asks", None)) is not None:
            for node in _forwarding(function):
                node.keywords.append(ast.keyword(ARGUMENT, copy.deepcopy(asked)))
        if getattr(function.node, "filters", False):
            _leave_out(context, function.node)
    asked = _asked(graph, functions)
    for function in functions:
        if function.key in asked and ARGUMENT not in function.parameters:
            _take(function, graph, asked)
    if asked:
        _decorate(context, graph, functions, asked)


def _forwarding(function: Function) -> list[ast.Call]:
    """Calls that hand the function's `**kwargs` on and do not say themselves what they ask for."""
    kwarg = function.node.args.kwarg
    calls = [n for n in ast.walk(function.node) if isinstance(n, ast.Call) and kwarg is not None]
    return [
        n
        for n in calls
        if any(k.arg is None and isinstance(k.value, ast.Name) and k.value.id == kwarg.arg for k in n.keywords)
        and all(k.arg != ARGUMENT for k in n.keywords)
    ]


def _leave_out(context: Context, function: ast.FunctionDef) -> None:
    """Leave hidden states out of the records that a function returns."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        if isinstance(node.value, ast.Call):
            node.value.keywords = [k for k in node.value.keywords if k.arg != FIELD]
        else:
            reason = "the hidden states of what it returns are left out, and it is not a record made here"
            context.gap("CV114", node, _FILTERS, reason, "return a record with named fields")


def _asked(graph: CallGraph, functions: list[Function]) -> set[tuple[str, str]]:
    """Functions that a request reaches: named by a call, or on the way of `**kwargs`."""
    pending = [
        target
        for function in functions
        for node in ast.walk(function.node)
        if isinstance(node, ast.Call) and any(k.arg == ARGUMENT for k in node.keywords)
        for target in graph.targets(node, function.owner)
    ]
    found: set[tuple[str, str]] = set()
    while pending:
        function = pending.pop()
        takes = ARGUMENT in function.parameters or function.node.args.kwarg or hasattr(function.node, "captures")
        if function.key in found or not takes:
            continue
        found.add(function.key)
        if ARGUMENT not in function.parameters:
            pending += [t for node in _forwarding(function) for t in graph.targets(node, function.owner)]
    return found & _answering(graph, functions)


def _answering(graph: CallGraph, functions: list[Function]) -> set[tuple[str, str]]:
    """Functions that do something about a request: have the argument, collect, or hand it on to such a one."""
    found = {f.key for f in functions if ARGUMENT in f.parameters or hasattr(f.node, "captures")}
    targets = {f.key: {t.key for n in _forwarding(f) for t in graph.targets(n, f.owner)} for f in functions}
    while grown := {key for key, called in targets.items() if called & found} - found:
        found |= grown
    return found


def _take(function: Function, graph: CallGraph, asked: set[tuple[str, str]]) -> None:
    """Give a function the argument, which it hands on with its `**kwargs`."""
    forwarding = _forwarding(function)
    arguments = function.node.args
    arguments.kwonlyargs.append(ast.arg(ARGUMENT))
    arguments.kw_defaults.append(ast.Constant(False))
    for node in forwarding:
        if any(t.key in asked for t in graph.targets(node, function.owner)):
            node.keywords.append(ast.keyword(ARGUMENT, ast.Name(ARGUMENT, ast.Load())))


def _decorate(context: Context, graph: CallGraph, functions: list[Function], asked: set[tuple[str, str]]) -> None:
    """Decorate the forwards that collect, also those that nobody asks: a scope around them is not theirs to fill."""
    recording: dict[tuple[str, str], tuple[Function, Recorder]] = {}
    for function in functions:
        if not hasattr(function.node, "captures"):
            continue
        recorders = _recorders(context, function.owner)
        if not recorders:
            continue
        if function.key not in asked and ARGUMENT not in function.parameters:
            _take(function, graph, asked)
        made = call(context.use("capture", CAPTURES))
        made.keywords = function.node.captures
        function.node.decorator_list.insert(0, made)
        for recorder in recorders:
            for cls in _recording_classes(context, function, recorder):
                layer = graph.method(cls, "forward")
                if layer is not None:
                    recording[layer.key] = (layer, recorder)
    for layer, recorder in recording.values():
        made = call(context.use("capture", "records_output"))
        if recorder.index:
            made.args.append(ast.Constant(recorder.index))
        if not recorder.initial:
            made.keywords.append(ast.keyword("initial", ast.Constant(False)))
        layer.node.decorator_list.insert(0, made)


def _recording_classes(context: Context, function: Function, recorder: Recorder) -> list[str]:
    """Classes whose instances below the model record; a gap where only some of a class's instances do."""
    tree, classes = context.facts.get("tree", {}), context.facts.get("classes", {})
    answers: dict[str, set[bool]] = {}

    def visit(path: str, below: str) -> None:
        for fqn, row in tree.items():
            if fqn and fqn.rpartition(".")[0] == path:
                relative = f"{below}.{fqn.rpartition('.')[2]}"
                mro = classes.get(row["class"], {}).get("mro", [row["class"]])
                answers.setdefault(row["class"], set()).add(recorder.matches(relative, mro))
                if not any(tables.last(base) == _MODEL for base in mro):
                    visit(fqn, relative)

    for fqn, row in tree.items():
        if function.owner.qualified in classes.get(row["class"], {}).get("mro", [row["class"]]):
            visit(fqn, "")
    if any(len(answer) > 1 for answer in answers.values()):
        reason = "only some layers of a class record their output"
        context.gap(
            "CV114", function.node, f"{function.owner.name}.{_TABLE}", reason, "give those a class of their own"
        )
    return [cls for cls, answer in answers.items() if True in answer]


def _recorders(context: Context, owner: Definition) -> list[Recorder]:
    """The entry for hidden states of a class's `_can_record_outputs`, inherited or its own."""
    for qualified in (owner.qualified, *context.facts.get("classes", {}).get(owner.qualified, {}).get("mro", ())):
        found = getattr(getattr(context.definition(qualified), "node", None), "recorders", None)
        if found is not None:
            return found
    return []


def mark_class(node: ast.ClassDef) -> None:
    """Note on a class what its own `_can_record_outputs` says of hidden states; nothing else reads the table."""
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        is_table = any(isinstance(t, ast.Name) and t.id == _TABLE for t in targets)
        if is_table and isinstance(statement.value, ast.Dict):
            keys = [k.value if isinstance(k, ast.Constant) else None for k in statement.value.keys]
            value = statement.value.values[keys.index(FIELD)] if FIELD in keys else ast.List([], ast.Load())
            items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
            node.recorders = [_recorder(node.file, item) for item in items]


def _recorder(file: Any, item: ast.expr) -> Recorder:
    given: dict[str, ast.expr] = {}
    target = item
    if isinstance(item, ast.Call) and tables.last(ast.unparse(item.func)) == _RECORDER:
        names = ("target_class", "index", "layer_name", "class_name")
        given = dict(zip(names, item.args, strict=False)) | {k.arg: k.value for k in item.keywords if k.arg}
        target = given.get("class_name") or given.get("target_class") or item
    plain = {k: v.value for k, v in given.items() if isinstance(v, ast.Constant)}
    name = target.value if isinstance(target, ast.Constant) else ast.unparse(target)
    qualified = name if isinstance(target, ast.Constant) else (file.qualify(name) or name)
    initial = plain.get("capture_initial_hidden_state", True)
    return Recorder(str(qualified), plain.get("index", 0), initial, plain.get("layer_name") or "")
