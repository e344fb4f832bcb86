"""Pooling over the last axes of [n, c, *spatial] (or [c, *spatial]), with torch's window arithmetic."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax
from jaxtyping import Array

from .conv import per_axis
from .module import Module


def _pads(sizes: Sequence[int], kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> list[Any]:
    """Elements before and after each axis; with `ceil` a last partial window counts if it starts inside."""
    pads = []
    for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True):
        if 2 * p > k:
            raise ValueError(f"pooling: padding {p} is more than half of the kernel size {k}")
        room = n + 2 * p - d * (k - 1) - 1
        windows = room // s + 1
        if ceil and room % s and windows * s < n + p:
            windows += 1
        pads.append((p, max((windows - 1) * s + d * (k - 1) + 1 - n - p, 0)))
    return pads


def _geometry(x: Array, spatial: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
    stride = kernel_size if stride is None or stride in ((), []) else stride  # an empty one is none, as in torch
    kernel, stride = per_axis(kernel_size, spatial), per_axis(stride, spatial)
    padding, dilation = per_axis(padding, spatial), per_axis(dilation, spatial)
    outer = (1,) * (x.ndim - spatial)
    pads = [(0, 0)] * (x.ndim - spatial) + _pads(x.shape[-spatial:], kernel, stride, padding, dilation, ceil)
    return {
        "window_dimensions": outer + kernel,
        "window_strides": outer + stride,
        "padding": pads,
        "window_dilation": outer + dilation,
    }


def _lowest(dtype: Any) -> Any:
    return -jnp.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


def max_pool(
    x: Array,
    spatial: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum over windows of the last `spatial` axes; with `return_indices` also its flat position in those axes."""
    windows = _geometry(x, spatial, kernel_size, stride, padding, dilation, ceil_mode)
    lowest = np.asarray(_lowest(x.dtype), x.dtype)[()]  # numpy: a known start value is what makes it differentiable
    if max(windows["window_dilation"]) > 1:
        y = _dilated_maximum(x, lowest, windows)
    else:
        y = lax.reduce_window(x, lowest, lax.max, **windows)
    if not return_indices:
        return y
    position = jnp.arange(math.prod(x.shape[-spatial:])).reshape(x.shape[-spatial:])
    position = jnp.broadcast_to(position, x.shape)

    def first_maximum(a: Any, b: Any) -> Any:
        (value_a, at_a), (value_b, at_b) = a, b
        left = (value_a > value_b) | ((value_a == value_b) & (at_a < at_b))
        return jnp.where(left, value_a, value_b), jnp.where(left, at_a, at_b)

    start = (lowest, np.asarray(jnp.iinfo(position.dtype).max, position.dtype)[()])
    _, indices = lax.reduce_window((lax.stop_gradient(x), position), start, first_maximum, **windows)
    return y, indices


def _dilated_maximum(x: Array, lowest: Any, windows: dict[str, Any]) -> Array:
    """Maximum over dilated windows as a choice between shifted slices: reduce_window has no gradient for these."""
    x = jnp.pad(x, windows["padding"], constant_values=lowest)
    sizes, strides, dilation = (windows[f"window_{name}"] for name in ("dimensions", "strides", "dilation"))
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape, sizes, strides, dilation, strict=True)]
    shifted = []
    for offset in np.ndindex(*sizes):
        starts = [o * d for o, d in zip(offset, dilation, strict=True)]
        stops = [a + (c - 1) * s + 1 for a, c, s in zip(starts, counts, strides, strict=True)]
        shifted.append(lax.slice(x, starts, stops, strides))
    stacked = jnp.stack(shifted)
    return jnp.take_along_axis(stacked, stacked.argmax(0)[None], axis=0)[0]


