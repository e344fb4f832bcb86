"""Rules that divide by past gradients: torch's Adamax, NAdam, RAdam, RMSprop, Adagrad and Adadelta.

Where eps stands, how biases are corrected and when weight decay acts is torch's own, and differs from optax's.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .optim_rules import averaged, complement, decayed, power, rule, scaled, squared, zeros


def adamax(
    lr: Any = 2e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0, *,
    maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.Adamax (Kingma and Ba 2015, section 7.1): eps is added to |g| before the maximum."""

    def update(grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, betas: Any, eps: Any, weight_decay: Any):
        grads = decayed(grads, params, weight_decay)
        mean = averaged(moments["mean"], grads, betas[0])
        largest = jax.tree.map(lambda u, g: jnp.maximum(betas[1] * u, jnp.abs(g) + eps), moments["largest"], grads)
        rate = lr / complement(betas[0], step)
        updates = jax.tree.map(lambda m, u: -rate.astype(m.dtype) * m / u, mean, largest)
        return updates, {"mean": mean, "largest": largest}

    hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    return rule(lambda params, **_: {"mean": zeros(params), "largest": zeros(params)}, update, **hyper)


def nadam(
    lr: Any = 2e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0,
    momentum_decay: Any = 4e-3, decoupled_weight_decay: bool = False, *, maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.NAdam (Dozat 2016), with the schedule of the momentum that `momentum_decay` sets."""

    def update(
        grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, betas: Any, eps: Any, weight_decay: Any,
        momentum_decay: Any, decoupled_weight_decay: bool,
    ):  # fmt: skip
        if not decoupled_weight_decay:
            grads = decayed(grads, params, weight_decay)
        now, following = [betas[0] * (1 - 0.5 * 0.96 ** (n * momentum_decay)) for n in (step, step + 1)]
        product = moments["product"] * now
        mean = averaged(moments["mean"], grads, betas[0])
        square = averaged(moments["square"], squared(grads), betas[1])
        own, past = lr * (1 - now) / (1 - product), lr * following / (1 - product * following)

        def change(g: Any, m: Any, v: Any) -> Any:
            bottom = jnp.sqrt(v / complement(betas[1], step).astype(v.dtype)) + eps
            return -(own.astype(g.dtype) * g + past.astype(g.dtype) * m) / bottom

        updates = jax.tree.map(change, grads, mean, square)
        updates = scaled(updates, params, lr * weight_decay) if decoupled_weight_decay else updates
        return updates, {"mean": mean, "square": square, "product": product}

    def start(params: Any, **_: Any) -> dict[str, Any]:
        return {"mean": zeros(params), "square": zeros(params), "product": jnp.ones((), jnp.result_type(float))}

    hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    return rule(start, update, **hyper, momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay)


def radam(
    lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0,
    decoupled_weight_decay: bool = False, *, maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.RAdam (Liu et al. 2020): the adaptive rate acts once its variance is small, rho above 5."""

    def update(
        grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, betas: Any, eps: Any, weight_decay: Any,
        decoupled_weight_decay: bool,
    ):  # fmt: skip
        if not decoupled_weight_decay:
            grads = decayed(grads, params, weight_decay)
        mean = averaged(moments["mean"], grads, betas[0])
        square = averaged(moments["square"], squared(grads), betas[1])
        corrected = complement(betas[1], step)
        limit = 2 / (1 - betas[1]) - 1
        rho = limit - 2 * step * power(betas[1], step) / corrected
        inner = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)
        rectified = jnp.sqrt(jnp.where(rho > 5, inner, 1.0)) * jnp.sqrt(corrected)
        rate = lr / complement(betas[0], step)

        def change(m: Any, v: Any) -> Any:
            adaptive = rectified.astype(v.dtype) / (jnp.sqrt(v) + eps)
            return -rate.astype(m.dtype) * m * jnp.where(rho > 5, adaptive, 1.0)

        updates = jax.tree.map(change, mean, square)
        updates = scaled(updates, params, lr * weight_decay) if decoupled_weight_decay else updates
        return updates, {"mean": mean, "square": square}

    hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    start = {"decoupled_weight_decay": decoupled_weight_decay}
    return rule(lambda params, **_: {"mean": zeros(params), "square": zeros(params)}, update, **hyper, **start)


