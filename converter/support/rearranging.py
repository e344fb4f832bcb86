"""The layers of einops: its functions with a pattern that is chosen once."""

from typing import Any

import einops
from jaxtyping import Array

from .module import Module


class Rearrange(Module):
    """`einops.rearrange` with a fixed pattern and axis lengths."""

    def __init__(self, pattern: str, **axes_lengths: Any):
        self.pattern, self.axes_lengths = pattern, tuple(axes_lengths.items())

    def __call__(self, x: Array) -> Array:
        """The axes of `x` in the order that the pattern says."""
        return einops.rearrange(x, self.pattern, **dict(self.axes_lengths))


class Reduce(Module):
    """`einops.reduce` with a fixed pattern, reduction and axis lengths."""

    def __init__(self, pattern: str, reduction: str, **axes_lengths: Any):
        self.pattern, self.reduction, self.axes_lengths = pattern, reduction, tuple(axes_lengths.items())

    def __call__(self, x: Array) -> Array:
        """`x` reduced over the axes that the pattern leaves out."""
        return einops.reduce(x, self.pattern, self.reduction, **dict(self.axes_lengths))
