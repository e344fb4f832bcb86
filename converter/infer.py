"""Kinds of expressions: as the instrumented run saw them, else inferred from names, annotations and operations."""

import ast
from functools import cache

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.context import Context, Definition, kinds
from maxcode.converter.nodes import with_defaults

_TENSOR_ANNOTATIONS = ("Tensor", "LongTensor", "FloatTensor", "BoolTensor", "IntTensor", "ByteTensor", "Parameter")
_SCALAR_ANNOTATIONS = {"int": "int", "float": "float", "bool": "bool", "str": "str"}
_CONTAINER_ANNOTATIONS = {
    **dict.fromkeys(("tuple", "Tuple", "list", "List"), frozenset({"tuple"})),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), frozenset({"dict"})),
}
TENSOR = frozenset({"tensor"})
_TENSORS = frozenset({"tensor", "param"})
_BUFFERS = ("buffer", "constant")  # kinds of attributes
_NONE = frozenset({"none"})
_TENSOR_PREFIX = "torch.Tensor."
_PLAIN = (str, bytes, list, tuple, dict, set, int, float, complex)
_SEVERAL = ("LSTM", "GRU", "RNN", "LSTMCell", "MultiheadAttention")  # layers that give more than one tensor
# Methods of a tensor that give no tensor.
_NUMBERS = {
    "size": "tuple", "stride": "tuple", "dim": "int", "ndimension": "int", "numel": "int", "nelement": "int",
    "element_size": "int", "is_floating_point": "bool", "is_complex": "bool", "is_contiguous": "bool",
    "tolist": "list",
}  # fmt: skip
_NO_VALUE = frozenset({"self", "cls", "super"})


