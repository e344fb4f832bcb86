"""Statistics, integrals along axes, and counts."""

import jax.numpy as jnp

from maxcode.converter.arguments import ndim
from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.normalization import p_norm
from maxcode.converter.rules.ops.reduction import ValuesAndIndices

_ZERO_D = ("input",)  # lifted to vectors where they are 0-d


@op("torch.cov", "torch.Tensor.cov", rtol=1e-9, atol=1e-9)
def cov(input, *, correction=1, fweights=None, aweights=None):
    """Covariances of the rows of [variables, observations]; sums of weights are taken in the weights' own dtype."""
    x = jnp.atleast_2d(input)
    given = [weights for weights in (fweights, aweights) if weights is not None]
    if given:
        weights = given[0] if len(given) == 1 else given[0] * given[1]
        total = weights.sum()
        mean = (x * weights).sum(1, keepdims=True) / total
        share = 1 if aweights is None else (weights * aweights).sum() / total
        scale = total - correction * share
    else:
        weights, mean, scale = 1, x.mean(1, keepdims=True), x.shape[1] - correction
    centred = x - mean
    return ((centred * weights) @ centred.mT.conj() / jnp.maximum(scale, 0)).squeeze()


@op("torch.corrcoef", "torch.Tensor.corrcoef", rtol=1e-9, atol=1e-9)
def corrcoef(input):
    return jnp.corrcoef(input)


@helper
def trapezoids(y, x, dx, dim):
    """Areas between neighbours along an axis, which is moved to the end."""
    axis = dim % y.ndim
    y = jnp.moveaxis(y, axis, -1)
    if x is not None:
        # A vector goes along the axis; other shapes are aligned with y's from the right.
        x = x if x.ndim == 1 else jnp.moveaxis(x.reshape((1,) * (y.ndim - x.ndim) + x.shape), axis, -1)
        dx = jnp.diff(x, axis=-1)
    return dx * (y[..., 1:] + y[..., :-1]) / 2


@op("torch.trapezoid", "torch.trapz")
def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral along an axis by the trapezoidal rule."""
    return trapezoids(y, x, dx, dim).sum(-1)


@op("torch.cumulative_trapezoid")
def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The running integral along an axis by the trapezoidal rule."""
    return jnp.moveaxis(jnp.cumsum(trapezoids(y, x, dx, dim), -1), -1, dim % y.ndim)


@helper
def slopes_along(values, places, edge_order):
    """Finite differences along the first axis at increasing or decreasing `places`, of second order inside."""
    step = jnp.diff(places).reshape(-1, *(1,) * (values.ndim - 1))
    slope = jnp.diff(values, axis=0) / step
    before, after = step[:-1], step[1:]
    inner = (slope[:-1] * after + slope[1:] * before) / (before + after)
    first, last = slope[:1], slope[-1:]
    if edge_order == 2:
        first = first + (slope[:1] - slope[1:2]) * step[:1] / (step[:1] + step[1:2])
        last = last + (slope[-1:] - slope[-2:-1]) * step[-1:] / (step[-1:] + step[-2:-1])
    return jnp.concatenate([first, inner, last], 0)


@op("torch.gradient")
def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Finite differences along each axis; `spacing` is one distance, one for each axis, or coordinates of each."""
    axes = range(input.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    axes = [axis % input.ndim for axis in axes]
    given = spacing if isinstance(spacing, tuple | list) else [1 if spacing is None else spacing] * len(axes)
    found = []
    for axis, space in zip(axes, given, strict=True):
        places = space if jnp.ndim(space) else jnp.arange(input.shape[axis]) * space
        moved = slopes_along(jnp.moveaxis(input, axis, 0), places, edge_order)
        found.append(jnp.moveaxis(moved, 0, axis).astype(input.dtype))
    return found


@op("torch.nanquantile", "torch.Tensor.nanquantile", when=lambda input: ndim(input) == 0)
def nanquantile_of_scalar(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    return jnp.nanquantile(input.reshape(1), q, method=interpolation)


@op("torch.nanquantile", "torch.Tensor.nanquantile")
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    return jnp.nanquantile(input, q, axis=dim, keepdims=keepdim, method=interpolation)


@op("torch.nanmedian", "torch.Tensor.nanmedian")
def nanmedian_everything(input):
    """The lower median of the entries that are numbers."""
    flat = jnp.sort(input.reshape(-1))  # NaNs come last
    count = (~jnp.isnan(flat)).sum()
    return flat[jnp.maximum(count - 1, 0) // 2]


@op("torch.nanmedian", "torch.Tensor.nanmedian", vectors=_ZERO_D)
def nanmedian_along(input, dim=-1, keepdim=False):
    """Lower medians along an axis of the entries that are numbers, and a position of each."""
    order = jnp.argsort(input, axis=dim)
    count = (~jnp.isnan(input)).sum(dim, keepdims=True)
    indices = jnp.take_along_axis(order, jnp.maximum(count - 1, 0) // 2, axis=dim)
    values = jnp.take_along_axis(input, indices, axis=dim)
    return ValuesAndIndices(*((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))))


@op("torch.renorm", "torch.Tensor.renorm")
def renorm(input, p, dim, maxnorm):
    """Slices along an axis scaled down to a p-norm of at most `maxnorm`."""
    axes = tuple(axis for axis in range(input.ndim) if axis != dim % input.ndim)
    size = p_norm(input, p, axes, True)
    return input * jnp.where(size > maxnorm, maxnorm / (size + 1e-7), 1)


@op("torch.histc", "torch.Tensor.histc")
def histc(input, bins=100, min=0, max=0):
    """Counts in `bins` equal intervals from min to max (of the data if both are equal); others are left out."""
    flat = input.reshape(-1)
    low, high = (flat.min(), flat.max()) if min == max and flat.size else (min, max)
    low, high = jnp.asarray(low, input.dtype), jnp.asarray(high, input.dtype)
    low, high = jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)
    place = jnp.floor((flat - low) / (high - low) * bins).astype(int)
    inside = (flat >= low) & (flat <= high)
    place = jnp.where(inside, jnp.minimum(place, bins - 1), bins)
    return jnp.zeros(bins, input.dtype).at[place].add(1, mode="drop")