def avg_pool(
    x: Array,
    spatial: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """Mean over windows of the last `spatial` axes; a window's part beyond the padding never counts."""
    windows = _geometry(x, spatial, kernel_size, stride, padding, 1, ceil_mode)
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    zero = np.zeros((), wide.dtype)[()]
    total = lax.reduce_window(wide, zero, lax.add, **windows)
    if divisor_override is not None:
        return (total / divisor_override).astype(x.dtype)
    padding, outer = per_axis(padding, spatial), x.ndim - spatial
    counted = jnp.ones((1,) * outer + x.shape[-spatial:], wide.dtype)
    counted = jnp.pad(counted, [(0, 0)] * outer + [(p, p) for p in padding], constant_values=float(count_include_pad))
    pads = windows["padding"]
    rest = [(0, 0)] * outer + [(0, max(high - p, 0)) for (_, high), p in zip(pads[outer:], padding, strict=True)]
    counts = lax.reduce_window(counted, zero, lax.add, **{**windows, "padding": rest})
    return (total / counts).astype(x.dtype)


def lp_pool(
    x: Array, spatial: int, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Array:
    """(sum x^p)^(1/p) over windows of the last `spatial` axes; NaN where a fractional root meets a negative sum.

    Of p = inf it is the maximum of absolute values, of -inf their minimum.
    """
    if math.isinf(norm_type):
        sign = math.copysign(1, norm_type)
        return sign * max_pool(sign * jnp.abs(x), spatial, kernel_size, stride, ceil_mode=ceil_mode)
    mean = avg_pool(x**norm_type, spatial, kernel_size, stride, 0, ceil_mode)
    # The mean of a window that ceil_mode lets reach over the edge is of fewer items, but torch multiplies by all.
    total = jnp.sign(mean) * jnp.abs(mean) * math.prod(per_axis(kernel_size, spatial))
    return total ** (1 / norm_type)


def adaptive_pool(x: Array, output_size: Any, spatial: int, reduce: Callable[..., Array]) -> Array:
    """Reduce the last `spatial` axes to `output_size` (None keeps an axis).

    Of n items, window i of m goes from floor(i n/m) to ceil((i+1) n/m). `reduce` is `jnp.mean` or `jnp.max`.
    """
    dtype = x.dtype
    x = x.astype(jnp.promote_types(dtype, jnp.float32)) if jnp.issubdtype(dtype, jnp.floating) else x
    sizes = (output_size,) * spatial if output_size is None else per_axis(output_size, spatial)
    for axis, size in zip(range(x.ndim - spatial, x.ndim), sizes, strict=True):
        n = x.shape[axis]
        if size is None or size == n:
            continue
        if n % size == 0:
            x = reduce(x.reshape(*x.shape[:axis], size, n // size, *x.shape[axis + 1 :]), axis=axis + 1)
            continue
        bounds = [(i * n // size, -(-(i + 1) * n // size)) for i in range(size)]
        parts = [reduce(lax.slice_in_dim(x, a, b, axis=axis), axis=axis, keepdims=True) for a, b in bounds]
        x = jnp.concatenate(parts, axis)
    return x.astype(dtype)


class _MaxPool(Module):
    spatial: int

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def __call__(self, input: Array) -> Any:
        """Pool the spatial axes; dtype stays."""
        sides = (self.kernel_size, self.stride, self.padding, self.dilation)
        return max_pool(input, self.spatial, *sides, self.ceil_mode, self.return_indices)


class _AvgPool(Module):
    spatial: int

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def __call__(self, input: Array) -> Array:
        """Pool the spatial axes; dtype stays."""
        sides = (self.kernel_size, self.stride, self.padding, self.ceil_mode)
        return avg_pool(input, self.spatial, *sides, self.count_include_pad, self.divisor_override)


class _LPPool(Module):
    spatial: int

    def __init__(
        self,
        norm_type: float,
        kernel_size: Any,
        stride: Any = None,
        ceil_mode: bool = False,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def __call__(self, input: Array) -> Array:
        """Pool the spatial axes; dtype stays."""
        return lp_pool(input, self.spatial, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class _AdaptivePool(Module):
    spatial: int

    def __init__(self, output_size: Any, *, config: Any = None, rngs: nnx.Rngs | None = None):
        self.output_size = tuple(output_size) if isinstance(output_size, list) else output_size


class _AdaptiveAvgPool(_AdaptivePool):
    def __call__(self, input: Array) -> Array:
        """Average the spatial axes down to `output_size`; dtype stays."""
        return adaptive_pool(input, self.output_size, self.spatial, jnp.mean)


class _AdaptiveMaxPool(_AdaptivePool):
    def __call__(self, input: Array) -> Array:
        """Maximum of the spatial axes down to `output_size`; dtype stays."""
        return adaptive_pool(input, self.output_size, self.spatial, jnp.max)


class MaxPool1d(_MaxPool):
    """Maximum over windows of [n, c, l]."""

    spatial = 1


class MaxPool2d(_MaxPool):
    """Maximum over windows of [n, c, h, w]."""

    spatial = 2


class MaxPool3d(_MaxPool):
    """Maximum over windows of [n, c, d, h, w]."""

    spatial = 3


class AvgPool1d(_AvgPool):
    """Mean over windows of [n, c, l]."""

    spatial = 1


class AvgPool2d(_AvgPool):
    """Mean over windows of [n, c, h, w]."""

    spatial = 2


class AvgPool3d(_AvgPool):
    """Mean over windows of [n, c, d, h, w]."""

    spatial = 3


class LPPool1d(_LPPool):
    """Power mean, times the window's size, over windows of [n, c, l]."""

    spatial = 1


class LPPool2d(_LPPool):
    """Power mean, times the window's size, over windows of [n, c, h, w]."""

    spatial = 2


class LPPool3d(_LPPool):
    """Power mean, times the window's size, over windows of [n, c, d, h, w]."""

    spatial = 3


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Mean of [n, c, l] down to a given size."""

    spatial = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Mean of [n, c, h, w] down to a given size."""

    spatial = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Mean of [n, c, d, h, w] down to a given size."""

    spatial = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maximum of [n, c, l] down to a given size."""

    spatial = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maximum of [n, c, h, w] down to a given size."""

    spatial = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maximum of [n, c, d, h, w] down to a given size."""

    spatial = 3
