"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax.numpy as jnp
from flax import nnx

from .layers import LayerNorm, Linear
from .module import Module
from .settings import at_config_settings


class Base(Module):
    """What every mixer does. Source: torch_model.py:7."""

    def __init__(self, width, *, config, rngs: nnx.Rngs):
        self.proj = Linear(width, width, config=config, rngs=rngs)

    @staticmethod
    def squash(x, scale=1.0):
        return jnp.tanh(x * scale)

    def __call__(self, x, *, scale=1.0):
        return self.squash(self.proj(x), scale=scale)


class Shifted(Base):
    """A mixer with an offset. Source: torch_model.py:22."""

    def __init__(self, width, offset=0.5, *, config, rngs: nnx.Rngs):
        super().__init__(width, config=config, rngs=rngs)
        self.offset = offset

    def __call__(self, x, bias=None, *, scale=1.0):
        y = super().__call__(x, scale=scale) + self.offset
        return y if bias is None else y + bias


class Block(Module):
    """Passes on what it does not know. Source: torch_model.py:34."""

    def __init__(self, width, *, config, rngs: nnx.Rngs):
        self.mixer = Shifted(width, config=config, rngs=rngs)
        self.norm = LayerNorm(width, axes=("norm",), config=config, rngs=rngs)

    def __call__(self, x, *, bias=None, scale=1.0):
        return x + self.mixer(self.norm(x), bias=bias, scale=scale)


class Net(Module):
    """Two blocks. Source: torch_model.py:46."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(width=config.width, config=config, rngs=rngs)

    def __init__(self, width=6, *, config, rngs: nnx.Rngs):
        self.config = config
        self.first = Block(width, config=config, rngs=rngs)
        self.second = Block(width, config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, x, shift):
        x = self.first(x, scale=0.5, bias=shift)
        return self.second(x, bias=shift * 2)
