"""Attention masks, under the names and with the arguments of transformers' masking utilities.

Masks are the additive kind: `[batch, 1, queries, keys]` in the inputs' dtype, 0 where a query may look and the dtype's
smallest finite
number elsewhere, or None where the source has none whatever the values. With a cache the keys are its whole buffers.
What the source
decides by looking at values (is anything padded? are several sequences packed?) is computed instead, so that shapes
stay fixed under
`jit`; the masks are equal in value.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .cache import Cache
from .mask_functions import (
    MaskFunction,
    and_masks,
    bidirectional_mask_function,
    blockwise_overlay,
    causal_mask_function,
    chunked_causal_mask_function,
    chunked_overlay,
    find_packed_sequence_indices,
    maybe_pad_block_sequence_ids,
    or_masks,
    packed_sequence_mask_function,
    padding_mask_function,
    sliding_window_bidirectional_mask_function,
    sliding_window_bidirectional_overlay,
    sliding_window_causal_mask_function,
    sliding_window_overlay,
)

__all__ = [
    "and_masks",
    "bidirectional_mask_function",
    "blockwise_overlay",
    "causal_mask_function",
    "chunked_causal_mask_function",
    "chunked_overlay",
    "create_bidirectional_mask",
    "create_bidirectional_sliding_window_mask",
    "create_causal_mask",
    "create_chunked_causal_mask",
    "create_masks_for_generate",
    "create_recurrent_attention_mask",
    "create_sliding_window_causal_mask",
    "find_first_full_attention_index",
    "find_packed_sequence_indices",
    "maybe_pad_block_sequence_ids",
    "or_masks",
    "packed_sequence_mask_function",
    "padding_mask_function",
    "sliding_window_bidirectional_mask_function",
    "sliding_window_bidirectional_overlay",
    "sliding_window_causal_mask_function",
    "sliding_window_overlay",
]


def find_first_full_attention_index(cache: Cache | None) -> int:
    """The first cache layer that holds keys, 0 where there is none."""
    if cache is None:
        return 0
    kinds = zip(cache.is_sliding, cache.is_linear, cache.is_dummy, strict=True)
    return next((i for i, kind in enumerate(kinds) if not any(kind)), 0)


class _Sizes:
    """Lengths and offsets of queries and keys, and the padding mask, as the source's preprocessing finds them."""

    def __init__(self, inputs_embeds, attention_mask, cache, layer_idx, encoder_hidden_states=None):
        self.batch = (inputs_embeds if encoder_hidden_states is None else encoder_hidden_states).shape[0]
        self.dtype = (inputs_embeds if encoder_hidden_states is None else encoder_hidden_states).dtype
        self.q_length, self.q_offset = inputs_embeds.shape[1], 0
        if attention_mask is not None and attention_mask.ndim == 2:
            attention_mask = attention_mask.astype(bool)
        if cache is not None:
            self.q_offset = cache.get_query_offset(layer_idx)
            self.kv_length, _ = cache.get_mask_sizes(self.q_length, layer_idx)
        elif attention_mask is not None:
            self.kv_length = attention_mask.shape[-1]
        else:
            self.kv_length = self.q_length if encoder_hidden_states is None else encoder_hidden_states.shape[1]
        self.padding_mask = attention_mask
        if attention_mask is not None:
            missing = max(self.kv_length - attention_mask.shape[-1], 0)
            self.padding_mask = jnp.pad(attention_mask, ((0, 0), (0, missing)))

    def indices(self) -> tuple[Array, Array, Array, Array]:
        """Batch, head, query and key indices, broadcasting to [batch, 1, queries, keys]."""
        q_idx = jnp.arange(self.q_length) + self.q_offset
        kv_idx = jnp.arange(self.kv_length)
        batch_idx = jnp.arange(self.batch)
        return batch_idx[:, None, None, None], jnp.zeros((1, 1, 1, 1), int), q_idx[:, None], kv_idx

    def additive(self, allowed: Bool[Array, "..."]) -> Float[Array, "b 1 q k"]:
        """0 where allowed, the dtype's lowest number elsewhere."""
        lowest = jnp.finfo(self.dtype).min
        mask = jnp.where(allowed, jnp.zeros((), self.dtype), jnp.asarray(lowest, self.dtype))
        return jnp.broadcast_to(mask, (self.batch, 1, self.q_length, self.kv_length))


