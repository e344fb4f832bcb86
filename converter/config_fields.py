"""Rewrites of one configuration class: its decorators, fields and constructor become those of a `@config_class`."""

import ast
import builtins

from maxcode.converter import plumbing as tables
from maxcode.converter.nodes import blocks, is_none, join_options, union_options, with_defaults
from maxcode.converter.source import SourceFile

# Class attributes and methods about how a framework distributes, stores or trains a model, not about what it is.
DROPPED_ATTRIBUTES = frozenset((
    "base_config_key", "base_model_ep_plan", "base_model_fsdp_plan", "base_model_pp_plan", "base_model_tp_plan",
    "has_no_defaults_at_init", "ignore_keys_at_rope_validation", "is_composition", "keys_to_ignore_at_inference",
))  # fmt: skip
DROPPED_METHODS = frozenset((
    "__repr__", "from_dict", "from_encoder_decoder_configs", "from_pretrained", "get_config_dict", "save_pretrained",
    "validate_token_ids", "__setattr__", "__getattribute__", "__delattr__",
))  # fmt: skip
_METHOD_DECORATORS = ("property", "staticmethod", "classmethod", "setter", "cached_property")
_INIT, _POST_INIT = "__init__", "__post_init__"


def convert_class(node: ast.ClassDef, file: SourceFile, keep: frozenset[str], bases: list[str]) -> None:
    """Turn `node` in place into a `@config_class` with the given bases.

    Args:
        node: the source's class: a dataclass, a Hugging Face configuration of either style, or a plain class.
        file: where it stands.
        keep: imported names of the emitted module, which annotations may use; of classes below only some exist by then.
        bases: names of the emitted base classes.
    """
    node.decorator_list = [ast.Name("config_class")]
    node.bases, node.keywords = [ast.Name(name) for name in bases], []
    node.body = [statement for statement in node.body if not _is_dropped(statement)]
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            statement.annotation = clean_annotation(statement.annotation, keep)
            statement.value = _default(statement.value, keep)
        elif isinstance(statement, ast.FunctionDef):
            _clean_method(statement, keep)
    if bases == ["Config"]:
        node.body = [_as_field(statement) for statement in node.body]
    convert_constructor(node)
    mark_filled(node, bases)
    docstring = f"Fields, defaults and derivations of the source's `{node.name}`."
    node.body = [ast.Expr(ast.Constant(docstring)), *(_AsWritten(file).visit(s) for s in node.body)]


class _AsWritten(ast.NodeTransformer):
    """Keep numbers and texts that go over several lines in the source's own spelling."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file

    def visit_Call(self, node: ast.Call) -> ast.expr:
        for part in node.args:
            part.in_parentheses = True
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._spelled(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return self._spelled(node)

    def _spelled(self, node: ast.expr) -> ast.expr:
        is_number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        if getattr(node, "lineno", None) is None or not (is_number or node.end_lineno > node.lineno):
            return node
        text = ast.get_source_segment(self.file.text, node) or ""
        same = ast.unparse(ast.parse(f"({text})", mode="eval")) == ast.unparse(node)
        bare = is_number or getattr(node, "in_parentheses", False)
        return ast.Name(text if bare else f"({text})") if same else node


def _is_dropped(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.FunctionDef):
        return statement.name in DROPPED_METHODS
    return any(isinstance(t, ast.Name) and t.id in DROPPED_ATTRIBUTES for t in targets(statement))


def targets(statement: ast.stmt) -> list[ast.expr]:
    """What an assignment assigns to; empty for other statements."""
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def clean_annotation(annotation: ast.expr, keep: frozenset[str]) -> ast.expr:
    """The annotation without the alternatives that name unknown types; `Any` when nothing is left."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    known = [option for option in union_options(annotation) if _is_known(option, keep)]
    if not known or all(isinstance(option, ast.Constant) for option in known):  # nothing, or None alone
        return ast.Name("Any")
    return join_options(known)


def _is_known(annotation: ast.expr, keep: frozenset[str]) -> bool:
    names = (n.id for n in ast.walk(annotation) if isinstance(n, ast.Name))
    return all(name in keep or hasattr(builtins, name) for name in names)


def _default(value: ast.expr | None, keep: frozenset[str]) -> ast.expr | None:
    """A field's default, taken out of the call of a validator that the emitted module does not have."""
    if not isinstance(value, ast.Call) or _is_known(value.func, keep):
        return value
    given = {keyword.arg: keyword.value for keyword in value.keywords}
    if "default_factory" in given:
        function = ast.Attribute(ast.Name("dataclasses"), "field")
        return ast.Call(function, [], [ast.keyword("default_factory", given["default_factory"])])
    return given.get("default")


