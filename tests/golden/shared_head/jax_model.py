"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from .layers import Linear
from .module import Module
from .settings import at_config_settings


class Body(Module):
    """Source: torch_model.py:7."""

    def __init__(self, width: int, *, config, rngs: nnx.Rngs):
        self.project = Linear(width, width, config=config, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return jnp.tanh(self.project(x))


class Head:
    """Source: torch_model.py:16."""

    def __init__(self, width: int, labels: int, *, config, rngs: nnx.Rngs):
        super().__init__(width)
        self.body = Body(width, config=config, rngs=rngs)
        self.score = Linear(width, labels, bias=False, config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, x: Array) -> Array:
        hidden = self.body(x)
        return self.score(self.scale * hidden)


class Base(Module):
    """Source: torch_model.py:29."""

    def __init__(self, width: int):
        self.scale = width**-0.5


class Net(Head, Base):
    """Source: torch_model.py:35."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(width=config.width, labels=config.labels, config=config, rngs=rngs)

    def __init__(self, width: int = 6, labels: int = 3, *, config, rngs: nnx.Rngs):
        super().__init__(width, labels, config=config, rngs=rngs)
        self.config = config