def _pointwise(mask_function: MaskFunction) -> MaskFunction:
    """A caller's own mask function, which may be written for single indices only, over index arrays."""

    def over_arrays(*indices):
        indices = jnp.broadcast_arrays(*indices)
        return jax.vmap(mask_function)(*(i.ravel() for i in indices)).reshape(indices[0].shape)

    return over_arrays


def _combine(mask_function, or_mask_function, and_mask_function) -> MaskFunction:
    if or_mask_function is not None:
        mask_function = or_masks(mask_function, _pointwise(or_mask_function))
    if and_mask_function is not None:
        mask_function = and_masks(mask_function, _pointwise(and_mask_function))
    return mask_function


def _remap_packed(mask_function: MaskFunction, position_ids: Array, packed: Array) -> MaskFunction:
    """Let `mask_function` see positions instead of indices, if any row of `packed` holds more than one sequence."""
    several = jnp.any(packed[:, -1] != 0)

    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        rows = jnp.zeros_like(batch_idx) if position_ids.shape[0] == 1 else batch_idx
        q_position = jnp.where(several, position_ids[rows, q_idx], q_idx)
        kv_position = jnp.where(several, position_ids[rows, kv_idx], kv_idx)
        return mask_function(batch_idx, head_idx, q_position, kv_position)

    return inner_mask


def _causal_mask(
    mask_function, sizes, attention_mask, cache, position_ids, or_mask_function, and_mask_function, block_sequence_ids
) -> Float[Array, "b 1 q k"]:
    """The order of the source: deviations, packing, blocks, padding."""
    mask_function = _combine(mask_function, or_mask_function, and_mask_function)
    packed = None
    if position_ids is not None and attention_mask is None and cache is None:
        packed = find_packed_sequence_indices(position_ids)
        mask_function = _remap_packed(mask_function, position_ids, packed)
    if block_sequence_ids is not None:
        blocks = maybe_pad_block_sequence_ids(block_sequence_ids, attention_mask, sizes.kv_length, 0)
        mask_function = or_masks(mask_function, blockwise_overlay(blocks))
    if packed is not None:
        packed = jnp.broadcast_to(packed, (sizes.batch, packed.shape[1])) if packed.shape[0] != 1 else packed
        mask_function = and_masks(mask_function, _packed_rows(packed))
    if sizes.padding_mask is not None:
        mask_function = and_masks(mask_function, padding_mask_function(sizes.padding_mask))
    return sizes.additive(mask_function(*sizes.indices()))


def _packed_rows(packed: Int[Array, "b t"]) -> MaskFunction:
    inner = packed_sequence_mask_function(packed)
    if packed.shape[0] > 1:
        return inner
    return lambda batch_idx, *indices: inner(jnp.zeros_like(batch_idx[:1]), *indices)


def _prepared(attention_mask, cache, layer_idx, dtype) -> Array:
    """A mask that is 4-D already is the caller's; keys of a fixed-size cache that it does not know of are hidden."""
    if cache is None or cache.recording:
        return attention_mask
    missing = cache.get_mask_sizes(1, layer_idx)[0] - attention_mask.shape[-1]
    if missing <= 0:
        return attention_mask
    hidden = False if attention_mask.dtype == bool else jnp.finfo(dtype).min
    return jnp.pad(attention_mask, [(0, 0)] * 3 + [(0, missing)], constant_values=hidden)


