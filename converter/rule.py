"""Rules: an executable JAX function per torch name, whose body is what the converter emits.

A body of one `return` is inlined at the call; anything longer (a docstring counts), and anything that would evaluate a
non-trivial argument twice, becomes a call of the helper `ops.<function name>`, whose source travels with the output
(`helpers.py`).
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from maxcode.converter import inline, registry, scalars
from maxcode.converter.arguments import Bound, Unbindable, bind

Function = TypeVar("Function", bound=Callable[..., Any])
Predicate = Callable[..., bool]
OPS_IMPORT = "from . import ops"


DEPENDS_ON_DATA = "depends on data"  # how limits say that a result's shape is not known when a program is compiled


class NoRule(Exception):  # noqa: N818 - the name is fixed in docs/interfaces.md
    """No entry converts this call; `reason` says why, in words for the list of gaps.

    `limit` is the declared limit that the call falls under, None where no entry takes it at all.
    """

    def __init__(self, reason: str, limit: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.limit = limit


@dataclass(frozen=True)
class Applied:
    """A converted call.

    Attributes:
      expr: the JAX expression.
      imports: whole statements that its names need ("import jax", "float32 = jnp.float32", "from . import ops").
      helpers: names that the emitted `ops` module has to define; `helpers.closure` adds what those call in turn.
    """

    expr: ast.expr
    imports: frozenset[str] = frozenset()
    helpers: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Rule:
    """One entry. `limits` maps a reason to the predicate on the bound arguments that makes a call a gap.

    `vectors` names arguments that a call on a 0-d tensor hands over as vectors of one entry (`scalars.py`).
    """

    names: tuple[str, ...]
    function: Callable[..., Any]
    when: Predicate | None = None
    limits: Mapping[str, Predicate] = field(default_factory=dict)
    rtol: float | None = None
    atol: float | None = None
    weights: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    drop_defaults: bool = False
    vectors: tuple[str, ...] = ()

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The torch arguments that the entry takes."""
        return inspect.signature(self.function)

    @functools.cached_property
    def definition(self) -> ast.FunctionDef:
        """The function's syntax tree."""
        return ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]

    @functools.cached_property
    def body(self) -> ast.expr | None:
        """The returned expression when the function is one `return` and nothing else, else None."""
        first, *others = self.definition.body
        return first.value if isinstance(first, ast.Return) and not others else None


