"""Norms over channels of [n, c, *spatial]: batch, group and instance norm, with torch's arguments and statistics."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array

from .module import Buffer, Leaf, Module, compute_dtype, full, param


def _wide(x: Array) -> Array:
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _per_channel(value: Array, ndim: int) -> Array:
    return value.reshape(1, -1, *(1,) * (ndim - 2))


class _ChannelNorm(Module):
    """`scale` and `bias` [c], or None."""

    bias: Any = Leaf()

    def _parameters(self, channels: int, affine: bool, axes: Any, config: Any, bias: bool = True) -> None:
        self.affine, self.dtype = affine, compute_dtype(config)
        self.scale = param(full((channels,), 1.0), axes, config) if affine else None
        self.bias = param(full((channels,), 0.0), axes, config) if affine and bias else None

    @property
    def weight(self) -> Any:
        """The scale, or None."""
        return None if self.scale is None else self.scale[...].astype(self.dtype)

    def _affine(self, y: Array, dtype: Any) -> Array:
        if self.affine:
            y = y * _per_channel(self.weight, y.ndim)
            y = y if self.bias is None else y + _per_channel(self.bias, y.ndim)
        return y.astype(dtype)


class _TrackingNorm(_ChannelNorm):
    """A norm with running statistics: Buffers `running_mean`, `running_var` [c] and `num_batches_tracked`, or None."""

    affine_default, track_default = True, True
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any
    dims: tuple[int, ...]  # accepted numbers of dimensions, batch included

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool | None = None,
        track_running_stats: bool | None = None,
        *,
        bias: bool = True,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        track = self.track_default if track_running_stats is None else track_running_stats
        self.num_features, self.eps, self.momentum, self.track_running_stats = num_features, eps, momentum, track
        self._parameters(num_features, self.affine_default if affine is None else affine, axes, config, bias)
        self.running_mean = Buffer(jnp.zeros(num_features), config=config) if track else None
        self.running_var = Buffer(jnp.ones(num_features), config=config) if track else None
        self.num_batches_tracked = Buffer(jnp.zeros((), int)) if track else None

    def _normalise(self, input: Array, axes: tuple[int, ...]) -> Array:
        """Normalise [n, c, *spatial] over `axes` with the batch's statistics, or the running ones where they count."""
        x = _wide(input)
        if not self.training and self.track_running_stats:
            mean, var = (
                _per_channel(_wide(self.running_mean[...]), x.ndim),
                _per_channel(_wide(self.running_var[...]), x.ndim),
            )
            return self._affine((x - mean) * lax.rsqrt(var + self.eps), input.dtype)
        mean = x.mean(axes, keepdims=True)
        var = jnp.square(x - mean).mean(axes, keepdims=True)
        if self.training and self.track_running_stats:
            self._track(mean, var, math.prod(x.shape[axis] for axis in axes))
        return self._affine((x - mean) * lax.rsqrt(var + self.eps), input.dtype)

    def _track(self, mean: Array, var: Array, count: int) -> None:
        """Move the running statistics towards the batch's (the variance without bias); an empty one only counts."""
        rate = self._rate()
        if count == 0:
            return
        var = var * (count / max(count - 1, 1))
        for buffer, batch in ((self.running_mean, mean), (self.running_var, var)):
            batch = lax.stop_gradient(batch.mean(0).reshape(-1))
            buffer.set_value(((1 - rate) * _wide(buffer[...]) + rate * batch).astype(buffer.dtype))

    def _rate(self) -> Any:
        """Count a batch and return its share in the running statistics (all batches equally, without a momentum)."""
        self.num_batches_tracked.set_value(self.num_batches_tracked[...] + 1)
        return 1 / self.num_batches_tracked[...] if self.momentum is None else self.momentum

    def _check(self, input: Array) -> None:
        if input.ndim not in self.dims:
            raise ValueError(f"{type(self).__name__}: input has {input.ndim} dimensions, expected one of {self.dims}")


class _BatchNorm(_TrackingNorm):
    def __call__(self, input: Array) -> Array:
        """Normalise over everything but the channels; shape and dtype stay."""
        self._check(input)
        axes = (0, *range(2, input.ndim))
        if self.training and math.prod(input.shape[axis] for axis in axes) == 1:
            raise ValueError(
                f"{type(self).__name__}: training needs more than one value per channel, got {input.shape}"
            )
        return self._normalise(input, axes)


class BatchNorm1d(_BatchNorm):
    """Batch norm of [n, c] or [n, c, l]."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of [n, c, h, w]."""

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of [n, c, d, h, w]."""

    dims = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch norm of any number of dimensions; a sharded batch is one batch in JAX, so nothing else is to be done."""

    dims = (2, 3, 4, 5)


class _InstanceNorm(_TrackingNorm):
    affine_default, track_default = False, False

    def _rate(self) -> Any:
        return self.momentum or 0.0  # as in torch: batches are not counted, and no momentum means no update

    def __call__(self, input: Array) -> Array:
        """Normalise every channel of every sample by itself; also without the batch axis."""
        if input.ndim == self.dims[0] - 1:
            return self(input[None])[0]
        self._check(input)
        return self._normalise(input, tuple(range(2, input.ndim)))


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of [n, c, l]."""

    dims = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of [n, c, h, w]."""

    dims = (4,)


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of [n, c, d, h, w]."""

    dims = (5,)


class GroupNorm(_ChannelNorm):
    """Normalises groups of channels of each sample; scale and bias per channel."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        bias: bool = True,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self._parameters(num_channels, affine, axes, config, bias)

    def __call__(self, input: Array) -> Array:
        """Normalise [n, c, *spatial]; shape and dtype stay."""
        x = _wide(input).reshape(input.shape[0], self.num_groups, -1)
        centred = x - x.mean(-1, keepdims=True)
        y = centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + self.eps)
        return self._affine(y.reshape(input.shape), input.dtype)