def rmsprop(
    lr: Any = 1e-2, alpha: Any = 0.99, eps: Any = 1e-8, weight_decay: Any = 0.0, momentum: Any = 0.0,
    centered: bool = False, *, maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.RMSprop: eps is outside the root, and the rate is outside the momentum."""

    def start(params: Any, momentum: Any, centered: bool, **_: Any) -> dict[str, Any]:
        moves = not isinstance(momentum, int | float) or momentum > 0
        names = ["square", *["mean"] * centered, *["buffer"] * moves]
        return {name: zeros(params) for name in names}

    def update(
        grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, alpha: Any, eps: Any, weight_decay: Any,
        momentum: Any, centered: bool,
    ):  # fmt: skip
        grads = decayed(grads, params, weight_decay)
        after = {"square": averaged(moments["square"], squared(grads), alpha)}
        variance = after["square"]
        if centered:
            after["mean"] = averaged(moments["mean"], grads, alpha)
            variance = jax.tree.map(lambda v, m: v - m * m, variance, after["mean"])
        change = jax.tree.map(lambda g, v: g / (jnp.sqrt(v) + eps), grads, variance)
        if "buffer" in moments:
            after["buffer"] = change = jax.tree.map(lambda b, c: momentum * b + c, moments["buffer"], change)
        return jax.tree.map(lambda c: -lr * c, change), after

    hyper = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
    return rule(start, update, **hyper, centered=centered, maximize=maximize)


def adagrad(
    lr: Any = 1e-2, lr_decay: Any = 0.0, weight_decay: Any = 0.0, initial_accumulator_value: float = 0.0,
    eps: Any = 1e-10, *, maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.Adagrad (Duchi et al. 2011), whose rate also falls with `lr_decay`."""

    def start(params: Any, initial_accumulator_value: float, **_: Any) -> dict[str, Any]:
        return {"sum": jax.tree.map(lambda p: jnp.full_like(p, initial_accumulator_value), params)}

    def update(
        grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, lr_decay: Any, weight_decay: Any,
        initial_accumulator_value: float, eps: Any,
    ):  # fmt: skip
        grads = decayed(grads, params, weight_decay)
        rate = lr / (1 + (step - 1) * lr_decay)
        total = jax.tree.map(lambda s, g: s + g * g, moments["sum"], grads)
        updates = jax.tree.map(lambda g, s: -rate.astype(g.dtype) * g / (jnp.sqrt(s) + eps), grads, total)
        return updates, {"sum": total}

    hyper = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize}
    return rule(start, update, **hyper, initial_accumulator_value=initial_accumulator_value)


def adadelta(
    lr: Any = 1.0, rho: Any = 0.9, eps: Any = 1e-6, weight_decay: Any = 0.0, *, maximize: bool = False
) -> optax.GradientTransformationExtraArgs:
    """torch.optim.Adadelta (Zeiler 2012): eps is inside both roots."""

    def update(grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, rho: Any, eps: Any, weight_decay: Any):
        grads = decayed(grads, params, weight_decay)
        square = averaged(moments["square"], squared(grads), rho)
        change = jax.tree.map(
            lambda g, v, d: g * jnp.sqrt(d + eps) / jnp.sqrt(v + eps), grads, square, moments["change"]
        )
        after = {"square": square, "change": averaged(moments["change"], squared(change), rho)}
        return jax.tree.map(lambda c: -lr * c, change), after

    hyper = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
    return rule(lambda params, **_: {"square": zeros(params), "change": zeros(params)}, update, **hyper)