def op(
    *names: str,
    when: Predicate | None = None,
    limits: Mapping[str, Predicate] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    vectors: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Register a function as the conversion of the torch functions or Tensor methods `names`.

    The first entry whose signature binds and whose `when` holds is used. `rtol` and `atol` widen its tests' tolerance.
    Where the first of `vectors` is 0-d, those arguments become vectors of one entry and the results 0-d again.
    """

    def register(function: Function) -> Function:
        registry.add_helper(function)
        registry.add(registry.OPS, Rule(names, function, when, limits or {}, rtol, atol, vectors=vectors))
        return function

    return register


def attribute(*names: str, limits: Mapping[str, Predicate] | None = None) -> Callable[[Function], Function]:
    """Register a function of the tensor as the conversion of the attributes `names` ("torch.Tensor.T")."""

    def register(function: Function) -> Function:
        registry.add_helper(function)
        registry.add(registry.ATTRIBUTES, Rule(names, function, None, limits or {}))
        return function

    return register


def module(
    *names: str,
    weights: Mapping[str, tuple[str, str]] | None = None,
    when: Predicate | None = None,
    limits: Mapping[str, Predicate] | None = None,
) -> Callable[[Function], Function]:
    """Register a function with a torch module's constructor arguments that builds its support-library counterpart.

    `weights` maps each torch leaf to (JAX leaf, layout in axis letters); a checkpoint reads the same table.
    """

    def register(function: Function) -> Function:
        rule = Rule(
            names, function, when, limits or {}, weights=MappingProxyType(dict(weights or {})), drop_defaults=True
        )
        registry.add(registry.MODULES, rule)
        return function

    return register


def helper(value: Function) -> Function:
    """Register a function or class that rule bodies call; it is copied into the emitted `ops` module when used."""
    registry.add_helper(value)
    return value


def apply_op(
    name: str, args: Sequence[ast.expr], keywords: Mapping[str, ast.expr], *, concrete: bool = False
) -> Applied:
    """Convert the call `name(*args, **keywords)`; a method's receiver comes first in `args`. Raises NoRule.

    `concrete`: the values that the result's shape depends on are known when the call runs.
    """
    return _apply(registry.entries(registry.OPS, name), name, args, keywords, concrete=concrete)


def apply_method(
    name: str, receiver: ast.expr, args: Sequence[ast.expr], keywords: Mapping[str, ast.expr], *, concrete: bool = False
) -> Applied:
    """Convert `receiver.name(*args, **keywords)` on a tensor. Raises NoRule."""
    return apply_op(f"torch.Tensor.{name}", [receiver, *args], keywords, concrete=concrete)


def apply_attribute(name: str, receiver: ast.expr) -> Applied:
    """Convert reading the attribute with the qualified name `name` ("torch.Tensor.T") of `receiver`. Raises NoRule."""
    return _apply(registry.entries(registry.ATTRIBUTES, name), name, [receiver], {})


def apply_module(name: str, args: Sequence[ast.expr], keywords: Mapping[str, ast.expr]) -> Applied:
    """Convert a module's construction; the caller appends `axes`, `config` and `rngs`. Raises NoRule."""
    return _apply(registry.entries(registry.MODULES, name), name, args, keywords)


def _apply(
    rules: Sequence[Rule],
    name: str,
    args: Sequence[ast.expr],
    keywords: Mapping[str, ast.expr],
    *,
    concrete: bool = False,
) -> Applied:
    misses = []
    for rule in rules:
        try:
            bound = bind(rule.signature, args, keywords)
        except Unbindable as error:
            misses.append(f"{rule.function.__name__}: {error}")
            continue
        if rule.when is not None and not bound.satisfies(rule.when):
            misses.append(f"{rule.function.__name__}: its condition does not hold")
            continue
        _check_limits(rule, name, bound, concrete)
        vector_form = scalars.lifted(bound, rule.vectors)
        return _emit(rule, bound) if vector_form is None else _as_scalars(_emit(rule, vector_form))
    if not rules:
        raise NoRule(f"no rule for {name!r}; add one to converter/rules/")
    raise NoRule(f"no rule for this form of {name!r} ({'; '.join(dict.fromkeys(misses))})")


def _check_limits(rule: Rule, name: str, bound: Bound, concrete: bool) -> None:
    for reason, predicate in rule.limits.items():
        if bound.satisfies(predicate) and not (concrete and DEPENDS_ON_DATA in reason):
            raise NoRule(f"{name}: {reason}", limit=reason)


def _as_scalars(applied: Applied) -> Applied:
    """The results of a call on vectors of one entry, as 0-d arrays."""
    function = ast.Attribute(ast.Name("ops", ast.Load()), scalars.HELPER, ast.Load())
    expr = ast.Call(function, [applied.expr], [])
    return Applied(expr, applied.imports | {OPS_IMPORT}, applied.helpers | {scalars.HELPER})


def _emit(rule: Rule, bound: Bound) -> Applied:
    name = rule.function.__name__
    inlined = inline.inline(rule.function, rule.body, bound, drop_defaults=rule.drop_defaults) if rule.body else None
    if inlined is None:
        return Applied(inline.helper_call(name, bound), frozenset({OPS_IMPORT}), frozenset({name}))
    expr, names = inlined
    return Applied(
        expr, frozenset(names.imports | ({OPS_IMPORT} if names.helpers else set())), frozenset(names.helpers)
    )