def _clean_method(method: ast.FunctionDef, keep: frozenset[str]) -> None:
    method.decorator_list = [d for d in method.decorator_list if ast.unparse(d).split(".")[-1] in _METHOD_DECORATORS]
    arguments = [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
    for argument in (*arguments, method.args.vararg, method.args.kwarg):
        if argument is not None and argument.annotation is not None:
            argument.annotation = clean_annotation(argument.annotation, keep)
    if method.returns is not None:
        method.returns = clean_annotation(method.returns, keep)
    for block in list(blocks(method)):  # which backend runs is no field: `attention` says it
        block[:] = [s for s in block if not _sets_constant(s)] or [ast.Pass()]
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and node.attr in ("warning_once", "warning_advice"):
            node.attr = "warning"  # the standard library's logger
    if method.body and isinstance(method.body[0], ast.Expr) and isinstance(method.body[0].value, ast.Constant):
        text = str(method.body[0].value.value).strip().splitlines() or [""]
        method.body[0].value = ast.Constant(text[0])
        if len(method.body) == 1:
            method.body.append(ast.Pass())


def _sets_constant(statement: ast.stmt) -> bool:
    """Whether a statement sets an attribute that has one value in every converted model."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return isinstance(target, ast.Attribute) and target.attr in tables.CONSTANT_ATTRIBUTES


def _as_field(statement: ast.stmt) -> ast.stmt:
    """`name = literal` of a plain class as an annotated field."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return statement
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Name) or target.id.startswith("_"):
        return statement
    return _like(ast.AnnAssign(target, _type_of(value), _field_default(value), simple=1), statement)


def _type_of(value: ast.expr | None) -> ast.expr:
    """The annotation that a default's own type suggests."""
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, ast.Constant) and value.value is not None:
        return ast.Name(type(value.value).__name__)
    kinds = {ast.Tuple: "tuple", ast.List: "list", ast.Dict: "dict"}
    return ast.Name(kinds.get(type(value), "Any"))


def _field_default(value: ast.expr | None) -> ast.expr | None:
    """The default as a dataclass takes it: made anew where it could be changed."""
    if not isinstance(value, ast.List | ast.Dict | ast.Set):
        return value
    factory = ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)
    return ast.Call(ast.Attribute(ast.Name("dataclasses"), "field"), [], [ast.keyword("default_factory", factory)])


def _like(new: ast.stmt, old: ast.stmt) -> ast.stmt:
    """`new` with the comments of `old`."""
    for name in ("leading", "trailing", "spaced"):
        if hasattr(old, name):
            setattr(new, name, getattr(old, name))
    return new


def convert_constructor(node: ast.ClassDef) -> None:
    """Turn `__init__(self, a=1, **kwargs)` into fields and `__post_init__(self, **kwargs)`.

    An argument that the body stores under its own name is a field; its `self.a = a` goes and the rest of the body
    reads and writes `self.a`. Any other argument is taken out of the keywords first.
    """
    index = next((i for i, s in enumerate(node.body) if isinstance(s, ast.FunctionDef) and s.name == _INIT), None)
    if index is None:
        return
    init = node.body[index]
    parameters = _parameters(init)
    stored = {name for name in parameters if any(_stores(s, name) for s in init.body)}
    fields = [
        ast.AnnAssign(ast.Name(name), annotation or _type_of(default), _field_default(default), simple=1)
        for name, (annotation, default) in parameters.items()
        if name in stored
    ]
    body = [s for s in init.body if not any(_stores(s, name) for name in stored)]
    rename = _ReadFromSelf(stored)
    body = [rename.visit(statement) for statement in body]
    taken = [_take(name, default) for name, (_, default) in parameters.items() if name not in stored]
    catches_all = init.args.kwarg is not None
    if not catches_all:
        init.args.kwarg = ast.arg("kwargs")
        if not any(_is_super_init(s) for s in body):
            body.append(_super_post_init())
    init.name = _POST_INIT
    init.args = ast.arguments([], [ast.arg("self")], None, [], [], init.args.kwarg, [])
    init.body = [*taken, *body] or [ast.Pass()]
    if init.args.kwarg.arg != "kwargs":
        _rename(init, init.args.kwarg.arg)
    node.body[index : index + 1] = [*fields, init]


