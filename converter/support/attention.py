"""How attention is computed: the source's own function, or one of the backends here with the same signature.

A backend is called as `fn(module, query, key, value, attention_mask, scaling=..., dropout=..., **kwargs)` with `query`
[b, h, t, d], `key`
[b, k, s, d] and `value` [b, k, s, e] (h a multiple of k) and returns (`[b, t, h, e]`, None): weights are not kept. It
understands
`attention_mask` (additive or boolean, 4-D, or None), `position_bias` (added to the scores), `s_aux` (one sink logit per
head) and `softcap`;
anything else that changes the result raises. Scores are accumulated and the softmax is taken in float32 (float64 for
float64 inputs), whatever
the source does, so in bfloat16 a backend may be a rounding more exact than the source.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

AttentionFunction = Callable[..., tuple[Array, Any]]  # the weights, or None

# What models pass along for caches, flash kernels and outputs; it does not change what is computed here.
_IRRELEVANT = frozenset(
    [
        "cache",
        "cache_position",
        "cu_seq_lens_k",
        "cu_seq_lens_q",
        "is_causal",
        "max_length_k",
        "max_length_q",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "sliding_window",
        "use_cache",
    ]
)


def repeat_kv(hidden_states: Float[Array, "b k s d"], n_rep: int) -> Float[Array, "b h s d"]:
    """Every key/value head `n_rep` times in a row: h = k * n_rep."""
    return hidden_states if n_rep == 1 else jnp.repeat(hidden_states, n_rep, axis=1)


def get_attention(config: Any, eager: AttentionFunction) -> AttentionFunction:
    """The attention function that `config.attention` names; "eager" is the source's own, `eager`.

    Raises ValueError for a name that is none of `eager` and the backends of this module.
    """
    name = getattr(config, "attention", "eager")
    if name == "eager":
        return eager
    if name not in BACKENDS:
        raise ValueError(f"config.attention is {name!r}, expected one of {['eager', *BACKENDS]}")
    return BACKENDS[name]


def grouped(
    module: Any,
    query: Float[Array, "b h t d"],
    key: Float[Array, "b k s d"],
    value: Float[Array, "b k s e"],
    attention_mask: Array | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Float[Array, " h"] | None = None,
    position_bias: Array | None = None,
    **kwargs,
) -> tuple[Float[Array, "b t h e"], None]:
    """Query heads that share a key head are computed together: keys and values are never repeated."""
    _refuse(dropout, kwargs)
    heads, kv_heads = query.shape[1], key.shape[1]
    scale: Any = query.shape[-1] ** -0.5 if scaling is None else scaling
    wide = jnp.promote_types(query.dtype, jnp.float32)

    def by_kv_head(x):
        """[., h or 1, ., .] -> [., k or 1, group or 1, ., .]"""
        return x[:, None] if x.shape[1] == 1 else x.reshape(x.shape[0], kv_heads, -1, *x.shape[2:])

    grouped_query = query.reshape(query.shape[0], kv_heads, heads // kv_heads, *query.shape[2:])
    scores = jnp.einsum("bkgtd,bksd->bkgts", grouped_query, key, preferred_element_type=wide) * scale
    if position_bias is not None:
        scores = scores + by_kv_head(position_bias).astype(wide)
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    if attention_mask is not None:
        scores = scores + by_kv_head(_additive(attention_mask, wide))
    sink = None if s_aux is None else s_aux.astype(wide).reshape(1, kv_heads, -1, 1, 1)
    weights = _softmax(scores, sink).astype(value.dtype)
    output = jnp.einsum("bkgts,bksd->btkgd", weights, value)
    return output.reshape(*output.shape[:2], heads, value.shape[-1]), None


def dot_product(
    module: Any,
    query: Float[Array, "b h t d"],
    key: Float[Array, "b k s d"],
    value: Float[Array, "b k s e"],
    attention_mask: Array | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Float[Array, " h"] | None = None,
    position_bias: Array | None = None,
    **kwargs,
) -> tuple[Float[Array, "b t h e"], None]:
    """`jax.nn.dot_product_attention`, which picks a fused kernel where the device has one.

    Sinks become one more key that is all zeros with the sink as its bias, and a value of zeros. Soft caps, and values
    of another width than
    the keys, are beyond it and raise NotImplementedError.
    """
    _refuse(dropout, kwargs)
    if softcap is not None:
        raise NotImplementedError(
            'attention="dot_product" cannot cap scores (softcap was given): use attention="grouped" or "eager"'
        )
    if query.shape[-1] != value.shape[-1]:
        raise NotImplementedError(
            f'attention="dot_product" needs equal head dims, got {query.shape[-1]} and {value.shape[-1]}: use '
            'attention="grouped" or "eager"'
        )
    bias = None if attention_mask is None else _additive(attention_mask, query.dtype)
    if position_bias is not None:
        bias = position_bias.astype(query.dtype) + (0 if bias is None else bias)
    if s_aux is not None:
        key, value, bias = _with_sink(query, key, value, bias, s_aux)
    query, key, value = (x.swapaxes(1, 2) for x in (query, key, value))
    return jax.nn.dot_product_attention(query, key, value, bias=bias, scale=scaling), None


def _with_sink(query, key, value, bias, s_aux):
    """One more position in front, scored by `s_aux` alone and worth nothing."""
    batch, heads, length, _ = query.shape
    sink = jnp.broadcast_to(s_aux.astype(query.dtype)[None, :, None, None], (batch, heads, length, 1))
    full = (batch, heads, length, key.shape[2])
    bias = jnp.broadcast_to(jnp.zeros((), query.dtype) if bias is None else bias, full)
    key, value = (jnp.pad(x, ((0, 0), (0, 0), (1, 0), (0, 0))) for x in (key, value))
    return key, value, jnp.concatenate([sink, bias], axis=-1)


def _softmax(scores: Array, sink: Array | None) -> Array:
    """Softmax over the last axis; a sink takes its share of the sum and is dropped."""
    if sink is None:
        return jax.nn.softmax(scores, axis=-1)
    highest = jax.lax.stop_gradient(jnp.maximum(scores.max(axis=-1, keepdims=True), sink))
    exponentials = jnp.exp(scores - highest)
    return exponentials / (exponentials.sum(axis=-1, keepdims=True) + jnp.exp(sink - highest))


def _additive(mask: Array, dtype: Any) -> Array:
    lowest = jnp.finfo(dtype).min
    if mask.dtype == bool:
        return jnp.where(mask, jnp.zeros((), dtype), jnp.asarray(lowest, dtype))
    # The lowest number of a wider dtype would become -inf in a narrower one.
    return jnp.maximum(mask, jnp.asarray(lowest, dtype).astype(mask.dtype)).astype(dtype)


def _refuse(dropout: float, kwargs: dict[str, Any]) -> None:
    """Raise on what would change the result and is not computed here."""
    if dropout:
        raise NotImplementedError(f'attention has dropout={dropout}: use attention="eager", or set dropout to 0')
    unknown = sorted(name for name, value in kwargs.items() if value is not None and name not in _IRRELEVANT)
    if unknown:
        raise NotImplementedError(f'this attention backend does not know {unknown}: use attention="eager"')


BACKENDS: dict[str, AttentionFunction] = {"dot_product": dot_product, "grouped": grouped}
