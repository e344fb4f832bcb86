"""Pooling layers."""

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import module
from maxcode.converter.support.pool import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)

_INDICES = {"return_indices is not converted": lambda return_indices: is_true(return_indices)}


@module("torch.nn.MaxPool1d")
def max_pool1d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
    return MaxPool1d(
        kernel_size, stride=stride, padding=padding, dilation=dilation, return_indices=return_indices,
        ceil_mode=ceil_mode,
    )  # fmt: skip


@module("torch.nn.AvgPool1d")
def avg_pool1d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    return AvgPool1d(
        kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode, count_include_pad=count_include_pad
    )


@module("torch.nn.AdaptiveAvgPool1d")
def adaptive_avg_pool1d(output_size):
    return AdaptiveAvgPool1d(output_size)


@module("torch.nn.AdaptiveMaxPool1d", limits=_INDICES)
def adaptive_max_pool1d(output_size, return_indices=False):
    return AdaptiveMaxPool1d(output_size)


@module("torch.nn.MaxPool2d")
def max_pool2d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
    return MaxPool2d(
        kernel_size, stride=stride, padding=padding, dilation=dilation, return_indices=return_indices,
        ceil_mode=ceil_mode,
    )  # fmt: skip


@module("torch.nn.AvgPool2d")
def avg_pool2d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    return AvgPool2d(
        kernel_size,
        stride=stride,
        padding=padding,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    )


@module("torch.nn.AdaptiveAvgPool2d")
def adaptive_avg_pool2d(output_size):
    return AdaptiveAvgPool2d(output_size)


@module("torch.nn.AdaptiveMaxPool2d", limits=_INDICES)
def adaptive_max_pool2d(output_size, return_indices=False):
    return AdaptiveMaxPool2d(output_size)


@module("torch.nn.MaxPool3d")
def max_pool3d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
    return MaxPool3d(
        kernel_size, stride=stride, padding=padding, dilation=dilation, return_indices=return_indices,
        ceil_mode=ceil_mode,
    )  # fmt: skip


@module("torch.nn.AvgPool3d")
def avg_pool3d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    return AvgPool3d(
        kernel_size,
        stride=stride,
        padding=padding,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    )


@module("torch.nn.AdaptiveAvgPool3d")
def adaptive_avg_pool3d(output_size):
    return AdaptiveAvgPool3d(output_size)


@module("torch.nn.AdaptiveMaxPool3d", limits=_INDICES)
def adaptive_max_pool3d(output_size, return_indices=False):
    return AdaptiveMaxPool3d(output_size)


@module("torch.nn.LPPool1d")
def lp_pool1d(norm_type, kernel_size, stride=None, ceil_mode=False):
    return LPPool1d(norm_type, kernel_size, stride=stride, ceil_mode=ceil_mode)


@module("torch.nn.LPPool2d")
def lp_pool2d(norm_type, kernel_size, stride=None, ceil_mode=False):
    return LPPool2d(norm_type, kernel_size, stride=stride, ceil_mode=ceil_mode)


@module("torch.nn.LPPool3d")
def lp_pool3d(norm_type, kernel_size, stride=None, ceil_mode=False):
    return LPPool3d(norm_type, kernel_size, stride=stride, ceil_mode=ceil_mode)
