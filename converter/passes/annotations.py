"""Annotations that say what holds: torch checks none, so a source's may name a tuple where every run saw a tensor.

Only what the run or the text itself contradicts is changed. A function that is given a module says which class's.
"""

import ast
from collections.abc import Iterable, Iterator

from maxcode.converter.context import Context, Definition, kinds
from maxcode.converter.example import Example, unchanged
from maxcode.converter.infer import annotation_kinds
from maxcode.converter.nodes import is_none, join_options, loads, union_options, with_defaults

_TENSORS = frozenset({"tensor", "param"})
_TENSOR = "torch.Tensor"
_MODULES = frozenset({"nn.Module", "torch.nn.Module"})


def correct_annotations(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the annotations of a function's parameters and of its result."""
    for argument, default in with_defaults(function):
        if argument.annotation is None:
            continue
        if ast.unparse(argument.annotation) in _MODULES:
            argument.annotation = _classes_that_pass(context, definition) or argument.annotation
        elif default is None:
            argument.annotation = _without_default(function, argument)
        elif is_none(default) and _is_needed(function, argument.arg):
            _require(function, argument)
        elif is_none(default):
            argument.annotation = _with_none(argument.annotation)
        if argument.annotation is not None and _becomes_record(function, argument):
            argument.annotation = None
    if function.returns is not None:
        function.returns = _returned(function, function.returns)
    elif len({isinstance(value, ast.Tuple) for value in _results(function)}) > 1:
        function.returns = ast.Name("Any", ast.Load())  # the caller knows which by what it asked for


def _classes_that_pass(context: Context, definition: Definition) -> ast.expr | None:
    """The classes whose methods hand themselves to the function, by the name that they mention."""
    if definition.is_class:
        return None
    found = [
        other.name
        for other in context.definitions
        if other.is_class and any(n.id == definition.name for n in loads([other.node]))
    ]
    return ast.parse(" | ".join(found), mode="eval").body if found else None


def _without_default(function: ast.FunctionDef, argument: ast.arg) -> ast.expr:
    """The annotation of a parameter that every call gives."""
    annotation = argument.annotation
    found = _given(function, argument.arg)
    if not found:
        return annotation
    if found <= _TENSORS and annotation_kinds(annotation) == {"tuple"}:
        return ast.parse(_TENSOR, mode="eval").body
    options = [o for o in _options(annotation) if not is_none(o)]
    is_needed = _is_computed_with(function, argument.arg) and _is_given(function, argument.arg)
    return join_options(options) if is_needed and options else annotation


def _is_needed(function: ast.FunctionDef, name: str) -> bool:
    """Whether a parameter that may be left out never is, and the function can't do without it."""
    nodes = [n for statement in function.body for n in _surely_evaluated(statement)]
    is_used = _is_unpacked(nodes, name) or any(
        isinstance(n, ast.Subscript) and _is_named(n.slice, name, ast.Load) for n in nodes
    )
    return is_used and _is_given(function, name)


def _surely_evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that are evaluated whenever it is."""
    yield node
    if isinstance(node, ast.IfExp | ast.If):
        parts: Iterable[ast.AST] = [node.test]
    elif isinstance(node, ast.BoolOp):
        parts = node.values[:1]
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return | ast.expr | ast.keyword):
        parts = () if isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp) else ast.iter_child_nodes(node)
    else:
        parts = ()
    for part in parts:
        yield from _surely_evaluated(part)


def _require(function: ast.FunctionDef, argument: ast.arg) -> None:
    """Make a parameter that is needed one that must be given, or where its place forbids that, say nothing of None."""
    options = [o for o in _options(argument.annotation) if not is_none(o)]
    if _is_unpacked(list(ast.walk(function)), argument.arg):
        options = [o for o in options if annotation_kinds(o) == {"tuple"}] or [ast.Name("tuple", ast.Load())]
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if argument in positional and positional.index(argument) == len(positional) - len(arguments.defaults):
        del arguments.defaults[0]
        argument.annotation = join_options(options)
    else:
        argument.annotation = ast.Name("Any", ast.Load())


def _becomes_record(function: ast.FunctionDef, argument: ast.arg) -> bool:
    """Whether the function assigns an object of a class to a parameter that is said to be a tensor or a tuple."""
    assigned = (n for n in ast.walk(function) if isinstance(n, ast.Assign) and _is_record(n.value))
    names = {t.id for n in assigned for t in n.targets if isinstance(t, ast.Name)}
    options = [o for o in _options(argument.annotation) if not is_none(o)]
    return argument.arg in names and all(annotation_kinds(o) for o in options)


def _is_given(function: ast.FunctionDef, name: str) -> bool:
    """Whether every run gave the parameter a value, and the function does not ask for None."""
    return "none" not in (_given(function, name) or {"none"}) and not is_asked_for(function, name)


def _is_unpacked(nodes: list[ast.AST], name: str) -> bool:
    """Whether a parameter is taken apart: `a, b = name`."""
    return any(
        isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Tuple) and _is_named(n.value, name, ast.Load)
        for n in nodes
    )


def _is_computed_with(function: ast.FunctionDef, name: str) -> bool:
    """Whether the function computes with the parameter itself: in arithmetic, by a layer, or by what it holds."""
    return any(_is_named(part, name, ast.Load) for n in ast.walk(function) for part in _operands(n))


def _operands(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Attribute | ast.Subscript):
        return [node.value]
    is_layer = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.args[:1] if is_layer and ast.unparse(node.func.value) == "self" else []


def _given(function: ast.FunctionDef, name: str) -> frozenset[str]:
    """Kinds that the run saw of a parameter before it was assigned to."""
    stores = [n.lineno for n in ast.walk(function) if _is_named(n, name, ast.Store) and hasattr(n, "lineno")]
    first = min(stores, default=None)
    found = [kinds(n) for n in ast.walk(function) if _is_named(n, name, ast.Load) and _is_before(n, first)]
    return frozenset().union(*found)


def _is_named(node: ast.AST, name: str, context: type) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, context)


def _is_before(node: ast.Name, line: int | None) -> bool:
    return line is None or getattr(node, "lineno", line + 1) <= line


def is_asked_for(function: ast.FunctionDef, name: str) -> bool:
    """Whether the function looks whether it was given the parameter: `name is None`, `if name`, `name or …`."""
    tested: list[ast.AST] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            tested += [node.left, *node.comparators]
        elif isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            tested.append(node.test)
        elif isinstance(node, ast.BoolOp):
            tested += node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            tested.append(node.operand)
    return any(_is_named(part, name, ast.Load) for part in tested)


def _with_none(annotation: ast.expr) -> ast.expr:
    """The annotation of a parameter that is None by default."""
    text = ast.unparse(annotation)
    if "Optional" in text or text in ("object", "Any", "typing.Any") or any(map(is_none, _options(annotation))):
        return annotation
    return join_options([annotation, ast.Constant(None)])


def _options(annotation: ast.expr) -> list[ast.expr]:
    """The options of a union, None among them for `Optional[…]`."""
    found: list[ast.expr] = []
    for option in union_options(annotation):
        if isinstance(option, ast.Subscript) and ast.unparse(option.value).rpartition(".")[2] == "Optional":
            found += [*_options(option.slice), ast.Constant(None)]
        else:
            found.append(option)
    return found


def _returned(function: ast.FunctionDef, annotation: ast.expr) -> ast.expr | None:
    """What a function says of its result, or None where that is not so."""
    values = _results(function)
    options = _options(annotation)
    if not values or any(isinstance(o, ast.Constant) and isinstance(o.value, str) for o in options):
        return annotation
    fitting = [o for o in options if any(_may_be(value, o) for value in values)]
    if not all(any(_may_be(value, o) for o in fitting) for value in values):
        only_tensors = all(kinds(value) and kinds(value) <= _TENSORS for value in values)
        return ast.parse(_TENSOR, mode="eval").body if only_tensors else None
    return join_options(fitting) if fitting else annotation


def _results(function: ast.FunctionDef) -> list[ast.expr]:
    """The values of a function's own return statements."""
    found: list[ast.expr] = []
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return):
            found.append(node.value or ast.Constant(None))
        elif not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(node)
    return found


