"""Layers that resize."""

from maxcode.converter.rule import module
from maxcode.converter.support.resize import Upsample


@module("torch.nn.Upsample")
def upsample(size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
    return Upsample(
        size, scale_factor=scale_factor, mode=mode, align_corners=align_corners,
        recompute_scale_factor=recompute_scale_factor,
    )  # fmt: skip


@module("torch.nn.UpsamplingNearest2d")
def upsampling_nearest(size=None, scale_factor=None):
    return Upsample(size, scale_factor=scale_factor)


@module("torch.nn.UpsamplingBilinear2d")
def upsampling_bilinear(size=None, scale_factor=None):
    return Upsample(size, scale_factor=scale_factor, mode="bilinear", align_corners=True)
