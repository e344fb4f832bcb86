"""Layers that only rearrange, pad or resize."""

from dataclasses import dataclass

from maxcode.converter.rule import helper, module
from maxcode.converter.rules.ops.attention import pad
from maxcode.converter.rules.ops.conv import channel_shuffle, fold, pixel_shuffle, pixel_unshuffle, unfold
from maxcode.converter.rules.ops.shape import flatten, pair, unflatten


@helper
@dataclass(frozen=True)
class Flatten:
    """Merges the axes from `start_dim` to `end_dim` inclusive."""

    start_dim: int = 1
    end_dim: int = -1

    def __call__(self, input):
        return flatten(input, self.start_dim, self.end_dim)


@module("torch.nn.Flatten")
def flatten_layer(start_dim=1, end_dim=-1):
    return Flatten(start_dim=start_dim, end_dim=end_dim)


@helper
@dataclass(frozen=True)
class Unflatten:
    """Splits an axis into the given sizes."""

    dim: int
    unflattened_size: tuple

    def __call__(self, input):
        return unflatten(input, self.dim, self.unflattened_size)


@module("torch.nn.Unflatten")
def unflatten_layer(dim, unflattened_size):
    return Unflatten(dim, unflattened_size)


@helper
@dataclass(frozen=True)
class PixelShuffle:
    """[..., c * r * r, h, w] -> [..., c, h * r, w * r]."""

    upscale_factor: int

    def __call__(self, input):
        return pixel_shuffle(input, self.upscale_factor)


@module("torch.nn.PixelShuffle")
def pixel_shuffle_layer(upscale_factor):
    return PixelShuffle(upscale_factor)


@helper
@dataclass(frozen=True)
class PixelUnshuffle:
    """[..., c, h * r, w * r] -> [..., c * r * r, h, w]."""

    downscale_factor: int

    def __call__(self, input):
        return pixel_unshuffle(input, self.downscale_factor)


@module("torch.nn.PixelUnshuffle")
def pixel_unshuffle_layer(downscale_factor):
    return PixelUnshuffle(downscale_factor)


@helper
@dataclass(frozen=True)
class ChannelShuffle:
    """Interleaves groups of channels of [n, c, ...]."""

    groups: int

    def __call__(self, input):
        return channel_shuffle(input, self.groups)


@module("torch.nn.ChannelShuffle")
def channel_shuffle_layer(groups):
    return ChannelShuffle(groups)


@helper
@dataclass(frozen=True)
class Unfold:
    """Windows of [n, c, h, w] as columns [n, c * kh * kw, positions]."""

    kernel_size: int | tuple
    dilation: int | tuple = 1
    padding: int | tuple = 0
    stride: int | tuple = 1

    def __call__(self, input):
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


@module("torch.nn.Unfold")
def unfold_layer(kernel_size, dilation=1, padding=0, stride=1):
    return Unfold(kernel_size, dilation=dilation, padding=padding, stride=stride)


@helper
@dataclass(frozen=True)
class Fold:
    """Columns [n, c * kh * kw, positions] summed into [n, c, h, w]."""

    output_size: int | tuple
    kernel_size: int | tuple
    dilation: int | tuple = 1
    padding: int | tuple = 0
    stride: int | tuple = 1

    def __call__(self, input):
        return fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


@module("torch.nn.Fold")
def fold_layer(output_size, kernel_size, dilation=1, padding=0, stride=1):
    return Fold(output_size, kernel_size, dilation=dilation, padding=padding, stride=stride)


@helper
@dataclass(frozen=True)
class Pad:
    """Pads the last `spatial` axes by the same or by given (low, high) amounts, last axis first."""

    padding: int | tuple
    spatial: int
    mode: str = "constant"
    value: float = 0.0

    def __call__(self, input):
        return pad(input, pair(self.padding, 2 * self.spatial), self.mode, self.value)


@module("torch.nn.ZeroPad1d")
def zero_pad1d(padding):
    return Pad(padding, 1)


@module("torch.nn.ZeroPad2d")
def zero_pad2d(padding):
    return Pad(padding, 2)


@module("torch.nn.ZeroPad3d")
def zero_pad3d(padding):
    return Pad(padding, 3)


@module("torch.nn.ConstantPad1d")
def constant_pad1d(padding, value):
    return Pad(padding, 1, value=value)


@module("torch.nn.ConstantPad2d")
def constant_pad2d(padding, value):
    return Pad(padding, 2, value=value)


@module("torch.nn.ConstantPad3d")
def constant_pad3d(padding, value):
    return Pad(padding, 3, value=value)


@module("torch.nn.ReflectionPad1d")
def reflection_pad1d(padding):
    return Pad(padding, 1, mode="reflect")


@module("torch.nn.ReflectionPad2d")
def reflection_pad2d(padding):
    return Pad(padding, 2, mode="reflect")


@module("torch.nn.ReflectionPad3d")
def reflection_pad3d(padding):
    return Pad(padding, 3, mode="reflect")


@module("torch.nn.ReplicationPad1d")
def replication_pad1d(padding):
    return Pad(padding, 1, mode="replicate")


@module("torch.nn.ReplicationPad2d")
def replication_pad2d(padding):
    return Pad(padding, 2, mode="replicate")


@module("torch.nn.ReplicationPad3d")
def replication_pad3d(padding):
    return Pad(padding, 3, mode="replicate")


@module("torch.nn.CircularPad1d")
def circular_pad1d(padding):
    return Pad(padding, 1, mode="circular")


@module("torch.nn.CircularPad2d")
def circular_pad2d(padding):
    return Pad(padding, 2, mode="circular")


@module("torch.nn.CircularPad3d")
def circular_pad3d(padding):
    return Pad(padding, 3, mode="circular")
