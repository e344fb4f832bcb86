"""Reductions and scans."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import is_omitted, is_tensor, literal, ndim
from maxcode.converter.rule import helper, op

_ZERO_D = ("input",)  # lifted to vectors where they are 0-d


def _is_everything(dim):
    """Torch reduces every axis for None and for an empty list."""
    return is_omitted(dim) or literal(dim) in ((), [])


@helper
class ValuesAndIndices(NamedTuple):
    """What torch's max, min, sort, topk … along an axis return."""

    values: jax.Array
    indices: jax.Array


@op("torch.sum", "torch.Tensor.sum", when=lambda dim, keepdim: _is_everything(dim) and keepdim is None)
def sum_everything(input, dim=None, keepdim=None, *, dtype=None):
    return input.sum(dtype=dtype)


@op("torch.sum", "torch.Tensor.sum", vectors=_ZERO_D)
def sum_along(input, dim, keepdim=False, *, dtype=None):
    return input.sum(None if dim == () else dim, keepdims=keepdim, dtype=dtype)


@op("torch.nansum", "torch.Tensor.nansum", vectors=_ZERO_D)
def nansum(input, dim=None, keepdim=False, *, dtype=None):
    return jnp.nansum(input, axis=None if dim == () else dim, keepdims=keepdim, dtype=dtype)


@op("torch.mean", "torch.Tensor.mean", when=lambda dim, keepdim: _is_everything(dim) and keepdim is None)
def mean_everything(input, dim=None, keepdim=None, *, dtype=None):
    return input.mean(dtype=dtype)


@op("torch.mean", "torch.Tensor.mean", vectors=_ZERO_D)
def mean_along(input, dim, keepdim=False, *, dtype=None):
    return input.mean(None if dim == () else dim, keepdims=keepdim, dtype=dtype)


@op("torch.nanmean", "torch.Tensor.nanmean", vectors=_ZERO_D)
def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    return jnp.nanmean(input, axis=None if dim == () else dim, keepdims=keepdim, dtype=dtype)


@op("torch.prod", "torch.Tensor.prod", vectors=_ZERO_D)
def prod(input, dim=None, keepdim=False, *, dtype=None):
    return jnp.prod(input, axis=dim, keepdims=keepdim, dtype=dtype)


@op("torch.amax", "torch.Tensor.amax", vectors=_ZERO_D, when=lambda dim: not _is_everything(dim))
def amax(input, dim, keepdim=False):
    return input.max(dim, keepdims=keepdim)


@op("torch.amax", "torch.Tensor.amax")
def amax_everything(input, dim=None, keepdim=False):
    return input.max(keepdims=keepdim)


@op("torch.amin", "torch.Tensor.amin", vectors=_ZERO_D, when=lambda dim: not _is_everything(dim))
def amin(input, dim, keepdim=False):
    return input.min(dim, keepdims=keepdim)


@op("torch.amin", "torch.Tensor.amin")
def amin_everything(input, dim=None, keepdim=False):
    return input.min(keepdims=keepdim)


@op("torch.aminmax", "torch.Tensor.aminmax", vectors=_ZERO_D)
def aminmax(input, *, dim=None, keepdim=False):
    return input.min(dim, keepdims=keepdim), input.max(dim, keepdims=keepdim)


@op("torch.max", "torch.Tensor.max")
def max_everything(input):
    return input.max()


@op("torch.max", "torch.Tensor.max", when=lambda other: is_tensor(other))
def max_of_two(input, other):
    return jnp.maximum(input, other)


@op("torch.max", "torch.Tensor.max", vectors=_ZERO_D)
def max_along(input, dim, keepdim=False):
    """Maxima along an axis and where they are first found."""
    return ValuesAndIndices(input.max(dim, keepdims=keepdim), jnp.argmax(input, dim, keepdims=keepdim))


@op("torch.min", "torch.Tensor.min")
def min_everything(input):
    return input.min()


@op("torch.min", "torch.Tensor.min", when=lambda other: is_tensor(other))
def min_of_two(input, other):
    return jnp.minimum(input, other)


