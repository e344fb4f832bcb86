"""Probability distributions with torch's names: densities, quantiles, entropies, draws.

Formulas as in the documentation of torch.distributions; draws come from the key scope of the call (`random.py`).
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special
from jaxtyping import Array

from . import random

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def _broadcast(*values: Any) -> tuple[Array, ...]:
    """Parameters as arrays of one shape and floating dtype; numbers take the dtype of the arrays, else float32."""
    arrays = [value for value in values if isinstance(value, jax.Array)]
    dtype = jnp.result_type(*arrays) if arrays else jnp.float32
    return tuple(jnp.broadcast_arrays(*(jnp.asarray(value, dtype) for value in values)))


class Distribution:
    """What all have in common: the batch shape of the parameters, and draws."""

    batch_shape: tuple[int, ...]

    def sample(self, sample_shape: Sequence[int] = ()) -> Array:
        """Draw [*sample_shape, *batch]; no gradient flows into the parameters."""
        return jax.lax.stop_gradient(self._draw((*sample_shape, *self.batch_shape)))

    def _draw(self, shape: tuple[int, ...]) -> Array:
        raise NotImplementedError(f"{type(self).__name__} draws nothing")


class _Reparametrised(Distribution):
    def rsample(self, sample_shape: Sequence[int] = ()) -> Array:
        """Draw [*sample_shape, *batch] as a differentiable function of the parameters."""
        return self._draw((*sample_shape, *self.batch_shape))


class Normal(_Reparametrised):
    """Normal distribution with mean `loc` and standard deviation `scale`, broadcast against each other."""

    def __init__(self, loc: Array | float, scale: Array | float, validate_args: bool | None = None):
        self.loc, self.scale = _broadcast(loc, scale)
        self.batch_shape = self.loc.shape

    @property
    def mean(self) -> Array:
        return self.loc

    @property
    def stddev(self) -> Array:
        return self.scale

    @property
    def variance(self) -> Array:
        return self.scale**2

    def log_prob(self, value: Array) -> Array:
        """Log density at `value`."""
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - jnp.log(self.scale) - _HALF_LOG_TWO_PI

    def cdf(self, value: Array) -> Array:
        """Probability of at most `value`."""
        return 0.5 * (1 + special.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Array) -> Array:
        """The quantile of `value` in (0, 1)."""
        return self.loc + self.scale * special.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Array:
        """Differential entropy, in nats."""
        return 0.5 + _HALF_LOG_TWO_PI + jnp.log(self.scale)

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return self.loc + self.scale * jax.random.normal(random.next_key(), shape, self.loc.dtype)


class Laplace(_Reparametrised):
    """Laplace distribution with location `loc` and `scale`, broadcast against each other."""

    def __init__(self, loc: Array | float, scale: Array | float, validate_args: bool | None = None):
        self.loc, self.scale = _broadcast(loc, scale)
        self.batch_shape = self.loc.shape

    @property
    def mean(self) -> Array:
        return self.loc

    def log_prob(self, value: Array) -> Array:
        """Log density at `value`."""
        return -jnp.log(2 * self.scale) - jnp.abs(value - self.loc) / self.scale

    def cdf(self, value: Array) -> Array:
        """Probability of at most `value`."""
        away = value - self.loc
        return 0.5 - 0.5 * jnp.sign(away) * jnp.expm1(-jnp.abs(away) / self.scale)

    def icdf(self, value: Array) -> Array:
        """The quantile of `value` in (0, 1)."""
        term = value - 0.5
        return self.loc - self.scale * jnp.sign(term) * jnp.log1p(-2 * jnp.abs(term))

    def entropy(self) -> Array:
        """Differential entropy, in nats."""
        return 1 + jnp.log(2 * self.scale)

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return self.loc + self.scale * jax.random.laplace(random.next_key(), shape, self.loc.dtype)


class Uniform(_Reparametrised):
    """Uniform distribution on [low, high), broadcast against each other."""

    def __init__(self, low: Array | float, high: Array | float, validate_args: bool | None = None):
        self.low, self.high = _broadcast(low, high)
        self.batch_shape = self.low.shape

    @property
    def mean(self) -> Array:
        return (self.high + self.low) / 2

    def log_prob(self, value: Array) -> Array:
        """Log density at `value`; minus infinity outside."""
        inside = (self.low <= value) & (value < self.high)
        return jnp.log(inside.astype(self.low.dtype)) - jnp.log(self.high - self.low)

    def cdf(self, value: Array) -> Array:
        """Probability of at most `value`."""
        return jnp.clip((value - self.low) / (self.high - self.low), 0, 1)

    def icdf(self, value: Array) -> Array:
        """The quantile of `value` in (0, 1)."""
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Array:
        """Differential entropy, in nats."""
        return jnp.log(self.high - self.low)

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return self.low + (self.high - self.low) * jax.random.uniform(random.next_key(), shape, self.low.dtype)


class Bernoulli(Distribution):
    """Success with probability `probs`, or with log odds `logits`; one of them is given."""

    def __init__(
        self, probs: Array | float | None = None, logits: Array | float | None = None, validate_args: bool | None = None
    ):
        _check_one(self, probs, logits)
        if logits is None:
            (self.probs,) = _broadcast(probs)
            self.logits = jnp.log(self.probs) - jnp.log1p(-self.probs)
        else:
            (self.logits,) = _broadcast(logits)
            self.probs = jax.nn.sigmoid(self.logits)
        self.batch_shape = self.probs.shape

    @property
    def mean(self) -> Array:
        return self.probs

    def log_prob(self, value: Array) -> Array:
        """Log probability of `value`, 0 or 1."""
        return value * jax.nn.log_sigmoid(self.logits) + (1 - value) * jax.nn.log_sigmoid(-self.logits)

    def entropy(self) -> Array:
        """Entropy, in nats."""
        return -self.probs * jax.nn.log_sigmoid(self.logits) - (1 - self.probs) * jax.nn.log_sigmoid(-self.logits)

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return jax.random.bernoulli(random.next_key(), self.probs, shape).astype(self.probs.dtype)


class Categorical(Distribution):
    """A choice among the last axis: [..., n] unnormalised probabilities `probs` or log probabilities `logits`."""

    def __init__(self, probs: Array | None = None, logits: Array | None = None, validate_args: bool | None = None):
        _check_one(self, probs, logits)
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdims=True)
            self.logits = jnp.log(jnp.clip(self.probs, *_open_unit(self.probs.dtype)))
        else:
            self.logits = logits - special.logsumexp(logits, axis=-1, keepdims=True)
            self.probs = jax.nn.softmax(self.logits, axis=-1)
        self.batch_shape = self.logits.shape[:-1]

    def log_prob(self, value: Array) -> Array:
        """Log probability of the choices `value` [...]."""
        value, logits = jnp.broadcast_arrays(value[..., None].astype(int), self.logits)
        return jnp.take_along_axis(logits, value[..., :1], axis=-1)[..., 0]

    def entropy(self) -> Array:
        """Entropy [...], in nats; a choice that cannot be adds nothing."""
        logits = jnp.maximum(self.logits, jnp.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def _draw(self, shape: tuple[int, ...]) -> Array:
        return jax.random.categorical(random.next_key(), self.logits, axis=-1, shape=shape)


def _open_unit(dtype: Any) -> tuple[Any, Any]:
    eps = jnp.finfo(dtype).eps
    return eps, 1 - eps


def _check_one(owner: Distribution, probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ValueError(
            f"{type(owner).__name__}: give either probs or logits, not {'both' if probs is not None else 'neither'}"
        )
