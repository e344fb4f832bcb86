"""In which dtype a module computes what is sensitive to rounding: roots, exponentials, logarithms, trigonometry.

A dropped upcast inside a module (a norm, a softmax) leaves the dtypes at the module's boundary as they were, and is
lost in the rounding of a bfloat16 run. It shows in the dtype of the operation itself; before a product or a sum, which
have no family of their own, in the number of values that the module widens to float32.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.extend.core import jaxprs_in_params

from maxcode.evaluator.capture import watching
from maxcode.evaluator.package import named_outputs, split_static, to_jax, walk

# Primitive -> family. The oracle's `operations` use the same families for torch's functions.
FAMILIES = {
    "rsqrt": "root", "sqrt": "root", "exp": "exp", "exp2": "exp", "logistic": "exp", "log": "log", "log1p": "log",
    "cos": "trigonometry", "sin": "trigonometry", "tanh": "tanh", "erf": "erf", "erfc": "erf",
}  # fmt: skip
_SCOPE = re.compile(r"module:([\w.]*)")

Operations = dict[str, dict[str, set[str]]]  # fqn -> family -> dtypes
Widened = dict[str, Counter[int]]  # fqn -> number of values in an array -> how often such arrays are widened


def traced_operations(model: nnx.Module, inputs: dict[str, Any]) -> tuple[Operations, Widened]:
    """What each module (its own operations, not those of modules inside it) computes in what; nothing is computed.

    `model` must be unscanned, so that every layer is traced under its own name.
    """
    graph, state = nnx.split(model)
    traced, static = split_static(model, inputs)

    def forward(state, traced):
        merged = nnx.merge(graph, state)
        with watching(merged, lambda *call: None, lambda fqn: jax.named_scope(f"module:{fqn}")):
            return named_outputs(merged(**traced, **static))

    found: Operations = {}
    widened: Widened = {}
    program = jax.make_jaxpr(forward)(state, to_jax(traced))
    for scope, equation, times in _equations(program.jaxpr, "", 1):
        if scope is None or not equation.outvars:
            continue
        result = equation.outvars[0].aval
        if family := FAMILIES.get(equation.primitive.name):
            found.setdefault(scope, {}).setdefault(family, set()).add(str(result.dtype))
        if equation.primitive.name == "convert_element_type" and result.dtype == jnp.float32:
            given = equation.invars[0].aval.dtype
            if jnp.issubdtype(given, jnp.floating) and given.itemsize < 4:
                widened.setdefault(scope, Counter())[math.prod(result.shape)] += times
    return found, widened


def _equations(jaxpr: Any, outer: str, times: int) -> Iterator[tuple[str | None, Any, int]]:
    """(innermost module, equation, how often it runs) of every equation, inner programs included."""
    for equation in jaxpr.eqns:
        stack = f"{outer}/{equation.source_info.name_stack}"
        scopes = _SCOPE.findall(stack)
        repeated = times * (equation.params["length"] if equation.primitive.name == "scan" else 1)
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner, stack, repeated)
        yield scopes[-1] if scopes else None, equation, times


def not_widened(ours: Widened, source: dict[str, dict[str, int]], modules: Iterable[str]) -> list[str]:
    """Modules that widen fewer arrays of some size than the source does.

    Args:
      source: number of values (as text) -> how often, by module; those of modules that are no modules here count for
        the one around them.
      modules: names of the modules here.

    Arrays of several sizes may stand together for one: a loop over experts widens a slice at a time, a grouped product
    all rows at once.
    """
    names, wanted = set(modules), {}
    for fqn, sizes in source.items():
        while fqn and fqn not in names:
            fqn = fqn.rpartition(".")[0]
        wanted.setdefault(fqn, Counter()).update({int(size): times for size, times in sizes.items()})
    found = []
    for fqn, sizes in wanted.items():
        mine = ours.get(fqn, Counter())
        missing, spare = sizes - mine, mine - sizes
        together = len(missing) > 1 and _values(spare) >= _values(missing)
        if missing and not together:
            size = max(missing)
            text = f"widens {mine[size]} arrays of {size} values to float32, expected {sizes[size]}"
            found.append(f"{fqn or 'the model'} {text}")
    return found


def _values(sizes: Counter[int]) -> int:
    return sum(size * times for size, times in sizes.items())


def module_names(model: nnx.Module) -> list[str]:
    """Names of the modules that are watched."""
    return [fqn for fqn, _ in walk(model)]


def narrower(ours: Operations, source: dict[str, dict[str, list[str]]]) -> list[str]:
    """Families that a module computes in a narrower dtype than the source does; float64 counts as float32 here.

    With x64 off, as users run, JAX has no float64: tables that a source computes in it are checked by `float32`.
    Wider is no fault here: torch's own kernels compute silu or gelu of bfloat16 in float32 inside. A wide value that
    leaves the module shows at its boundary.
    """
    found = []
    for fqn, families in source.items():
        for family, dtypes in families.items():
            mine, theirs = (sorted(map(_bits, names)) for names in (ours.get(fqn, {}).get(family, ()), dtypes))
            if mine and (mine[0] < theirs[0] or mine[-1] < theirs[-1]):
                names = sorted(ours[fqn][family])
                found.append(f"{fqn or 'the model'} computes {family} in {names}, expected {sorted(dtypes)}")
    return found


def _bits(dtype: str) -> int:
    return min(jnp.finfo(dtype).bits, 32)