def mark_filled(node: ast.ClassDef, bases: list[str]) -> None:
    """Take None out of the types of fields that the class itself fills in where they are left at None."""
    post_init = next((s for s in node.body if isinstance(s, ast.FunctionDef) and s.name == _POST_INIT), None)
    filled = _filled(post_init) if post_init else set()
    if any(base in ("PreTrainedConfig", "RopeConfig") for base in bases):
        filled.add("rope_parameters")
    for statement in node.body:
        if not (isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) in filled):
            continue
        options = [option for option in union_options(statement.annotation) if not is_none(option)]
        if options and len(options) < len(union_options(statement.annotation)):
            statement.annotation = join_options(options)
            if statement.value is not None and is_none(statement.value):
                statement.value = ast.Call(ast.Name("filled_in"), [], [])


def _filled(post_init: ast.FunctionDef) -> set[str]:
    """Fields that hold something else than None when the method is done."""
    guarded = {
        name
        for statement in post_init.body
        if isinstance(statement, ast.If) and (name := _tested_for_none(statement.test)) is not None
        and any(ast.unparse(t) == f"self.{name}" for s in ast.walk(statement) for t in targets(s))
    }  # fmt: skip
    chosen = {
        target.attr
        for statement in post_init.body
        for target in targets(statement)
        if isinstance(target, ast.Attribute) and _falls_back(statement.value, f"self.{target.attr}")
    }
    return {name for name in guarded | chosen if not _may_become_none(post_init, name)}


def _tested_for_none(test: ast.expr) -> str | None:
    """`a` of the condition `self.a is None`."""
    found = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and is_none(test.comparators[0])
    is_field = found and isinstance(test.left, ast.Attribute) and ast.unparse(test.left.value) == "self"
    return test.left.attr if is_field else None


def _falls_back(value: ast.expr | None, field: str) -> bool:
    """Whether a value is `field or …` or `field if field is not None else …`."""
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
        return ast.unparse(value.values[0]) == field
    return isinstance(value, ast.IfExp) and field in (ast.unparse(value.body), ast.unparse(value.orelse))


def _may_become_none(post_init: ast.FunctionDef, name: str) -> bool:
    """Whether an assignment to the field has None among its outcomes, or deletes it."""
    values = [
        s.value for s in ast.walk(post_init) if any(ast.unparse(t) == f"self.{name}" for t in targets(s))
    ]  # fmt: skip
    outcomes = [part for value in values if value is not None for part in _outcomes(value)]
    return any(is_none(part) or isinstance(part, ast.Call) for part in outcomes)


def _outcomes(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.IfExp):
        return [*_outcomes(value.body), *_outcomes(value.orelse)]
    if isinstance(value, ast.BoolOp):
        return _outcomes(value.values[-1])
    return [value]


def _parameters(init: ast.FunctionDef) -> dict[str, tuple[ast.expr | None, ast.expr | None]]:
    """Name -> (annotation, default) of every named parameter but self."""
    pairs = with_defaults(init)
    return {argument.arg: (argument.annotation, default) for argument, default in pairs[1:]}


def _stores(statement: ast.stmt, name: str) -> bool:
    """Whether the statement is `self.name = name`."""
    return (
        isinstance(statement, ast.Assign | ast.AnnAssign)
        and isinstance(statement.value, ast.Name)
        and statement.value.id == name
        and any(ast.unparse(target) == f"self.{name}" for target in targets(statement))
        and len(targets(statement)) == 1
    )


def _take(name: str, default: ast.expr | None) -> ast.stmt:
    arguments = [ast.Constant(name)] + ([] if default is None else [default])
    pop = ast.Call(ast.Attribute(ast.Name("kwargs"), "pop"), arguments, [])
    return ast.Assign([ast.Name(name, ast.Store())], pop, lineno=0)


def _is_super_init(statement: ast.stmt) -> bool:
    return ast.unparse(statement).startswith(("super().__init__", "super().__post_init__"))


def _super_post_init() -> ast.stmt:
    return ast.parse("super().__post_init__(**kwargs)").body[0]


def _rename(init: ast.FunctionDef, name: str) -> None:
    init.args.kwarg.arg = "kwargs"
    for node in ast.walk(init):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = "kwargs"


class _ReadFromSelf(ast.NodeTransformer):
    """Replace parameters by the fields that hold them, and calls of the base constructor."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Attribute(ast.Name("self"), node.id, node.ctx) if node.id in self.names else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr == _INIT and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super":
            node.attr, node.value.args = _POST_INIT, []
        return node
