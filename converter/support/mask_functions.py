"""Mask functions: from (batch, head, query, key) indices, arrays that broadcast against each other, to "may look"."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

MaskFunction = Callable[[Any, Any, Any, Any], Any]  # (batch, head, query, key) indices -> may look


def and_masks(*mask_functions: MaskFunction) -> MaskFunction:
    """Where all of them let a query look."""

    def and_mask(batch_idx, head_idx, q_idx, kv_idx):
        result = jnp.ones((), bool)
        for mask_function in mask_functions:
            result = result & mask_function(batch_idx, head_idx, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_functions: MaskFunction) -> MaskFunction:
    """Where any of them lets a query look."""

    def or_mask(batch_idx, head_idx, q_idx, kv_idx):
        result = jnp.zeros((), bool)
        for mask_function in mask_functions:
            result = result | mask_function(batch_idx, head_idx, q_idx, kv_idx)
        return result

    return or_mask


def causal_mask_function(batch_idx, head_idx, q_idx, kv_idx):
    """At itself and what stands before."""
    return kv_idx <= q_idx


def bidirectional_mask_function(batch_idx, head_idx, q_idx, kv_idx):
    """Everywhere."""
    return q_idx >= 0


def sliding_window_overlay(sliding_window: int) -> MaskFunction:
    """At the last `sliding_window` positions (and all later ones)."""
    return lambda batch_idx, head_idx, q_idx, kv_idx: kv_idx > q_idx - sliding_window


def chunked_overlay(chunk_size: int, left_padding: Int[Array, " b"]) -> MaskFunction:
    """Within the same chunk, counted from the first token that is no left padding."""

    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        pad = left_padding[batch_idx]
        return (kv_idx - pad) // chunk_size == (q_idx - pad) // chunk_size

    return inner_mask


def blockwise_overlay(block_sequence_ids: Int[Array, "b s"]) -> MaskFunction:
    """Within the same block; -1 marks positions that belong to none."""

    def inner_mask(batch_idx, head_idx, q_idx, kv_idx):
        q_group, kv_group = block_sequence_ids[batch_idx, q_idx], block_sequence_ids[batch_idx, kv_idx]
        return (q_group == kv_group) & (q_group >= 0)

    return inner_mask


def sliding_window_causal_mask_function(sliding_window: int) -> MaskFunction:
    """At itself and the `sliding_window - 1` positions before."""
    return and_masks(sliding_window_overlay(sliding_window), causal_mask_function)


def sliding_window_bidirectional_overlay(sliding_window: int) -> MaskFunction:
    """At most `sliding_window` positions away, on either side."""
    return lambda batch_idx, head_idx, q_idx, kv_idx: jnp.abs(q_idx - kv_idx) <= sliding_window


def sliding_window_bidirectional_mask_function(sliding_window: int) -> MaskFunction:
    """At most `sliding_window` positions away, on either side."""
    return and_masks(sliding_window_bidirectional_overlay(sliding_window), bidirectional_mask_function)


def chunked_causal_mask_function(chunk_size: int, left_padding: Int[Array, " b"]) -> MaskFunction:
    """At itself and what stands before in the same chunk."""
    return and_masks(chunked_overlay(chunk_size, left_padding), causal_mask_function)


def padding_mask_function(padding_mask: Bool[Array, "b s"]) -> MaskFunction:
    """At keys that are no padding."""
    return lambda batch_idx, head_idx, q_idx, kv_idx: padding_mask[batch_idx, kv_idx]


def packed_sequence_mask_function(packed_sequence_mask: Int[Array, "b s"]) -> MaskFunction:
    """Within the same packed sequence."""
    return lambda b, head_idx, q_idx, kv_idx: packed_sequence_mask[b, q_idx] == packed_sequence_mask[b, kv_idx]


def find_packed_sequence_indices(position_ids: Int[Array, "b t"]) -> Int[Array, "b t"]:
    """The number, per row, of the packed sequence that each token belongs to: one starts wherever positions do not go
    up by 1.
    """
    steps = jnp.diff(position_ids, axis=-1, prepend=position_ids[:, :1] - 1)
    return jnp.cumsum(steps != 1, axis=-1)


def maybe_pad_block_sequence_ids(
    block_sequence_ids: Int[Array, "b s"], attention_mask: Array | None, kv_length: int, kv_offset: int
) -> Int[Array, "b k"]:
    """Block ids for every key: positions past the given ones belong to no block."""
    missing = max(kv_length + kv_offset - block_sequence_ids.shape[-1], 0)
    return jnp.pad(block_sequence_ids, ((0, 0), (0, missing)), constant_values=-1)
