"""Resizing and sampling of grids, on the support library's."""

from maxcode.converter.arguments import is_integral, literal
from maxcode.converter.rule import op
from maxcode.converter.support import resize, warp

_TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
_FIXED_POINT = {
    "integers are interpolated in fixed point; cast to float": lambda input, mode: (
        is_integral(input) and mode is not None and literal(mode) not in ("nearest", "nearest-exact")
    )
}


@op("torch.nn.functional.interpolate", limits=_FIXED_POINT)
def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    return resize.interpolate(
        input,
        size=size,
        scale_factor=scale_factor,
        mode=mode,
        align_corners=align_corners,
        recompute_scale_factor=recompute_scale_factor,
        antialias=antialias,
    )


@op("torch.nn.functional.upsample", limits=_FIXED_POINT)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    return resize.interpolate(input, size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners)


@op("torch.nn.functional.upsample_nearest")
def upsample_nearest(input, size=None, scale_factor=None):
    return resize.interpolate(input, size=size, scale_factor=scale_factor)


@op(
    "torch.nn.functional.upsample_bilinear",
    limits={"integers are interpolated in fixed point; cast to float": lambda input: is_integral(input)},
)
def upsample_bilinear(input, size=None, scale_factor=None):
    return resize.interpolate(input, size=size, scale_factor=scale_factor, mode="bilinear", align_corners=True)


@op("torch.nn.functional.grid_sample", **_TOLERANCE)
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    return warp.grid_sample(input, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)


@op("torch.grid_sampler", "torch.grid_sampler_2d", "torch.grid_sampler_3d", **_TOLERANCE)
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    return warp.grid_sample(input, grid, interpolation_mode, padding_mode, align_corners)


@op("torch.nn.functional.affine_grid", "torch.affine_grid_generator", **_TOLERANCE)
def affine_grid(theta, size, align_corners=None):
    return warp.affine_grid(theta, size, align_corners=align_corners)
