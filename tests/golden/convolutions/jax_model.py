"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax.numpy as jnp
from flax import nnx

from . import activations, ops, pool
from .container import ModuleList, Sequential
from .conv import Conv2d
from .layers import Linear
from .module import Buffer, Leaf, Module, compute_dtype, constant
from .norm import BatchNorm2d
from .settings import at_config_settings

float32 = jnp.float32  # the parity check lifts this to float64


class ConvNorm(Sequential):
    """Convolution, batch norm and activation. Source: torch_model.py:8."""

    def __init__(self, channels_in, channels_out, stride=1, groups=1, *, config, rngs: nnx.Rngs):
        super().__init__(
            Conv2d(
                channels_in,
                channels_out,
                3,
                stride=stride,
                padding=1,
                groups=groups,
                bias=False,
                config=config,
                rngs=rngs,
            ),
            BatchNorm2d(channels_out, axes=("norm",), config=config, rngs=rngs),
            activations.relu,
        )


class Residual(Module):
    """Two convolutions with a shortcut. Source: torch_model.py:19."""

    def __init__(self, channels_in, channels_out, stride, *, config, rngs: nnx.Rngs):
        self.depthwise = ConvNorm(channels_in, channels_in, stride, groups=channels_in, config=config, rngs=rngs)
        self.pointwise = Conv2d(channels_in, channels_out, 1, config=config, rngs=rngs)
        self.use_shortcut = stride == 1 and channels_in == channels_out

    def __call__(self, x):
        y = self.pointwise(self.depthwise(x))
        if self.use_shortcut:
            y = y + x
        return y


class Net(Module):
    """Image classifier. Source: torch_model.py:35."""

    temperature = Leaf()

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(width=config.width, num_classes=config.num_classes, config=config, rngs=rngs)

    def __init__(self, width=6, num_classes=5, *, config, rngs: nnx.Rngs):
        self.config = config
        self.dtype = compute_dtype(config)
        self.temperature = Buffer(jnp.array(0.7, float32), config=config)
        self.window = constant(jnp.linspace(0.5, 1.5, 9, dtype=float32), config=config)
        self.stem = ConvNorm(3, width, stride=2, config=config, rngs=rngs)
        self.blocks = ModuleList(
            [
                Residual(width, width, 1, config=config, rngs=rngs),
                Residual(width, 2 * width, 2, config=config, rngs=rngs),
            ]
        )
        self.head = Linear(2 * width, num_classes, config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, pixels):
        # Fade out the borders.
        pixels = pixels * self.window[...][:, None] * self.window[...]
        x = self.stem(pixels)
        for block in self.blocks:
            x = block(x)
        x = ops.flatten(pool.adaptive_pool(x, 1, 2, jnp.mean), 1)
        return self.head(x) / self.temperature
