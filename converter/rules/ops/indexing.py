"""Reading and writing at computed positions; writers return the changed tensor."""

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import fact, is_omitted, literal, ndim
from maxcode.converter.rule import helper, op
from maxcode.converter.support import bags

_ZERO_D = ("input", "index", "src", "source")  # lifted to vectors where they are 0-d
_OTHER_RANK = {
    "an empty index of another rank is not converted": lambda input, index: (
        None not in (ndim(input), ndim(index)) and ndim(input) != ndim(index)
    )
}


def _is_nothing_of_another_rank(input, index):
    """Whether every run saw an empty index of another rank than the input's, which torch takes."""
    return bool(fact(index).shapes) and ndim(input) != ndim(index) and all(0 in shape for shape in fact(index).shapes)


def _covers_other_axes(input, dim, index):
    """Whether the index has the input's size on every other axis, as far as the run saw.

    Sizes 1 are excluded, since `take_along_axis` would broadcast them; it raises for other differences.
    """
    axis, shape, other = literal(dim), fact(input).shape, fact(index).shape
    if not isinstance(axis, int) or not shape or other is None or len(shape) != len(other):
        return False
    axis %= len(shape)
    return all(i == axis or a == b > 1 for i, (a, b) in enumerate(zip(shape, other, strict=True)))


@op("torch.gather", "torch.Tensor.gather", when=_covers_other_axes)
def gather_aligned(input, dim, index, *, sparse_grad=False):
    return jnp.take_along_axis(input, index, axis=dim)


@op("torch.gather", "torch.Tensor.gather", when=lambda input: ndim(input) == 0)
def gather_scalar(input, dim, index, *, sparse_grad=False):
    return jnp.broadcast_to(input, index.shape)


@op("torch.gather", "torch.Tensor.gather", when=_is_nothing_of_another_rank)
def gather_nothing(input, dim, index, *, sparse_grad=False):
    return jnp.zeros(index.shape, input.dtype)


@op("torch.gather", "torch.Tensor.gather", vectors=_ZERO_D, limits=_OTHER_RANK)
def gather(input, dim, index, *, sparse_grad=False):
    """Entries at `index` along an axis; the index may cover less than the input on the other axes."""
    axis = dim % input.ndim
    covered = tuple(slice(None) if i == axis else slice(size) for i, size in enumerate(index.shape))
    return jnp.take_along_axis(input[covered], index, axis=axis)


@op("torch.take_along_dim", "torch.Tensor.take_along_dim", when=lambda dim: is_omitted(dim))
def take_along_flat(input, indices, dim=None):
    return jnp.take_along_axis(input.reshape(-1), indices.reshape(-1), axis=0)


@op("torch.take_along_dim", "torch.Tensor.take_along_dim")
def take_along_dim(input, indices, dim=None):
    return jnp.take_along_axis(input, indices, axis=dim)


@op("torch.index_select", "torch.Tensor.index_select", vectors=_ZERO_D)
def index_select(input, dim, index):
    return jnp.take(input, index, axis=dim)


@op("torch.take", "torch.Tensor.take")
def take(input, index):
    return jnp.take(input, index)


@op("torch.unravel_index")
def unravel_index(indices, shape):
    return jnp.unravel_index(indices, shape)


@helper
def window(x, start, size, axis):
    """`size` entries of an axis from `start` on, which may be traced; one beyond the end is moved back to fit then."""
    if isinstance(start, int):
        return x[(slice(None),) * axis + (slice(start, start + size),)]
    return lax.dynamic_slice_in_dim(x, start, size, axis)


@helper
def positions_along(index, dim):
    """An index tuple that addresses, for every entry of `index`, the same place with `index` on the axis `dim`."""
    axis = dim % index.ndim
    return tuple(index if i == axis else lax.broadcasted_iota(int, index.shape, i) for i in range(index.ndim))


@helper
def covered_by(index, src):
    """The part of `src` that torch's scatter reads: its first entries on every axis."""
    return src[tuple(slice(size) for size in index.shape)] if jnp.ndim(src) else src


@op("torch.scatter", "torch.Tensor.scatter", vectors=_ZERO_D)
def scatter(input, dim, index, src):
    """`input` with the entries of `src` (an array or a number) at `index` along an axis."""
    return input.at[positions_along(index, dim)].set(covered_by(index, src))


