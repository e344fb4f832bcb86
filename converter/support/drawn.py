"""Layers that draw in training: leaky slopes, and the places of pooling windows (Graham 2014)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from .module import Module
from .pool import per_axis
from .random import next_key


def rrelu(x: Array, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Array:
    """x where positive, else x times a slope: drawn uniformly from [lower, upper] in training, else their mean."""
    slope: Any = (lower + upper) / 2
    if training:
        slope = jax.random.uniform(next_key(), x.shape, x.dtype, lower, upper)
    return jnp.where(x > 0, x, slope * x)


class RReLU(Module):
    """Leaky rectifier with random slopes in training."""

    def __init__(
        self,
        lower: float = 1 / 8,
        upper: float = 1 / 3,
        inplace: bool = False,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.lower, self.upper = lower, upper

    def __call__(self, input: Array) -> Array:
        """Rectify; shape and dtype stay."""
        return rrelu(input, self.lower, self.upper, self.training)


def window_starts(size: int, kernel: int, count: int, draws: Array) -> Array:
    """First places of `count` windows of length `kernel` on an axis, for uniform draws [...]: [..., count].

    The spacing is alpha = (size - kernel) / (count - 1); window i starts at floor((i + u) alpha) - floor(u alpha), and
    the last one at the end.
    """
    last = jnp.full((*draws.shape, 1), size - kernel)
    if count == 1:
        return last
    alpha = (size - kernel) / (count - 1)
    inner = ((jnp.arange(count - 1) + draws[..., None]) * alpha).astype(int) - (draws[..., None] * alpha).astype(int)
    return jnp.concatenate([inner, last], -1)


def fractional_max(
    input: Array, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Array | None, spatial: int
) -> tuple[Array, Array]:
    """Maxima of [n, c, *spatial] (or without n) in drawn windows, and their flat positions in the spatial axes.

    `samples` [n, c, spatial], uniform in [0, 1), are drawn when None.
    """
    sizes, kernel = input.shape[-spatial:], per_axis(kernel_size, spatial)
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, tuple | list) else (output_ratio,) * spatial
        output_size = [int(size * ratio) for size, ratio in zip(sizes, ratios, strict=True)]
    found = per_axis(output_size, spatial)
    batched = input if input.ndim == spatial + 2 else input[None]
    outer = batched.shape[:2]
    if samples is None:
        samples = jax.random.uniform(next_key(), (*outer, spatial), input.dtype)
    position = jnp.zeros((*outer, *(1,) * (2 * spatial)), int)
    for axis in range(spatial):  # axes of `position`: n, c, windows by axis, places in a window by axis
        # Of two draws the second belongs to the first axis; of three each to its own.
        draws = samples[..., 1 - axis if spatial == 2 else axis]
        places = window_starts(sizes[axis], kernel[axis], found[axis], draws)[..., None] + jnp.arange(kernel[axis])
        shape = [1] * (2 * spatial)
        shape[axis], shape[spatial + axis] = found[axis], kernel[axis]
        position = position * sizes[axis] + places.reshape(*outer, *shape)
    position = position.reshape(*outer, *found, math.prod(kernel))
    flat = batched.reshape(*outer, math.prod(sizes))
    entries = jnp.take_along_axis(flat, position.reshape(*outer, math.prod(position.shape[2:])), -1)
    entries = entries.reshape(position.shape)
    best = jnp.argmax(entries, -1)[..., None]
    values, indices = (jnp.take_along_axis(x, best, -1)[..., 0] for x in (entries, position))
    return (values, indices) if batched is input else (values[0], indices[0])


class _FractionalMaxPool(Module):
    spatial: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices = return_indices
        if _random_samples is not None:
            self._random_samples = nnx.Variable(_random_samples)

    def __call__(self, input: Array) -> Any:
        """Pool the spatial axes; with `return_indices` also where the maxima stand."""
        samples = vars(self)["_random_samples"][...] if "_random_samples" in vars(self) else None
        found = fractional_max(input, self.kernel_size, self.output_size, self.output_ratio, samples, self.spatial)
        return found if self.return_indices else found[0]


class FractionalMaxPool2d(_FractionalMaxPool):
    """Maximum over drawn windows of [n, c, h, w]."""

    spatial = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Maximum over drawn windows of [n, c, d, h, w]."""

    spatial = 3