def _setting(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    if value is None:
        raise ValueError(f"{type(config).__name__}.{name} is not set, but a mask of that kind was asked for: set it")
    return value


def create_causal_mask(
    config: Any,
    inputs_embeds: Float[Array, "b t e"],
    attention_mask: Array | None,
    cache: Cache | None = None,
    position_ids: Int[Array, "b t"] | None = None,
    or_mask_function: MaskFunction | None = None,
    and_mask_function: MaskFunction | None = None,
    block_sequence_ids: Int[Array, "b s"] | None = None,
    layer_idx: int | None = None,
    allow_is_causal_skip: bool = True,
) -> Float[Array, "b 1 t s"] | None:
    """Each query sees itself and what stands before it; bidirectional where `config.is_causal` is False.

    `attention_mask` is [batch, keys so far] (non-zero: no padding) or 4-D, then used as it is. Without it, without a
    cache and with
    `position_ids`, sequences that are packed into one row do not see each other.
    """
    if not getattr(config, "is_causal", True):
        return create_bidirectional_mask(
            config,
            inputs_embeds,
            attention_mask,
            None,
            cache,
            or_mask_function,
            and_mask_function,
            allow_is_causal_skip,
        )
    layer_idx = find_first_full_attention_index(cache) if layer_idx is None else layer_idx
    if attention_mask is not None and attention_mask.ndim == 4:
        return _prepared(attention_mask, cache, layer_idx, inputs_embeds.dtype)
    sizes = _Sizes(inputs_embeds, attention_mask, cache, layer_idx)
    options = cache, position_ids, or_mask_function, and_mask_function, block_sequence_ids
    return _causal_mask(causal_mask_function, sizes, attention_mask, *options)


def create_sliding_window_causal_mask(
    config: Any,
    inputs_embeds: Float[Array, "b t e"],
    attention_mask: Array | None,
    cache: Cache | None = None,
    position_ids: Int[Array, "b t"] | None = None,
    or_mask_function: MaskFunction | None = None,
    and_mask_function: MaskFunction | None = None,
    block_sequence_ids: Int[Array, "b s"] | None = None,
    layer_idx: int | None = None,
    allow_is_causal_skip: bool = True,
) -> Float[Array, "b 1 t s"] | None:
    """Like `create_causal_mask`, and no further back than `config.sliding_window` positions, its own included."""
    if not getattr(config, "is_causal", True):
        return create_bidirectional_sliding_window_mask(
            config,
            inputs_embeds,
            attention_mask,
            None,
            cache,
            or_mask_function,
            and_mask_function,
            allow_is_causal_skip,
        )
    layer_idx = find_first_full_attention_index(cache) if layer_idx is None else layer_idx
    if attention_mask is not None and attention_mask.ndim == 4:
        return _prepared(attention_mask, cache, layer_idx, inputs_embeds.dtype)
    mask_function = sliding_window_causal_mask_function(_setting(config, "sliding_window"))
    sizes = _Sizes(inputs_embeds, attention_mask, cache, layer_idx)
    options = cache, position_ids, or_mask_function, and_mask_function, block_sequence_ids
    return _causal_mask(mask_function, sizes, attention_mask, *options)


def create_chunked_causal_mask(
    config: Any,
    inputs_embeds: Float[Array, "b t e"],
    attention_mask: Array | None,
    cache: Cache | None = None,
    position_ids: Int[Array, "b t"] | None = None,
    or_mask_function: MaskFunction | None = None,
    and_mask_function: MaskFunction | None = None,
    block_sequence_ids: Int[Array, "b s"] | None = None,
    layer_idx: int | None = None,
    allow_is_causal_skip: bool = True,
) -> Float[Array, "b 1 t s"]:
    """Like `create_causal_mask`, within chunks of `config.attention_chunk_size` counted from the first token after left
    padding.
    """
    layer_idx = find_first_full_attention_index(cache) if layer_idx is None else layer_idx
    if attention_mask is not None and attention_mask.ndim == 4:
        return _prepared(attention_mask, cache, layer_idx, inputs_embeds.dtype)
    sizes = _Sizes(inputs_embeds, attention_mask, cache, layer_idx)
    left_padding = jnp.zeros(sizes.batch, int)
    if attention_mask is not None:
        left_padding = (jnp.cumsum(attention_mask.astype(int), axis=-1) == 0).sum(-1)
    mask_function = chunked_causal_mask_function(_setting(config, "attention_chunk_size"), left_padding)
    options = cache, position_ids, or_mask_function, and_mask_function, block_sequence_ids
    return _causal_mask(mask_function, sizes, attention_mask, *options)


def create_bidirectional_mask(
    config: Any,
    inputs_embeds: Float[Array, "b t e"],
    attention_mask: Array | None,
    encoder_hidden_states: Float[Array, "b s e"] | None = None,
    cache: Cache | None = None,
    or_mask_function: MaskFunction | None = None,
    and_mask_function: MaskFunction | None = None,
    allow_is_bidirectional_skip: bool = True,
    **kwargs,
) -> Float[Array, "b 1 t s"] | None:
    """Each query sees every key that is no padding; None where nothing is hidden at all.

    Keys are those of `encoder_hidden_states` if given (cross attention).
    """
    layer_idx = find_first_full_attention_index(cache)
    if attention_mask is not None and attention_mask.ndim == 4:
        return attention_mask
    sizes = _Sizes(inputs_embeds, attention_mask, cache, layer_idx, encoder_hidden_states)
    plain = or_mask_function is None and and_mask_function is None and allow_is_bidirectional_skip
    if plain and attention_mask is None:
        return None
    return _bidirectional_mask(bidirectional_mask_function, sizes, or_mask_function, and_mask_function)


def create_bidirectional_sliding_window_mask(
    config: Any,
    inputs_embeds: Float[Array, "b t e"],
    attention_mask: Array | None,
    encoder_hidden_states: Float[Array, "b s e"] | None = None,
    cache: Cache | None = None,
    or_mask_function: MaskFunction | None = None,
    and_mask_function: MaskFunction | None = None,
    allow_is_bidirectional_skip: bool = True,
    **kwargs,
) -> Float[Array, "b 1 t s"] | None:
    """Like `create_bidirectional_mask`, and at most `config.sliding_window` positions away on either side."""
    layer_idx = find_first_full_attention_index(cache)
    if attention_mask is not None and attention_mask.ndim == 4:
        return attention_mask
    window = _setting(config, "sliding_window")
    sizes = _Sizes(inputs_embeds, attention_mask, cache, layer_idx, encoder_hidden_states)
    plain = or_mask_function is None and and_mask_function is None and allow_is_bidirectional_skip
    if plain and attention_mask is None and sizes.kv_length < window:
        return None
    mask_function = sliding_window_bidirectional_mask_function(window)
    return _bidirectional_mask(mask_function, sizes, or_mask_function, and_mask_function)


def _bidirectional_mask(mask_function, sizes, or_mask_function, and_mask_function) -> Float[Array, "b 1 q k"]:
    mask_function = _combine(mask_function, or_mask_function, and_mask_function)
    if sizes.padding_mask is not None:
        mask_function = and_masks(mask_function, padding_mask_function(sizes.padding_mask))
    return sizes.additive(mask_function(*sizes.indices()))


def create_recurrent_attention_mask(
    config: Any,
    inputs_embeds: Float[Array, "b t e"],
    attention_mask: Array | None,
    cache: Cache | None = None,
    **kwargs,
) -> Array | None:
    """Which of the tokens at hand are no padding [batch, t], for layers with a recurrent state; None for single tokens.

    A mask as long as the cache's buffers covers later positions too: then the part is taken that starts at the cache's
    length.
    """
    length = inputs_embeds.shape[1]
    if attention_mask is None or attention_mask.ndim != 2 or length == 1:
        return None
    total = attention_mask.shape[1]
    if cache is not None and not cache.recording and total > length and total == cache.get_max_length():
        return jax.lax.dynamic_slice_in_dim(attention_mask, cache.get_seq_length(), length, axis=1)
    return attention_mask[:, total - length :]


_MASK_OF_LAYER_TYPE = {
    "full_attention": {"full_attention": create_causal_mask},
    "sliding_attention": {"sliding_attention": create_sliding_window_causal_mask},
    "chunked_attention": {"chunked_attention": create_chunked_causal_mask},
    "indexed_attention": {"indexed_attention": create_causal_mask},
    "linear_attention": {"linear_attention": create_recurrent_attention_mask},
    "conv": {"conv": create_recurrent_attention_mask},
    "hybrid": {"full_attention": create_causal_mask, "linear_attention": create_recurrent_attention_mask},
    "hybrid_sliding": {"sliding_attention": create_causal_mask, "linear_attention": create_recurrent_attention_mask},
}


def create_masks_for_generate(
    config: Any, inputs_embeds: Array, attention_mask: Array | None, cache: Cache | None, **kwargs
) -> Any:
    """The mask that all layers use, or a dict of those that the layer types of the configuration need.

    Layer types that are not known leave `attention_mask` as it is, as in the source.
    """
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    arguments = {"attention_mask": attention_mask, "cache": cache, **kwargs}
    if hasattr(config, "layer_types"):
        layer_types = sorted(set(config.layer_types))
        if not set(layer_types) <= set(_MASK_OF_LAYER_TYPE):
            return attention_mask
        creators: dict[str, Callable] = {}
        for layer_type in layer_types:
            creators = _MASK_OF_LAYER_TYPE[layer_type] | creators
        return {name: create(config, inputs_embeds, **arguments) for name, create in creators.items()}
    if getattr(config, "sliding_window", None) is not None:
        return create_sliding_window_causal_mask(config, inputs_embeds, **arguments)
    if getattr(config, "attention_chunk_size", None) is not None:
        return create_chunked_causal_mask(config, inputs_embeds, **arguments)
    return create_causal_mask(config, inputs_embeds, **arguments)
