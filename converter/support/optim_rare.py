"""Rules with other ideas of a step: torch's Rprop and averaged SGD, and those that look at whole matrices."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .optim_rules import averaged, decayed, rule, zeros


def rprop(
    lr: Any = 1e-2, etas: tuple[Any, Any] = (0.5, 1.2), step_sizes: tuple[Any, Any] = (1e-6, 50), *,
    maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.Rprop (Riedmiller and Braun 1993): steps of their own size by the sign of the gradient.

    `lr` is the first size alone.
    """

    def start(params: Any, lr: Any, **_: Any) -> dict[str, Any]:
        return {"before": zeros(params), "size": jax.tree.map(lambda p: jnp.full_like(p, lr), params)}

    def update(grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, etas: Any, step_sizes: Any):
        agree = jax.tree.map(lambda g, b: jnp.sign(g * b), grads, moments["before"])

        def resized(size: Any, sign: Any) -> Any:
            factor = jnp.where(sign > 0, etas[1], jnp.where(sign < 0, etas[0], 1.0)).astype(size.dtype)
            return jnp.clip(size * factor, *step_sizes)

        size = jax.tree.map(resized, moments["size"], agree)
        kept = jax.tree.map(lambda g, sign: jnp.where(sign < 0, 0, g), grads, agree)
        return jax.tree.map(lambda g, s: -jnp.sign(g) * s, kept, size), {"before": kept, "size": size}

    return rule(start, update, lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize)


def asgd(
    lr: Any = 1e-2, lambd: Any = 1e-4, alpha: Any = 0.75, t0: Any = 1e6, weight_decay: Any = 0.0, *,
    maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.ASGD (Polyak and Juditsky 1992); the averages are kept in the state under "average"."""

    def start(params: Any, lr: Any, **_: Any) -> dict[str, Any]:
        number = jnp.asarray(lr, jnp.result_type(float))
        return {"average": zeros(params), "eta": number, "mu": jnp.ones_like(number)}

    def update(
        grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, lambd: Any, alpha: Any, t0: Any,
        weight_decay: Any,
    ):  # fmt: skip
        grads, eta, mu = decayed(grads, params, weight_decay), moments["eta"], moments["mu"]
        updates = jax.tree.map(lambda g, p: -(eta * (lambd * p + g)).astype(p.dtype), grads, params)
        average = jax.tree.map(
            lambda a, p, u: jnp.where(mu == 1, p + u, a + (p + u - a) * mu.astype(p.dtype)),
            moments["average"], params, updates,
        )  # fmt: skip
        following = {"eta": (lr / (1 + lambd * lr * step) ** alpha).astype(eta.dtype), "average": average}
        return updates, following | {"mu": (1 / jnp.maximum(1.0, step - t0)).astype(mu.dtype)}

    hyper = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize}
    return rule(start, update, **hyper)


def adafactor(
    lr: Any = 1e-2, beta2_decay: Any = -0.8, eps: tuple[Any, Any] = (None, 1e-3), d: Any = 1.0,
    weight_decay: Any = 0.0, *, maximize: bool = False,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.Adafactor (Shazeer and Stern 2018), second moments of matrices as rows and columns.

    Matrices are factored over their last two axes, so an array must have the source's last two axes there, in either
    order.
    """

    def start(params: Any, **_: Any) -> dict[str, Any]:
        def rows(p: Any) -> Any:
            return jnp.zeros((*p.shape[:-1], 1), p.dtype) if p.ndim > 1 else jnp.zeros_like(p)

        def columns(p: Any) -> Any:
            return jnp.zeros((*p.shape[:-2], 1, p.shape[-1]), p.dtype) if p.ndim > 1 else jnp.zeros((), p.dtype)

        return {"rows": jax.tree.map(rows, params), "columns": jax.tree.map(columns, params)}

    def update(
        grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, beta2_decay: Any, eps: Any, d: Any,
        weight_decay: Any,
    ):  # fmt: skip
        leaves, structure = jax.tree.flatten(params)
        given = zip(*(jax.tree.leaves(t) for t in (grads, moments["rows"], moments["columns"])), strict=True)
        results = [
            _factored(p, *values, step, lr, beta2_decay, eps, d, weight_decay)
            for p, values in zip(leaves, given, strict=True)
        ]
        updates, rows, columns = (jax.tree.unflatten(structure, list(part)) for part in zip(*results, strict=True))
        return updates, {"rows": rows, "columns": columns}

    hyper = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
    return rule(start, update, **hyper, maximize=maximize)


def _factored(
    p: Any, g: Any, rows: Any, columns: Any, step: Any, lr: Any, beta2_decay: Any, eps: Any, d: Any, weight_decay: Any
) -> tuple[Any, Any, Any]:
    """Update, row moments and column moments of one array; the mean over rows normalises, as in torch."""
    small = float(jnp.finfo(p.dtype).eps) if eps[0] is None else eps[0]
    weight = (step**beta2_decay).astype(p.dtype)
    size = jnp.linalg.norm(jnp.ravel(p)) / math.sqrt(p.size)
    alpha = jnp.maximum(eps[1], size) * jnp.minimum(lr, 1 / jnp.sqrt(step)).astype(p.dtype)
    if p.ndim > 1:
        rows = rows + weight * (jnp.mean(g * g, -1, keepdims=True) - rows)
        columns = columns + weight * (jnp.mean(g * g, -2, keepdims=True) - columns)
        variance = rows * columns / jnp.maximum(rows.mean(-2, keepdims=True), small)
    else:
        variance = rows = rows + weight * (g * g - rows)
    change = g / jnp.sqrt(jnp.maximum(variance, small * small))
    bound = jnp.maximum(1.0, jnp.linalg.norm(jnp.ravel(change)) / (math.sqrt(change.size) * d))
    return -(alpha / bound) * change - lr * weight_decay * p, rows, columns


def muon(
    lr: Any = 1e-3, weight_decay: Any = 0.1, momentum: Any = 0.95, nesterov: bool = True,
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: Any = 1e-7, ns_steps: int = 5,
    adjust_lr_fn: str | None = None,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
    """torch.optim.Muon (Jordan et al. 2024) of matrices stored [in, out]: momentum, made orthogonal in bfloat16."""

    def update(
        grads: Any, moments: Any, params: Any, step: Any, *, lr: Any, weight_decay: Any, momentum: Any, nesterov: bool,
        ns_coefficients: Any, eps: Any, ns_steps: int, adjust_lr_fn: str | None,
    ):  # fmt: skip
        buffer = averaged(moments["buffer"], grads, momentum)
        ahead = averaged(buffer, grads, momentum) if nesterov else buffer

        def change(u: Any, p: Any) -> Any:
            inner, outer = p.shape  # torch's matrices are [out, in]
            ratio = {
                None: math.sqrt(max(1, outer / inner)), "original": math.sqrt(max(1, outer / inner)),
                "match_rms_adamw": 0.2 * math.sqrt(max(inner, outer)),
            }[adjust_lr_fn]  # fmt: skip
            turned = _orthogonal(u.T, ns_coefficients, ns_steps, eps).T.astype(p.dtype)
            return -(lr * ratio) * turned - lr * weight_decay * p

        return jax.tree.map(change, ahead, params), {"buffer": buffer}

    hyper = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps}
    more = {"ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
    return rule(lambda params, **_: {"buffer": zeros(params)}, update, **hyper, **more)


def _orthogonal(matrix: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """Newton-Schulz iteration towards the nearest orthogonal matrix, in bfloat16."""
    a, b, c = coefficients
    x = matrix.astype(jnp.bfloat16)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / jnp.maximum(jnp.linalg.norm(x), eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x
