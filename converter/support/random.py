"""Randomness for dropout and sampling: keys come from a scope around the call, never from module state.

with key_scope(jax.random.key(0)):
    y = model(x)
"""

import contextlib
import contextvars
import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array


@dataclass
class _Scope:
    key: Array
    drawn: int = 0


_SCOPE: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("key_scope", default=None)


@contextlib.contextmanager
def key_scope(key: Array | None) -> Iterator[None]:
    """Give the block the key that `next_key` draws from; `None` leaves the enclosing scope as it is."""
    if key is None:
        yield
        return
    token = _SCOPE.set(_Scope(key))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def next_key() -> Array:
    """Return a new key of the current scope: its key folded with a counter that advances while tracing.

    Raises:
        RuntimeError: there is no `key_scope` around the call.
    """
    scope = _SCOPE.get()
    if scope is None:
        raise RuntimeError(
            "random numbers were asked for outside a key scope; call the model inside `with key_scope(key):`, "
            "or switch dropout off with `model.eval()`"
        )
    scope.drawn += 1
    return jax.random.fold_in(scope.key, scope.drawn)


def split_for_layers(count: int) -> Array | None:
    """Return one key per layer, keys [count], or None where no scope is active."""
    return None if _SCOPE.get() is None else jax.random.split(next_key(), count)


def dropout(x: Array, p: float = 0.5, training: bool = True) -> Array:
    """Zero each element with probability `p` and scale the others by 1/(1-p); the identity when not training.

    Keeps shape and dtype. Raises ValueError when `p` is outside [0, 1].
    """
    return _drop(x, p, training, jnp.shape(x))


def feature_dropout(x: Array, p: float = 0.5, training: bool = True, spatial: int = 2) -> Array:
    """Drop whole channels of x [n, c, *spatial] (or [c, *spatial]), as torch's Dropout1d/2d/3d do."""
    shape = jnp.shape(x)
    return _drop(x, p, training, (*shape[: len(shape) - spatial], *(1,) * spatial))


def _drop(x: Array, p: float, training: bool, mask_shape: tuple[int, ...]) -> Array:
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: p is {p!r}, expected a probability between 0 and 1")
    if not training or p == 0:
        return x
    if p == 1:
        return jnp.zeros_like(x)
    keep = jax.random.bernoulli(next_key(), 1 - p, mask_shape)
    return jnp.where(keep, x / jnp.asarray(1 - p, x.dtype), jnp.zeros((), x.dtype))


ALPHA = 1.7580993408473766  # what SELU tends to for large negative inputs, with the sign turned


def alpha_dropout(x: Array, p: float = 0.5, training: bool = True) -> Array:
    """Set elements to SELU's lowest value with probability `p`, then scale and shift to keep mean 0 and variance 1.

    Klambauer et al. 2017, section "New dropout technique". Raises ValueError when `p` is outside [0, 1].
    """
    return _alpha_drop(x, p, training, jnp.shape(x))


def feature_alpha_dropout(x: Array, p: float = 0.5, training: bool = True) -> Array:
    """`alpha_dropout` of whole channels of x [n, c, ...]. Dropping of fewer than two axes raises ValueError."""
    if training and 0 < p < 1 and x.ndim < 2:
        raise ValueError(f"feature_alpha_dropout: the input has {x.ndim} dimensions, expected at least 2")
    return _alpha_drop(x, p, training, (*x.shape[:2], *(1,) * (x.ndim - 2)))


def _alpha_drop(x: Array, p: float, training: bool, mask_shape: tuple[int, ...]) -> Array:
    if not 0 <= p <= 1:
        raise ValueError(f"alpha dropout: p is {p!r}, expected a probability between 0 and 1")
    if not training or p == 0:
        return x
    if p == 1:
        return jnp.zeros_like(x)
    scale = 1 / math.sqrt((ALPHA**2 * p + 1) * (1 - p))
    keep = jax.random.bernoulli(next_key(), 1 - p, mask_shape)
    shift = jnp.asarray(ALPHA * scale * p, x.dtype)
    return jnp.where(keep, x * jnp.asarray(scale, x.dtype), jnp.asarray(-ALPHA * scale, x.dtype)) + shift
