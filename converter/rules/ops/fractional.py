"""Maxima over windows whose places are drawn: fractional pooling (Graham 2014)."""

import math

import jax
import jax.numpy as jnp

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.shape import pair
from maxcode.converter.support import random


@helper
def window_starts(size, kernel, count, draws):
    """First places of `count` windows of length `kernel` on an axis, for uniform draws [...]: [..., count].

    The spacing is alpha = (size - kernel) / (count - 1); window i starts at floor((i + u) alpha) - floor(u alpha), and
    the last one at the end.
    """
    if count == 1:
        return jnp.full((*draws.shape, 1), size - kernel)
    alpha = (size - kernel) / (count - 1)
    steps = jnp.arange(count - 1)
    inner = ((steps + draws[..., None]) * alpha).astype(int) - (draws[..., None] * alpha).astype(int)
    return jnp.concatenate([inner, jnp.full((*draws.shape, 1), size - kernel)], -1)


@helper
def fractional_max(input, kernel_size, output_size, output_ratio, samples, spatial):
    """Maxima of [n, c, *spatial] (or without n) in drawn windows, and their flat positions in the spatial axes."""
    sizes, kernel = input.shape[-spatial:], pair(kernel_size, spatial)
    if output_size is None:
        output_size = [int(size * ratio) for size, ratio in zip(sizes, pair(output_ratio, spatial), strict=True)]
    found = pair(output_size, spatial)
    batched = input if input.ndim == spatial + 2 else input[None]
    outer = batched.shape[:2]
    if samples is None:
        samples = jax.random.uniform(random.next_key(), (*outer, spatial), input.dtype)
    position = jnp.zeros((*outer, *(1,) * (2 * spatial)), int)
    for axis in range(spatial):  # axes of `position`: n, c, windows by axis, places in a window by axis
        # Of two draws the second belongs to the first axis; of three each to its own.
        draws = samples[..., 1 - axis if spatial == 2 else axis]
        starts = window_starts(sizes[axis], kernel[axis], found[axis], draws)
        places = starts[..., None] + jnp.arange(kernel[axis])
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


def _wants_indices(return_indices):
    return is_true(return_indices)


@op("torch.nn.functional.fractional_max_pool2d_with_indices")
@op("torch.nn.functional.fractional_max_pool2d", when=_wants_indices)
def fractional_max_pool2d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 2)


@op("torch.nn.functional.fractional_max_pool2d")
def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 2)[0]


@op("torch.nn.functional.fractional_max_pool3d_with_indices")
@op("torch.nn.functional.fractional_max_pool3d", when=_wants_indices)
def fractional_max_pool3d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 3)


@op("torch.nn.functional.fractional_max_pool3d")
def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 3)[0]
