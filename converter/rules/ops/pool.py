"""Pooling over the last one, two or three axes."""

import itertools
import math

import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.shape import pair

_INDICES = {"return_indices is not converted": lambda return_indices: is_true(return_indices)}


@helper
def pool_edges(sizes, window, stride, padding, dilation, ceil_mode):
    """Padding (low, high) per axis; with ceil_mode the last window may pass the end, but must start before it."""
    edges = []
    for size, w, s, p, d in zip(sizes, window, stride, padding, dilation, strict=True):
        reach = d * (w - 1) + 1
        steps = (size + 2 * p - reach) / s
        count = (math.ceil(steps) if ceil_mode else math.floor(steps)) + 1
        if ceil_mode and (count - 1) * s >= size + p:
            count -= 1
        edges.append((p, (count - 1) * s + reach - size - p))
    return edges


@helper
def max_pool(input, spatial, kernel_size, stride, padding, dilation, ceil_mode):
    """Maximum over windows of the last `spatial` axes."""
    window, padding, dilation = pair(kernel_size, spatial), pair(padding, spatial), pair(dilation, spatial)
    stride = pair(stride, spatial) if stride not in (None, []) else window
    edges = pool_edges(input.shape[-spatial:], window, stride, padding, dilation, ceil_mode)
    ones = (1,) * (input.ndim - spatial)
    lowest = -jnp.inf if jnp.issubdtype(input.dtype, jnp.floating) else jnp.iinfo(input.dtype).min
    return lax.reduce_window(
        input, jnp.asarray(lowest, input.dtype), lax.max, (*ones, *window), (*ones, *stride),
        [(0, 0)] * len(ones) + edges, window_dilation=(*ones, *dilation),
    )  # fmt: skip


@helper
def avg_pool(input, spatial, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """Mean over windows of the last `spatial` axes; ceil_mode's overhang never counts."""
    window, padding = pair(kernel_size, spatial), pair(padding, spatial)
    stride = pair(stride, spatial) if stride not in (None, []) else window
    edges = pool_edges(input.shape[-spatial:], window, stride, padding, (1,) * spatial, ceil_mode)
    ones = (1,) * (input.ndim - spatial)
    where = ((*ones, *window), (*ones, *stride), [(0, 0)] * len(ones) + edges)
    total = lax.reduce_window(input, jnp.zeros((), input.dtype), lax.add, *where)
    if divisor_override is not None:
        return total / divisor_override
    counted = jnp.ones((*ones, *input.shape[-spatial:]), input.dtype)
    if count_include_pad:
        inside = [(p, min(p, high)) for p, (_, high) in zip(padding, edges, strict=True)]
        counted = jnp.pad(counted, [(0, 0)] * len(ones) + inside, constant_values=1)
        left = [(0, max(high - p, 0)) for p, (_, high) in zip(padding, edges, strict=True)]
        where = (*where[:2], [(0, 0)] * len(ones) + left)
    return total / lax.reduce_window(counted, jnp.zeros((), input.dtype), lax.add, *where)


@helper
def adaptive_pool(input, spatial, output_size, reduce):
    """`reduce(block, axes)` over a grid of `output_size` nearly equal blocks of the last `spatial` axes."""
    axes = tuple(range(-spatial, 0))
    wanted = pair(output_size, spatial)
    wanted = [size if w is None else w for size, w in zip(input.shape[-spatial:], wanted, strict=True)]
    if all(size % w == 0 for size, w in zip(input.shape[-spatial:], wanted, strict=True)):
        split = [n for size, w in zip(input.shape[-spatial:], wanted, strict=True) for n in (w, size // w)]
        blocks = input.reshape(*input.shape[: input.ndim - spatial], *split)
        return reduce(blocks, tuple(range(-1, -2 * spatial, -2)))
    bounds = [
        [slice(i * size // w, -(-(i + 1) * size // w)) for i in range(w)]
        for size, w in zip(input.shape[-spatial:], wanted, strict=True)
    ]
    cells = [reduce(input[(..., *block)], axes) for block in itertools.product(*bounds)]
    return jnp.stack(cells, axis=-1).reshape(*input.shape[: input.ndim - spatial], *wanted)


@op("torch.nn.functional.max_pool1d", "torch.max_pool1d", limits=_INDICES)
def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return max_pool(input, 1, kernel_size, stride, padding, dilation, ceil_mode)


@op("torch.nn.functional.max_pool2d", "torch.max_pool2d", limits=_INDICES)
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return max_pool(input, 2, kernel_size, stride, padding, dilation, ceil_mode)


@op("torch.nn.functional.max_pool3d", "torch.max_pool3d", limits=_INDICES)
def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return max_pool(input, 3, kernel_size, stride, padding, dilation, ceil_mode)


@op("torch.nn.functional.avg_pool1d", "torch.avg_pool1d")
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    return avg_pool(input, 1, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@op("torch.nn.functional.avg_pool2d")
def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    return avg_pool(input, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("torch.nn.functional.avg_pool3d")
def avg_pool3d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    return avg_pool(input, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("torch.nn.functional.adaptive_avg_pool1d", "torch.adaptive_avg_pool1d")
def adaptive_avg_pool1d(input, output_size):
    return adaptive_pool(input, 1, output_size, jnp.mean)


@op("torch.nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input, output_size):
    return adaptive_pool(input, 2, output_size, jnp.mean)


@op("torch.nn.functional.adaptive_avg_pool3d")
def adaptive_avg_pool3d(input, output_size):
    return adaptive_pool(input, 3, output_size, jnp.mean)


@op("torch.nn.functional.adaptive_max_pool1d", limits=_INDICES)
def adaptive_max_pool1d(input, output_size, return_indices=False):
    return adaptive_pool(input, 1, output_size, jnp.max)


@op("torch.nn.functional.adaptive_max_pool2d", limits=_INDICES)
def adaptive_max_pool2d(input, output_size, return_indices=False):
    return adaptive_pool(input, 2, output_size, jnp.max)


@op("torch.nn.functional.adaptive_max_pool3d", limits=_INDICES)
def adaptive_max_pool3d(input, output_size, return_indices=False):
    return adaptive_pool(input, 3, output_size, jnp.max)
