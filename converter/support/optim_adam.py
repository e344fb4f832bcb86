"""Adam and AdamW: optax's moments, torch's order of weight decay and its own AMSGrad."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .optim_rules import averaged, complement, decayed, rule, scaled, squared, zeros


def adam(
    lr: Any = 1e-3,
    betas: tuple[Any, Any] = (0.9, 0.999),
    eps: Any = 1e-8,
    weight_decay: Any = 0.0,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    decoupled_weight_decay: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """torch.optim.Adam (Kingma and Ba 2015); `amsgrad` keeps the largest second moment before its bias correction.

    optax.amsgrad corrects the bias first, and so differs.
    """
    hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
    return rule(_start, _update, **hyper, maximize=maximize, decoupled_weight_decay=decoupled_weight_decay)


def adamw(
    lr: Any = 1e-3,
    betas: tuple[Any, Any] = (0.9, 0.999),
    eps: Any = 1e-8,
    weight_decay: Any = 1e-2,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """torch.optim.AdamW: weight decay scales the parameters by 1 - lr * weight_decay (Loshchilov and Hutter 2019)."""
    return adam(lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)


def _start(params: Any, amsgrad: bool, **_: Any) -> dict[str, Any]:
    moments = {"mean": zeros(params), "square": zeros(params)}
    return moments | ({"largest": zeros(params)} if amsgrad else {})


def _update(
    grads: Any, moments: dict[str, Any], params: Any, step: Any, *,
    lr: Any, betas: tuple[Any, Any], eps: Any, weight_decay: Any, amsgrad: bool, decoupled_weight_decay: bool,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    if not decoupled_weight_decay:
        grads = decayed(grads, params, weight_decay)
    mean, square = averaged(moments["mean"], grads, betas[0]), averaged(moments["square"], squared(grads), betas[1])
    after = {"mean": mean, "square": square}
    if amsgrad:
        after["largest"] = square = jax.tree.map(jnp.maximum, moments["largest"], square)
    rate, root = lr / complement(betas[0], step), jnp.sqrt(complement(betas[1], step))

    def change(m: Any, v: Any) -> Any:
        return -(rate * m / (jnp.sqrt(v) / root + eps)).astype(m.dtype)

    updates = jax.tree.map(change, mean, square)
    return scaled(updates, params, lr * weight_decay) if decoupled_weight_decay else updates, after
