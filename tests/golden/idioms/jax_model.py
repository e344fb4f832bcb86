"""Net in JAX, converted by MaxCode from torch_model.py."""

from functools import partial
from typing import Callable, Optional

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from . import activations, layers, ops
from .container import Sequential
from .conv import Conv2d
from .layers import LayerNorm, Linear
from .module import Buffer, Leaf, Module, compute_dtype, given, param
from .norm import BatchNorm2d
from .settings import at_config_settings

float32 = jnp.float32  # the parity check lifts this to float64

ACTIVATIONS = {
    "relu": lambda input: jax.nn.relu(input),
    "gelu": lambda input: jax.nn.gelu(input, approximate=False),
    "tanh": lambda input: jnp.tanh(input),
}


def conv3x3(inputs: int, outputs: int, stride: int = 1, *, config, rngs: nnx.Rngs):
    """3x3 convolution with padding."""
    return Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False, config=config, rngs=rngs)


class LayerNorm(Module):
    """Over channels, beside torch's own of the same name. Source: torch_model.py:19."""

    weight = Leaf()

    def __init__(self, channels: int, eps: float = 1e-6, *, config, rngs: nnx.Rngs):
        self.dtype = compute_dtype(config)
        self.weight = param(jnp.empty((channels,), float32), axes=("norm",), config=config)
        self.eps = eps

    def __call__(self, x: Array) -> Array:
        return ops.layer_norm(x.transpose(0, 2, 3, 1), self.weight.shape, self.weight, None, self.eps).transpose(
            0, 3, 1, 2
        )


class Block(Module):
    """Source: torch_model.py:31."""

    mask = Leaf()
    expansion = 1

    def __init__(
        self,
        inputs,
        outputs,
        stride=1,
        downsample=None,
        norm: Optional[Callable[..., Module]] = None,
        shift=0,
        *,
        config,
        rngs: nnx.Rngs,
    ):
        self.dtype = compute_dtype(config)
        norm = norm or partial(BatchNorm2d, eps=1e-3)
        self.conv = conv3x3(inputs, outputs, stride, config=config, rngs=rngs)
        self.norm = norm(outputs, axes=("norm",), config=config, rngs=rngs)
        self.downsample = downsample
        mask = jnp.triu(jnp.full((4, 4), -0.5, float32), 0) if shift > 0 else None
        self.mask = Buffer(mask, config=config) if mask is not None else None

    def __call__(self, x):
        out = self.norm(self.conv(x))
        if self.mask is not None:
            out = out + self.mask
        return jax.nn.relu(out + (x if self.downsample is None else self.downsample(x)))


class PreNorm(Module):
    """Source: torch_model.py:50."""

    def __init__(self, width, inner, *, config, rngs: nnx.Rngs):
        self.norm, self.inner = layers.LayerNorm(width, axes=("norm",), config=config, rngs=rngs), inner

    def __call__(self, x, *, scale=None):
        return self.inner(self.norm(x), **given(scale=scale))


class Mix(Module):
    """Source: torch_model.py:59."""

    def __init__(self, width, *, config, rngs: nnx.Rngs):
        self.out = Linear(width, width, config=config, rngs=rngs)

    def __call__(self, x, scale=None):
        b, *_, _, dtype = (*x.shape, None, x.dtype)
        return self.out(x) * (1.0 if scale is None else scale) + jnp.ones((b, 1), dtype)


class Scaled(Module):
    """Source: torch_model.py:69."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, x, *, scale=None):
        scale = scale * 2.0
        return self.inner(x, scale=scale)


class Net(Module):
    """Source: torch_model.py:79."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(width=config.width, classes=config.classes, activation=config.activation, config=config, rngs=rngs)

    def __init__(
        self,
        block=Block,
        width=4,
        classes=3,
        activation="gelu",
        act_layer=lambda: activations.gelu,
        *,
        config,
        rngs: nnx.Rngs,
    ):
        self.config = config
        self.flash = True
        self.inputs = width
        self.stem = Sequential(
            conv3x3(3, width, config=config, rngs=rngs),
            BatchNorm2d(width, axes=("norm",), config=config, rngs=rngs),
            act_layer(),
        )
        self.first = self._make_layer(block, width, 1, config=config, rngs=rngs)
        self.second = self._make_layer(block, 2 * width, 2, stride=2, config=config, rngs=rngs)
        self.norm = LayerNorm(2 * width, config=config, rngs=rngs)
        self.act = ACTIVATIONS[activation]
        self.mix = PreNorm(2 * width, Scaled(Mix(2 * width, config=config, rngs=rngs)), config=config, rngs=rngs)
        self.feed = PreNorm(2 * width, Linear(2 * width, 2 * width, config=config, rngs=rngs), config=config, rngs=rngs)
        self.head = Linear(2 * width, classes, config=config, rngs=rngs)

    def _make_layer(self, block, width, count, stride=1, *, config, rngs: nnx.Rngs):
        downsample = None
        if stride != 1 or self.inputs != width * block.expansion:
            downsample = Sequential(
                Conv2d(self.inputs, width, 1, stride=stride, bias=False, config=config, rngs=rngs),
                BatchNorm2d(width, axes=("norm",), config=config, rngs=rngs),
            )
        layers = [block(self.inputs, width, stride, downsample, shift=stride - 1, config=config, rngs=rngs)]
        self.inputs = width * block.expansion
        for _ in range(1, count):
            layers.append(block(self.inputs, width, config=config, rngs=rngs))
        return Sequential(*layers)

    @at_config_settings
    def __call__(self, x):
        if not self.flash:
            raise RuntimeError("an old torch")
        x = self.act(self.norm(self.second(self.first(self.stem(x))))).mean((2, 3))
        return self.head(self.feed(self.mix(x, scale=0.5)))
