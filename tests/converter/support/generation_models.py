"""Tiny hand-written models for the tests of generation, written as emitted code is."""

import types

import flax.struct
import jax
import jax.numpy as jnp
from flax import nnx

from maxcode.converter.support.cache import Cache, EncoderDecoderCache
from maxcode.converter.support.masks import (
    create_bidirectional_mask,
    create_causal_mask,
    create_recurrent_attention_mask,
)

WIDTH, HEADS, VOCABULARY = 16, 2, 37


@flax.struct.dataclass
class Output:
    logits: jax.Array
    cache: Cache | None = None
    encoder_last_hidden_state: jax.Array | None = None


def rotate(x, position_ids):
    """Rotary positions on [b, h, t, d]."""
    angles = position_ids[:, None, :, None] * (10.0 ** -jnp.arange(x.shape[-1] // 2))
    cos, sin = (jnp.concatenate([f(angles)] * 2, -1) for f in (jnp.cos, jnp.sin))
    left, right = jnp.split(x, 2, -1)
    return x * cos + jnp.concatenate([-right, left], -1) * sin


class Attention(nnx.Module):
    def __init__(self, layer_idx, *, rngs):
        self.layer_idx = layer_idx
        self.q, self.k, self.v, self.o = (nnx.Linear(WIDTH, WIDTH, rngs=rngs) for _ in range(4))

    def __call__(self, x, mask, position_ids=None, cache=None, states=None):
        curr = cache
        is_cross = states is not None
        query = self._split(self.q(x))
        if isinstance(cache, EncoderDecoderCache):
            curr = cache.cross_attention_cache if is_cross else cache.self_attention_cache
        if is_cross and cache is not None and cache.is_updated.get(self.layer_idx):
            layer = curr.layers[self.layer_idx]
            key, value = layer.keys, layer.values
        else:
            states = x if states is None else states
            key, value = self._split(self.k(states)), self._split(self.v(states))
            if position_ids is not None:
                key = rotate(key, position_ids)
            if cache is not None:
                key, value = curr.update(key, value, self.layer_idx)
                if is_cross:
                    cache.is_updated[self.layer_idx] = True
        if position_ids is not None:
            query = rotate(query, position_ids)
        scores = query @ key.swapaxes(2, 3)
        weights = jax.nn.softmax(scores if mask is None else scores + mask)
        return self.o((weights @ value).swapaxes(1, 2).reshape(x.shape))

    def _split(self, x):
        return x.reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


class Recurrence(nnx.Module):
    """A causal convolution of width 3 and a decaying sum."""

    def __init__(self, layer_idx, *, rngs):
        self.layer_idx = layer_idx
        self.proj = nnx.Linear(WIDTH, WIDTH, use_bias=False, rngs=rngs)
        self.kernel = nnx.Param(jax.random.normal(rngs(), (WIDTH, 3)))

    def __call__(self, x, mask=None, cache=None):
        x = x if mask is None else x * mask[..., None]
        state = None if cache is None else cache.get_recurrent_state(self.layer_idx)
        y = self.proj(x).swapaxes(1, 2)
        if cache is not None:
            y = cache.update_conv_state(y, self.layer_idx, conv_kernel_size=3)
        y = jnp.pad(y, ((0, 0), (0, 0), (2, 0)))
        y = sum(y[..., i : y.shape[-1] - 2 + i] * self.kernel[:, i, None] for i in range(3))[..., -x.shape[1] :]
        y = y if mask is None else y * mask[:, None]
        state = jnp.zeros(y.shape[:2]) if state is None else state
        state, outputs = jax.lax.scan(lambda s, u: (0.9 * s + u, 0.9 * s + u), state, jnp.moveaxis(y, 2, 0))
        if cache is not None:
            cache.update_recurrent_state(state, self.layer_idx)
        return jnp.moveaxis(outputs, 0, 1)


class Decoder(nnx.Module):
    """Attention and recurrence by turns."""

    def __init__(self, layers=3, *, rngs):
        self.config = types.SimpleNamespace()
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        kinds = (Attention, Recurrence)
        self.layers = nnx.List([kinds[i % 2](i, rngs=rngs) for i in range(layers)])
        self.head = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)

    def __call__(self, input_ids, attention_mask=None, position_ids=None, cache=None):
        x = self.embed(input_ids)
        past = 0 if cache is None else cache.get_seq_length()
        if position_ids is None:
            position_ids = (jnp.arange(x.shape[1]) + past)[None]
        mask = create_causal_mask(self.config, x, attention_mask, cache, position_ids)
        recurrent_mask = create_recurrent_attention_mask(self.config, x, attention_mask, cache)
        for layer in self.layers:
            if isinstance(layer, Attention):
                x = x + layer(x, mask, position_ids, cache)
            else:
                x = x + layer(x, recurrent_mask, cache)
        return Output(logits=self.head(x), cache=cache)


class EncoderDecoder(nnx.Module):
    def __init__(self, *, rngs):
        self.config = types.SimpleNamespace()
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.encoder, self.own, self.cross = (Attention(0, rngs=rngs) for _ in range(3))
        self.head = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)

    def __call__(self, input_ids=None, attention_mask=None, decoder_input_ids=None, encoder_outputs=None, cache=None):
        if encoder_outputs is None:
            x = self.embed(input_ids)
            positions = jnp.arange(x.shape[1])[None]
            encoder_outputs = (
                x + self.encoder(x, create_bidirectional_mask(self.config, x, attention_mask), positions),
            )
        encoded = encoder_outputs[0]
        x = self.embed(decoder_input_ids)
        own_cache = None if cache is None else cache.self_attention_cache
        past = 0 if cache is None else cache.get_seq_length()
        positions = (jnp.arange(x.shape[1]) + past)[None]
        x = x + self.own(x, create_causal_mask(self.config, x, None, own_cache), positions, cache)
        mask = create_bidirectional_mask(self.config, x, attention_mask, encoder_hidden_states=encoded)
        x = x + self.cross(x, mask, None, cache, encoded)
        return Output(logits=self.head(x), cache=cache, encoder_last_hidden_state=encoded)
