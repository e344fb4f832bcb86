"""What torch's update rules share: a rule is an optax transformation that takes torch's hyperparameters when it runs.

adamw(lr=1e-3).update(grads, state, params, lr=2e-3)  # this step at another rate
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array


class RuleState(NamedTuple):
    """State of a rule: the number of steps, int32 [], and one tree of arrays per moment."""

    step: Array
    moments: dict[str, Any]


def rule(
    start: Callable[..., dict[str, Any]], update: Callable[..., tuple[Any, dict[str, Any]]], **defaults: Any
) -> optax.GradientTransformationExtraArgs:
    """Make a transformation of `start(params, **hyper) -> moments` and `update(grads, moments, params, step, **hyper)`.

    `step` counts from 1, as torch's formulas do, and is a float; `hyper` are `defaults` overridden by the keywords of
    the call, so numbers may be traced. `update` gives (updates to add, moments).
    """

    def init(params: Any) -> RuleState:
        return RuleState(jnp.zeros((), jnp.int32), start(params, **defaults))

    def apply(grads: Any, state: RuleState, params: Any = None, **hyper: Any) -> tuple[Any, RuleState]:
        values = {**defaults, **hyper}
        if values.pop("maximize", False):
            grads = jax.tree.map(jnp.negative, grads)
        step = state.step + 1
        updates, moments = update(grads, state.moments, params, step.astype(_float()), **values)
        return updates, RuleState(step, moments)

    return optax.GradientTransformationExtraArgs(init, apply)


def _float() -> Any:
    return jnp.promote_types(jnp.float32, jnp.result_type(float))


def zeros(params: Any) -> Any:
    """A tree of zeros like `params`."""
    return jax.tree.map(jnp.zeros_like, params)


def decayed(grads: Any, params: Any, weight_decay: Any) -> Any:
    """Gradients with torch's L2 penalty: g + weight_decay * p."""
    if isinstance(weight_decay, int | float) and weight_decay == 0:
        return grads
    return jax.tree.map(lambda g, p: g + weight_decay * p, grads, params)


def averaged(average: Any, values: Any, decay: Any) -> Any:
    """Exponential moving average: decay * average + (1 - decay) * values."""
    return jax.tree.map(lambda a, v: decay * a + (1 - decay) * v, average, values)


def squared(values: Any) -> Any:
    """Squares, leaf by leaf."""
    return jax.tree.map(jnp.square, values)


def power(base: Any, exponent: Any) -> Any:
    """base ** exponent of a number in (0, 1] and a traced exponent, exact enough for `1 - beta ** step` in float32."""
    return 1 - complement(base, exponent)


def complement(base: Any, exponent: Any) -> Any:
    """1 - base ** exponent, without the loss of digits that the difference has when `base` is close to 1."""
    return -jnp.expm1(exponent * jnp.log(jnp.asarray(base, _float()))) if not _is_zero(base) else jnp.ones(())


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def scaled(updates: Any, params: Any, shrink: Any) -> Any:
    """Updates that also multiply the parameters by `1 - shrink`, as torch's decoupled weight decay does."""
    return jax.tree.map(lambda u, p: u - shrink * p, updates, params)
