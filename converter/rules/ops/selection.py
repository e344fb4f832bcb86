"""Functions whose result has a shape that values decide.

They convert where these values are known when a program is made: in a host function (pass `host`).
"""

import jax.numpy as jnp

from maxcode.converter.arguments import MISSING, is_true, literal
from maxcode.converter.rule import op

_ANY = {"the result's shape depends on data": lambda: True}


@op("torch.where", limits=_ANY)
def where_indices(condition):
    return jnp.nonzero(condition)


@op("torch.nonzero", "torch.Tensor.nonzero", limits=_ANY, when=lambda as_tuple: literal(as_tuple) is True)
def nonzero_tuple(input, *, as_tuple=False):
    return jnp.nonzero(input)


@op("torch.nonzero", "torch.Tensor.nonzero", "torch.argwhere", "torch.Tensor.argwhere", limits=_ANY)
def nonzero(input, *, as_tuple=False):
    return jnp.argwhere(input)


@op("torch.masked_select", "torch.Tensor.masked_select", limits=_ANY)
def masked_select(input, mask):
    """Entries of `input` where the mask holds, after broadcasting."""
    input, mask = jnp.broadcast_arrays(input, mask)
    return input[mask]


@op("torch.unique", "torch.Tensor.unique", limits=_ANY)
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """Distinct values in order, or distinct slices along an axis, with their places and counts where asked for."""
    found = jnp.unique(input, return_inverse=return_inverse, return_counts=return_counts, axis=dim)
    return found


@op("torch.unique_consecutive", "torch.Tensor.unique_consecutive", limits=_ANY | {
    "an axis is not converted": lambda dim: literal(dim) not in (MISSING, None),
})  # fmt: skip
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Values without those that equal the one before, with the run of each entry and the runs' lengths if asked for."""
    flat = input.reshape(-1)
    first = jnp.concatenate([jnp.ones(min(1, flat.size), bool), flat[1:] != flat[:-1]])
    found = [flat[first]]
    if return_inverse:
        found.append((jnp.cumsum(first) - 1).reshape(input.shape))
    if return_counts:
        found.append(jnp.diff(jnp.append(jnp.nonzero(first)[0], flat.size)))
    return found[0] if len(found) == 1 else tuple(found)


@op("torch.bincount", "torch.Tensor.bincount", limits={
    "the length depends on data; give minlength": lambda minlength: literal(minlength) in (MISSING, 0),
    "weights are not converted": lambda weights: is_true(weights),
})  # fmt: skip
def bincount(input, weights=None, minlength=0):
    return jnp.bincount(input, length=minlength or None)
