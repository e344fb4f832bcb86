"""Convolutions."""

from maxcode.converter.rule import module
from maxcode.converter.support.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)


@module("torch.nn.Conv1d", weights={"weight": ("kernel", "o i w -> w i o"), "bias": ("bias", "o -> o")})
def conv1d(
    in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros",
    device=None, dtype=None,
):  # fmt: skip
    return Conv1d(
        in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, groups=groups,
        bias=bias, padding_mode=padding_mode,
    )  # fmt: skip


@module("torch.nn.Conv2d", weights={"weight": ("kernel", "o i h w -> h w i o"), "bias": ("bias", "o -> o")})
def conv2d(
    in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros",
    device=None, dtype=None,
):  # fmt: skip
    return Conv2d(
        in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, groups=groups,
        bias=bias, padding_mode=padding_mode,
    )  # fmt: skip


@module("torch.nn.Conv3d", weights={"weight": ("kernel", "o i d h w -> d h w i o"), "bias": ("bias", "o -> o")})
def conv3d(
    in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, padding_mode="zeros",
    device=None, dtype=None,
):  # fmt: skip
    return Conv3d(
        in_channels, out_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, groups=groups,
        bias=bias, padding_mode=padding_mode,
    )  # fmt: skip


@module("torch.nn.ConvTranspose1d", weights={"weight": ("kernel", "i o w -> w i o"), "bias": ("bias", "o -> o")})
def conv_transpose1d(
    in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
    padding_mode="zeros", device=None, dtype=None,
):  # fmt: skip
    return ConvTranspose1d(
        in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding,
        groups=groups, bias=bias, dilation=dilation, padding_mode=padding_mode,
    )  # fmt: skip


@module("torch.nn.ConvTranspose2d", weights={"weight": ("kernel", "i o h w -> h w i o"), "bias": ("bias", "o -> o")})
def conv_transpose2d(
    in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
    padding_mode="zeros", device=None, dtype=None,
):  # fmt: skip
    return ConvTranspose2d(
        in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding,
        groups=groups, bias=bias, dilation=dilation, padding_mode=padding_mode,
    )  # fmt: skip


@module(
    "torch.nn.ConvTranspose3d", weights={"weight": ("kernel", "i o d h w -> d h w i o"), "bias": ("bias", "o -> o")}
)
def conv_transpose3d(
    in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1, bias=True, dilation=1,
    padding_mode="zeros", device=None, dtype=None,
):  # fmt: skip
    return ConvTranspose3d(
        in_channels, out_channels, kernel_size, stride=stride, padding=padding, output_padding=output_padding,
        groups=groups, bias=bias, dilation=dilation, padding_mode=padding_mode,
    )  # fmt: skip
