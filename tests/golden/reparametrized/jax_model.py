"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax.numpy as jnp
from flax import nnx

from . import reparametrized
from .container import ModuleList, Sequential
from .conv import Conv1d, ConvTranspose1d
from .layers import Linear
from .module import Module
from .settings import at_config_settings


def normalised_conv(channels, dilation, *, config, rngs: nnx.Rngs):
    """A convolution with weight normalisation."""
    return reparametrized.parametrized_weight_norm(
        Conv1d(channels, channels, 3, padding=dilation, dilation=dilation, config=config, rngs=rngs), dim=0
    )


class Block(Module):
    """Dilated convolutions with a shortcut. Source: torch_model.py:13."""

    def __init__(self, channels, dilation, *, config, rngs: nnx.Rngs):
        self.first = normalised_conv(channels, dilation, config=config, rngs=rngs)
        self.second = Conv1d(channels, channels, 1, config=config, rngs=rngs)
        self.second = reparametrized.parametrized_weight_norm(self.second, dim=2)

    def __call__(self, x):
        return x + self.second(jnp.tanh(self.first(x)))


class Net(Module):
    """Upsampling decoder with a bounded head. Source: torch_model.py:26."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(channels=config.channels, config=config, rngs=rngs)

    def __init__(self, channels=4, *, config, rngs: nnx.Rngs):
        self.config = config
        self.blocks = Sequential(*[Block(channels, 2**i, config=config, rngs=rngs) for i in range(2)])
        self.up = reparametrized.parametrized_weight_norm(
            ConvTranspose1d(channels, channels, 4, stride=2, padding=1, config=config, rngs=rngs), dim=1
        )
        self.critic = ModuleList(
            [
                reparametrized.spectral_norm(
                    Linear(channels, channels, config=config, rngs=rngs), n_power_iterations=1, eps=1e-12
                ),
                reparametrized.parametrized_spectral_norm(
                    Linear(channels, 2, config=config, rngs=rngs), n_power_iterations=1, eps=1e-12
                ),
            ]
        )

    @at_config_settings
    def __call__(self, x):
        x = self.up(self.blocks(x)).swapaxes(1, 2)
        for layer in self.critic:
            x = jnp.sin(layer(x))
        return x
