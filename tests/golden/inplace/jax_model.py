"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from .layers import Linear
from .module import Leaf, Module, compute_dtype, param
from .settings import at_config_settings

float32 = jnp.float32  # the parity check lifts this to float64


def clear_below(scores, limit):
    """Zero what is below a limit, in place."""
    scores = jnp.where(scores < limit, 0.0, scores)
    return scores.shape[0], scores


class Net(Module):
    """A linear recurrence with states written one by one. Source: torch_model.py:13."""

    decay = Leaf()

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(width=config.width, length=config.length, config=config, rngs=rngs)

    def __init__(self, width=4, length=7, *, config, rngs: nnx.Rngs):
        self.config = config
        self.dtype = compute_dtype(config)
        self.length = length
        self.decay = param(jax.random.uniform(rngs.params(), (width,), float32), axes=("norm",), config=config)
        self.mix = Linear(width, width, config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, x):
        scores = self.mix(x)
        rows, scores = clear_below(scores, 0.1)
        scores = scores.at[:, 0].add(1)
        scores = scores.at[:, -1, 1:3].multiply(0.5)
        states = jnp.zeros_like(scores)
        state = jnp.zeros((rows, scores.shape[-1]), scores.dtype)

        def step(t, carry):
            state, states = carry
            # The state forgets, then takes up the next row.
            state = state * self.decay + scores[:, t]
            states = states.at[:, t].set(state)
            return state, states

        state, states = lax.fori_loop(0, self.length, step, (state, states))
        states = jnp.where(states > 3, 3.0, states)
        states = states - x.mean(1, keepdims=True)
        return states, state
