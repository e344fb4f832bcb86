"""The arguments of a call as syntax: bound to a rule's signature, and asked what is known of them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxcode.converter.facts import MISSING, Fact

Node = ast.expr | list[ast.expr] | None

# Names that torch accepts beside its own.
_ALIASES = {"axis": "dim", "axes": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other"}
DTYPE_NAMES = frozenset(
    {"float", "double", "half", "int", "long", "short", "bool", "cfloat", "cdouble"}
    | {"float16", "float32", "float64", "bfloat16", "complex64", "complex128", "bool_"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"}
)


class Unbindable(TypeError):  # noqa: N818 - says what the call is, not that we erred
    """The call's arguments do not fit the rule's signature."""


@dataclass(frozen=True)
class Bound:
    """Arguments by parameter: `given` holds syntax (a list for `*parameter`), `defaults` the values of omitted ones."""

    signature: inspect.Signature
    given: Mapping[str, ast.expr | list[ast.expr]]
    defaults: Mapping[str, Any]

    def satisfies(self, predicate: Callable[..., bool]) -> bool:
        """Call `predicate` with the arguments that it names; omitted ones are None."""
        return bool(predicate(**{name: self.given.get(name) for name in inspect.signature(predicate).parameters}))


def bind(signature: inspect.Signature, args: Sequence[ast.expr], keywords: Mapping[str, ast.expr]) -> Bound:
    """Bind a call to a signature. Raises Unbindable, also for a starred argument that would fill named parameters."""
    parameters = signature.parameters
    keywords = {_own_name(name, parameters): value for name, value in keywords.items()}
    variadic = next((p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL), None)
    spelled_out = {variadic: [keywords.pop(variadic)]} if variadic in keywords else {}
    try:
        arguments = dict(signature.bind(*args, **keywords).arguments)
    except TypeError as error:
        raise Unbindable(str(error)) from None
    for name, value in arguments.items():
        if isinstance(value, tuple):
            arguments[name] = list(value)
        elif isinstance(value, ast.Starred):
            raise Unbindable(f"a starred argument would fill {name!r}")
    arguments |= spelled_out
    arguments = {name: _axes_as_tuple(value) if name in ("dim", "dims") else value for name, value in arguments.items()}
    defaults = {
        p.name: p.default for p in parameters.values() if p.name not in arguments and p.kind is not p.VAR_POSITIONAL
    }
    if variadic is not None:
        arguments.setdefault(variadic, [])
    return Bound(signature, arguments, defaults)


def fact(node: Node) -> Fact:
    """Return what is known of an expression, the unknown fact when nothing is."""
    return getattr(node, "fact", None) or Fact()


def literal(node: Node) -> Any:
    """Return the value of a constant expression (numbers, strings, None, tuples of them), else MISSING.

    A value that merely was the same in every recorded run is not constant.
    """
    if not isinstance(node, ast.expr):
        return MISSING
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return MISSING


def is_omitted(node: Node) -> bool:
    """Whether the argument was left out or is the constant None."""
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def is_true(node: Node) -> bool:
    """Whether the argument is anything but omitted or a constant that is false."""
    return node is not None and literal(node) not in (None, False, 0)


def is_tensor(node: Node) -> bool:
    """Whether every run saw a tensor."""
    return fact(node).is_tensor


def is_int(node: Node) -> bool:
    """Whether the argument is an integer (not a bool)."""
    value = literal(node)
    return fact(node).kind == "int" or (isinstance(value, int) and not isinstance(value, bool))


def is_number(node: Node) -> bool:
    """Whether the argument is a Python number."""
    return fact(node).kind in ("int", "float", "bool") or isinstance(literal(node), int | float)


def is_string(node: Node) -> bool:
    """Whether the argument is a string."""
    return fact(node).kind == "str" or isinstance(literal(node), str)


def is_sequence(node: Node) -> bool:
    """Whether the argument is a tuple or list."""
    return fact(node).kind in ("tuple", "list") or isinstance(node, ast.Tuple | ast.List)


def is_dtype(node: Node) -> bool:
    """Whether the argument is a dtype, by fact or spelling (`torch.float32`, `jnp.int8`, `float32`, `x.dtype`)."""
    if fact(node).kind != "unknown":
        return fact(node).kind == "dtype"
    if isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else None
        return node.attr == "dtype" or (owner in ("torch", "jnp") and node.attr in DTYPE_NAMES)
    return isinstance(node, ast.Name) and node.id in ("float32", "int", "float", "bool", "complex")


def is_device(node: Node) -> bool:
    """Whether the argument is a device: by fact, or by its spelling (`x.device`, "cuda:0")."""
    if fact(node).kind not in ("unknown", "str"):
        return fact(node).kind == "device"
    if isinstance(node, ast.Attribute):
        return node.attr == "device"
    value = literal(node)
    return isinstance(value, str) and value.split(":")[0] in ("cpu", "cuda", "meta", "mps", "xpu", "tpu")


def ndim(node: Node) -> int | None:
    """Return the rank that every run saw, else None."""
    return fact(node).ndim


def dtype_name(node: Node) -> str | None:
    """Return the torch dtype name (of a tensor, or named by a dtype expression) that every run saw, else None."""
    if fact(node).dtype is not None:
        return fact(node).dtype
    if isinstance(node, ast.Attribute) and node.attr in DTYPE_NAMES:
        return node.attr
    return node.id if isinstance(node, ast.Name) and node.id == "float32" else None


def is_floating(node: Node) -> bool:
    """Whether every run saw a floating-point tensor."""
    names = fact(node).dtypes
    return bool(names) and all(name.startswith(("float", "bfloat")) for name in names)


def is_integral(node: Node) -> bool:
    """Whether every run saw an integer or boolean tensor."""
    names = fact(node).dtypes
    return bool(names) and all(name.startswith(("int", "uint", "bool")) for name in names)


def _own_name(name: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    return _ALIASES.get(name, name) if name not in parameters and _ALIASES.get(name) in parameters else name


def _axes_as_tuple(value: Any) -> Any:
    """Axes as JAX takes them: a tuple, never a list."""
    if isinstance(value, ast.List):
        axes = ast.Tuple(value.elts, ast.Load())
    elif isinstance(value, ast.expr) and fact(value).kind == "list":
        axes = ast.Call(ast.Name("tuple", ast.Load()), [value], [])
    else:
        return value
    axes.fact = fact(value)
    return axes
