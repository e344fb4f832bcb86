"""An exported graph as statements of torch: one line an operation, by the public function of the same name."""

import keyword
import operator
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx.experimental.symbolic_shapes import is_concrete_int
from torch.utils import _pytree as pytree

from maxcode.evaluator.oracle.flatten import dtype_name

_NAMESPACES = ("torch.Tensor", "torch", "torch.nn.functional")
# Keywords that say where a result lies, not what it is.
_PLACES = frozenset({"device", "layout", "pin_memory", "non_blocking", "memory_format", "copy", "cudnn_enabled"})
_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/",
    operator.mod: "%", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">",
    operator.ge: ">=", operator.pow: "**",
}  # fmt: skip
_FUNCTIONS = {
    torch.sym_max: "max",
    torch.sym_min: "min",
    torch.sym_int: "int",
    torch.sym_float: "float",
    torch.sym_not: "not",
}
_CHECKS = ("_assert", "sym_constrain", "_check")
_RENAMED = {"_to_copy": "to", "_unsafe_view": "view", "_softmax": "softmax", "_log_softmax": "log_softmax"}


class Refusal(Exception):  # noqa: N818 (an answer, no fault)
    """The graph has no text; the message says why."""


class GraphText:
    """Args: the graph, what its placeholders stand for, and the names of functions that may be called."""

    def __init__(self, graph: fx.Graph, names: Mapping[str, str], known: set[str]) -> None:
        self.graph, self.known = graph, known
        self.names: dict[str, str] = dict(names)

    def text(self, given: Mapping[str, Any], result: pytree.TreeSpec) -> dict[str, Any]:
        """`checks` (of what the graph takes for granted), `body`, and `variables`: what each local holds.

        `given` are the arguments that the graph was made with, `result` is the structure of what it gives.
        """
        body: list[str] = []
        variables = {name: about for name in given if (about := _about(given[name])) is not None}
        for node in self.graph.nodes:
            if node.op == "output":
                body.append(f"return {self._structure(pytree.tree_unflatten(node.args[0], result))}")
            elif node.op == "get_attr":
                raise Refusal(f"the graph holds a constant ({node.target})")
            elif node.op == "call_function" and not self._is_check(node):
                self._define(node, body, variables)
        return {"checks": [*_absent(given), *self._sizes()], "body": body, "variables": variables}

    def _structure(self, value: Any) -> str:
        """What the module returns: the graph's outputs in the module's own structure."""
        if type(value) in (tuple, list):
            items = ", ".join(map(self._structure, value))
            return f"[{items}]" if isinstance(value, list) else f"({items},)"
        if type(value) is dict:
            return "{" + ", ".join(f"{name!r}: {self._structure(item)}" for name, item in value.items()) + "}"
        return self._value(value)

    def _define(self, node: fx.Node, body: list[str], variables: dict[str, Any]) -> None:
        expression = self._expression(node)
        name = f"{node.name}_" if keyword.iskeyword(node.name) else node.name
        self.names[node.name] = name
        body.append(f"{name} = {expression}")
        if (about := _about(node.meta.get("val"))) is not None:
            variables[name] = about

    def _sizes(self) -> list[str]:
        """Tests that sizes which the graph fixes are what they were."""
        tests = []
        for node in self.graph.nodes:
            value, name = node.meta.get("val"), self.names.get(node.name, "")
            if node.op != "placeholder" or not isinstance(value, Tensor) or name.startswith("self."):
                continue
            fixed = [(i, int(size)) for i, size in enumerate(value.shape) if is_concrete_int(size)]
            tests += [_raise(f"{name}.shape[{i}] != {size}", f"size {i} of {name} is {size}") for i, size in fixed]
        return tests

    @staticmethod
    def is_known(target: Any, known: set[str]) -> bool:
        """Whether a public function of a known name does what an operation does."""
        if not isinstance(target, torch._ops.OpOverload):
            return True
        name = _public(target)
        return name in _SPECIAL or any(f"{place}.{name}" in known for place in _NAMESPACES)

    def _is_check(self, node: fx.Node) -> bool:
        name = node.target._schema.name if isinstance(node.target, torch._ops.OpOverload) else ""
        return name.partition("::")[2].startswith(_CHECKS) and not node.users

    def _expression(self, node: fx.Node) -> str:
        target = node.target
        if target in _INFIX:
            left, right = map(self._value, node.args)
            return f"({left} {_INFIX[target]} {right})"
        if target is operator.getitem:
            return f"{self._value(node.args[0])}[{self._value(node.args[1])}]"
        if target is operator.neg:
            return f"(-{self._value(node.args[0])})"
        if target in _FUNCTIONS:
            return f"{_FUNCTIONS[target]}({', '.join(map(self._value, node.args))})"
        if not isinstance(target, torch._ops.OpOverload):
            raise Refusal(f"the graph calls {target}")
        if target._schema.is_mutable:
            raise Refusal(f"the graph writes in place ({target})")
        name = _public(target)
        if name in _SPECIAL:
            return _SPECIAL[name](self, node)
        return self._call(name, node)

    def _call(self, name: str, node: fx.Node) -> str:
        kwargs = {k: v for k, v in node.kwargs.items() if k not in _PLACES and v is not None}
        parameters = [argument.name for argument in node.target._schema.arguments]
        args = [value for value, parameter in zip(node.args, parameters, strict=False) if parameter not in _PLACES]
        given = [*map(self._value, args), *(f"{k}={self._value(v)}" for k, v in kwargs.items())]
        is_tensor = bool(args) and isinstance(args[0], fx.Node) and isinstance(args[0].meta.get("val"), Tensor)
        if is_tensor and f"torch.Tensor.{name}" in self.known:
            return f"{given[0]}.{name}({', '.join(given[1:])})"
        for place in _NAMESPACES[1:]:
            if f"{place}.{name}" in self.known:
                return f"{place}.{name}({', '.join(given)})"
        raise Refusal(f"no rule for {node.target}")

    def _value(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.names[value.name]
        if isinstance(value, tuple | list):
            items = ", ".join(map(self._value, value))
            return f"({items},)" if isinstance(value, tuple) else f"[{items}]"
        if isinstance(value, torch.dtype):
            return f"torch.{dtype_name(value)}"
        if isinstance(value, float):
            return repr(value) if value == value and abs(value) != float("inf") else f"float('{value}')"
        if value is None or isinstance(value, int | str | bool):
            return repr(value)
        raise Refusal(f"the graph holds {value!r}")

    def _slice(self, node: fx.Node) -> str:
        x, dim, start, end, step = [*node.args, *(0, None, None, 1)[len(node.args) - 1 :]]
        start = "" if start in (None, 0) else self._value(start)
        end = "" if end is None or (isinstance(end, int) and end >= 1 << 62) else self._value(end)
        part = f"{start}:{end}" + (f":{step}" if step != 1 else "")
        return self._indexed(x, dim, part)

    def _select(self, node: fx.Node) -> str:
        x, dim, index = node.args
        return self._indexed(x, dim, self._value(index))

    def _indexed(self, x: fx.Node, dim: int, part: str) -> str:
        dim %= x.meta["val"].dim()
        return f"{self._value(x)}[{', '.join([':'] * dim + [part])}]"

    def _index(self, node: fx.Node) -> str:
        x, indices = cast("tuple[fx.Node, list[Any]]", node.args)
        return f"{self._value(x)}[{', '.join(':' if i is None else self._value(i) for i in indices)}]"

    def _size(self, node: fx.Node) -> str:
        return f"{self._value(node.args[0])}.shape[{node.args[1]}]"

    def _same(self, node: fx.Node) -> str:
        return self._value(node.args[0])

    def _embedding(self, node: fx.Node) -> str:
        weight, ids = node.args[:2]
        return f"torch.nn.functional.embedding({self._value(ids)}, {self._value(weight)})"

    def _scalar(self, node: fx.Node) -> str:
        return f"torch.tensor({self._value(node.args[0])})"


_SPECIAL = {
    "slice": GraphText._slice,
    "select": GraphText._select,
    "index": GraphText._index,
    "sym_size": GraphText._size,
    "embedding": GraphText._embedding,
    "dropout": GraphText._same,
    "clone": GraphText._same,
    "detach": GraphText._same,
    "alias": GraphText._same,
    "contiguous": GraphText._same,
    "lift_fresh_copy": GraphText._same,
    "scalar_tensor": GraphText._scalar,
}


def _public(target: Any) -> str:
    name = target._schema.name.partition("::")[2]
    return _RENAMED.get(name, name)


def _about(value: Any) -> dict[str, Any] | None:
    if isinstance(value, Tensor):
        return {"kinds": ["tensor"], "dtypes": [dtype_name(value.dtype)], "ndims": [value.dim()]}
    if isinstance(value, bool):
        return {"kinds": ["bool"]}
    if isinstance(value, int | torch.SymInt):
        return {"kinds": ["int"]}
    return None


def _absent(given: Mapping[str, Any]) -> list[str]:
    """Tests that arguments which are no tensors are what they were."""
    tests = []
    for name, value in given.items():
        if not isinstance(value, bool | int | float | str | None):
            leaves = pytree.tree_leaves(value)
            if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
                raise Refusal(f"its argument {name} is a {type(value).__name__}")
            continue
        test = f"{name} is not None" if value is None else f"{name} != {value!r}"
        tests.append(_raise(test, f"{name} is {value!r}"))
    return tests


def _raise(test: str, text: str) -> str:
    return f"if {test}: raise ValueError({f'traced where {text}; convert this part to run it otherwise'!r})"
