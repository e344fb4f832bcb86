"""`gradients`: of the oracle's scalar loss, with respect to every parameter, float64 lifted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.ledger import Row
from maxcode.evaluator.package import cast_floats, named_outputs, split_static, to_jax, value_of, variable
from maxcode.evaluator.recording import Case
from maxcode.evaluator.verdict import Check


def weighted_loss(outputs: dict[str, jax.Array], weights: dict[str, jax.Array]) -> jax.Array:
    """Sum over outputs of mean(output * weight): the scalar that both sides differentiate."""
    if missing := sorted(set(weights) - set(outputs)):
        raise KeyError(f"the loss needs the outputs {missing}, the package gives {sorted(outputs)}")
    return sum((outputs[name] * weight).mean() for name, weight in weights.items())


def loss_function(graph: Any, static: dict[str, Any], weights: dict[str, jax.Array]) -> Callable:
    """`(params, rest, traced inputs) -> (loss, the other state after the call)`."""

    def loss(params, rest, traced):
        model = nnx.merge(graph, params, rest, copy=True)  # `grad` would hand over variables of the trace outside
        total = weighted_loss(named_outputs(model(**traced, **static)), weights)
        return total, nnx.split(model, nnx.Param, ...)[2]

    return loss


@check("gradients", group="x64", cheap=True)
def gradients(context: Context) -> Check:
    """Per parameter max|a-b| / max(max|b|, 1e-6 of the model's largest gradient entry) <= 1e-7; None counts as 0."""
    case = context.scenario("gradients").cases[0]
    context.package.lift()
    model = context.package.build(**context.package.overrides("float64"))
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    traced, static = split_static(model, cast_floats(case.inputs, np.float64))
    weights = {name: jnp.asarray(weight) for name, weight in case.named("loss_weights").items()}
    function = jax.jit(jax.value_and_grad(loss_function(graph, static, weights), has_aux=True))
    (loss, _), grads = function(params, rest, to_jax(traced))
    expected_loss = float(case.array("loss"))
    loss_error = abs(float(loss) - expected_loss) / max(abs(expected_loss), 1e-30)
    found = _gradient_errors(context, case, nnx.merge(graph, grads, rest))
    name = max(found, key=lambda n: found[n])
    context.save_evidence("gradients", found)
    detail = f"{len(found)} parameters, worst {name} {found[name]:.2e}; loss {float(loss):.12g}, error {loss_error:.1e}"
    return Check.of("gradients", found[name], tolerance.GRADIENT, detail, ok=loss_error <= tolerance.GRADIENT)


def _gradient_errors(context: Context, case: Case, gradient_model: nnx.Module) -> dict[str, float]:
    """Error per parameter of the source; where a stored tensor is only a part of one, that part is compared."""
    expected, names = case.named("gradients"), list(case.record["gradients"])
    largest = max((float(np.abs(g).max(initial=0.0)) for g in expected.values()), default=0.0)
    errors: dict[str, float] = {}
    for row in context.package.rows(gradient_model):
        if row.copy:
            continue
        leaf = np.asarray(value_of(variable(gradient_model, row.target)), np.float64)
        for name, actual in parameter_values(row, leaf, names):
            wanted = expected.get(name)
            wanted = np.zeros(actual.shape) if wanted is None else wanted.astype(np.float64)
            errors[name] = max(errors.get(name, 0.0), _error(actual, wanted, largest))
    if missing := sorted(set(names) - set(errors)):
        raise KeyError(
            f"weights.json leads from no leaf to the parameters {missing[:10]}; their gradients are unchecked"
        )
    return errors


def parameter_values(row: Row, leaf: np.ndarray, names: list[str]) -> list[tuple[str, np.ndarray]]:
    """Values by source parameter. A checkpoint may store a parameter in several tensors (one per expert): then the
    leaf is the parameter itself, by the leaf's own name."""
    if not set(row.sources()) <= set(names):
        return [(row.target, leaf)] if row.target in names else []
    pieces = list(row.pieces(leaf))
    if all(piece.part is None for piece in pieces):
        return [(piece.source, piece.value) for piece in pieces]
    return [(row.target, leaf)] if row.target in names else []


def _error(actual: np.ndarray, wanted: np.ndarray, largest: float) -> float:
    if actual.shape != wanted.shape:
        return float("inf")
    peak = max(float(np.abs(wanted).max(initial=0.0)), tolerance.GRADIENT_FLOOR * largest, 1e-300)
    gap = np.abs(actual - wanted)
    return float("inf") if np.isnan(gap).any() else float(gap.max(initial=0.0)) / peak
