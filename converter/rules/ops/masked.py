"""`torch.masked`: reductions and normalisations of the entries where a mask holds; others count as the neutral one."""

import jax
import jax.numpy as jnp

from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.normalization import p_norm
from maxcode.converter.rules.ops.statistics import nanmedian_along

_VECTORS = ("input", "mask")  # lifted to vectors where they are 0-d


@helper
def kept_entries(input, mask, neutral):
    """`input` where the mask (broadcast; None for everywhere) holds, `neutral` elsewhere."""
    return input if mask is None else jnp.where(mask.astype(bool), input, jnp.asarray(neutral, input.dtype))


@helper
def least_of(dtype):
    """The value that no maximum notices."""
    return -jnp.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min


@helper
def greatest_of(dtype):
    """The value that no minimum notices."""
    return jnp.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).max


@helper
def all_axes(dim):
    """Axes as JAX takes them; torch's empty tuple means all."""
    return None if dim is None or dim == () else dim


@op("torch.masked.sum", vectors=_VECTORS)
def masked_sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Sums of the kept entries."""
    return kept_entries(input, mask, 0).sum(all_axes(dim), keepdims=bool(keepdim), dtype=dtype)


@op("torch.masked.prod", vectors=_VECTORS)
def masked_prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Products of the kept entries."""
    return kept_entries(input, mask, 1).prod(all_axes(dim), keepdims=bool(keepdim), dtype=dtype)


@op("torch.masked.amax", vectors=_VECTORS)
def masked_amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Maxima of the kept entries."""
    found = kept_entries(input, mask, least_of(input.dtype)).max(all_axes(dim), keepdims=bool(keepdim))
    return found if dtype is None else found.astype(dtype)


@op("torch.masked.amin", vectors=_VECTORS)
def masked_amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Minima of the kept entries."""
    found = kept_entries(input, mask, greatest_of(input.dtype)).min(all_axes(dim), keepdims=bool(keepdim))
    return found if dtype is None else found.astype(dtype)


@op("torch.masked.argmax", vectors=_VECTORS)
def masked_argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Positions of the maxima of the kept entries, in the input's dtype as torch gives them."""
    places = jnp.argmax(kept_entries(input, mask, least_of(input.dtype)), dim, keepdims=bool(keepdim))
    return places.astype(input.dtype if dtype is None else dtype)


@op("torch.masked.argmin", vectors=_VECTORS)
def masked_argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Positions of the minima of the kept entries, in the input's dtype as torch gives them."""
    places = jnp.argmin(kept_entries(input, mask, greatest_of(input.dtype)), dim, keepdims=bool(keepdim))
    return places.astype(input.dtype if dtype is None else dtype)


@helper
def count_kept(input, dim, keepdim, mask):
    """How many entries a mask keeps along axes."""
    kept = jnp.ones(input.shape, bool) if mask is None else jnp.broadcast_to(mask.astype(bool), input.shape)
    return kept.sum(all_axes(dim), keepdims=bool(keepdim))


@op("torch.masked.mean", vectors=_VECTORS)
def masked_mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Means of the kept entries, NaN where there are none."""
    total = masked_sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
    return total / count_kept(input, dim, keepdim, mask)


@op("torch.masked.median", vectors=_VECTORS)
def masked_median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """Lower medians of the kept entries along an axis, NaN where there are none."""
    return nanmedian_along(kept_entries(input, mask, jnp.nan), dim, keepdim).values


@op("torch.masked.norm", vectors=_VECTORS)
def masked_norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """p-norms of the kept entries."""
    kept = kept_entries(input, mask, jnp.inf if ord == -jnp.inf else 0)
    return p_norm(kept if dtype is None else kept.astype(dtype), ord, all_axes(dim), bool(keepdim))


@helper
def masked_variance(input, dim, correction, keepdim, dtype, mask):
    """Variances of the kept entries, with `correction` taken off their count."""
    count = count_kept(input, dim, True, mask)
    centred = input - masked_sum(input, dim, keepdim=True, dtype=dtype, mask=mask) / count
    total = masked_sum(centred * centred.conj(), dim, keepdim=keepdim, dtype=dtype, mask=mask)
    return total / jnp.maximum(count.reshape(total.shape) - correction, 0)


@helper
def correction_of(unbiased, correction):
    """What is taken off the number of entries: 1 unless either argument says otherwise."""
    return (1 if unbiased is None else int(unbiased)) if correction is None else correction


@op("torch.masked.var", vectors=_VECTORS)
def masked_var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """Variances of the kept entries."""
    return masked_variance(input, dim, correction_of(unbiased, correction), keepdim, dtype, mask)


@op("torch.masked.std", vectors=_VECTORS)
def masked_std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """Standard deviations of the kept entries."""
    return jnp.sqrt(masked_variance(input, dim, correction_of(unbiased, correction), keepdim, dtype, mask))


@op("torch.masked.logsumexp", vectors=_VECTORS)
def masked_logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log of the sum of exponentials of the kept entries."""
    kept = kept_entries(input, mask, -jnp.inf)
    found = jax.nn.logsumexp(kept, axis=all_axes(dim), keepdims=bool(keepdim))
    return found if dtype is None else found.astype(dtype)


@op("torch.masked.logaddexp")
def masked_logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(exp(input) + exp(other)) of the kept entries."""
    found = jnp.logaddexp(kept_entries(input, input_mask, -jnp.inf), kept_entries(other, other_mask, -jnp.inf))
    return found if dtype is None else found.astype(dtype)


@op("torch.masked.cumsum", vectors=_VECTORS)
def masked_cumsum(input, dim, *, dtype=None, mask=None):
    """Running sums of the kept entries."""
    return jnp.cumsum(kept_entries(input, mask, 0), axis=dim, dtype=dtype)


@op("torch.masked.cumprod", vectors=_VECTORS)
def masked_cumprod(input, dim, *, dtype=None, mask=None):
    """Running products of the kept entries."""
    return jnp.cumprod(kept_entries(input, mask, 1), axis=dim, dtype=dtype)


@op("torch.masked.softmax", vectors=_VECTORS)
def masked_softmax(input, dim, *, dtype=None, mask=None):
    """Softmax over the kept entries."""
    kept = kept_entries(input, mask, -jnp.inf)
    return jax.nn.softmax(kept if dtype is None else kept.astype(dtype), axis=dim)


@op("torch.masked.log_softmax", vectors=_VECTORS)
def masked_log_softmax(input, dim, *, dtype=None, mask=None):
    """Logarithms of the softmax over the kept entries."""
    kept = kept_entries(input, mask, -jnp.inf)
    return jax.nn.log_softmax(kept if dtype is None else kept.astype(dtype), axis=dim)


@op("torch.masked.softmin", vectors=_VECTORS)
def masked_softmin(input, dim, *, dtype=None, mask=None):
    """Softmax of the negated kept entries."""
    return masked_softmax(-input, dim, dtype=dtype, mask=mask)


@op("torch.masked.normalize", vectors=_VECTORS)
def masked_normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """Kept entries over their p-norm along an axis, which is at least eps; 0 elsewhere."""
    size = masked_norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return kept_entries(input, mask, 0) / jnp.maximum(size, eps)
