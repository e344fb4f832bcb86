"""ATen's own forms of layers and helpers, which traced and generated code calls."""

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import is_omitted, is_true, literal
from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.normalization import accurate, per_channel, scale_and_shift


@helper
def moments(x, axes, eps):
    """(x standardised, mean, 1 / standard deviation) over axes, the latter two with size 1 there."""
    mean = x.mean(axes, keepdims=True)
    scale = lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)
    return (x - mean) * scale, mean, scale


@op("torch.native_layer_norm")
def native_layer_norm(input, normalized_shape, weight, bias, eps):
    """Layer norm over the last axes, with means and inverse deviations."""
    axes = tuple(range(-len(normalized_shape), 0))
    normal, mean, scale = moments(accurate(input), axes, eps)
    return scale_and_shift(normal, weight, bias).astype(input.dtype), mean, scale


@op("torch.native_group_norm")
def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """Group norm of [n, c, ...], with means and inverse deviations [n, groups]."""
    normal, mean, scale = moments(accurate(input).reshape(N, group, C // group * HxW), (2,), eps)
    channels = (per_channel(weight, input.ndim), per_channel(bias, input.ndim))
    result = scale_and_shift(normal.reshape(input.shape), *channels).astype(input.dtype)
    return result, mean[..., 0], scale[..., 0]


_UPDATES = {
    "training mode updates running statistics in place; use the module": lambda training, running_mean: (
        is_true(training) and not is_omitted(running_mean)
    )
}


@op("torch.native_batch_norm", "torch._native_batch_norm_legit", limits=_UPDATES)
def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    """Batch norm of [n, c, ...]; in training with the batch's means and inverse deviations, else with none."""
    x = accurate(input)
    mean = scale = jnp.zeros(0, x.dtype)
    if training:
        normal, mean, scale = moments(x, (0, *range(2, x.ndim)), eps)
    else:
        deviation = lax.rsqrt(per_channel(running_var, x.ndim) + eps)
        normal = (x - per_channel(running_mean, x.ndim)) * deviation
    channels = (per_channel(weight, x.ndim), per_channel(bias, x.ndim))
    return scale_and_shift(normal, *channels).astype(input.dtype), mean.reshape(-1), scale.reshape(-1)


@op("torch._native_batch_norm_legit")
def native_batch_norm_without_statistics(input, weight, bias, training, momentum, eps):
    """Batch norm of [n, c, ...] by the batch's own statistics."""
    return native_batch_norm(input, weight, bias, None, None, True, momentum, eps)


@op("torch.ops.aten._safe_softmax.default", "torch.ops.aten._safe_softmax", vectors=("input",))
def safe_softmax(input, dim, dtype=None):
    """Softmax along an axis, and zeros where all entries are minus infinity."""
    x = input if dtype is None else input.astype(dtype)
    blind = (x == -jnp.inf).all(dim, keepdims=True)
    return jnp.where(blind, 0, jax.nn.softmax(jnp.where(blind, 0, x), axis=dim))


@op("torch.alias_copy", "torch.Tensor.alias_copy")
def alias_copy(input):
    return input


@op("torch.expand_copy")
def expand_copy(input, size, *, implicit=False):
    """A copy broadcast to `size`, where -1 keeps the axis as it is."""
    kept = (1,) * (len(size) - input.ndim) + input.shape
    return jnp.broadcast_to(input, tuple(old if new == -1 else new for old, new in zip(kept, size, strict=True)))


@op("torch.view_copy", when=lambda size: not is_omitted(size))
def view_copy(input, size):
    return input.reshape(size)


@op("torch.as_strided_scatter", "torch.Tensor.as_strided_scatter")
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """`input` (as contiguous memory) with `src` written where strides lead."""
    places = jnp.asarray(storage_offset or 0)
    for length, step in zip(size, stride, strict=True):
        places = places[..., None] + jnp.arange(length) * step
    return input.reshape(-1).at[places.reshape(-1)].set(src.reshape(-1)).reshape(input.shape)


@helper
def whole_index(indices, ndim):
    """An index tuple of `ndim` parts in which None stands for whole axes."""
    return (*(slice(None) if part is None else part for part in indices), *(slice(None),) * (ndim - len(indices)))


@op("torch._unsafe_masked_index")
def masked_index(input, mask, indices, fill):
    """Entries at indices where a mask holds, `fill` elsewhere."""
    return jnp.where(mask, input.at[whole_index(indices, input.ndim)].get(mode="clip"), fill).astype(input.dtype)


@op("torch._unsafe_masked_index_put_accumulate")
def masked_index_put(input, mask, indices, values):
    """`input` plus `values` at indices where a mask holds."""
    where = whole_index(indices, input.ndim)
    return input.at[where].add(jnp.where(mask, values, 0), mode="drop")


@helper
def segment_members(lengths, offsets, count):
    """Which of `count` entries of a row belong to which segment: [..., segments, count]."""
    ends = jnp.cumsum(lengths, -1) if offsets is None else offsets[..., 1:]
    starts = ends - lengths if offsets is None else offsets[..., :-1]
    places = jnp.arange(count)
    return (places >= starts[..., None]) & (places < ends[..., None])


@op("torch._segment_reduce", "torch.segment_reduce", limits={
    "indices are not converted": lambda indices: not is_omitted(indices),
    "reduce must be a constant": lambda reduce: not isinstance(literal(reduce), str),
})  # fmt: skip
def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """Sum, mean, max, min or prod of neighbouring entries of an axis, by segments of given lengths or offsets."""
    axis = axis % data.ndim
    members = segment_members(lengths, offsets, data.shape[axis])
    members = members.reshape(*members.shape, *(1,) * (data.ndim - axis - 1))
    neutral = {"sum": 0, "mean": 0, "prod": 1, "max": -jnp.inf, "min": jnp.inf}[reduce]
    entries = jnp.where(members, jnp.expand_dims(data, axis), jnp.asarray(neutral, data.dtype))
    method = {"sum": jnp.sum, "mean": jnp.sum, "prod": jnp.prod, "max": jnp.max, "min": jnp.min}[reduce]
    found = method(entries, axis + 1, initial=neutral if reduce in ("max", "min") else None)
    counts = jnp.broadcast_to(members.sum(axis + 1), found.shape)
    if reduce == "mean":
        total = found if initial is None else found + initial
        empty = jnp.nan if initial is None else initial
        return jnp.where(counts > 0, total / jnp.maximum(counts, 1), empty).astype(data.dtype)
    if initial is None:
        return found
    join = {"sum": jnp.add, "prod": jnp.multiply, "max": jnp.maximum, "min": jnp.minimum}[reduce]
    return join(found, initial)
