"""Embeddings of bags of ids, reduced without keeping the single rows."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from .module import Leaf, Module, compute_dtype, normal, param

MODES = ("sum", "mean", "max")


def embedding_bag(
    input: Int[Array, "..."],
    weight: Float[Array, "rows d"],
    offsets: Int[Array, " bags"] | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Float[Array, "bags d"]:
    """Sum, mean or maximum of the rows of `weight` in each bag of ids [bags, n], or [n] with bags from `offsets` on.

    Ids equal to `padding_idx` do not count; an empty bag gives zeros.

    Raises:
        ValueError: the mode is unknown, offsets are missing or too many, or there are weights in another mode than
          "sum".
    """
    _check_mode(mode)
    if (offsets is None) != (input.ndim == 2):
        raise ValueError(f"embedding_bag: ids of {input.ndim} dimensions; give offsets exactly with 1, none with 2")
    if per_sample_weights is not None and mode != "sum":
        raise ValueError(f"embedding_bag: per_sample_weights need mode='sum', not {mode!r}")
    if offsets is None:
        bags = input.shape[0]
        owner = jnp.repeat(jnp.arange(bags), input.shape[1], total_repeat_length=input.size)
    else:
        starts = offsets[:-1] if include_last_offset else offsets
        bags = starts.shape[0]
        owner = jnp.searchsorted(starts, jnp.arange(input.size), side="right") - 1
    ids = input.reshape(-1)
    if padding_idx is not None:
        owner = jnp.where(ids == padding_idx % weight.shape[0], bags, owner)  # a bag beyond the last: dropped
    rows = weight[ids]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1).astype(rows.dtype)
    return _reduce(rows, owner, bags, mode)


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"embedding_bag: mode is {mode!r}, expected one of {MODES}")


def _reduce(rows: Array, owner: Array, bags: int, mode: str) -> Array:
    count = jax.ops.segment_sum(jnp.ones_like(owner), owner, bags)[:, None]
    if mode == "max":
        highest = jax.ops.segment_max(rows, owner, bags)
        return jnp.where(count > 0, highest, jnp.zeros((), rows.dtype))
    total = jax.ops.segment_sum(rows, owner, bags)
    return total if mode == "sum" else total / jnp.maximum(count, 1).astype(rows.dtype)


class EmbeddingBag(Module):
    """Sum, mean or maximum of the rows of a table [num_embeddings, embedding_dim] that each bag of ids names."""

    weight: Any = Leaf()

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        *,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        if max_norm is not None or scale_grad_by_freq:
            raise NotImplementedError(
                f"EmbeddingBag: max_norm={max_norm!r}, scale_grad_by_freq={scale_grad_by_freq!r}; only None and False "
                "are supported; drop the argument"
            )
        _check_mode(mode)
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.include_last_offset, self.padding_idx = include_last_offset, padding_idx
        self.dtype = compute_dtype(config)
        self.weight = param(normal((num_embeddings, embedding_dim)), axes, config, rngs=rngs)

    def __call__(
        self,
        input: Int[Array, "..."],
        offsets: Int[Array, " bags"] | None = None,
        per_sample_weights: Array | None = None,
    ) -> Array:
        """Reduce ids [bags, n], or ids [n] whose bags start at `offsets`, to [bags, embedding_dim].

        Ids equal to `padding_idx` do not count; an empty bag gives zeros.

        Raises:
            ValueError: offsets are missing or too many, or there are weights in another mode than "sum".
        """
        return embedding_bag(
            input,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )
