"""Clipping of gradients, as torch.nn.utils does it, for trees of arrays inside a compiled step."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def total_norm(gradients: Any, norm_type: float = 2.0) -> Array:
    """Norm of all gradients as one vector: the norm of the norms of the arrays, as in torch; `inf` is the maximum."""
    norms = [jnp.linalg.norm(jnp.ravel(g), ord=norm_type) for g in jax.tree.leaves(gradients)]
    return jnp.linalg.norm(jnp.stack(norms), ord=norm_type) if norms else jnp.zeros(())


def clip_grad_norm(gradients: Any, max_norm: Any, norm_type: Any = 2.0) -> tuple[Any, Array]:
    """Scale gradients so that their norm is at most `max_norm`; gives them and the norm before.

    As torch.nn.utils.clip_grad_norm_: the factor is max_norm / (norm + 1e-6), never above 1.
    """
    norm = total_norm(gradients, math.inf if norm_type in ("inf", math.inf) else float(norm_type))
    factor = jnp.minimum(max_norm / (norm + 1e-6), 1.0)
    return jax.tree.map(lambda g: g * factor.astype(g.dtype), gradients), norm


def clip_grad_value(gradients: Any, clip_value: Any) -> tuple[Any, None]:
    """Limit every entry to [-clip_value, clip_value], as torch.nn.utils.clip_grad_value_."""
    return jax.tree.map(lambda g: jnp.clip(g, -clip_value, clip_value), gradients), None