@op("torch.scatter", "torch.Tensor.scatter", vectors=_ZERO_D)
def scatter_value(input, dim, index, value):
    return scatter(input, dim, index, value)


@op("torch.scatter", "torch.Tensor.scatter", vectors=_ZERO_D, when=lambda reduce: literal(reduce) == "add")
def scatter_with_add(input, dim, index, src, *, reduce):
    return scatter_add(input, dim, index, src)


@op("torch.scatter", "torch.Tensor.scatter", vectors=_ZERO_D, when=lambda reduce: literal(reduce) == "multiply")
def scatter_with_multiply(input, dim, index, src, *, reduce):
    return scatter_reduce(input, dim, index, src, "prod")


@op("torch.scatter_add", "torch.Tensor.scatter_add", vectors=_ZERO_D)
def scatter_add(input, dim, index, src):
    """`input` plus the entries of `src` at `index` along an axis."""
    return input.at[positions_along(index, dim)].add(covered_by(index, src))


@helper
def multiplied_at(input, where, src):
    """`input` times all entries of `src` that are sent to each place; JAX has no gradient where places repeat.

    A factor's derivative is the product of the others: of all over itself, or, where it is the only 0, of the rest.
    """
    product = jax.custom_jvp(lambda start, factors: start.at[where].multiply(factors))

    def differentiate(primals, tangents):
        start, factors = primals
        rest = jnp.where(start == 0, 1, start).at[where].multiply(jnp.where(factors == 0, 1, factors))
        zeros = (start == 0).astype(int).at[where].add((factors == 0).astype(int))

        def others(value, rest, zeros):
            alone = jnp.where(value == 0, zeros == 1, zeros == 0)
            return jnp.where(alone, jnp.where(value == 0, rest, rest / jnp.where(value == 0, 1, value)), 0)

        slope = others(start, rest, zeros) * tangents[0]
        slope = slope.at[where].add(others(factors, rest[where], zeros[where]) * tangents[1])
        return product(start, factors), slope

    product.defjvp(differentiate)
    return product(input, src)


@op("torch.scatter_reduce", "torch.Tensor.scatter_reduce", vectors=_ZERO_D)
def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """`input` with entries of `src` reduced into it at `index` by sum, prod, mean, amax or amin."""
    where = positions_along(index, dim)
    src = covered_by(index, src)
    if not include_self:
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": -jnp.inf, "amin": jnp.inf}[reduce]
        if jnp.issubdtype(input.dtype, jnp.integer) and reduce in ("amax", "amin"):
            neutral = jnp.iinfo(input.dtype).min if reduce == "amax" else jnp.iinfo(input.dtype).max
        input = input.at[where].set(neutral)
    if reduce == "mean":
        counts = jnp.full(input.shape, int(include_self), input.dtype).at[where].add(1)
        total = input.at[where].add(src)
        counts = jnp.maximum(counts, 1)
        return total // counts if jnp.issubdtype(input.dtype, jnp.integer) else total / counts
    if reduce == "prod":
        return multiplied_at(input, where, jnp.broadcast_to(src, where[0].shape))
    method = {"sum": "add", "amax": "max", "amin": "min"}[reduce]
    return getattr(input.at[where], method)(src)


@op("torch.index_add", "torch.Tensor.index_add", vectors=_ZERO_D)
def index_add(input, dim, index, source, *, alpha=1):
    """`input` plus `alpha` times the slices of `source` at the positions `index` of an axis."""
    where = (slice(None),) * (dim % input.ndim)
    return input.at[(*where, index)].add(alpha * source)


@op("torch.index_reduce", "torch.Tensor.index_reduce")
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """`input` with the slices of `source` reduced into it at the positions `index` of an axis."""
    if input.ndim == 0:
        vectors = [x.reshape(-1) for x in (input, index, source)]
        return index_reduce(vectors[0], 0, vectors[1], vectors[2], reduce, include_self=include_self).reshape(())
    where = index.reshape([-1 if axis == dim % input.ndim else 1 for axis in range(input.ndim)])
    return scatter_reduce(input, dim, jnp.broadcast_to(where, source.shape), source, reduce, include_self=include_self)


