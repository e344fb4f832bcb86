"""Sorting and searching."""

import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import is_true, ndim
from maxcode.converter.rule import op
from maxcode.converter.rules.ops.reduction import ValuesAndIndices

_ZERO_D = ("input",)  # lifted to vectors where they are 0-d


@op("torch.topk", "torch.Tensor.topk", vectors=_ZERO_D)
def topk(input, k, dim=-1, largest=True, sorted=True):
    """The k largest (or smallest) entries along an axis in order, and where they stand; ties by position."""
    moved = jnp.moveaxis(input, dim, -1)
    if largest:
        values, indices = lax.top_k(moved, k)
    else:
        indices = jnp.argsort(moved, axis=-1, stable=True)[..., :k]
        values = jnp.take_along_axis(moved, indices, axis=-1)
    return ValuesAndIndices(jnp.moveaxis(values, -1, dim), jnp.moveaxis(indices.astype(int), -1, dim))


@op("torch.sort", "torch.Tensor.sort", vectors=_ZERO_D)
def sort(input, dim=-1, descending=False, stable=False):
    """Entries in order along an axis and where they stood; ties by position."""
    indices = jnp.argsort(input, axis=dim, descending=descending, stable=True)
    return ValuesAndIndices(jnp.take_along_axis(input, indices, axis=dim), indices)


@op("torch.argsort", "torch.Tensor.argsort", vectors=_ZERO_D)
def argsort(input, dim=-1, descending=False, stable=False):
    return jnp.argsort(input, axis=dim, descending=descending)


@op("torch.msort", "torch.Tensor.msort", vectors=_ZERO_D)
def msort(input):
    return jnp.sort(input, axis=0)


@op("torch.kthvalue", "torch.Tensor.kthvalue", vectors=_ZERO_D)
def kthvalue(input, k, dim=-1, keepdim=False):
    """The k-th smallest entry (from 1) along an axis and where it stands."""
    indices = jnp.take(jnp.argsort(input, axis=dim), jnp.asarray([k - 1]), axis=dim)
    values = jnp.take_along_axis(input, indices, axis=dim)
    return ValuesAndIndices(*((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))))


@op("torch.mode", "torch.Tensor.mode", vectors=_ZERO_D)
def mode(input, dim=-1, keepdim=False):
    """The most frequent entry along an axis (the least of several) and the last place where it stands."""
    entries = jnp.moveaxis(input, dim, -1)
    counts = (entries[..., :, None] == entries[..., None, :]).sum(-1)
    order = jnp.argsort(entries, axis=-1, stable=True)
    first = jnp.argmax(jnp.take_along_axis(counts, order, -1), -1, keepdims=True)
    values = jnp.take_along_axis(entries, jnp.take_along_axis(order, first, -1), -1)
    places = lax.broadcasted_iota(jnp.asarray(0).dtype, entries.shape, entries.ndim - 1)
    indices = jnp.where(entries == values, places, -1).max(-1, keepdims=True)
    values = jnp.take_along_axis(entries, indices, -1)
    values, indices = (jnp.moveaxis(x, -1, dim) for x in (values, indices))
    return ValuesAndIndices(*((values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))))


@op("torch.bucketize", "torch.Tensor.bucketize")
def bucketize(input, boundaries, *, out_int32=False, right=False):
    """Which interval between increasing boundaries each entry falls into."""
    found = jnp.searchsorted(boundaries, input, side="right" if right else "left")
    return found.astype(jnp.int32 if out_int32 else int)


_SEARCH = {"a sorter permutation is not converted": lambda sorter: is_true(sorter)}


@op("torch.searchsorted", when=lambda sorted_sequence: ndim(sorted_sequence) == 1, limits=_SEARCH)
def searchsorted_vector(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Insertion points of values in a sorted vector."""
    side = ("right" if right else "left") if side is None else side
    return jnp.searchsorted(sorted_sequence, input, side=side).astype(jnp.int32 if out_int32 else int)


@op("torch.searchsorted", limits=_SEARCH)
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """Insertion points of each row's values in the same row of sorted sequences."""
    side = side or ("right" if right else "left")
    dtype = jnp.int32 if out_int32 else int
    if sorted_sequence.ndim == 1:
        return jnp.searchsorted(sorted_sequence, input, side=side).astype(dtype)
    search = jnp.vectorize(lambda row, values: jnp.searchsorted(row, values, side=side), signature="(n),(m)->(m)")
    return search(sorted_sequence, input).astype(dtype)
