"""Pooling over the last one, two or three axes, on the support library's."""

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.shape import pair
from maxcode.converter.support import pool


def _wants_indices(return_indices):
    return is_true(return_indices)


@op("torch.nn.functional.max_pool1d", "torch.max_pool1d")
def max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return pool.max_pool(
        input,
        1,
        kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        ceil_mode=ceil_mode,
        return_indices=return_indices,
    )


@op("torch.nn.functional.max_pool2d", "torch.max_pool2d")
def max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return pool.max_pool(
        input,
        2,
        kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        ceil_mode=ceil_mode,
        return_indices=return_indices,
    )


@op("torch.nn.functional.max_pool3d", "torch.max_pool3d")
def max_pool3d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    return pool.max_pool(
        input,
        3,
        kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        ceil_mode=ceil_mode,
        return_indices=return_indices,
    )


@op("torch.nn.functional.max_pool1d_with_indices", "torch.max_pool1d_with_indices")
def max_pool1d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    return pool.max_pool(input, 1, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)


@op("torch.nn.functional.avg_pool1d", "torch.avg_pool1d")
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    return pool.avg_pool(input, 1, kernel_size, stride, padding, ceil_mode, count_include_pad)


@op("torch.nn.functional.max_pool2d_with_indices", "torch.max_pool2d_with_indices")
def max_pool2d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    return pool.max_pool(input, 2, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)


@op("torch.nn.functional.avg_pool2d")
def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    return pool.avg_pool(input, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("torch.nn.functional.max_pool3d_with_indices", "torch.max_pool3d_with_indices")
def max_pool3d_with_indices(
    input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=True
):
    return pool.max_pool(input, 3, kernel_size, stride, padding, dilation, ceil_mode, return_indices=True)


@op("torch.nn.functional.avg_pool3d")
def avg_pool3d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    return pool.avg_pool(input, 3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("torch.nn.functional.adaptive_avg_pool1d", "torch.adaptive_avg_pool1d")
def adaptive_avg_pool1d(input, output_size):
    return pool.adaptive_pool(input, output_size, 1, jnp.mean)


@op("torch.nn.functional.adaptive_avg_pool2d")
def adaptive_avg_pool2d(input, output_size):
    return pool.adaptive_pool(input, output_size, 2, jnp.mean)


@op("torch.nn.functional.adaptive_avg_pool3d")
def adaptive_avg_pool3d(input, output_size):
    return pool.adaptive_pool(input, output_size, 3, jnp.mean)


@op("torch.nn.functional.adaptive_max_pool1d", when=_wants_indices)
@op("torch.nn.functional.adaptive_max_pool1d_with_indices", "torch.adaptive_max_pool1d")
def adaptive_max_pool1d_with_indices(input, output_size, return_indices=False):
    return adaptive_max(input, output_size, 1)


@op("torch.nn.functional.adaptive_max_pool1d")
def adaptive_max_pool1d(input, output_size, return_indices=False):
    return pool.adaptive_pool(input, output_size, 1, jnp.max)


@op("torch.nn.functional.adaptive_max_pool2d", when=_wants_indices)
@op("torch.nn.functional.adaptive_max_pool2d_with_indices", "torch.adaptive_max_pool2d")
def adaptive_max_pool2d_with_indices(input, output_size, return_indices=False):
    return adaptive_max(input, output_size, 2)


@op("torch.nn.functional.adaptive_max_pool2d")
def adaptive_max_pool2d(input, output_size, return_indices=False):
    return pool.adaptive_pool(input, output_size, 2, jnp.max)


@op("torch.nn.functional.adaptive_max_pool3d", when=_wants_indices)
@op("torch.nn.functional.adaptive_max_pool3d_with_indices", "torch.adaptive_max_pool3d")
def adaptive_max_pool3d_with_indices(input, output_size, return_indices=False):
    return adaptive_max(input, output_size, 3)


@op("torch.nn.functional.adaptive_max_pool3d")
def adaptive_max_pool3d(input, output_size, return_indices=False):
    return pool.adaptive_pool(input, output_size, 3, jnp.max)


@helper
def adaptive_max(input, output_size, spatial):
    """Maxima of the last `spatial` axes in `output_size` windows, and their flat positions in those axes."""
    sizes = input.shape[-spatial:]
    position = np.arange(math.prod(sizes)).reshape(sizes)
    found = [input.shape[-spatial + i] if m is None else m for i, m in enumerate(pair(output_size, spatial))]
    windows = []  # per window, its entries; shorter ones repeat their last entry
    for index in np.ndindex(*found):
        bounds = [(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(index, sizes, found, strict=True)]
        windows.append(position[tuple(slice(*bound) for bound in bounds)].reshape(-1))
    longest = max((len(window) for window in windows), default=0)
    table = np.array([np.pad(window, (0, longest - len(window)), mode="edge") for window in windows], int)
    entries = input.reshape(*input.shape[:-spatial], -1)[..., table.reshape(len(windows), longest)]
    first = jnp.argmax(entries, -1)
    values = jnp.take_along_axis(entries, first[..., None], -1)[..., 0]
    indices = jnp.asarray(table)[jnp.arange(len(windows)), first]
    shape = (*input.shape[:-spatial], *found)
    return values.reshape(shape), indices.reshape(shape)


@op("torch.nn.functional.lp_pool1d")
def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return pool.lp_pool(input, 1, norm_type, kernel_size, stride, ceil_mode)


@op("torch.nn.functional.lp_pool2d")
def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return pool.lp_pool(input, 2, norm_type, kernel_size, stride, ceil_mode)


@op("torch.nn.functional.lp_pool3d")
def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    return pool.lp_pool(input, 3, norm_type, kernel_size, stride, ceil_mode)


@helper
def max_unpool(input, indices, kernel_size, stride, padding, output_size, spatial):
    """Zeros with the input's entries at flat positions of the last `spatial` axes; of equal positions any one stays."""
    kernel, padding = pair(kernel_size, spatial), pair(padding, spatial)
    stride = kernel if stride is None or stride in ((), []) else pair(stride, spatial)
    sizes = zip(input.shape[-spatial:], kernel, stride, padding, strict=True)
    found = [(n - 1) * s - 2 * p + k for n, k, s, p in sizes]
    found = list(output_size)[-spatial:] if output_size is not None else found
    outer = input.shape[: input.ndim - spatial]
    values, places = input.reshape(math.prod(outer), -1), indices.reshape(math.prod(outer), -1)
    rows = jnp.arange(math.prod(outer))[:, None]
    blank = jnp.zeros((math.prod(outer), math.prod(found)), input.dtype)
    kept = lax.stop_gradient(values)
    # Every entry gets its position's gradient, also one that another replaced: so has torch.
    output = blank.at[rows, places].set(kept) + blank.at[rows, places].add(values - kept)
    return output.reshape(*outer, *found)


@op("torch.nn.functional.max_unpool1d")
def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    return max_unpool(input, indices, kernel_size, stride, padding, output_size, 1)


@op("torch.nn.functional.max_unpool2d")
def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    return max_unpool(input, indices, kernel_size, stride, padding, output_size, 2)


@op("torch.nn.functional.max_unpool3d")
def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    return max_unpool(input, indices, kernel_size, stride, padding, output_size, 3)
