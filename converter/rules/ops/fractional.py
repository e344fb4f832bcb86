"""Maxima over windows whose places are drawn: fractional pooling (Graham 2014)."""

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import op
from maxcode.converter.support import drawn


def _wants_indices(return_indices):
    return is_true(return_indices)


@op("torch.nn.functional.fractional_max_pool2d_with_indices")
@op("torch.nn.functional.fractional_max_pool2d", when=_wants_indices)
def fractional_max_pool2d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return drawn.fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 2)


@op("torch.nn.functional.fractional_max_pool2d")
def fractional_max_pool2d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return drawn.fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 2)[0]


@op("torch.nn.functional.fractional_max_pool3d_with_indices")
@op("torch.nn.functional.fractional_max_pool3d", when=_wants_indices)
def fractional_max_pool3d_with_indices(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return drawn.fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 3)


@op("torch.nn.functional.fractional_max_pool3d")
def fractional_max_pool3d(
    input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None
):
    return drawn.fractional_max(input, kernel_size, output_size, output_ratio, _random_samples, 3)[0]