@op("torch.min", "torch.Tensor.min", vectors=_ZERO_D)
def min_along(input, dim, keepdim=False):
    """Minima along an axis and where they are first found."""
    return ValuesAndIndices(input.min(dim, keepdims=keepdim), jnp.argmin(input, dim, keepdims=keepdim))


@op("torch.argmax", "torch.Tensor.argmax", vectors=_ZERO_D)
def argmax(input, dim=None, keepdim=False):
    return jnp.argmax(input, axis=dim, keepdims=keepdim)


@op("torch.argmin", "torch.Tensor.argmin", vectors=_ZERO_D)
def argmin(input, dim=None, keepdim=False):
    return jnp.argmin(input, axis=dim, keepdims=keepdim)


@op("torch.any", "torch.Tensor.any", vectors=_ZERO_D)
def any_of(input, dim=None, keepdim=False):
    return jnp.any(input, axis=dim, keepdims=keepdim)


@op("torch.all", "torch.Tensor.all", vectors=_ZERO_D)
def all_of(input, dim=None, keepdim=False):
    return jnp.all(input, axis=dim, keepdims=keepdim)


@op("torch.count_nonzero", "torch.Tensor.count_nonzero", vectors=_ZERO_D)
def count_nonzero(input, dim=None):
    return jnp.count_nonzero(input, axis=None if dim == () else dim)


def _is_flag(unbiased):
    """Whether the first argument is the constant bool that older calls write there."""
    return isinstance(literal(unbiased), bool)


@op("torch.var", "torch.Tensor.var", when=_is_flag)
def var_of_all(input, unbiased):
    return input.var(ddof=int(unbiased))


@op("torch.var", "torch.Tensor.var", when=lambda unbiased: unbiased is not None, vectors=_ZERO_D)
def var_unbiased(input, dim=None, unbiased=True, keepdim=False):
    return jnp.var(input, axis=None if dim == () else dim, ddof=int(unbiased), keepdims=keepdim)


@op("torch.var", "torch.Tensor.var", vectors=_ZERO_D)
def var(input, dim=None, *, correction=1, keepdim=False):
    return jnp.var(
        input, axis=None if dim == () else dim, ddof=1 if correction is None else correction, keepdims=keepdim
    )


@op("torch.std", "torch.Tensor.std", when=_is_flag)
def std_of_all(input, unbiased):
    return input.std(ddof=int(unbiased))


@op("torch.std", "torch.Tensor.std", when=lambda unbiased: unbiased is not None, vectors=_ZERO_D)
def std_unbiased(input, dim=None, unbiased=True, keepdim=False):
    return jnp.std(input, axis=None if dim == () else dim, ddof=int(unbiased), keepdims=keepdim)


@op("torch.std", "torch.Tensor.std", vectors=_ZERO_D)
def std(input, dim=None, *, correction=1, keepdim=False):
    return jnp.std(
        input, axis=None if dim == () else dim, ddof=1 if correction is None else correction, keepdims=keepdim
    )


@op("torch.var_mean", when=_is_flag)
def var_mean_of_all(input, unbiased):
    return input.var(ddof=int(unbiased)), input.mean()


@op("torch.var_mean", when=lambda unbiased: unbiased is not None, vectors=_ZERO_D)
def var_mean_unbiased(input, dim=None, unbiased=True, keepdim=False):
    """Spread and mean along axes."""
    axes = None if dim == () else dim
    return jnp.var(input, axes, ddof=int(unbiased), keepdims=keepdim), jnp.mean(input, axes, keepdims=keepdim)


@op("torch.var_mean", vectors=_ZERO_D, when=lambda dim: not isinstance(literal(dim), bool))
def var_mean(input, dim=None, *, correction=1, keepdim=False):
    return (
        jnp.var(input, axis=None if dim == () else dim, ddof=1 if correction is None else correction, keepdims=keepdim),
        jnp.mean(input, axis=None if dim == () else dim, keepdims=keepdim),
    )


@op("torch.std_mean", when=_is_flag)
def std_mean_of_all(input, unbiased):
    return input.std(ddof=int(unbiased)), input.mean()


