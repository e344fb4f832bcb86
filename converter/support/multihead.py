"""Multi-head attention as torch's layer computes it, with its weight names, masks and options."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from .layers import Linear, project
from .module import Leaf, Module, compute_dtype, full, matmul_precision, normal, param, uniform
from .random import dropout


class MultiheadAttention(Module):
    """Queries attend to keys by heads. Weights keep torch's layout: `in_proj_weight` [3 * embed_dim, embed_dim].

    Where keys or values have another width, `q_proj_weight`, `k_proj_weight` and `v_proj_weight` stand in its place.
    """

    in_proj_weight: Any = Leaf()
    q_proj_weight: Any = Leaf()
    k_proj_weight: Any = Leaf()
    v_proj_weight: Any = Leaf()
    in_proj_bias: Any = Leaf()
    bias_k: Any = Leaf()
    bias_v: Any = Leaf()

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        if embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: {embed_dim} features do not divide into {num_heads} heads")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self.dtype, self.precision = compute_dtype(config), matmul_precision(config)
        packed = self.kdim == self.vdim == embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if packed else None,
            "q_proj_weight": None if packed else (embed_dim, embed_dim),
            "k_proj_weight": None if packed else (embed_dim, self.kdim),
            "v_proj_weight": None if packed else (embed_dim, self.vdim),
        }
        for name, shape in shapes.items():
            weight = (
                None if shape is None else param(uniform(shape, math.sqrt(6 / sum(shape))), None, config, rngs=rngs)
            )
            setattr(self, name, weight)
        self.in_proj_bias = param(full((3 * embed_dim,), 0.0), None, config) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, config=config, rngs=rngs)
        for name in ("bias_k", "bias_v"):
            start = normal((1, 1, embed_dim), math.sqrt(1 / embed_dim))
            setattr(self, name, param(start, None, config, rngs=rngs) if add_bias_kv else None)

    def __call__(
        self,
        query: Float[Array, "..."],
        key: Float[Array, "..."],
        value: Float[Array, "..."],
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Array, Array | None]:
        """Attend from query [t, n, embed_dim] to key [s, n, kdim] and value [s, n, vdim] (batch_first: n before t, s).

        Masks, boolean (true hides) or added to the scores: `key_padding_mask` [n, s]; `attn_mask` [t, s], or
        [n * heads, t, s]. All also without n. `is_causal` says that `attn_mask` is the causal mask and needs one given.
        A query that sees no key gives zeros, or NaN where weights are wanted, as in torch.

        Returns:
            The output in the query's shape, and the weights [n, t, s] (per head: [n, heads, t, s]) or None.

        Raises:
            ValueError: `is_causal` without a mask, or a mask of another shape.
        """
        parts = Projections(
            self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            add_zero_attn=self.add_zero_attn, separate=(self.q_proj_weight, self.k_proj_weight, self.v_proj_weight),
            precision=self.precision,
        )  # fmt: skip
        rate = self.dropout if self.training else 0.0
        return parts.attend(
            query, key, value, self.out_proj, key_padding_mask, attn_mask, rate=rate, need_weights=need_weights,
            average=average_attn_weights, is_causal=is_causal, batch_first=self.batch_first,
        )  # fmt: skip


@dataclass(frozen=True)
class Projections:
    """What attention is made of beside the output projection; weights in torch's layout.

    `in_proj_weight` [3 * embed_dim, embed_dim], or None and `separate` the three weights of queries, keys and values.
    """

    embed_dim: int
    num_heads: int
    in_proj_weight: Array | None
    in_proj_bias: Array | None
    bias_k: Array | None = None
    bias_v: Array | None = None
    add_zero_attn: bool = False
    separate: tuple[Array | None, ...] = (None, None, None)
    precision: Any = None

    def attend(
        self,
        query: Array,
        key: Array,
        value: Array,
        out_proj: Callable[[Array], Array],
        key_padding_mask: Array | None,
        attn_mask: Array | None,
        *,
        rate: float,
        need_weights: bool = True,
        average: bool = True,
        is_causal: bool = False,
        batch_first: bool = False,
    ) -> tuple[Array, Array | None]:
        """What `MultiheadAttention` says of its call; `rate` is the dropout of the weights."""
        if is_causal and attn_mask is None:
            raise ValueError("MultiheadAttention: is_causal says what attn_mask is; give the mask as well")
        same = query is key and key is value
        batched = query.ndim == 3
        inputs = (query,) * 3 if same else (query, key, value)
        query, key, value = (_batch_first(x, batch_first) for x in inputs)
        q, k, v = self._project(query, None if same else key, value)
        if key_padding_mask is not None and not batched:
            key_padding_mask = key_padding_mask[None]
        causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if causal else self._mask(attn_mask, key_padding_mask, q, k.shape[1])
        k, v, mask = self._extend(k, v, mask)
        if causal:
            mask = jnp.where(jnp.tri(q.shape[1], k.shape[1], dtype=bool), 0.0, -jnp.inf).astype(q.dtype)
        y, weights = attend(*(self._heads(x) for x in (q, k, v)), mask, rate, self.precision, safe=not need_weights)
        y = out_proj(y.swapaxes(1, 2).reshape(q.shape))
        y = y if batch_first or not batched else y.swapaxes(0, 1)
        if not need_weights:
            return (y if batched else y[0]), None
        weights = weights.mean(1) if average else weights
        return (y, weights) if batched else (y[0], weights[0])

    def _project(self, query: Array, key: Array | None, value: Array) -> tuple[Array, ...]:
        """Queries, keys and values [n, t or s, embed_dim]; without a key all are of `query`, in one product."""
        bias = self.in_proj_bias
        if self.in_proj_weight is not None and key is None:
            return tuple(jnp.split(project(query, self.in_proj_weight.T, bias, self.precision), 3, axis=-1))
        if self.in_proj_weight is not None:
            weights = jnp.split(self.in_proj_weight, 3)
        else:
            weights = list(self.separate)
        biases = [None] * 3 if bias is None else jnp.split(bias, 3)
        inputs = (query, query if key is None else key, value)
        return tuple(project(x, w.T, b, self.precision) for x, w, b in zip(inputs, weights, biases, strict=True))

    def _mask(self, attn_mask: Array | None, padding: Array | None, q: Array, keys: int) -> Array | None:
        """The sum of the masks, additive, [n or 1, heads or 1, t or 1, s]; None without any."""
        total = None
        if attn_mask is not None:
            total = additive(attn_mask, q.dtype)
            per_head = (q.shape[0] * self.num_heads, q.shape[1], keys)
            if total.shape == per_head:
                total = total.reshape(q.shape[0], self.num_heads, *per_head[1:])
            elif total.shape == per_head[1:]:
                total = total[None, None]
            else:
                raise ValueError(f"MultiheadAttention: attn_mask {total.shape}, expected {per_head[1:]} or {per_head}")
        if padding is not None:
            if padding.shape != (q.shape[0], keys):
                raise ValueError(f"MultiheadAttention: key_padding_mask {padding.shape}, expected {(q.shape[0], keys)}")
            padding = additive(padding, q.dtype)[:, None, None]
            total = padding if total is None else total + padding
        return total

    def _extend(self, k: Array, v: Array, mask: Array | None) -> tuple[Array, Array, Array | None]:
        """Add the learned key and value, and the zero ones, at the end; every query sees them."""
        extra = []
        if self.bias_k is not None:
            extra.append((self.bias_k, self.bias_v))
        if self.add_zero_attn:
            extra.append((jnp.zeros((1, 1, self.embed_dim), k.dtype),) * 2)
        for more_k, more_v in extra:
            k = jnp.concatenate([k, jnp.broadcast_to(more_k, (k.shape[0], 1, self.embed_dim))], axis=1)
            v = jnp.concatenate([v, jnp.broadcast_to(more_v, (v.shape[0], 1, self.embed_dim))], axis=1)
        if mask is not None and extra:
            mask = jnp.pad(mask, [(0, 0)] * 3 + [(0, len(extra))])
        return k, v, mask

    def _heads(self, x: Array) -> Array:
        return x.reshape(*x.shape[:2], self.num_heads, self.embed_dim // self.num_heads).swapaxes(1, 2)


def multi_head_attention_forward(
    query: Array,
    key: Array,
    value: Array,
    parts: Projections,
    out_proj_weight: Array,
    out_proj_bias: Array | None,
    rate: float,
    **options: Any,
) -> tuple[Array, Array | None]:
    """Attend from inputs [t, n, embed_dim] with weights that the caller holds; `options` are those of `attend`."""
    masks = options.pop("key_padding_mask", None), options.pop("attn_mask", None)

    def out_proj(x: Array) -> Array:
        return project(x, out_proj_weight.T, out_proj_bias)

    return parts.attend(query, key, value, out_proj, *masks, rate=rate, **options)


def _batch_first(x: Array, batch_first: bool) -> Array:
    if x.ndim == 2:
        return x[None]
    return x if batch_first else x.swapaxes(0, 1)


def additive(mask: Array, dtype: Any) -> Array:
    """A mask to add to scores: a boolean one hides where true. Raises TypeError for integers."""
    if mask.dtype == bool:
        return jnp.where(mask, -jnp.inf, 0.0).astype(dtype)
    if not jnp.issubdtype(mask.dtype, jnp.floating):
        raise TypeError(f"attention mask of dtype {mask.dtype}, expected boolean or floating")
    return mask.astype(dtype)


def attend(
    q: Float[Array, "n h t d"],
    k: Float[Array, "n h s d"],
    v: Float[Array, "n h s d"],
    mask: Array | None,
    rate: float,
    precision: Any = None,
    *,
    safe: bool,
) -> tuple[Float[Array, "n h t d"], Float[Array, "n h t s"]]:
    """Softmax attention with an additive mask and dropout of the weights: the output and the weights that made it.

    `safe` is torch's fused form: scores and softmax in at least float32, and zeros for a query that sees no key; else
    such a query gives NaN.
    """
    wide = jnp.promote_types(q.dtype, jnp.float32) if safe else q.dtype
    q = q * jnp.asarray(1 / math.sqrt(q.shape[-1]), q.dtype)
    scores = jnp.einsum("nhtd,nhsd->nhts", q, k, precision=precision, preferred_element_type=wide)
    scores = scores if mask is None else scores + mask.astype(wide)
    if safe and mask is not None:
        blind = (scores == -jnp.inf).all(-1, keepdims=True)
        weights = jnp.where(blind, 0, jax.nn.softmax(jnp.where(blind, 0, scores), axis=-1))
    else:
        weights = jax.nn.softmax(scores, axis=-1)
    weights = dropout(weights.astype(v.dtype), rate, rate > 0)
    return jnp.einsum("nhts,nhsd->nhtd", weights, v, precision=precision), weights
