"""Views and changes of shape."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import fact, is_dtype, is_int, is_sequence, is_tensor, literal
from maxcode.converter.facts import MISSING
from maxcode.converter.rule import helper, op


@helper
def as_scalars(results):
    """Results of a call on vectors of one entry, as 0-d arrays."""
    return jax.tree.map(lambda x: x.reshape(()), results)


def _has_unit_axis(input, dim):
    axis, shapes = literal(dim), fact(input).shapes
    return bool(shapes) and isinstance(axis, int) and all(-len(s) <= axis < len(s) and s[axis] == 1 for s in shapes)


def _never_keeps(size):
    """Whether no entry of an `expand` is -1, as far as the run saw; `broadcast_to` raises for one that is."""
    if len(size) == 1 and is_sequence(size[0]):
        size = getattr(size[0], "elts", [None])
    known = (literal(s) if literal(s) is not MISSING else fact(s).literal for s in size)
    return all(map(is_int, size)) and -1 not in known


@op("torch.Tensor.view", when=lambda dtype: is_dtype(dtype))
def view_as_dtype(input, dtype):
    return input.view(dtype)


@op("torch.Tensor.view", "torch.Tensor.reshape")
def view(input, *shape):
    return input.reshape(*shape)


@op("torch.reshape")
def reshape(input, shape):
    return input.reshape(shape)


@op("torch.Tensor.view_as", "torch.Tensor.reshape_as")
def view_as(input, other):
    return input.reshape(other.shape)


@op(
    "torch.transpose", "torch.Tensor.transpose", "torch.transpose_copy", "torch.swapaxes", "torch.Tensor.swapaxes",
    "torch.swapdims", "torch.Tensor.swapdims", vectors=("input",),
)  # fmt: skip
def transpose(input, dim0, dim1):
    return input.swapaxes(dim0, dim1)


@op("torch.t", "torch.Tensor.t", "torch.t_copy")
def transpose_matrix(input):
    return input.T


@op("torch.adjoint", "torch.Tensor.adjoint")
def adjoint(input):
    return input.mT.conj()


@op("torch.Tensor.permute")
def permute(input, *dims):
    return input.transpose(*dims)


@op("torch.permute", "torch.permute_copy")
def permute_axes(input, dims):
    return input.transpose(dims)


@op("torch.movedim", "torch.Tensor.movedim", "torch.moveaxis", "torch.Tensor.moveaxis")
def movedim(input, source, destination):
    return jnp.moveaxis(input, source, destination)


@op("torch.unsqueeze", "torch.Tensor.unsqueeze", "torch.unsqueeze_copy")
def unsqueeze(input, dim):
    return jnp.expand_dims(input, dim)


@op("torch.squeeze", "torch.Tensor.squeeze", "torch.squeeze_copy")
def squeeze(input):
    return input.squeeze()


@op("torch.squeeze", "torch.Tensor.squeeze", when=_has_unit_axis)
def squeeze_unit(input, dim):
    return input.squeeze(dim)


@op("torch.squeeze", "torch.Tensor.squeeze", "torch.squeeze_copy")
def squeeze_axes(input, dim):
    """Drop the given axes where their size is 1; others stay."""
    axes = dim if isinstance(dim, tuple | list) else (dim,)
    axes = [axis % max(input.ndim, 1) for axis in axes]
    return jnp.squeeze(input, tuple(axis for axis in axes if input.ndim and input.shape[axis] == 1))


@op(
    "torch.flatten", "torch.Tensor.flatten", "torch.ravel", "torch.Tensor.ravel",
    when=lambda start_dim, end_dim: start_dim is None and end_dim is None,
)  # fmt: skip
def ravel(input, start_dim=0, end_dim=-1):
    return input.reshape(-1)


@op("torch.flatten", "torch.Tensor.flatten")
def flatten(input, start_dim=0, end_dim=-1):
    """Merge the axes from `start_dim` to `end_dim` inclusive."""
    if input.ndim == 0:
        return input.reshape(1)
    start, end = start_dim % input.ndim, end_dim % input.ndim
    return input.reshape(*input.shape[:start], math.prod(input.shape[start : end + 1]), *input.shape[end + 1 :])


@op("torch.unflatten", "torch.Tensor.unflatten")
def unflatten(input, dim, sizes):
    """Split axis `dim` into `sizes`, one of which may be -1."""
    axis = dim % input.ndim
    known = math.prod(size for size in sizes if size != -1)
    sizes = [input.shape[axis] // known if size == -1 else size for size in sizes]
    return input.reshape(*input.shape[:axis], *sizes, *input.shape[axis + 1 :])


@op("torch.Tensor.expand", when=lambda size: _never_keeps(size))
def expand_known(input, *size):
    return jnp.broadcast_to(input, size)


@op("torch.Tensor.expand")
def expand(input, *size):
    """Broadcast to `size`, where -1 keeps the axis as it is."""
    sizes = size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size
    kept = (1,) * (len(sizes) - input.ndim) + input.shape
    return jnp.broadcast_to(input, tuple(old if new == -1 else new for old, new in zip(kept, sizes, strict=True)))


@op("torch.broadcast_to", "torch.Tensor.broadcast_to")
def broadcast_to(input, size):
    return expand(input, size)


@op("torch.Tensor.expand_as")
def expand_as(input, other):
    return jnp.broadcast_to(input, other.shape)


@op("torch.broadcast_tensors", when=lambda tensors: not (len(tensors) == 1 and is_sequence(tensors[0])))
def broadcast_tensors(*tensors):
    return jnp.broadcast_arrays(*tensors)


@op("torch.broadcast_shapes")
def broadcast_shapes(*shapes):
    return jnp.broadcast_shapes(*shapes)


@op("torch.Tensor.repeat", "torch.Tensor.tile")
def repeat(input, *repeats):
    return jnp.tile(input, repeats)


@op("torch.tile")
def tile(input, dims):
    return jnp.tile(input, dims)


@op(
    "torch.repeat_interleave", "torch.Tensor.repeat_interleave",
    limits={
        "repeats is a tensor and output_size is not given, so the result's shape depends on data": lambda repeats,
        output_size: is_tensor(repeats) and output_size is None,
    },
)  # fmt: skip
def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    return jnp.repeat(input, repeats, axis=dim, total_repeat_length=output_size)


@op("torch.roll", "torch.Tensor.roll")
def roll(input, shifts, dims=None):
    return jnp.roll(input, shifts, axis=dims)


@op("torch.flip")
def flip(input, dims):
    return jnp.flip(input, dims)


@op("torch.Tensor.flip")
def flip_axes(input, *dims):
    return jnp.flip(input, dims)


@op("torch.fliplr", "torch.Tensor.fliplr")
def fliplr(input):
    return jnp.fliplr(input)


@op("torch.flipud", "torch.Tensor.flipud")
def flipud(input):
    return jnp.flipud(input)


@op("torch.rot90", "torch.Tensor.rot90")
def rot90(input, k=1, dims=(0, 1)):
    return jnp.rot90(input, k, dims)


@op("torch.Tensor.unfold", "torch.unfold_copy")
def unfold_axis(input, dimension, size, step):
    """Windows of `size` every `step` along an axis, as a new last axis."""
    if input.ndim == 0:
        return input.reshape(1)[:size]
    starts = jnp.arange(0, input.shape[dimension] - size + 1, step)
    windows = jnp.take(input, starts[:, None] + jnp.arange(size), axis=dimension)
    return jnp.moveaxis(windows, dimension % input.ndim + 1, -1)


@op("torch.diagonal", "torch.Tensor.diagonal", "torch.diagonal_copy")
def diagonal(input, offset=0, dim1=0, dim2=1):
    return jnp.diagonal(input, offset, dim1, dim2)


@op("torch.linalg.diagonal")
def diagonal_last(A, *, offset=0, dim1=-2, dim2=-1):
    return jnp.diagonal(A, offset, dim1, dim2)


@op("torch.diag", "torch.Tensor.diag")
def diag(input, diagonal=0):
    return jnp.diag(input, diagonal)


@op("torch.diag_embed", "torch.Tensor.diag_embed")
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices over the axes `dim1` and `dim2` with `input`'s last axis on a diagonal."""
    size = input.shape[-1] + abs(offset)
    rows = jnp.arange(input.shape[-1]) + max(-offset, 0)
    result = jnp.zeros((*input.shape[:-1], size, size), input.dtype).at[..., rows, rows + offset].set(input)
    return jnp.moveaxis(result, (-2, -1), (dim1, dim2))