def _may_be(value: ast.expr, option: ast.expr) -> bool:
    """Whether nothing contradicts that `value` is what the annotation `option` says."""
    promised = annotation_kinds(option)
    if is_none(option):
        return is_none(value) or not isinstance(value, ast.Tuple | ast.Constant)
    if isinstance(value, ast.Tuple):
        return promised in ({"tuple"}, frozenset()) and _length(option) in (None, len(value.elts))
    if _is_record(value):
        return not promised
    found = kinds(value) - {"none"}
    is_told = bool(found) and found <= _TENSORS | {"tuple", "int", "float", "bool", "str"} and bool(promised)
    return not is_told or bool(found & promised) or (found <= _TENSORS and "tensor" in promised)


def _is_record(value: ast.expr) -> bool:
    """Whether a value is an object of a class, by the name that it is made with."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[:1].isupper()


def _length(option: ast.expr) -> int | None:
    """How many elements a tuple of that annotation has, None for any number."""
    if not isinstance(option, ast.Subscript):
        return None
    if not isinstance(option.slice, ast.Tuple):
        return 1
    parts = option.slice.elts
    return None if any(isinstance(p, ast.Constant) and p.value is ... for p in parts) else len(parts)


EXAMPLES = (
    Example(
        """
        def attend(module: nn.Module, query: torch.Tensor, mask: torch.Tensor | None, s: float = None) -> Tuple[int]:
            return query + mask, module.weight  # query: tensor  # mask: tensor

        class Block(nn.Module):
            def forward(self, x: tuple[torch.Tensor] | None) -> torch.Tensor:
                return attend(self, x, x)[0]  # x: tensor
        """,
        """
        def attend(module: Block, query: torch.Tensor, mask: torch.Tensor, s: float | None = None):
            return query + mask, module.weight  # query: tensor  # mask: tensor

        class Block(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return attend(self, x, x)[0]  # x: tensor
        """,
    ),
    Example(
        """
        class Rotate(nn.Module):
            def forward(self, x: torch.Tensor, cos_sin: tuple[torch.Tensor, ...] | None = None, flag=None):
                cos, sin = cos_sin  # cos_sin: tuple
                if flag:
                    return x * cos, sin
                return x * cos
        """,
        """
        class Rotate(nn.Module):
            def forward(self, x: torch.Tensor, cos_sin: tuple[torch.Tensor, ...], flag=None) -> Any:
                cos, sin = cos_sin  # cos_sin: tuple
                if flag:
                    return x * cos, sin
                return x * cos
        """,
    ),
    unchanged(
        """
        def pick(x: torch.Tensor | None, y: torch.Tensor | None = None) -> tuple[torch.Tensor, ...] | None:
            if x is None:
                return None
            return x, y  # x: tensor  # y: tensor
        """
    ),
)
