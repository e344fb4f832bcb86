"""Resizing and sampling of grids, on the support library's."""

from maxcode.converter.arguments import is_integral, literal
from maxcode.converter.rule import op
from maxcode.converter.support import resize

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
