"""Branches and loops on values: what `if` and `while` ask of an array."""

import jax.numpy as jnp
from jaxtyping import Array, Bool


def truth(value: Array | bool | float) -> Bool[Array, ""]:
    """Whether a value of one element is true, as torch's `bool` says it."""
    return jnp.asarray(value).reshape(()) != 0


def every(*values: Array | bool | float) -> Bool[Array, ""]:
    """`and` of several values."""
    return jnp.stack([truth(value) for value in values]).all()


def some(*values: Array | bool | float) -> Bool[Array, ""]:
    """`or` of several values."""
    return jnp.stack([truth(value) for value in values]).any()
