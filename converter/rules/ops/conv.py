"""Convolutions on [n, c, *spatial] or unbatched [c, *spatial], with torch's [out, in / groups, *window] weights."""

import math

import jax.numpy as jnp
from jax import lax

from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.shape import pair

_TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


@helper
def convolve(input, weight, bias, stride, padding, dilation, groups):
    """Convolution over all spatial axes; padding is numbers, "same" (the extra one at the end) or "valid"."""
    spatial = weight.ndim - 2
    x = input if input.ndim == weight.ndim else input[None]
    stride, dilation = pair(stride, spatial), pair(dilation, spatial)
    if padding == "same":
        totals = [d * (size - 1) for d, size in zip(dilation, weight.shape[2:], strict=True)]
        padding = [(total // 2, total - total // 2) for total in totals]
    elif padding != "valid":
        padding = [(p, p) for p in pair(padding, spatial)]
    axes = "DHW"[3 - spatial :]
    output = lax.conv_general_dilated(
        x, weight, stride, "VALID" if padding == "valid" else padding, rhs_dilation=dilation,
        dimension_numbers=(f"NC{axes}", f"OI{axes}", f"NC{axes}"), feature_group_count=groups,
    )  # fmt: skip
    output = output if bias is None else output + bias.reshape(-1, *(1,) * spatial)
    return output if input.ndim == weight.ndim else output[0]


@helper
def convolve_transposed(input, weight, bias, stride, padding, output_padding, groups, dilation):
    """The transpose of a convolution; weight is [in, out / groups, *window]."""
    spatial = weight.ndim - 2
    x = input if input.ndim == weight.ndim else input[None]
    stride, dilation = pair(stride, spatial), pair(dilation, spatial)
    reach = [d * (size - 1) for d, size in zip(dilation, weight.shape[2:], strict=True)]
    edges = zip(reach, pair(padding, spatial), pair(output_padding, spatial), strict=True)
    # [in, out/g, ...] -> flipped [out, in/g, ...]
    kernel = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:]).swapaxes(1, 2)
    kernel = jnp.flip(kernel.reshape(-1, *kernel.shape[2:]), tuple(range(2, weight.ndim)))
    axes = "DHW"[3 - spatial :]
    output = lax.conv_general_dilated(
        x, kernel, (1,) * spatial, [(r - p, r - p + extra) for r, p, extra in edges], lhs_dilation=stride,
        rhs_dilation=dilation, dimension_numbers=(f"NC{axes}", f"OI{axes}", f"NC{axes}"), feature_group_count=groups,
    )  # fmt: skip
    output = output if bias is None else output + bias.reshape(-1, *(1,) * spatial)
    return output if input.ndim == weight.ndim else output[0]


@op(
    "torch.conv1d", "torch.conv2d", "torch.conv3d",
    "torch.nn.functional.conv1d", "torch.nn.functional.conv2d", "torch.nn.functional.conv3d", **_TOLERANCE,
)  # fmt: skip
def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return convolve(input, weight, bias, stride, padding, dilation, groups)


@op(
    "torch.conv_transpose1d", "torch.conv_transpose2d", "torch.conv_transpose3d",
    "torch.nn.functional.conv_transpose1d", "torch.nn.functional.conv_transpose2d",
    "torch.nn.functional.conv_transpose3d", **_TOLERANCE,
)  # fmt: skip
def conv_transpose(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return convolve_transposed(input, weight, bias, stride, padding, output_padding, groups, dilation)


@op("torch.conv_tbc", "torch.nn.functional.conv_tbc", **_TOLERANCE)
def conv_tbc(input, weight, bias, pad=0):
    """Convolution over time of [t, n, c] with weights [window, in, out]."""
    numbers = ("WNC", "WIO", "WNC")
    return lax.conv_general_dilated(input, weight, (1,), [(pad, pad)], dimension_numbers=numbers) + bias


@op("torch.nn.functional.unfold")
def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Windows of [n, c, h, w] as columns [n, c * kh * kw, positions]."""
    x = input if input.ndim == 4 else input[None]
    kernel, dilation, stride = pair(kernel_size, 2), pair(dilation, 2), pair(stride, 2)
    patches = lax.conv_general_dilated_patches(
        x, kernel, stride, [(p, p) for p in pair(padding, 2)], rhs_dilation=dilation
    )
    columns = patches.reshape(*patches.shape[:2], math.prod(patches.shape[2:]))
    return columns if input.ndim == 4 else columns[0]


@op("torch.nn.functional.fold")
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """The transpose of `unfold`: columns [n, c * kh * kw, positions] summed into [n, c, h, w]."""
    x = input if input.ndim == 3 else input[None]
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = (pair(v, 2) for v in (kernel_size, dilation, padding, stride))
    height, width = pair(output_size, 2)
    rows = (height + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    columns = (width + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    blocks = x.reshape(x.shape[0], -1, kh, kw, rows, columns)
    y = jnp.arange(kh)[:, None] * dh + jnp.arange(rows) * sh  # [kh, rows]
    z = jnp.arange(kw)[:, None] * dw + jnp.arange(columns) * sw  # [kw, columns]
    canvas = jnp.zeros((*blocks.shape[:2], height + 2 * ph, width + 2 * pw), x.dtype)
    canvas = canvas.at[:, :, y[:, None, :, None], z[None, :, None, :]].add(blocks)
    output = canvas[:, :, ph : ph + height, pw : pw + width]
    return output if input.ndim == 3 else output[0]


@op("torch.pixel_shuffle", "torch.nn.functional.pixel_shuffle")
def pixel_shuffle(input, upscale_factor):
    """[..., c * r * r, h, w] -> [..., c, h * r, w * r]."""
    *batch, channels, height, width = input.shape
    r = upscale_factor
    x = input.reshape(math.prod(batch), channels // r**2, r, r, height, width)
    return x.transpose(0, 1, 4, 2, 5, 3).reshape(*batch, channels // r**2, height * r, width * r)


@op("torch.pixel_unshuffle", "torch.nn.functional.pixel_unshuffle")
def pixel_unshuffle(input, downscale_factor):
    """[..., c, h * r, w * r] -> [..., c * r * r, h, w]."""
    *batch, channels, height, width = input.shape
    r = downscale_factor
    x = input.reshape(math.prod(batch), channels, height // r, r, width // r, r)
    return x.transpose(0, 1, 3, 5, 2, 4).reshape(*batch, channels * r**2, height // r, width // r)


@op(
    "torch.channel_shuffle", "torch.nn.functional.channel_shuffle", "torch.native_channel_shuffle",
    "torch.nn.functional.native_channel_shuffle",
)  # fmt: skip
def channel_shuffle(input, groups):
    """Interleave `groups` groups of channels of [n, c, ...]."""
    grouped = input.reshape(input.shape[0], groups, -1, *input.shape[2:])
    return grouped.swapaxes(1, 2).reshape(input.shape)