@op("torch.std_mean", when=lambda unbiased: unbiased is not None, vectors=_ZERO_D)
def std_mean_unbiased(input, dim=None, unbiased=True, keepdim=False):
    """Spread and mean along axes."""
    axes = None if dim == () else dim
    return jnp.std(input, axes, ddof=int(unbiased), keepdims=keepdim), jnp.mean(input, axes, keepdims=keepdim)


@op("torch.std_mean", vectors=_ZERO_D, when=lambda dim: not isinstance(literal(dim), bool))
def std_mean(input, dim=None, *, correction=1, keepdim=False):
    return (
        jnp.std(input, axis=None if dim == () else dim, ddof=1 if correction is None else correction, keepdims=keepdim),
        jnp.mean(input, axis=None if dim == () else dim, keepdims=keepdim),
    )


@op("torch.logsumexp", "torch.Tensor.logsumexp", "torch.special.logsumexp", vectors=_ZERO_D)
def logsumexp(input, dim, keepdim=False):
    return jax.nn.logsumexp(input, axis=dim, keepdims=keepdim)


@op("torch.cumsum", "torch.Tensor.cumsum", vectors=_ZERO_D)
def cumsum(input, dim, *, dtype=None):
    return jnp.cumsum(input, axis=dim, dtype=dtype)


@op("torch.cumprod", "torch.Tensor.cumprod", vectors=_ZERO_D)
def cumprod(input, dim, *, dtype=None):
    return jnp.cumprod(input, axis=dim, dtype=dtype)


@op("torch.logcumsumexp", "torch.Tensor.logcumsumexp", vectors=_ZERO_D)
def logcumsumexp(input, dim):
    """Running log-sum-exp along an axis."""
    return lax.cumlogsumexp(input, axis=dim % input.ndim)


@op("torch.cummax", "torch.Tensor.cummax", vectors=_ZERO_D)
def cummax(input, dim):
    """Running maxima along an axis and the last position at which each was reached."""
    axis = dim % input.ndim
    values = lax.cummax(input, axis=axis)
    positions = lax.broadcasted_iota(jnp.asarray(0).dtype, input.shape, axis)
    return ValuesAndIndices(values, lax.cummax(jnp.where(input == values, positions, 0), axis=axis))


@op("torch.cummin", "torch.Tensor.cummin", vectors=_ZERO_D)
def cummin(input, dim):
    """Running minima along an axis and the last position at which each was reached."""
    axis = dim % input.ndim
    values = lax.cummin(input, axis=axis)
    positions = lax.broadcasted_iota(jnp.asarray(0).dtype, input.shape, axis)
    return ValuesAndIndices(values, lax.cummax(jnp.where(input == values, positions, 0), axis=axis))


@op("torch.diff", "torch.Tensor.diff", vectors=_ZERO_D)
def diff(input, n=1, dim=-1, prepend=None, append=None):
    return jnp.diff(input, n, axis=dim, prepend=prepend, append=append)


@op("torch.median", "torch.Tensor.median")
def median_everything(input):
    """The lower median of all entries."""
    flat = input.reshape(-1)
    return jnp.sort(flat)[(flat.size - 1) // 2]


@op("torch.median", "torch.Tensor.median", vectors=_ZERO_D)
def median_along(input, dim=-1, keepdim=False):
    """Lower medians along an axis and a position of each."""
    middle = (input.shape[dim] - 1) // 2
    order = jnp.argsort(input, axis=dim)
    indices = jnp.take(order, jnp.asarray([middle]), axis=dim)
    values = jnp.take_along_axis(input, indices, axis=dim)
    return ValuesAndIndices(*((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))))


@op("torch.quantile", "torch.Tensor.quantile", when=lambda input: ndim(input) == 0)
def quantile_of_scalar(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    return jnp.quantile(input.reshape(1), q, method=interpolation)


@op("torch.quantile", "torch.Tensor.quantile")
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    return jnp.quantile(input, q, axis=dim, keepdims=keepdim, method=interpolation)
