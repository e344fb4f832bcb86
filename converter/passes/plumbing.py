"""Take the framework's plumbing out of a definition: logging, checks, cache switches, dispatch, gradient modes."""

import ast
from typing import Any, ClassVar

from maxcode.converter import capture, environment
from maxcode.converter import plumbing as tables
from maxcode.converter.activations import made_activation, weighted_activation
from maxcode.converter.context import Context, copy_facts, kinds, seen
from maxcode.converter.defaults import merge_defaults
from maxcode.converter.dynamic import (
    built_class,
    has_attribute,
    is_added,
    is_never_built,
    spelled_assignment,
    spelled_attribute,
)
from maxcode.converter.embeddings import spelled_embeddings
from maxcode.converter.initial import is_first_value, is_initialiser, is_weight_write
from maxcode.converter.nodes import assign, attribute, call, is_none, stored, typed
from maxcode.converter.passes.rope import DECORATOR as ROPE_DECORATOR
from maxcode.converter.passes.rope import drop_bookkeeping, update_rope
from maxcode.converter.questions import device_answer, framework_answer


class Plumbing(ast.NodeTransformer):
    """Rewrite one function or class; run `Fold` after it."""

    def __init__(self, context: Context, absent: dict[str, Any] | None = None) -> None:
        """`absent`: global names that stand for an optional package's kernels, and their values without it."""
        self.context, self.absent = context, (absent or {}).keys()
        self.is_constructor = False
        self.function: ast.FunctionDef | None = None  # the one that is visited
        self.owner = ""  # the class that is visited
        self.environment: set[str] = set()  # local names of objects that describe the installed torch
        self.constants: list[dict[str, ast.expr]] = [{n: ast.Constant(v) for n, v in (absent or {}).items()}]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        outer, self.is_constructor = self.is_constructor, is_initialiser(node.name)
        around, self.function = self.function, node
        result = self._visit_function(node)
        self.is_constructor, self.function = outer, around
        return result

    def _visit_function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        capture.mark(node)
        merge_defaults(node)
        names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        shadowed = self.absent & names
        constants: dict[str, ast.expr] = {n: v for n, v in self.constants[-1].items() if n not in shadowed}
        # Constructors and the framework's tables use the same words for other things.
        if node.name != "__init__" and _uses_framework(node):
            constants |= {n: ast.Constant(v) for n, v in tables.CONSTANT_ARGUMENTS.items() if n in names}
            if getattr(node, "filters", False):
                constants[capture.ARGUMENT] = ast.Constant(True)
            elif capture.is_asked_function(node):
                constants.pop(capture.ARGUMENT, None)
            if tables.CACHE_SWITCH in names:
                cache = next((n for n in tables.CACHE_ARGUMENTS if n in names), None)
                constants[tables.CACHE_SWITCH] = _not_none(cache) if cache else ast.Constant(False)
        if "device" in names:
            constants["device"] = ast.Constant(None)
        if tables.KEYWORDS_ARGUMENT in names and _uses_framework(node):
            constants[tables.KEYWORDS_ARGUMENT] = ast.Constant(None)
        positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        node.dropped = {i for i, name in enumerate(positional) if name in constants}
        for name in set(constants) & names:
            _drop_parameter(node.args, name)
        self.constants.append(constants)
        is_rope = any(tables.last(ast.unparse(d)) == ROPE_DECORATOR for d in node.decorator_list)
        node.decorator_list = [d for d in node.decorator_list if self._keeps(d)]
        node.body = [s for statement in node.body for s in self._statements(statement)] or [ast.Pass()]
        self.constants.pop()
        if is_rope:
            update_rope(self.context, node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        self.owner = f"{node.file.module}.{node.name}" if hasattr(node, "file") else node.name
        capture.mark_class(node)
        if any(
            tables.last(ast.unparse(d)) == ROPE_DECORATOR for f in node.body for d in getattr(f, "decorator_list", ())
        ):
            drop_bookkeeping(node)
        node.decorator_list = [d for d in node.decorator_list if self._keeps(d)]
        node.body = [s for statement in node.body for s in self._statements(statement)] or [ast.Pass()]
        return node

    def _statements(self, statement: ast.stmt) -> list[ast.stmt]:
        result = self.visit(statement)
        return result if isinstance(result, list) else [result] if result is not None else []

    def _keeps(self, decorator: ast.expr) -> bool:
        name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name in tables.KEPT_DECORATORS or name.endswith((".setter", ".getter")):
            return True
        if tables.last(name) == ROPE_DECORATOR:
            return False
        if {name, tables.last(name)} & (tables.DROPPED_DECORATORS | capture.DECORATORS):
            return False
        if tables.last(name) in tables.SUPPORT or environment.is_of_the_model(self.context, decorator, name):
            return True
        self.context.gap(
            "CV110", decorator, name, "no rule says what this decorator does to the function", "add it to plumbing.py"
        )
        return False

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call) and self._is_dropped_call(node.value):
            return None
        if isinstance(node.value, ast.Constant) and not isinstance(node.value.value, str):
            return None
        if (self.is_constructor and is_weight_write(node)) or is_first_value(node, self.function):
            return None
        if (assignment := spelled_assignment(node)) is not None:
            return self.visit(assignment)
        if isinstance(node.value, ast.Call) and is_added(node.value):
            node.value = call("setattr", node.value.func.value, *node.value.args)
        self.generic_visit(node)
        return node

    def _is_dropped_call(self, call: ast.Call) -> bool:
        name = ast.unparse(call.func)
        root = name.rsplit(".", 1)[0]
        if root in tables.DROPPED_CALL_ROOTS or name in tables.DROPPED_CALL_ROOTS:
            return True
        if tables.last(root) in tables.BOOKKEEPING:
            return True
        return tables.last(name) in tables.DROPPED_CALLS and not self._is_own_function(call)

    def _is_own_function(self, call: ast.Call) -> bool:
        file = getattr(call, "file", self)
        return isinstance(call.func, ast.Name) and call.func.id in file.definitions and not _is_plumbing_file(file)

    definitions: ClassVar[dict] = {}  # of nodes whose file is not known

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and target.attr in tables.CONSTANT_ATTRIBUTES:
            return None
        if isinstance(target, ast.Attribute) and target.attr in ("requires_grad", *tables.BOOKKEEPING):
            return None
        if self.is_constructor and is_weight_write(node, self.function):
            return None
        if isinstance(target, ast.Name) and kinds(node.value) == {"device"}:
            self.constants[-1][target.id] = ast.Constant(None)
        if isinstance(target, ast.Name) and target.id in self.constants[-1]:
            return None
        if isinstance(target, ast.Name) and environment.is_context(node.value):
            return None
        if (
            isinstance(target, ast.Name)
            and self.function is not None
            and environment.is_description(node.value, self.environment)
        ):
            self.environment.add(target.id)
            return None
        self.generic_visit(node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AugAssign | None:
        if self.is_constructor and is_weight_write(node):
            return None
        self.generic_visit(node)
        return node

    def visit_Global(self, node: ast.Global) -> ast.Global | None:
        node.names = [name for name in node.names if name not in self.constants[-1]]
        return node if node.names else None

    def visit_Delete(self, node: ast.Delete) -> ast.Delete | None:
        return node if tables.TIED_KEYS in ast.unparse(node) else None

    def visit_With(self, node: ast.With) -> Any:
        names = [
            tables.last(ast.unparse(i.context_expr.func)) for i in node.items if isinstance(i.context_expr, ast.Call)
        ]
        names = [n if n in tables.DROPPED_CONTEXTS else environment.context_name(i) for n, i in zip(names, node.items)]
        self.generic_visit(node)
        if len(names) == len(node.items) and all(n in tables.DROPPED_CONTEXTS for n in names):
            return node.body + (self._detached(node.body) if tables.NO_GRADIENT & set(names) else [])
        return node

    def _detached(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """`x = x.detach()` for the floating tensors that a block without gradients leaves behind."""
        floating = {
            n.id
            for n in ast.walk(self.function or ast.Pass())
            if isinstance(n, ast.Name)
            and kinds(n) == {"tensor"}
            and any("float" in dtype for dtype in seen(n).get("dtypes", ()))
        }
        made = []
        for variable in (n for n in stored(body) if n in floating):
            cut = call(attribute(variable, "detach"))
            cut.seen = {"kinds": ["tensor"], "callee": ["torch.Tensor.detach"]}
            made.append(ast.copy_location(assign(variable, cut), body[-1]))
        return made

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.constants[-1]:
            return copy_facts(_copy(self.constants[-1][node.id]), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and (answer := environment.answered(node)) is not None:
            return answer
        if isinstance(node.ctx, ast.Load) and node.attr in tables.CONSTANT_ATTRIBUTES:
            return ast.copy_location(ast.Constant(tables.CONSTANT_ATTRIBUTES[node.attr]), node)
        if node.attr == "device" and isinstance(node.ctx, ast.Load) and kinds(node) == {"device"}:
            return ast.copy_location(ast.Constant(None), node)
        if node.attr == "type" and kinds(node.value) == {"device"}:
            return ast.copy_location(ast.Constant("cpu"), node)
        self.generic_visit(node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """`is_compiling() and torch.is_tensor(n)` asks whether a number is known: the second part says it."""
        asked = {tables.last(ast.unparse(v.func)): v for v in node.values if isinstance(v, ast.Call)}
        if isinstance(node.op, ast.And) and "is_tensor" in asked and "is_torchdynamo_compiling" in asked:
            node.values.remove(asked["is_torchdynamo_compiling"])
        self.generic_visit(node)
        return node if len(node.values) > 1 else node.values[0]

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        answer = environment.answered(node, self.environment) or device_answer(node)
        if answer is not None:
            return answer
        self.generic_visit(node)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.Dict:
        """A table of classes by attention backend keeps those that a converted model may choose."""
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if tables.CHOSEN_BACKEND in keys:
            kept = [i for i, key in enumerate(keys) if not str(key).startswith(tables.OTHER_BACKENDS)]
            node.keys, node.values = [node.keys[i] for i in kept], [node.values[i] for i in kept]
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return weighted_activation(node) or node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if (table := made_activation(node)) is not None:
            return self.visit(table)
        if (backbone := self._backbone(node)) is not None:
            return backbone
        spelled = spelled_attribute(node) or built_class(node) or has_attribute(node)
        spelled = spelled or spelled_embeddings(self.context, self.owner, node)
        spelled = spelled or environment.spelled_locals(node, self.function, self.constants[-1])
        spelled = spelled or environment.answered(node) or environment.without_generator(node)
        if spelled is not None:
            return self.visit(spelled)
        if is_never_built(node):
            return self._never_built(node)
        name = ast.unparse(node.func)
        short = tables.last(name)
        if (answer := self._answered(node, short)) is not None:
            return answer
        if short in tables.PYTHON_CALLS and not self._is_own_function(node):
            node.func = ast.copy_location(ast.Name(tables.PYTHON_CALLS[short], ast.Load()), node.func)
            node.seen = {k: v for k, v in seen(node).items() if k != "callee"}
        if short == "get_interface" or (short == "get" and "ATTENTION_FUNCTIONS" in name):
            return self._attention_dispatch(node)
        return self._plain_call(node, short)

    def _plain_call(self, node: ast.Call, short: str) -> ast.expr:
        """A call without devices and without keywords that only steer the framework."""
        devices = {id(a) for a in node.args if kinds(a) == {"device"} or (isinstance(a, ast.Name) and a.id == "device")}
        moved = _is_moved(node, devices)
        dropped = [id(a) in devices for a in node.args]
        self.generic_visit(node)
        for position, argument in enumerate(node.args):
            argument.position = position
        asks = [k for k in node.keywords if k.arg == capture.ARGUMENT and seen(node) and capture.is_asked(k.value)]
        plain = any(k.arg == tables.RECORD_SWITCH and is_false(k.value) for k in node.keywords)
        node.keywords = [k for k in node.keywords if k in asks or not self._is_steering(k)]
        if plain and kinds(node) <= {"tuple"}:
            return typed(call(self.context.use("records", "as_tuple"), node), node)
        if devices and short != "isinstance":
            node.args = [a for a, drop in zip(node.args, dropped, strict=True) if not drop]
        if moved and not node.args and not node.keywords:
            return node.func.value
        if short in tables.PLAIN_CALLS and len(node.args) >= tables.PLAIN_CALLS[short]:
            return copy_facts(ast.Call(node.args[0], node.args[tables.PLAIN_CALLS[short] :], []), node)
        if _is_record_call(node):
            node.keywords = [k for k in node.keywords if not _always_none(k.value)]
        return node

    def _answered(self, node: ast.Call, short: str) -> ast.expr | None:
        """What stands for a question about the environment, or for an adaptation to a device."""
        answer = framework_answer(node, short, is_own=self._is_own_function(node))
        return None if answer is None else self.visit(answer)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        """Imports within a function: what they name is converted, and stands at the module's top level."""
        root = (node.module or "").split(".")[0]
        return None if node.level or root == "torch" or f"{root}." in tables.FRAMEWORKS else node

    def _backbone(self, node: ast.Call) -> ast.expr | None:
        """`load_backbone(config)` as the class that runs built, of the configuration that describes it."""
        name = tables.last(ast.unparse(node.func))
        if name == tables.BACKBONE_CALL and isinstance(node.func, ast.Attribute):
            node.func = node.func.value
            names = seen(node.func).get("names", ())
            node.seen = seen(node) | ({"callee": list(names)} if names else {})
            return self.visit(node)
        if name != tables.BACKBONE_LOADER or self._is_own_function(node):
            return None
        built = built_class(node)
        if built is None:
            return self._never_built(node) if not seen(node) else None
        built.args = [call(self.context.use("backbones", "backbone_config"), self.visit(a)) for a in built.args]
        return built

    def _never_built(self, node: ast.Call) -> ast.expr:
        what = ast.unparse(node)
        self.context.assume(node, f"no run built {what}; the converted code raises where that would be built")
        text = f"{what}: no run built it, so its class is not known; convert a configuration that has it"
        return call(self.context.use("gaps", "gap"), ast.Constant("CV106"), ast.Constant(text))

    def _attention_dispatch(self, node: ast.Call) -> ast.expr:
        function = self.context.use("attention", "get_attention")
        config = node.args[0]
        owner = config.value if isinstance(config, ast.Attribute) else ast.parse("self.config", mode="eval").body
        return copy_facts(ast.Call(function, [owner, node.args[1]], []), node)

    def _is_steering(self, keyword: ast.keyword) -> bool:
        return keyword.arg in (*tables.CONSTANT_ARGUMENTS, tables.CACHE_SWITCH, "device") or (
            keyword.arg == tables.KEYWORDS_ARGUMENT and (isinstance(keyword.value, ast.Name) or is_none(keyword.value))
        )


def _is_plumbing_file(file: Any) -> bool:
    """Whether a file is the framework's, and none of its models: what it defines is what the tables speak of."""
    module = getattr(file, "module", "")
    return f"{module}.".startswith("transformers.") and not module.startswith("transformers.models.")


def is_false(node: ast.expr) -> bool:
    """Whether a node is the constant False."""
    return isinstance(node, ast.Constant) and node.value is False


def _is_moved(node: ast.Call, devices: set[int]) -> bool:
    """Whether a call moves a tensor to a device."""
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr in ("cuda", "cpu"):
        return True
    return node.func.attr == "to" and (bool(devices) or any(k.arg == "device" for k in node.keywords))


def _is_record_call(node: ast.Call) -> bool:
    return "record" in kinds(node)


def _always_none(value: ast.expr) -> bool:
    """Whether a field of another record is passed on that no run ever saw filled."""
    if isinstance(value, ast.IfExp):
        return _always_none(value.body) or _always_none(value.orelse)
    return isinstance(value, ast.Attribute) and seen(value).get("kinds") == ["none"]


def _not_none(name: str) -> ast.expr:
    return ast.Compare(ast.Name(name, ast.Load()), [ast.IsNot()], [ast.Constant(None)])


def _copy(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


def _uses_framework(node: ast.AST) -> bool:
    """Whether a definition stands in a file of the framework's models, or in one that builds on the framework."""
    file = getattr(node, "file", None)
    if file is None:
        return False
    names = [file.module, *file.imports.values()]
    return any(f"{name.split('.')[0]}." in tables.FRAMEWORKS for name in names)


def _drop_parameter(arguments: ast.arguments, name: str) -> None:
    positional = [*arguments.posonlyargs, *arguments.args]
    for index, argument in enumerate(positional):
        if argument.arg == name:
            default = index - (len(positional) - len(arguments.defaults))
            if default >= 0:
                del arguments.defaults[default]
            (arguments.args if argument in arguments.args else arguments.posonlyargs).remove(argument)
            return
    for index, argument in enumerate(arguments.kwonlyargs):
        if argument.arg == name:
            del arguments.kwonlyargs[index], arguments.kw_defaults[index]
            return
