"""Pooling over the last one, two or three axes, on the support library's."""

import jax.numpy as jnp

from maxcode.converter.arguments import is_true, literal
from maxcode.converter.rule import op
from maxcode.converter.support import pool

_OWN_STRIDE = {"an empty stride is not converted; leave it out": lambda stride: literal(stride) in ((), [])}
_INDICES = {"return_indices is not converted": lambda return_indices: is_true(return_indices)}


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


@op("torch.nn.functional.avg_pool1d", "torch.avg_pool1d", limits=_OWN_STRIDE)
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    return pool.avg_pool(input, 1, kernel_size, stride, padding, ceil_mode, count_include_pad)


@op("torch.nn.functional.avg_pool2d", limits=_OWN_STRIDE)
def avg_pool2d(
    input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
):
    return pool.avg_pool(input, 2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@op("torch.nn.functional.avg_pool3d", limits=_OWN_STRIDE)
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


@op("torch.nn.functional.adaptive_max_pool1d", limits=_INDICES)
def adaptive_max_pool1d(input, output_size, return_indices=False):
    return pool.adaptive_pool(input, output_size, 1, jnp.max)


@op("torch.nn.functional.adaptive_max_pool2d", limits=_INDICES)
def adaptive_max_pool2d(input, output_size, return_indices=False):
    return pool.adaptive_pool(input, output_size, 2, jnp.max)


@op("torch.nn.functional.adaptive_max_pool3d", limits=_INDICES)
def adaptive_max_pool3d(input, output_size, return_indices=False):
    return pool.adaptive_pool(input, output_size, 3, jnp.max)
