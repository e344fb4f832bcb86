"""torch's own sample inputs, the only place that touches its private test modules, run through a rule's source path."""

from __future__ import annotations

import ast
import functools
import itertools
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from maxcode.converter.facts import Fact
from maxcode.converter.helpers import ops_module
from maxcode.converter.rule import Applied, apply_op
from maxcode.converter.rules.ops.normalization import pairwise_distance

# Functions whose samples hold the first two arguments the other way round.
SWAPPED = ("torch.nn.functional.embedding", "torch.nn.functional.embedding_bag")


@dataclass(frozen=True)
class Call:
    """One call of a torch function on concrete arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def on_torch(self) -> Any:
        """The function's own result."""
        return resolve(self.name)(*self.args, **self.kwargs)

    def __str__(self) -> str:
        shown = [describe(a) for a in self.args] + [f"{k}={describe(v)}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


def describe(value: Any) -> str:
    """A short text of an argument."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return repr(value)


def resolve(name: str) -> Callable[..., Any]:
    """The object behind a dotted torch name."""
    return functools.reduce(getattr, name.split(".")[1:], torch)


@functools.cache
def op_infos() -> dict[str, list[Any]]:
    """torch's OpInfo entries by the public names that they cover (function, functional and method forms)."""
    from torch.testing._internal.common_methods_invocations import op_db

    table: dict[str, list[Any]] = {}
    for info in op_db:
        plain = (
            info.name.replace("nn.functional.", "torch.nn.functional.") if "nn.f" in info.name else f"torch.{info.name}"
        )
        names = {plain} if _exists(plain) else set()
        names |= {f"torch.{alias.name}" for alias in info.aliases if _exists(f"torch.{alias.name}")}
        method = info.method_variant
        if method is not None and _exists(f"torch.Tensor.{info.name}"):
            names.add(f"torch.Tensor.{info.name}")
        if _exists(f"torch.Tensor.{info.name}") and not info.name.startswith("nn."):
            names.add(f"torch.Tensor.{info.name}")
        for name in names:
            table.setdefault(name, []).append(info)
    return table


def calls(name: str, dtype: torch.dtype = torch.float64) -> Iterator[Call]:
    """Yield torch's sample calls of a function, in the first supported dtype of float64, int64 and bool."""
    for info in op_infos().get(name, ()):
        supported = [d for d in (dtype, torch.int64, torch.bool) if d in info.dtypes]
        if not supported:
            continue
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sample in info.sample_inputs("cpu", supported[0], requires_grad=False):
                args = (sample.input, *sample.args)
                yield Call(name, args[1::-1] + args[2:] if name in SWAPPED else args, dict(sample.kwargs))


def module_calls(name: str) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """Yield (constructor options, call arguments) of torch's samples of a layer that plain values configure."""
    from torch.testing._internal.common_modules import module_db

    info = next(info for info in module_db if info.module_cls.__name__ == name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = info.module_inputs_func(info, "cpu", torch.float64, requires_grad=False, training=False)
    for sample in found:
        options = sample.constructor_input.kwargs
        if not any(torch.is_tensor(value) or callable(value) for value in options.values()):
            yield options, (*sample.forward_input.args, *sample.forward_input.kwargs.values())


class Source:
    """Writes a call's arguments as syntax with facts; tensors become names in `values`."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, torch.Tensor] = {}

    def expr(self, value: Any) -> ast.expr:
        """The expression for a value. Raises TypeError for one that source code could not hold."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype):
            return self._dtype(value)
        if isinstance(value, tuple | list | torch.Size):
            node = (ast.List if isinstance(value, list) else ast.Tuple)([self.expr(v) for v in value], ast.Load())
            node.fact = Fact("list" if isinstance(value, list) else "tuple")
            return node
        if isinstance(value, bool | int | float | complex | str | type(None)):
            return (
                ast.parse(repr(value), mode="eval").body
                if value == value and abs_finite(value)
                else self._number(value)
            )
        if isinstance(value, torch.device | torch.layout | torch.memory_format):
            node = ast.Name(f"plain{len(self.values)}", ast.Load())
            node.fact = Fact("device" if isinstance(value, torch.device) else "unknown")
            self.values[node.id] = None
            return node
        if isinstance(value, torch.nn.PairwiseDistance):
            node = ast.Name(f"function{len(self.values)}", ast.Load())
            node.fact = Fact("callable")
            self.values[node.id] = functools.partial(
                pairwise_distance, p=value.norm, eps=value.eps, keepdim=value.keepdim
            )
            return node
        raise TypeError(f"no source form for {type(value).__name__}")

    def _tensor(self, value: torch.Tensor) -> ast.expr:
        node = ast.Name(f"t{len(self.tensors)}", ast.Load())
        dtype = str(value.dtype).removeprefix("torch.")
        node.fact = Fact("tensor", frozenset({dtype}), frozenset({value.ndim}), (tuple(value.shape),))
        self.tensors[node.id] = value
        self.values[node.id] = to_jax(value)
        return node

    def _dtype(self, value: torch.dtype) -> ast.expr:
        node = ast.Name(f"dtype{len(self.values)}", ast.Load())
        node.fact = Fact("dtype", frozenset({str(value).removeprefix("torch.")}))
        self.values[node.id] = jnp.dtype(str(value).removeprefix("torch."))
        return node

    def _number(self, value: float) -> ast.expr:
        node = ast.Name(f"number{len(self.values)}", ast.Load())
        node.fact = Fact("float")
        self.values[node.id] = value
        return node


def abs_finite(value: Any) -> bool:
    """Whether repr(value) is an expression: all but inf and nan."""
    return not isinstance(value, float) or np.isfinite(value)


def to_jax(value: torch.Tensor) -> jax.Array:
    """The same numbers as a JAX array."""
    value = value.detach().resolve_conj().resolve_neg()
    if value.dtype is torch.bfloat16:
        return jnp.asarray(value.float().numpy(), jnp.bfloat16)
    return jnp.asarray(value.numpy())


@dataclass(frozen=True)
class Converted:
    """A call after conversion: its text and a function of the tensors by name."""

    applied: Applied
    text: str
    run: Callable[..., Any]
    source: Source


def convert(call: Call) -> Converted:
    """Send a call through source: expression -> rule -> text -> executable. Raises NoRule."""
    source = Source()
    args = [source.expr(a) for a in call.args]
    keywords = {k: source.expr(v) for k, v in call.kwargs.items()}
    applied = apply_op(call.name, args, keywords)
    text = ast.unparse(applied.expr)
    code = compile(text, call.name, "eval")
    namespace = execute_imports(applied)

    def run(**tensors: jax.Array) -> Any:
        return eval(code, namespace, source.values | tensors)

    return Converted(applied, text, run, source)


@functools.cache
def helper_namespace(helpers: frozenset[str]) -> types.ModuleType:
    """The emitted `ops` module with the given helpers, executed."""
    from maxcode.converter import support

    module = types.ModuleType(f"{support.__name__}.emitted_ops_{len(sys.modules)}")
    module.__package__ = support.__name__
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(ops_module(helpers), "ops.py", "exec"), vars(module))
    return module


def execute_imports(applied: Applied) -> dict[str, Any]:
    """A namespace with what the emitted expression needs, from its own import statements."""
    from maxcode.converter import support

    namespace: dict[str, Any] = {"__package__": support.__name__}
    for statement in sorted(applied.imports, key=lambda s: s.startswith("float32")):
        if statement != "from . import ops":
            exec(statement, namespace)
    if applied.helpers:
        namespace["ops"] = helper_namespace(applied.helpers)
    return namespace


def leaves(value: Any) -> list[Any]:
    """Results of either side as a flat list of numpy arrays and Python values."""
    if isinstance(value, torch.Tensor):
        return [np.asarray(to_jax(value))]
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return list(itertools.chain.from_iterable(map(leaves, value)))
    if isinstance(value, jax.Array | np.generic):
        return [np.asarray(value)]
    return [value]


def differentiable(call: Call) -> bool:
    """Whether torch can take a gradient of the call at its floating-point tensors."""
    return any(isinstance(a, torch.Tensor) and a.is_floating_point() for a in (*call.args, *call.kwargs.values()))


def _exists(name: str) -> bool:
    try:
        resolve(name)
    except AttributeError:
        return False
    return True


__all__ = ["Call", "Converted", "calls", "convert", "differentiable", "leaves", "op_infos", "resolve", "to_jax"]
