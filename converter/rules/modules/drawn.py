"""Layers that draw in training, and the inverse of max pooling."""

from dataclasses import dataclass

from maxcode.converter.rule import helper, module
from maxcode.converter.rules.ops.pool import max_unpool
from maxcode.converter.support.drawn import FractionalMaxPool2d, FractionalMaxPool3d, RReLU


@module("torch.nn.RReLU")
def rrelu(lower=0.125, upper=0.3333333333333333, inplace=False):
    return RReLU(lower, upper)


@module("torch.nn.FractionalMaxPool2d", weights={"_random_samples": ("_random_samples", "")})
def fractional_max_pool2d(kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
    return FractionalMaxPool2d(
        kernel_size, output_size=output_size, output_ratio=output_ratio, return_indices=return_indices,
        _random_samples=_random_samples,
    )  # fmt: skip


@module("torch.nn.FractionalMaxPool3d", weights={"_random_samples": ("_random_samples", "")})
def fractional_max_pool3d(kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
    return FractionalMaxPool3d(
        kernel_size, output_size=output_size, output_ratio=output_ratio, return_indices=return_indices,
        _random_samples=_random_samples,
    )  # fmt: skip


@helper
@dataclass(frozen=True)
class MaxUnpool:
    """Zeros with entries put back where max pooling over the last `spatial` axes found them."""

    spatial: int
    kernel_size: object
    stride: object = None
    padding: object = 0

    def __call__(self, input, indices, output_size=None):
        return max_unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size, self.spatial)


@module("torch.nn.MaxUnpool1d")
def max_unpool1d(kernel_size, stride=None, padding=0):
    return MaxUnpool(1, kernel_size, stride=stride, padding=padding)


@module("torch.nn.MaxUnpool2d")
def max_unpool2d(kernel_size, stride=None, padding=0):
    return MaxUnpool(2, kernel_size, stride=stride, padding=padding)


@module("torch.nn.MaxUnpool3d")
def max_unpool3d(kernel_size, stride=None, padding=0):
    return MaxUnpool(3, kernel_size, stride=stride, padding=padding)