@op("torch.tril", "torch.Tensor.tril")
def tril(input, diagonal=0):
    return jnp.tril(input, diagonal)


@op("torch.triu", "torch.Tensor.triu")
def triu(input, diagonal=0):
    return jnp.triu(input, diagonal)


@op("torch.atleast_1d", when=lambda tensors: is_sequence(tensors))
def atleast_1d_of(tensors):
    return jnp.atleast_1d(*tensors)


@op("torch.atleast_1d")
def atleast_1d(*tensors):
    return jnp.atleast_1d(*tensors)


@op("torch.atleast_2d", when=lambda tensors: is_sequence(tensors))
def atleast_2d_of(tensors):
    return jnp.atleast_2d(*tensors)


@op("torch.atleast_2d")
def atleast_2d(*tensors):
    return jnp.atleast_2d(*tensors)


@op("torch.narrow", "torch.Tensor.narrow", "torch.narrow_copy", "torch.Tensor.narrow_copy")
def narrow(input, dim, start, length):
    return lax.dynamic_slice_in_dim(input, start, length, axis=dim)


@op("torch.select", "torch.Tensor.select")
def select(input, dim, index):
    return jnp.take(input, index, axis=dim)


@op("torch.atleast_3d", when=lambda tensors: is_sequence(tensors))
def atleast_3d_of(tensors):
    return jnp.atleast_3d(*tensors)


@op("torch.atleast_3d")
def atleast_3d(*tensors):
    return jnp.atleast_3d(*tensors)


@op("torch.diagflat", "torch.Tensor.diagflat")
def diagflat(input, offset=0):
    return jnp.diagflat(input, offset)


@op("torch.diagonal_scatter", "torch.Tensor.diagonal_scatter")
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """`input` with `src` as a diagonal of the axes `dim1` and `dim2`."""
    moved = jnp.moveaxis(input, (dim1, dim2), (-2, -1))
    rows = jnp.arange(src.shape[-1]) + max(-offset, 0)
    columns = jnp.arange(src.shape[-1]) + max(offset, 0)
    return jnp.moveaxis(moved.at[..., rows, columns].set(src), (-2, -1), (dim1, dim2))


@op("torch.Tensor.sum_to_size")
def sum_to_size(input, *size):
    """The sum over axes that a broadcast from `size` would have added or repeated."""
    sizes = size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size
    input = input.sum(tuple(range(input.ndim - len(sizes))))
    axes = tuple(axis for axis, (old, new) in enumerate(zip(input.shape, sizes, strict=True)) if new == 1 != old)
    return input.sum(axes, keepdims=True) if axes else input


@helper
def pair(value, count):
    """`value` repeated `count` times unless it already is a sequence."""
    return tuple(value) if isinstance(value, tuple | list) else (value,) * count
