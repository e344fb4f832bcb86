"""In which dtype a module computes what is sensitive to rounding: roots, exponentials, logarithms, trigonometry.

A dropped upcast inside a module (a norm, a softmax) leaves the dtypes at the module's boundary as they were, and is
lost in the rounding of a bfloat16 run. It shows in the dtype of the operation itself.
"""

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.extend.core import jaxprs_in_params

from maxcode.evaluator.capture import watching
from maxcode.evaluator.package import accepted, named_outputs, split_static, to_jax

# Primitive -> family. The oracle's `operations` use the same families for torch's functions.
FAMILIES = {
    "rsqrt": "root", "sqrt": "root", "exp": "exp", "exp2": "exp", "logistic": "exp", "log": "log", "log1p": "log",
    "cos": "trigonometry", "sin": "trigonometry", "tanh": "tanh", "erf": "erf", "erfc": "erf",
}  # fmt: skip
_SCOPE = re.compile(r"module:([\w.]*)")

Operations = dict[str, dict[str, set[str]]]  # fqn -> family -> dtypes


def operation_dtypes(model: nnx.Module, inputs: dict[str, Any]) -> Operations:
    """Dtypes by module (its own operations, not those of modules inside it) and family; nothing is computed.

    `model` must be unscanned, so that every layer is traced under its own name.
    """
    graph, state = nnx.split(model)
    traced, static = split_static(accepted(model, inputs))

    def forward(state, traced):
        merged = nnx.merge(graph, state)
        with watching(merged, lambda *call: None, lambda fqn: jax.named_scope(f"module:{fqn}")):
            return named_outputs(merged(**traced, **static))

    found: Operations = {}
    program = jax.make_jaxpr(forward)(state, to_jax(traced))
    for scope, primitive, dtype in _equations(program.jaxpr, ""):
        if (family := FAMILIES.get(primitive)) and scope is not None:
            found.setdefault(scope, {}).setdefault(family, set()).add(dtype)
    return found


def _equations(jaxpr: Any, outer: str) -> Iterator[tuple[str | None, str, str]]:
    """(innermost module, primitive, dtype of the result) of every equation, inner programs included."""
    for equation in jaxpr.eqns:
        stack = f"{outer}/{equation.source_info.name_stack}"
        scopes = _SCOPE.findall(stack)
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner, stack)
        if equation.outvars:
            yield scopes[-1] if scopes else None, equation.primitive.name, str(equation.outvars[0].aval.dtype)


def narrower(ours: Operations, source: dict[str, dict[str, list[str]]]) -> list[str]:
    """Families that a module computes in a narrower dtype than the source does.

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
    return jnp.finfo(dtype).bits
