"""Net in JAX, converted by MaxCode from torch_model.py."""

import math

import jax
import jax.numpy as jnp
from flax import nnx

from . import activations, ops
from .layers import Embedding, LayerNorm, Linear
from .module import Buffer, Leaf, Module, compute_dtype, normal, param
from .multihead import MultiheadAttention
from .settings import at_config_settings
from .transformer import Transformer, TransformerDecoder, TransformerEncoder
from .transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer

float32 = jnp.float32  # the parity check lifts this to float64


class Positions(Module):
    """Sines and cosines added to the embeddings. Source: torch_model.py:10."""

    table = Leaf()

    def __init__(self, width, length=32, *, config, rngs: nnx.Rngs):
        self.dtype = compute_dtype(config)
        position = jnp.expand_dims(jnp.arange(length), 1)
        rate = jnp.exp(jnp.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = jnp.zeros((length, width), float32)
        table = table.at[:, 0::2].set(jnp.sin(position * rate))
        table = table.at[:, 1::2].set(jnp.cos(position * rate))
        self.table = Buffer(table, config=config)

    def __call__(self, x):
        return x + self.table[: x.shape[1]]


class LanguageModel(Module):
    """A causal stack of encoder layers. Source: torch_model.py:26."""

    def __init__(self, width, heads, layers, *, config, rngs: nnx.Rngs):
        layer = TransformerEncoderLayer(
            width,
            heads,
            dim_feedforward=2 * width,
            dropout=0.1,
            activation=activations.gelu,
            batch_first=True,
            norm_first=True,
            config=config,
            rngs=rngs,
        )
        self.encoder = TransformerEncoder(
            layer, layers, norm=LayerNorm(width, axes=("norm",), config=config, rngs=rngs), config=config, rngs=rngs
        )

    def __call__(self, x):
        mask = Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.encoder(x, mask=mask, is_causal=True)


class Pooling(Module):
    """A learned query that attends to the sequence. Source: torch_model.py:43."""

    query = Leaf()

    def __init__(self, width, heads, *, config, rngs: nnx.Rngs):
        self.dtype = compute_dtype(config)
        self.query = param(normal((1, 1, width), 0.02), axes=(None, None, None), config=config, rngs=rngs)
        self.attention = MultiheadAttention(
            width, heads, kdim=width, vdim=2 * width, batch_first=True, config=config, rngs=rngs
        )

    def __call__(self, x, ignored):
        query = ops.expand(self.query, x.shape[0], -1, -1)
        values = jnp.concatenate([x, jax.nn.gelu(x, approximate=False)], axis=-1)
        pooled, weights = self.attention(query, x, values, key_padding_mask=ignored)
        return pooled[:, 0], weights


class Net(Module):
    """Translator with a pooled summary of its source. Source: torch_model.py:58."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(vocab_size=config.vocab_size, width=config.width, heads=config.heads, config=config, rngs=rngs)

    def __init__(self, vocab_size=13, width=8, heads=2, *, config, rngs: nnx.Rngs):
        self.config = config
        self.embed = Embedding(vocab_size, width, axes=("vocab", None), config=config, rngs=rngs)
        self.positions = Positions(width, config=config, rngs=rngs)
        self.reader = LanguageModel(width, heads, 2, config=config, rngs=rngs)
        self.transformer = Transformer(
            width,
            heads,
            1,
            2,
            12,
            activation=lambda input: jax.nn.relu(input),
            batch_first=True,
            config=config,
            rngs=rngs,
        )
        decoder_layer = TransformerDecoderLayer(
            width, heads, dim_feedforward=12, activation=lambda input: jax.nn.silu(input), config=config, rngs=rngs
        )
        self.refine = TransformerDecoder(decoder_layer, 1, config=config, rngs=rngs)
        self.pool = Pooling(width, heads, config=config, rngs=rngs)
        self.head = Linear(width, vocab_size, axes=(None, "vocab"), config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, source, target):
        x = self.reader(self.positions(self.embed(source)))
        y = self.positions(self.embed(target))
        mask = self.transformer.generate_square_subsequent_mask(y.shape[1])
        ignored = source == 0
        y = self.transformer(
            x, y, tgt_mask=mask, src_key_padding_mask=ignored, memory_key_padding_mask=ignored, tgt_is_causal=True
        )
        y = self.refine(y.swapaxes(0, 1), x.swapaxes(0, 1)).swapaxes(0, 1)
        summary, weights = self.pool(x, ignored)
        return {"logits": self.head(y), "summary": summary, "weights": weights}
