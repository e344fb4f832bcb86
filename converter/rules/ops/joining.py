"""Joining and splitting of tensors."""

import ast
import itertools

import jax.numpy as jnp

from maxcode.converter.arguments import fact, is_sequence, literal, ndim
from maxcode.converter.rule import op


def _divides(input, chunks, dim):
    """Whether `chunks` equal parts fit every recorded shape; `jnp.split` raises for one that does not."""
    count, axis, shapes = literal(chunks), 0 if dim is None else literal(dim), fact(input).shapes
    if not (isinstance(count, int) and isinstance(axis, int) and shapes):
        return False
    return all(-len(shape) <= axis < len(shape) and shape[axis] % count == 0 for shape in shapes)


def _any_zero_d(tensors):
    return any(ndim(tensor) == 0 for tensor in getattr(tensors, "elts", tensors))


def _has_zero_d(tensors):
    return isinstance(tensors, list | ast.Tuple | ast.List) and _any_zero_d(tensors)


def _has_legacy_empty(tensors):
    """Whether some input was 1-D without entries beside others: torch skips it, whatever their rank."""
    shapes = [fact(tensor).shapes for tensor in getattr(tensors, "elts", ())]
    return any((0,) in s for s in shapes) and not all(len(shape) == 1 for s in shapes for shape in s)


@op("torch.cat", "torch.concat", "torch.concatenate", when=_has_legacy_empty)
def cat_filled(tensors, dim=0):
    """Join along an axis, without the 1-D inputs that have no entries."""
    return jnp.concatenate([tensor for tensor in tensors if tensor.shape != (0,)] or tensors, axis=dim)


@op("torch.cat", "torch.concat", "torch.concatenate")
def cat(tensors, dim=0):
    return jnp.concatenate(tensors, axis=dim)


@op("torch.stack")
def stack(tensors, dim=0):
    return jnp.stack(tensors, axis=dim)


@op("torch.hstack")
def hstack(tensors):
    return jnp.hstack(tensors)


@op("torch.vstack", "torch.row_stack")
def vstack(tensors):
    return jnp.vstack(tensors)


@op("torch.dstack")
def dstack(tensors):
    return jnp.dstack(tensors)


@op("torch.column_stack")
def column_stack(tensors):
    return jnp.column_stack(tensors)


@op("torch.block_diag")
def block_diag(*tensors):
    """A matrix with the given ones (0-d and 1-d count as one row) along its diagonal."""
    blocks = [jnp.atleast_2d(tensor) for tensor in tensors]
    rows, columns = sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)
    result = jnp.zeros((rows, columns), jnp.result_type(*blocks))
    row = column = 0
    for block in blocks:
        result = result.at[row : row + block.shape[0], column : column + block.shape[1]].set(block)
        row, column = row + block.shape[0], column + block.shape[1]
    return result


@op(
    "torch.split",
    "torch.Tensor.split",
    "torch.functional.split",
    "torch.split_with_sizes",
    "torch.Tensor.split_with_sizes",
    "torch.split_with_sizes_copy",
    "torch.unsafe_split",
    "torch.Tensor.unsafe_split",
)
def split(tensor, split_size_or_sections, dim=0):
    """Parts of the given size (the last may be smaller), or of the given sizes, along an axis."""
    size = tensor.shape[dim]
    if isinstance(split_size_or_sections, int):
        bounds = list(range(split_size_or_sections, size, split_size_or_sections))
    else:
        *bounds, total = itertools.accumulate(split_size_or_sections)
        if total != size:
            raise ValueError(f"split: sizes {split_size_or_sections} add up to {total}; axis {dim} has {size} entries")
    return tuple(jnp.split(tensor, bounds, axis=dim))


@op("torch.chunk", "torch.Tensor.chunk", "torch.unsafe_chunk", "torch.Tensor.unsafe_chunk", when=_divides)
def chunk_evenly(input, chunks, dim=0):
    return jnp.split(input, chunks, axis=dim)


@op("torch.chunk", "torch.Tensor.chunk", "torch.unsafe_chunk", "torch.Tensor.unsafe_chunk")
def chunk(input, chunks, dim=0):
    """At most `chunks` parts of equal size, the last one smaller."""
    size = -(-input.shape[dim] // chunks)
    return tuple(jnp.split(input, list(range(size, input.shape[dim], size)), axis=dim)) if size else (input,) * chunks


@op("torch.tensor_split", "torch.Tensor.tensor_split")
def tensor_split(input, indices_or_sections, dim=0):
    return jnp.array_split(input, indices_or_sections, axis=dim)


@op("torch.hsplit", "torch.Tensor.hsplit")
def hsplit(input, indices_or_sections):
    return jnp.hsplit(input, indices_or_sections)


@op("torch.vsplit", "torch.Tensor.vsplit")
def vsplit(input, indices_or_sections):
    return jnp.vsplit(input, indices_or_sections)


@op("torch.dsplit", "torch.Tensor.dsplit")
def dsplit(input, indices_or_sections):
    return jnp.dsplit(input, indices_or_sections)


@op("torch.unbind", "torch.Tensor.unbind", "torch.unbind_copy")
def unbind(input, dim=0):
    return jnp.unstack(input, axis=dim)


@op("torch.meshgrid", when=lambda tensors: is_sequence(tensors) and _has_zero_d(tensors))
def meshgrid_of_scalars(tensors, *, indexing="ij"):
    """Grids of axes, where a number is an axis of one entry."""
    return jnp.meshgrid(*map(jnp.atleast_1d, tensors), indexing=indexing)


@op("torch.meshgrid", when=_has_zero_d)
def meshgrid_with_scalars(*tensors, indexing="ij"):
    """Grids of axes, where a number is an axis of one entry."""
    return meshgrid_of_scalars(tensors, indexing=indexing)


@op("torch.meshgrid", when=lambda tensors: is_sequence(tensors))
def meshgrid_of(tensors, *, indexing="ij"):
    return jnp.meshgrid(*tensors, indexing=indexing)


@op("torch.meshgrid")
def meshgrid(*tensors, indexing="ij"):
    return jnp.meshgrid(*tensors, indexing=indexing)


@op("torch.cartesian_prod")
def cartesian_prod(*tensors):
    """Rows of all combinations of the entries of 1-d tensors."""
    if len(tensors) == 1:
        return tensors[0]
    return jnp.stack([grid.reshape(-1) for grid in jnp.meshgrid(*tensors, indexing="ij")], axis=-1)


@op("torch.nn.utils.rnn.pad_sequence")
def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Stack arrays [length, ...] of different lengths, each filled up on one side; the batch is axis 1, or axis 0."""
    longest = max(sequence.shape[0] for sequence in sequences)
    padded = []
    for sequence in sequences:
        room = longest - sequence.shape[0]
        edges = (room, 0) if padding_side == "left" else (0, room)
        others = [(0, 0)] * (sequence.ndim - 1)
        padded.append(jnp.pad(sequence, [edges, *others], constant_values=padding_value))
    return jnp.stack(padded, axis=0 if batch_first else 1)


@op("torch.combinations")
def combinations(input, r=2, with_replacement=False):
    """Rows of all choices of r entries of a vector, in the order of their positions."""
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    chosen = list(choose(range(input.shape[0]), r))
    return input[jnp.asarray(chosen, int).reshape(len(chosen), r)] if r else jnp.zeros(0, input.dtype)
