"""Branches and loops on values: what `if` and `while` ask of an array."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
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


def negated(value: Any) -> Any:
    """`not` of a value, or of what is known while the program is traced."""
    return ~truth(value) if isinstance(value, jax.Array) else not value


def cond(test: Any, when_true: Callable[..., Any], when_false: Callable[..., Any], *operands: Any) -> Any:
    """`lax.cond`; a test that is known while the program is traced (no array) chooses the branch there."""
    if isinstance(test, jax.Array):
        return lax.cond(truth(test), when_true, when_false, *operands)
    return (when_true if test else when_false)(*operands)
