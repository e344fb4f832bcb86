"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax
import jax.numpy as jnp
from flax import nnx

from .layers import Embedding, LayerNorm, Linear
from .module import Module
from .settings import at_config_settings
from .sharding import constrain
from .stack import LayerStack

float32 = jnp.float32  # the parity check lifts this to float64


class Layer(Module):
    """Attention and feed-forward, each with a residual. Source: torch_model.py:8."""

    def __init__(self, width, heads, *, config, rngs: nnx.Rngs):
        self.heads = heads
        self.norm = LayerNorm(width, axes=("norm",), config=config, rngs=rngs)
        self.qkv = Linear(width, 3 * width, config=config, rngs=rngs)
        self.out = Linear(width, width, config=config, rngs=rngs)
        self.up = Linear(width, 2 * width, config=config, rngs=rngs)
        self.down = Linear(2 * width, width, config=config, rngs=rngs)

    def __call__(self, x, mask):
        batch, length, width = x.shape
        query, key, value = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        weights = query @ key.swapaxes(-1, -2) / (width // self.heads) ** 0.5 + mask
        x = x + self.out((jax.nn.softmax(weights, axis=-1) @ value).swapaxes(1, 2).reshape(batch, length, width))
        return x + self.down(jax.nn.gelu(self.up(x), approximate=False))


class Net(Module):
    """Embedding, layers, head. Source: torch_model.py:28."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(
            vocab_size=config.vocab_size,
            width=config.width,
            heads=config.heads,
            num_layers=config.num_layers,
            config=config,
            rngs=rngs,
        )

    def __init__(self, vocab_size=17, width=8, heads=2, num_layers=5, *, config, rngs: nnx.Rngs):
        self.config = config
        self.embed = Embedding(vocab_size, width, axes=("vocab", None), config=config, rngs=rngs)
        self.layers = LayerStack(
            lambda _, *, rngs: Layer(width, heads, config=config, rngs=rngs), num_layers, config=config, rngs=rngs
        )
        self.is_local = [i % 2 == 1 for i in range(num_layers)]
        self.head = Linear(width, vocab_size, axes=(None, "vocab"), config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, ids):
        length = ids.shape[1]
        full = jnp.triu(jnp.full((length, length), -1e9, float32), 1)
        local = full + jnp.tril(jnp.full((length, length), -1e9, float32), -3)
        x = self.embed(ids)

        def layer_step(i, layer, x):
            if self.is_local[i]:
                x = layer(x, local)
            else:
                x = layer(x, full)
            return constrain(x, "activation_batch", "activation_length", "activation_embed")

        x = self.layers.run(layer_step, x, key=lambda i: self.is_local[i])
        return self.head(x)