class Kinds:
    """Kinds of the expressions of one function; code that never ran is judged by what its names hold elsewhere."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef) -> None:
        self.context, self.definition = context, definition
        self.names: dict[str, frozenset[str]] = {}
        self.local = _bound(function)
        self._from_parameters(function)
        self._from_facts(function)
        self._from_assignments(function)
        if self._from_uses(function):
            self._from_assignments(function)

    def of(self, node: ast.expr) -> frozenset[str]:
        """Kinds of an expression; empty when nothing is known."""
        known = kinds(node)
        if known:
            return known
        if isinstance(node, ast.Name):
            return self.names.get(node.id, frozenset())
        if isinstance(node, ast.Constant):
            return frozenset({_constant_kind(node.value)})
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp):
            both = self.of(node.left) | self.of(node.right)
            return TENSOR if both & _TENSORS else both
        if isinstance(node, ast.Compare):
            operands = [self.of(n) for n in (node.left, *node.comparators)]
            plain = all(isinstance(o, ast.Is | ast.IsNot | ast.In | ast.NotIn) for o in node.ops)
            return TENSOR if not plain and any(o & _TENSORS for o in operands) else frozenset({"bool"})
        if isinstance(node, ast.UnaryOp):
            return frozenset({"bool"}) if isinstance(node.op, ast.Not) else self.of(node.operand)
        if isinstance(node, ast.Subscript):
            value = self.of(node.value)
            return TENSOR if value & _TENSORS else frozenset({"int"}) if _is_shape(node.value) else frozenset()
        if isinstance(node, ast.IfExp):
            return self.of(node.body) | self.of(node.orelse)
        if isinstance(node, ast.Tuple | ast.List):
            return frozenset({"tuple" if isinstance(node, ast.Tuple) else "list"})
        return frozenset()

    def is_tensor(self, node: ast.expr) -> bool:
        """Whether an expression was only ever a tensor (or None)."""
        found = self.of(node) - _NONE
        return bool(found) and found <= _TENSORS

    def is_method(self, node: ast.Attribute) -> bool:
        """Whether `node`, which is called, is a method of a tensor: by its receiver, or by a name only tensors have."""
        if self.of(node.value) - _NONE:
            return self.is_tensor(node.value)
        is_source = hasattr(node, "file")  # else a pass made the call, and it is JAX's
        return is_source and node.attr in tensor_only_methods() and self._is_local_value(node.value)

    def _is_local_value(self, node: ast.expr) -> bool:
        """Whether an unknown expression is computed from the function's own values: no module, class or `self`."""
        if isinstance(node, ast.Call | ast.Subscript | ast.BinOp | ast.UnaryOp):
            roots = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            return any(n.id in self.local for n in roots)
        return isinstance(node, ast.Name) and node.id in self.local and node.id not in _NO_VALUE

    def _attribute(self, node: ast.Attribute) -> frozenset[str]:
        if node.attr in ("shape",):
            return frozenset({"tuple"})
        if node.attr in ("dtype", "device"):
            return frozenset({node.attr})
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            found = self.context.class_facts(self.definition.qualified).get(node.attr, ())
            return frozenset("tensor" if kind in _BUFFERS else kind for kind in found) or self._container(node.attr)
        if self.of(node.value) & _TENSORS and node.attr in ("T", "mT", "data", "real", "imag", "H"):
            return TENSOR
        return frozenset()

    def _container(self, attribute: str) -> frozenset[str]:
        """Kind of an attribute of `self` that a class which is no layer only ever sets to lists, or to dictionaries."""
        values = [
            n.value
            for n in ast.walk(self.definition.node)
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == f"self.{attribute}"
        ]
        found = {_container_kind(value) for value in values}
        return frozenset(found - {None}) if len(found) == 1 else frozenset()

    def _call(self, node: ast.Call) -> frozenset[str]:
        name = ast.unparse(node.func)
        root = name.split(".")[0]
        qualified = self.definition.file.qualify(root) or ""
        if qualified.split(".")[0] == "torch":
            return TENSOR
        if isinstance(node.func, ast.Attribute) and self.is_method(node.func):
            given = node.func.attr == "size" and bool(node.args or node.keywords)
            return frozenset({"int"} if given else {_NUMBERS[node.func.attr]}) if node.func.attr in _NUMBERS else TENSOR
        return TENSOR if self._is_layer_call(node) else frozenset()

    def _is_layer_call(self, node: ast.Call) -> bool:
        """Whether `self.x(…)` calls a torch layer that gives one tensor."""
        if not (isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "self"):
            return False
        classes = self.context.child_classes(self.definition.qualified).get(node.func.attr, ())
        found = {registry.canonical(c) for c in classes}
        return bool(found) and all(c in registry.MODULES and not c.endswith(_SEVERAL) for c in found)

    def _from_parameters(self, function: ast.FunctionDef) -> None:
        for argument, default in with_defaults(function):
            found = annotation_kinds(argument.annotation)
            if argument.arg in tables.CACHE_ARGUMENTS and found & TENSOR:
                found = frozenset({"cache"})  # sources annotate caches as tensors now and then
            if not found and isinstance(default, ast.Constant) and default.value is not None:
                found = frozenset({_constant_kind(default.value)})
            if found:
                self.names[argument.arg] = found

    def _from_facts(self, function: ast.FunctionDef) -> None:
        ran: dict[str, frozenset[str]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and kinds(node):
                ran[node.id] = ran.get(node.id, frozenset()) | kinds(node)
        for name, found in ran.items():
            # Where a name was only ever None, what it may hold elsewhere is still told by its annotation.
            self.names[name] = found | self.names.get(name, frozenset()) if found == _NONE else found

    def _from_uses(self, function: ast.FunctionDef) -> bool:
        """Names of unknown kind that a method is called on which only tensors have."""
        found = {
            node.func.value.id
            for node in ast.walk(function)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and self.is_method(node.func)
            and not self.of(node.func.value) - _NONE
        }
        for name in found:
            self.names[name] = self.names.get(name, frozenset()) | TENSOR
        return bool(found)

    def _from_assignments(self, function: ast.FunctionDef) -> None:
        for _ in range(3):
            for node in ast.walk(function):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(target, node.value)
                elif isinstance(node, ast.NamedExpr):
                    self._assign(node.target, node.value)
                elif isinstance(node, ast.AugAssign) and self.of(node.value) & _TENSORS:
                    self._assign(node.target, node.value)  # a number added says nothing of what it is added to

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if not self.names.get(target.id, _NONE) - _NONE:
                self.names[target.id] = self.names.get(target.id, frozenset()) | self.of(value)
        elif isinstance(target, ast.Tuple):
            kind = self.of(value)
            parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for index, element in enumerate(target.elts):
                if not isinstance(element, ast.Name) or self.names.get(element.id, _NONE) - _NONE:
                    continue
                if parts:
                    self.names[element.id] = self.of(parts[index])
                elif _is_shape(value):
                    self.names[element.id] = frozenset({"int"})
                elif kind & _TENSORS:
                    self.names[element.id] = TENSOR


@cache
def tensor_only_methods() -> frozenset[str]:
    """Methods that tensors have by the rule tables and Python's own values have not, in-place forms included."""
    registry.load()
    known = {name.removeprefix(_TENSOR_PREFIX) for name in registry.OPS if name.startswith(_TENSOR_PREFIX)}
    plain = {name for kind in _PLAIN for name in dir(kind)}
    return frozenset((known | {f"{name}_" for name in known if not name.endswith("_")}) - plain)


def _bound(function: ast.FunctionDef) -> frozenset[str]:
    """Names that a function binds: parameters and whatever is assigned in it."""
    found = {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    names = (n for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return frozenset(found.union(n.id for n in names))


def annotation_kinds(annotation: ast.expr | None) -> frozenset[str]:
    """Kinds that a parameter annotation promises; a container's kind, never that of its items."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return frozenset()
    if isinstance(annotation, ast.BinOp):
        return annotation_kinds(annotation.left) | annotation_kinds(annotation.right)
    if isinstance(annotation, ast.Subscript):
        outer = _last_name(annotation.value)
        if outer in ("Optional", "Union"):
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            return frozenset().union(*map(annotation_kinds, parts))
        return _CONTAINER_ANNOTATIONS.get(outer, frozenset())
    name = _last_name(annotation)
    if name in _TENSOR_ANNOTATIONS:
        return TENSOR
    return (
        frozenset({_SCALAR_ANNOTATIONS[name]})
        if name in _SCALAR_ANNOTATIONS
        else _CONTAINER_ANNOTATIONS.get(name, frozenset())
    )


def _last_name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _container_kind(value: ast.expr) -> str | None:
    """`list` or `dict` of a display, of one times a number, and of what Python's own constructor makes."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _container_kind(value.left) or _container_kind(value.right)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("list", "dict"):
        return value.func.id
    kinds = {ast.List: "list", ast.ListComp: "list", ast.Dict: "dict", ast.DictComp: "dict"}
    return kinds.get(type(value))


def _constant_kind(value: object) -> str:
    return "none" if value is None else type(value).__name__


def _is_shape(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_shape(node.value)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"