@op("torch.put", "torch.Tensor.put")
def put(input, index, source, accumulate=False):
    """`input` with the entries of `source` at flat positions; with `accumulate` they are added."""
    flat, places, values = input.reshape(-1), index.reshape(-1), source.reshape(-1)
    changed = flat.at[places].add(values) if accumulate else flat.at[places].set(values)
    return changed.reshape(input.shape)


@op("torch.nonzero_static", "torch.Tensor.nonzero_static")
def nonzero_static(input, *, size, fill_value=-1):
    """Positions [size, axes] of the first entries that are not 0, filled up with `fill_value`."""
    if input.ndim == 0 or input.size == 0:
        return jnp.full((size, input.ndim), fill_value, int)
    return jnp.stack(jnp.nonzero(input, size=size, fill_value=fill_value), -1)


@op("torch.index_copy", "torch.Tensor.index_copy", vectors=_ZERO_D)
def index_copy(input, dim, index, source):
    """`input` with the slices of `source` at the positions `index` of an axis."""
    where = (slice(None),) * (dim % input.ndim)
    return input.at[(*where, index)].set(source)


@op("torch.index_fill", "torch.Tensor.index_fill", vectors=_ZERO_D)
def index_fill(input, dim, index, value):
    """`input` with `value` at the positions `index` of an axis."""
    where = (slice(None),) * (dim % input.ndim)
    return input.at[(*where, index)].set(value)


@op("torch.index_put", "torch.Tensor.index_put", when=lambda accumulate: literal(accumulate) in (True,))
def index_put_add(input, indices, values, accumulate=False):
    return input.at[tuple(indices)].add(values)


@op("torch.index_put", "torch.Tensor.index_put")
def index_put(input, indices, values, accumulate=False):
    return input.at[tuple(indices)].set(values)


@op("torch.masked_scatter", "torch.Tensor.masked_scatter")
def masked_scatter(input, mask, source):
    """`input` with the entries of `source`, in order, at the places where `mask` holds."""
    input, mask = jnp.broadcast_arrays(input, mask)
    position = jnp.cumsum(mask.reshape(-1)) - 1
    values = jnp.take(source.reshape(-1), jnp.maximum(position, 0), mode="clip").reshape(mask.shape)
    return jnp.where(mask, values, input)


@op("torch.select_scatter", "torch.Tensor.select_scatter")
def select_scatter(input, src, dim, index):
    """`input` with `src` as the slice at `index` of an axis."""
    return input.at[(*(slice(None),) * (dim % input.ndim), index)].set(src)


@op("torch.slice_scatter", "torch.Tensor.slice_scatter")
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """`input` with `src` as the slice start:end:step of an axis."""
    return input.at[(*(slice(None),) * (dim % input.ndim), slice(start, end, step))].set(src)


@op(
    "torch.nn.functional.one_hot",
    limits={"num_classes is not given, so the result's shape depends on data": lambda num_classes: num_classes is None
            or literal(num_classes) == -1},
)  # fmt: skip
def one_hot(tensor, num_classes=-1):
    return jax.nn.one_hot(tensor, num_classes, dtype=int)


_EMBEDDING = {
    "max_norm changes the weights while reading": lambda max_norm: (
        max_norm is not None and literal(max_norm) is not None
    ),
    "scale_grad_by_freq is not converted": lambda scale_grad_by_freq: literal(scale_grad_by_freq) is True,
}


@op(
    "torch.nn.functional.embedding",
    limits=_EMBEDDING,
    when=lambda padding_idx: literal(padding_idx) is None or padding_idx is None,
)
def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    return weight[input]


@op("torch.nn.functional.embedding", limits=_EMBEDDING)
def embedding_padded(
    input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
):
    """Rows of `weight`; the row `padding_idx` gets no gradient."""
    if padding_idx is not None:
        weight = weight.at[padding_idx].set(lax.stop_gradient(weight[padding_idx]))
    return weight[input]


@op("torch.nn.functional.embedding_bag", limits=_EMBEDDING)
def embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None,
):  # fmt: skip
    return bags.embedding_bag(
        input,
        weight,
        offsets,
        mode=mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )
