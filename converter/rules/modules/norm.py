"""Normalisation layers; batch norm's running statistics are Buffers of the same names."""

from dataclasses import dataclass

from maxcode.converter.rule import helper, module
from maxcode.converter.rules.ops.normalization import local_response_norm
from maxcode.converter.support.layers import LayerNorm, RMSNorm
from maxcode.converter.support.norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    SyncBatchNorm,
)

_AFFINE = {"weight": ("scale", ""), "bias": ("bias", "")}
_RUNNING = _AFFINE | {
    "running_mean": ("running_mean", ""),
    "running_var": ("running_var", ""),
    "num_batches_tracked": ("num_batches_tracked", ""),
}


@module("torch.nn.LayerNorm", weights=_AFFINE)
def layer_norm(normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
    return LayerNorm(normalized_shape, eps=eps, elementwise_affine=elementwise_affine, bias=bias)


@module("torch.nn.RMSNorm", weights={"weight": ("scale", "")})
def rms_norm(normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
    return RMSNorm(normalized_shape, eps=eps, elementwise_affine=elementwise_affine)


@module("torch.nn.GroupNorm", weights=_AFFINE)
def group_norm(num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
    return GroupNorm(num_groups, num_channels, eps=eps, affine=affine, bias=bias)


@module("torch.nn.BatchNorm1d", weights=_RUNNING)
def batch_norm1d(
    num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias=True
):
    return BatchNorm1d(
        num_features, eps=eps, momentum=momentum, affine=affine, track_running_stats=track_running_stats, bias=bias
    )


@module("torch.nn.BatchNorm2d", weights=_RUNNING)
def batch_norm2d(
    num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias=True
):
    return BatchNorm2d(
        num_features, eps=eps, momentum=momentum, affine=affine, track_running_stats=track_running_stats, bias=bias
    )


@module("torch.nn.BatchNorm3d", weights=_RUNNING)
def batch_norm3d(
    num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None, *, bias=True
):
    return BatchNorm3d(
        num_features, eps=eps, momentum=momentum, affine=affine, track_running_stats=track_running_stats, bias=bias
    )


@module("torch.nn.InstanceNorm1d", weights=_RUNNING)
def instance_norm1d(
    num_features,
    eps=1e-5,
    momentum=0.1,
    affine=False,
    track_running_stats=False,
    device=None,
    dtype=None,
    *,
    bias=True,
):
    return InstanceNorm1d(
        num_features,
        eps=eps,
        momentum=momentum,
        affine=affine,
        track_running_stats=track_running_stats,
        bias=bias,
    )


@module("torch.nn.InstanceNorm2d", weights=_RUNNING)
def instance_norm2d(
    num_features,
    eps=1e-5,
    momentum=0.1,
    affine=False,
    track_running_stats=False,
    device=None,
    dtype=None,
    *,
    bias=True,
):
    return InstanceNorm2d(
        num_features,
        eps=eps,
        momentum=momentum,
        affine=affine,
        track_running_stats=track_running_stats,
        bias=bias,
    )


@module("torch.nn.InstanceNorm3d", weights=_RUNNING)
def instance_norm3d(
    num_features,
    eps=1e-5,
    momentum=0.1,
    affine=False,
    track_running_stats=False,
    device=None,
    dtype=None,
    *,
    bias=True,
):
    return InstanceNorm3d(
        num_features,
        eps=eps,
        momentum=momentum,
        affine=affine,
        track_running_stats=track_running_stats,
        bias=bias,
    )


@module("torch.nn.SyncBatchNorm", weights=_RUNNING)
def sync_batch_norm(
    num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, process_group=None, device=None,
    dtype=None, *, bias=True,
):  # fmt: skip
    return SyncBatchNorm(
        num_features,
        eps=eps,
        momentum=momentum,
        affine=affine,
        track_running_stats=track_running_stats,
        bias=bias,
    )


@helper
@dataclass(frozen=True)
class LocalResponseNorm:
    """x over a power of the mean square of neighbouring channels."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def __call__(self, input):
        return local_response_norm(input, self.size, self.alpha, self.beta, self.k)


@module("torch.nn.LocalResponseNorm")
def local_response_norm_layer(size, alpha=1e-4, beta=0.75, k=1.0):
    return LocalResponseNorm(size, alpha=alpha, beta=beta, k=k)
