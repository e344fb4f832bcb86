"""Attention as a framework dispatches it: tensors of [batch, length, heads, width], one backend."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import random


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """softmax(q k' * scale + mask) v; the causal mask is aligned to the upper left, a boolean mask keeps where true."""
    if enable_gqa:
        key = jnp.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
        value = jnp.repeat(value, query.shape[-3] // value.shape[-3], axis=-3)
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    if attn_mask is not None:
        scores = jnp.where(attn_mask, scores, -jnp.inf) if attn_mask.dtype == bool else scores + attn_mask
    # A row with nothing to attend to gives 0, not NaN.
    reachable = (scores > -jnp.inf).any(-1, keepdims=True)
    weights = jnp.where(reachable, jax.nn.softmax(jnp.where(reachable, scores, 0), axis=-1), 0)
    return random.dropout(weights, dropout_p) @ value


def dispatch_attention_fn(
    query: Float[Array, "n t h d"],
    key: Float[Array, "n s k d"],
    value: Float[Array, "n s k v"],
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    attention_kwargs: dict[str, Any] | None = None,
) -> Float[Array, "n t h v"]:
    """The framework's native backend: a [batch, keys] mask holds for every head and query.

    Raises:
      TypeError: `attention_kwargs` has entries, which belong to other backends.
    """
    if attention_kwargs:
        raise TypeError(f"attention_kwargs holds {sorted(attention_kwargs)}; the native backend takes none of them")
    if attn_mask is not None and attn_mask.ndim == 2 and attn_mask.shape == (query.shape[0], key.shape[1]):
        attn_mask = attn_mask[:, None, None, :]
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    out = scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return out.swapaxes(1, 2)
