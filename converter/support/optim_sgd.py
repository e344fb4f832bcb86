"""SGD with torch's momentum: the first step starts the buffer with the gradient, without dampening."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .optim_rules import decayed, rule, zeros


def sgd(
    lr: Any = 1e-3,
    momentum: Any = 0.0,
    dampening: Any = 0.0,
    weight_decay: Any = 0.0,
    nesterov: bool = False,
    *,
    maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """torch.optim.SGD: b = momentum * b + (1 - dampening) * g, and p - lr * b; `optax.trace` has no dampening."""
    hyper = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
    return rule(_start, _update, **hyper, nesterov=nesterov, maximize=maximize)


def _start(params: Any, momentum: Any, **_: Any) -> dict[str, Any]:
    return {"buffer": zeros(params)} if not isinstance(momentum, int | float) or momentum else {}


def _update(
    grads: Any, moments: dict[str, Any], params: Any, step: Any, *,
    lr: Any, momentum: Any, dampening: Any, weight_decay: Any, nesterov: bool,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    grads = decayed(grads, params, weight_decay)
    if "buffer" not in moments:
        return jax.tree.map(lambda g: -lr * g, grads), moments
    share = jnp.where(step == 1, 1.0, 1 - dampening)
    buffer = jax.tree.map(lambda b, g: momentum * b + share.astype(g.dtype) * g, moments["buffer"], grads)
    ahead = jax.tree.map(lambda g, b: g + momentum * b, grads, buffer) if nesterov else buffer
    return jax.tree.map(lambda u: -lr * u, ahead), {"buffer": buffer}
