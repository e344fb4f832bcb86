"""A call sent through a rule's source path: expression -> rule -> text -> executable."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from maxcode.converter import registry
from maxcode.converter.facts import Fact
from maxcode.converter.helpers import ops_module
from maxcode.converter.rule import Applied, apply_attribute, apply_op
from maxcode.converter.rules.ops.normalization import pairwise_distance
from maxcode.coverage.calls import Call

# Arguments that say where and how memory lies; the converter drops them before a rule sees the call.
PLACEMENT = frozenset({"device", "pin_memory", "non_blocking", "requires_grad", "memory_format", "layout", "generator"})


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
            return ast.parse(repr(value), mode="eval").body if _has_literal(value) else self._named(value, "float")
        if isinstance(value, slice):
            return ast.Call(
                ast.Name("slice", ast.Load()), [self.expr(v) for v in (value.start, value.stop, value.step)], []
            )
        if value is Ellipsis:
            return ast.Constant(value)
        if isinstance(value, torch.device):
            return self._named(None, "device")
        if isinstance(value, torch.layout | torch.memory_format | torch.Generator):
            return self._named(None, "unknown")
        if isinstance(value, torch.nn.PairwiseDistance):
            return self._named(
                functools.partial(pairwise_distance, p=value.norm, eps=value.eps, keepdim=value.keepdim), "callable"
            )
        raise TypeError(f"no source form for {type(value).__name__}")

    def _tensor(self, value: torch.Tensor) -> ast.expr:
        if value.layout is not torch.strided:
            raise TypeError(f"a tensor of layout {value.layout}")
        node = ast.Name(f"t{len(self.tensors)}", ast.Load())
        dtype = str(value.dtype).removeprefix("torch.")
        node.fact = Fact("tensor", frozenset({dtype}), frozenset({value.ndim}), (tuple(value.shape),))
        self.tensors[node.id] = value
        self.values[node.id] = to_jax(value)
        return node

    def _dtype(self, value: torch.dtype) -> ast.expr:
        name = str(value).removeprefix("torch.")
        node = self._named(jnp.dtype(name), "dtype")
        node.fact = Fact("dtype", frozenset({name}))
        return node

    def _named(self, value: Any, kind: str) -> ast.expr:
        node = ast.Name(f"{kind}{len(self.values)}", ast.Load())
        node.fact = Fact(kind)
        self.values[node.id] = value
        return node


def _has_literal(value: Any) -> bool:
    """Whether repr(value) is an expression: all but inf and nan."""
    if isinstance(value, complex):
        return math.isfinite(value.real) and math.isfinite(value.imag)
    return not isinstance(value, float) or math.isfinite(value)


def to_jax(value: torch.Tensor) -> jax.Array:
    """The same numbers as a JAX array, in memory of its own: torch functions may write into theirs."""
    value = value.detach().resolve_conj().resolve_neg()
    if value.dtype is torch.bfloat16:
        return jnp.asarray(value.float().numpy(), jnp.bfloat16)
    return jnp.array(value.numpy(), copy=True)


@dataclass(frozen=True)
class Converted:
    """A call after conversion: its text and a function of the tensors by name."""

    applied: Applied
    text: str
    run: Callable[..., Any]
    source: Source


def convert(call: Call) -> Converted:
    """Send a call through source: expression -> rule -> text -> executable. Raises NoRule, TypeError."""
    source = Source()
    args = [source.expr(a) for a in call.args]
    keywords = {k: source.expr(v) for k, v in call.kwargs.items() if k not in PLACEMENT}
    applied = _apply(call.name, args, keywords)
    text = ast.unparse(applied.expr)
    code = compile(text, call.name, "eval")
    namespace = execute_imports(applied)

    def run(**tensors: jax.Array) -> Any:
        return eval(code, namespace, source.values | tensors)

    return Converted(applied, text, run, source)


def _apply(name: str, args: Sequence[ast.expr], keywords: Mapping[str, ast.expr]) -> Applied:
    if registry.entries(registry.ATTRIBUTES, name):
        return apply_attribute(name, args[0])
    return apply_op(name, args, keywords)


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
