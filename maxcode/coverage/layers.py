"""A torch module's converted counterpart: built by the rules from the constructor's arguments, its weights copied."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from flax import nnx
from torch.overrides import resolve_name

from maxcode.converter import registry
from maxcode.converter.arguments import Node
from maxcode.converter.facts import Fact
from maxcode.converter.rule import apply_module, apply_op
from maxcode.converter.support import axis_layout
from maxcode.converter.support.leaves import leaf_paths, set_leaf
from maxcode.coverage.running import Source, execute_imports

CONFIG = types.SimpleNamespace(dtype="float64", weight_dtype="float64", matmul_precision="highest")
_MADE_WITH = "_maxcode_made_with"


class Arguments(Source):
    """Constructor arguments as syntax; layers and functions among them become converted ones."""

    def expr(self, value: Any) -> ast.expr:
        """The expression for a value. Raises TypeError, NoRule."""
        if isinstance(value, torch.nn.Module) and _MADE_WITH in vars(value):
            args, kwargs = vars(value)[_MADE_WITH]
            return self._named(build(qualified(type(value)), args, kwargs), "module")
        if inspect.isroutine(value) and resolve_name(value) is not None:
            return self._named(_function(registry.canonical(resolve_name(value))), "callable")
        return super().expr(value)

    def _tensor(self, value: torch.Tensor) -> ast.expr:
        node = super()._tensor(value)
        node.fact = Fact("tensor", node.fact.dtypes, node.fact.ndims, node.fact.shapes)
        return node


def build(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The converted layer of a torch class under its qualified name. Raises NoRule, TypeError."""
    source = Arguments()
    applied = apply_module(name, [source.expr(a) for a in args], {k: source.expr(v) for k, v in kwargs.items()})
    namespace = execute_imports(applied) | source.values
    made = applied.expr
    if not isinstance(made, ast.Call):
        return eval(ast.unparse(made), namespace)
    namespace |= {"config": CONFIG, "rngs": nnx.Rngs(0)}
    accepted = _taken(eval(ast.unparse(made.func), namespace)) & {"config", "rngs"}
    given = {keyword.arg for keyword in made.keywords}
    made.keywords += [ast.keyword(k, ast.Name(k, ast.Load())) for k in sorted(accepted - given)]
    return eval(ast.unparse(made), namespace)


def _taken(made: Any) -> set[str]:
    if isinstance(made, functools.partial):  # it makes partials of a loss: neither parameters nor draws
        return set()
    return set(inspect.signature(made.__init__ if inspect.isclass(made) else made).parameters)


def _function(name: str) -> Callable[..., Any]:
    """A torch function of one argument as its converted form."""
    argument: Node = ast.Name("x", ast.Load())
    applied = apply_op(name, [argument], {})
    return eval(f"lambda x: {ast.unparse(applied.expr)}", execute_imports(applied))


@contextlib.contextmanager
def noted_constructors(classes: list[type[torch.nn.Module]]) -> Iterator[None]:
    """Inside the block, instances of `classes` remember what they were made with."""
    before = {cls: cls.__init__ for cls in classes}

    def noting(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
            self.__dict__.setdefault(_MADE_WITH, (args, kwargs))
            init(self, *args, **kwargs)

        return wrapped

    for cls, init in before.items():
        cls.__init__ = noting(init)
    try:
        yield
    finally:
        for cls, init in before.items():
            cls.__init__ = init


def qualified(cls: type) -> str:
    """A class's name as the rules list it."""
    return registry.canonical(f"{cls.__module__}.{cls.__qualname__}")


def places(module: torch.nn.Module) -> dict[str, tuple[str, str]]:
    """Source tensor -> (leaf of the converted module, layout), by the module rules, as a checkpoint maps them."""
    found = {}
    for prefix, owner in module.named_modules():
        rules = next(
            (registry.weights_of(c) for c in map(qualified, type(owner).__mro__) if registry.has_module(c)), {}
        )
        for name in (*owner._parameters, *owner._buffers):
            leaf, layout = rules.get(name, (name, ""))
            if getattr(owner, name) is not None:
                found[f"{prefix}.{name}".lstrip(".")] = (f"{prefix}.{leaf}".lstrip("."), layout)
    return found


def move(tensor: torch.Tensor, layout: str) -> np.ndarray:
    """A tensor's values in the converted module's layout."""
    return axis_layout.parse_layout(layout).apply(tensor.detach().numpy().copy())


def fill(layer: Any, module: torch.nn.Module) -> None:
    """Give the layer the module's values. Raises ValueError where a leaf is left over on either side."""
    where = places(module)
    state = dict((*module.named_parameters(), *module.named_buffers()))
    for name, (leaf, layout) in where.items():
        if name in state:
            set_leaf(layer, leaf, move(state[name], layout))
    wanted, found = {where[name][0] for name in state}, set(leaf_paths(layer))
    if wanted != found:
        raise ValueError(f"leaves {sorted(found ^ wanted)} are on one side only")
