"""Convolutions with torch's arguments. Data is [n, c, *spatial] (or [c, *spatial]), kernels [*spatial, in, out].

Source weights map as "o i h w -> h w i o" (Conv) and "i o h w -> h w i o" (ConvTranspose); with groups the first letter
of the two channel axes that is divided by the groups is the second one of the source weight.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array

from .module import Leaf, Module, bias_initial, compute_dtype, matmul_precision, param, weight_initial

PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
SPATIAL = "DHW"


def per_axis(value: Any, spatial: int) -> tuple[int, ...]:
    """Repeat an int for every spatial axis; pass sequences on (one item counts for all)."""
    items = (value,) if isinstance(value, int) else tuple(value)
    return items * spatial if len(items) == 1 else items


def _numbers(spatial: int) -> tuple[str, str, str]:
    axes = SPATIAL[-spatial:]
    return ("NC" + axes, axes + "IO", "NC" + axes)


class _Conv(Module):
    """Attributes and parameters shared by the convolutions; `spatial` is their number of spatial axes."""

    spatial: int
    transposed = False
    bias: Any = Leaf()
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Any

    def _build(self, in_channels: int, out_channels: int, geometry: dict[str, Any], bias: bool, **options: Any) -> None:
        axes, config, rngs = options["axes"], options["config"], options["rngs"]
        groups = geometry["groups"]
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: {in_channels} -> {out_channels} channels, not divisible by {groups=}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        for name in ("kernel_size", "stride", "dilation"):
            setattr(self, name, per_axis(geometry[name], self.spatial))
        padding = geometry["padding"]
        self.padding = padding if isinstance(padding, str) else per_axis(padding, self.spatial)
        self.padding_mode = geometry["padding_mode"]
        self.dtype, self.precision = compute_dtype(config), matmul_precision(config)
        inner = (in_channels, out_channels // groups) if self.transposed else (in_channels // groups, out_channels)
        fan_in = inner[1 if self.transposed else 0] * math.prod(self.kernel_size)  # what torch counts, also transposed
        shape = (*self.kernel_size, *inner)
        self.kernel = param(weight_initial(shape, fan_in, config), axes, config, rngs=rngs)
        bias_axes = None if axes is None else tuple(axes)[-1:]
        self.bias = param(bias_initial(out_channels, fan_in, config), bias_axes, config, rngs=rngs) if bias else None

    @property
    def weight(self) -> Array:
        """The kernel in torch's layout."""
        kernel = self.kernel[...].astype(self.dtype)
        order = (-2, -1) if self.transposed else (-1, -2)
        return jnp.transpose(kernel, (*(axis + kernel.ndim for axis in order), *range(self.spatial)))

    def _add_bias(self, y: Array) -> Array:
        return y if self.bias is None else y + self.bias.reshape(-1, *(1,) * self.spatial)


class _Convolution(_Conv):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        geometry = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
        geometry |= {"groups": groups, "padding_mode": padding_mode}
        self._build(in_channels, out_channels, geometry, bias, axes=axes, config=config, rngs=rngs)

    def __call__(self, input: Array) -> Array:
        """Convolve [n, in_channels, *spatial]; also without n."""
        if input.ndim == self.spatial + 1:
            return self(input[None])[0]
        padding = self.pads()
        if self.padding_mode != "zeros":
            input = jnp.pad(input, [(0, 0), (0, 0), *padding], mode=PAD_MODES[self.padding_mode])
            padding = [(0, 0)] * self.spatial
        y = lax.conv_general_dilated(
            input,
            self.kernel[...].astype(self.dtype),
            self.stride,
            padding,
            rhs_dilation=self.dilation,
            dimension_numbers=_numbers(self.spatial),
            feature_group_count=self.groups,
            precision=self.precision,
        )
        return self._add_bias(y)

    def pads(self) -> list[tuple[int, int]]:
        """Elements added before and after each spatial axis."""
        if self.padding == "valid":
            return [(0, 0)] * self.spatial
        if self.padding == "same":
            if self.stride != (1,) * self.spatial:
                raise ValueError(f"{type(self).__name__}: padding='same' needs stride 1, got {self.stride}")
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            return [(total // 2, total - total // 2) for total in totals]
        return [(int(p), int(p)) for p in self.padding]


class Conv1d(_Convolution):
    """y [n, out, l'] of x [n, in, l]; kernel [l, in/groups, out]."""

    spatial = 1


class Conv2d(_Convolution):
    """y [n, out, h', w'] of x [n, in, h, w]; kernel [h, w, in/groups, out]."""

    spatial = 2


class Conv3d(_Convolution):
    """y [n, out, d', h', w'] of x [n, in, d, h, w]; kernel [d, h, w, in/groups, out]."""

    spatial = 3


class _TransposedConvolution(_Conv):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | Sequence[int] = 1,
        padding_mode: str = "zeros",
        *,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        geometry = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "dilation": dilation}
        geometry |= {"groups": groups, "padding_mode": padding_mode}
        self.output_padding = per_axis(output_padding, self.spatial)
        self._build(in_channels, out_channels, geometry, bias, axes=axes, config=config, rngs=rngs)

    def __call__(self, input: Array, output_size: Sequence[int] | None = None) -> Array:
        """Apply the transpose of the convolution to [n, in_channels, *spatial]; also without n."""
        if input.ndim == self.spatial + 1:
            return self(input[None], output_size)[0]
        # The transpose is a convolution of the input spread by `stride` with the mirrored kernel.
        kernel = jnp.flip(self.kernel[...].astype(self.dtype), range(self.spatial))
        if self.groups > 1:
            *size, channels, out = kernel.shape
            kernel = kernel.reshape(*size, self.groups, channels // self.groups, out)
            kernel = jnp.moveaxis(kernel, -3, -2).reshape(*size, channels // self.groups, self.groups * out)
        y = lax.conv_general_dilated(
            input,
            kernel,
            (1,) * self.spatial,
            self._pads(input.shape[2:], output_size),
            lhs_dilation=self.stride,
            rhs_dilation=self.dilation,
            dimension_numbers=_numbers(self.spatial),
            feature_group_count=self.groups,
            precision=self.precision,
        )
        return self._add_bias(y)

    def _pads(self, sizes: Sequence[int], output_size: Sequence[int] | None) -> list[tuple[int, int]]:
        pads = []
        extra = self.output_padding
        if output_size is not None:
            wanted, sides = output_size[-self.spatial :], zip(sizes, self.stride, self.padding, strict=True)
            reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            least = [(n - 1) * s - 2 * p + r + 1 for (n, s, p), r in zip(sides, reach, strict=True)]
            extra = tuple(w - n for w, n in zip(wanted, least, strict=True))
            if any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
                raise ValueError(
                    f"{type(self).__name__}: output size {tuple(wanted)}, expected {least} up to stride - 1 more"
                )
        for k, d, p, e in zip(self.kernel_size, self.dilation, self.padding, extra, strict=True):
            pads.append((d * (k - 1) - p, d * (k - 1) - p + e))
        return pads


class ConvTranspose1d(_TransposedConvolution):
    """Transpose of Conv1d; kernel [l, in, out/groups]."""

    spatial = 1


class ConvTranspose2d(_TransposedConvolution):
    """Transpose of Conv2d; kernel [h, w, in, out/groups]."""

    spatial = 2


class ConvTranspose3d(_TransposedConvolution):
    """Transpose of Conv3d; kernel [d, h, w, in, out/groups]."""

    spatial = 3
