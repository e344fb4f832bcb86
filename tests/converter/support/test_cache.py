"""Caches hold what transformers' caches hold, at fixed size, alone or stacked."""

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from jax import lax
from transformers import cache_utils

from maxcode.converter.support.cache import Cache, EncoderDecoderCache, init_cache
from maxcode.converter.support.masks import create_causal_mask

BATCH, LENGTH = 2, 8
random = np.random.default_rng(0)


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


def attention_arrays(layers=None, heads=3, dims=(4, 5), length=LENGTH):
    lead = () if layers is None else (layers,)
    return {
        "keys": jnp.zeros((*lead, BATCH, heads, length, dims[0])),
        "values": jnp.zeros((*lead, BATCH, heads, length, dims[1])),
        "length": jnp.zeros(lead, jnp.int32),
    }


def attention_cache(**kwargs):
    return Cache([((0,), False, attention_arrays(**kwargs))])


def linear_cache(kernel=4, states=1):
    arrays = {f"conv.{i}": jnp.zeros((BATCH, 3, kernel)) for i in range(states)}
    arrays |= {f"recurrent.{i}": jnp.zeros((BATCH, 2, 5)) for i in range(states)}
    return Cache([((0,), False, arrays)])


# --- keys and values


def test_a_cache_made_within_a_call_sees_one_call():
    cache = EncoderDecoderCache(Cache(config=None), Cache(config=None))
    keys, values = jnp.asarray(normal(BATCH, 3, 5, 4)), jnp.asarray(normal(BATCH, 3, 5, 6))
    for layer in range(2):
        assert not cache.is_updated.get(layer)
        got = cache.update(keys, values, layer)
        assert got[0] is keys
        assert got[1] is values
    assert cache.get_seq_length() == 0
    assert cache.get_mask_sizes(5) == (5, 0)
    assert cache.self_attention_cache.get_conv_state(0) is None
    columns = cache.self_attention_cache.update_conv_state(keys[..., 0], 0, conv_kernel_size=7)
    np.testing.assert_array_equal(columns[..., :2], 0)
    assert columns.shape[-1] == 7
    state = cache.self_attention_cache.open(((0, 1),))
    assert state == [{}]
    with cache.self_attention_cache.bound(state, 0, jnp.asarray(1)):
        assert cache.self_attention_cache.update(keys, values, 0)[0] is keys
    cache.self_attention_cache.close(((0, 1),), state)
    assert not jax.tree.leaves(cache)


@pytest.mark.parametrize("steps", [(1, 1, 1), (5, 1, 2), (8,), (3, 4)])
def test_update_holds_what_a_growing_cache_holds(steps):
    ours, theirs = attention_cache(), cache_utils.DynamicCache()
    for step in steps:
        keys, values = normal(BATCH, 3, step, 4), normal(BATCH, 3, step, 5)
        past = int(ours.get_seq_length())
        assert past == theirs.get_seq_length()
        got = ours.update(jnp.asarray(keys), jnp.asarray(values), 0, kwargs={})
        want = theirs.update(torch.from_numpy(keys), torch.from_numpy(values), 0)
        for a, b in zip(got, want):
            assert a.shape[2] == LENGTH
            np.testing.assert_array_equal(a[:, :, : past + step], b.numpy())
            assert not np.any(a[:, :, past + step :])
    np.testing.assert_array_equal(ours.layers[0].keys[:, :, : sum(steps)], theirs.layers[0].keys.numpy())
    assert ours.get_mask_sizes(1, 0) == (LENGTH, 0)
    assert ours.get_max_length() == LENGTH


def test_what_does_not_fit_raises():
    cache = attention_cache()
    with pytest.raises(ValueError, match="holds 8 positions; 0 are used and 9 more"):
        cache.update(jnp.zeros((BATCH, 3, 9, 4)), jnp.zeros((BATCH, 3, 9, 5)), 0)
    cache.update(jnp.zeros((BATCH, 3, 6, 4)), jnp.zeros((BATCH, 3, 6, 5)), 0)
    with pytest.raises(ValueError, match="6 are used and 3 more"):
        cache.update(jnp.zeros((BATCH, 3, 3, 4)), jnp.zeros((BATCH, 3, 3, 5)), 0)
    with pytest.raises(ValueError, match="cannot take"):
        cache.update(jnp.zeros((1, 3, 1, 4)), jnp.zeros((1, 3, 1, 5)), 0)
    with pytest.raises(KeyError, match="has no layer 3"):
        cache.update(jnp.zeros((BATCH, 3, 1, 4)), jnp.zeros((BATCH, 3, 1, 5)), 3)
    with pytest.raises(KeyError, match="stores"):
        linear_cache().update(jnp.zeros((BATCH, 3, 1, 4)), jnp.zeros((BATCH, 3, 1, 5)), 0)


def test_indexer_keys_have_their_own_count():
    arrays = attention_arrays() | {"indexer_keys": jnp.zeros((BATCH, LENGTH, 3)), "indexer_length": jnp.zeros((), int)}
    cache = Cache([((0,), False, arrays)])
    new = normal(BATCH, 5, 3)
    cache.update_indexer(jnp.asarray(new[:, :4]), 0)
    np.testing.assert_array_equal(cache.update_indexer(jnp.asarray(new[:, 4:]), 0)[:, :5], new)
    assert int(cache.get_seq_length()) == 0


def test_a_narrower_cache_hands_back_the_compute_dtype():
    arrays = jax.tree.map(lambda x: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x, attention_arrays())
    cache = Cache([((0,), False, arrays)])
    keys, _ = cache.update(jnp.ones((BATCH, 3, 1, 4)), jnp.ones((BATCH, 3, 1, 5)), 0)
    assert keys.dtype == jnp.float32
    assert cache.layers[0].keys.dtype == jnp.bfloat16


# --- convolution and recurrent states


@pytest.mark.parametrize("steps", [(1, 1, 1), (3, 1, 2), (7, 1, 1), (4, 5), (2, 2, 2)])
def test_conv_states_follow_transformers(steps):
    ours, theirs = linear_cache(), cache_utils.LinearAttentionLayer()
    for i, step in enumerate(steps):
        assert (ours.get_conv_state(0) is None) == (i == 0)
        assert ours.has_previous_state(0) == theirs.has_previous_state[0]
        columns = normal(BATCH, 3, step)
        got = ours.update_conv_state(jnp.asarray(columns), 0, conv_kernel_size=4)
        want = theirs.update_conv_state(torch.from_numpy(columns), conv_kernel_size=4)
        np.testing.assert_array_equal(got, want.numpy())
        np.testing.assert_array_equal(ours.get_conv_state(0), theirs.conv_states[0].numpy())


def test_states_are_set_and_kept_apart():
    cache = linear_cache(states=2)
    cache.set_conv_state(jnp.ones((BATCH, 3, 4)), 0, state_idx=1)
    assert cache.get_conv_state(0, state_idx=0) is None
    assert not cache.has_previous_state(0)
    np.testing.assert_array_equal(cache.get_conv_state(0, state_idx=1), np.ones((BATCH, 3, 4)))
    state = jnp.full((BATCH, 2, 5), 3.0)
    np.testing.assert_array_equal(cache.update_recurrent_state(state, 0), state)
    np.testing.assert_array_equal(cache.get_recurrent_state(0), state)
    assert cache.has_previous_state()
    with pytest.raises(ValueError, match="has shape"):
        cache.set_recurrent_state(jnp.ones((BATCH, 2, 4)), layer_idx=0)


def test_kinds_of_layers_and_the_default_length():
    cache = Cache([((0,), False, linear_cache()._groups[0][2]), ((2,), False, attention_arrays())])
    assert cache.is_linear == [True, False, False]
    assert cache.is_dummy == [False, True, False]
    assert cache.is_sliding == [False] * 3
    cache.update(jnp.zeros((BATCH, 3, 2, 4)), jnp.zeros((BATCH, 3, 2, 5)), 2)
    assert int(cache.get_seq_length()) == 2
    with pytest.raises(ValueError, match="no sequence length"):
        cache.get_seq_length(1)


# --- cross attention


def test_cross_attention_is_written_once():
    cross = Cache([((0,), False, attention_arrays(length=6))])
    cache = EncoderDecoderCache(attention_cache(), cross)
    assert not cache.is_updated.get(0)
    before = jax.tree.structure(cache)
    keys = jnp.asarray(normal(BATCH, 3, 6, 4))
    cache.cross_attention_cache.update(keys, jnp.zeros((BATCH, 3, 6, 5)), 0)
    cache.is_updated[0] = True
    assert cache.is_updated.get(0)
    assert jax.tree.structure(cache) != before
    np.testing.assert_array_equal(cache.cross_attention_cache.layers[0].keys, keys)
    again = jax.jit(lambda c: c)(cache)
    assert again.is_updated[0]
    assert int(again.get_seq_length()) == 0


# --- stacked layers

GROUPS = ((1, 3, 5), (2, 4, 6))


def write(cache, layer_idx, inputs):
    """A layer with keys and a convolution state; its output depends on all it holds."""
    keys, values = cache.update(inputs[..., :4], inputs, layer_idx)
    full = cache.update_conv_state(inputs[:, 0].swapaxes(1, 2), layer_idx, conv_kernel_size=4)
    mark = 0.0 if cache.get_recurrent_state(layer_idx) is None else cache.get_recurrent_state(layer_idx).sum()
    cache.update_recurrent_state(inputs[:, :2, 0], layer_idx)
    return inputs * 0.5 + keys.sum() * 0.01 + values.mean() + full.sum() + mark + cache.get_seq_length(layer_idx)


def layer_arrays(layers=None):
    lead = () if layers is None else (layers,)
    states = {"conv.0": jnp.zeros((*lead, BATCH, 5, 4)), "recurrent.0": jnp.zeros((*lead, BATCH, 2, 5))}
    return attention_arrays(layers) | states


def unrolled(cache, inputs):
    for layer_idx in range(8):
        inputs = write(cache, layer_idx, inputs)
    return inputs, cache


def scanned(cache, inputs):
    inputs = write(cache, 0, inputs)
    state = cache.open(GROUPS)

    def body(carry, index):
        inputs, state = carry
        for position in range(2):
            with cache.bound(state, position, index) as opened:
                inputs = write(cache, object(), inputs)
            state = opened.state
        return (inputs, state), None

    (inputs, state), _ = lax.scan(body, (inputs, state), jnp.arange(3))
    cache.close(GROUPS, state)
    return write(cache, 7, inputs), cache


@pytest.mark.parametrize("stored", ["stacked", "apart"])
def test_scanned_layers_equal_unrolled_ones(stored):
    groups = [((i,), False, layer_arrays()) for i in (range(8) if stored == "apart" else (0, 7))]
    if stored == "stacked":
        groups += [(group, True, layer_arrays(3)) for group in GROUPS]
    caches = {run: Cache([(g, s, dict(a)) for g, s, a in groups]) for run in (unrolled, scanned)}
    structures = set()
    for step in (3, 1):
        inputs = jnp.asarray(normal(BATCH, 3, step, 5))
        out = {}
        for run in caches:
            out[run], caches[run] = jax.jit(run)(caches[run], inputs)
        np.testing.assert_allclose(out[unrolled], out[scanned], rtol=1e-6)
        for a, b in zip(*map(jax.tree.leaves, caches.values()), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        structures |= {jax.tree.structure(cache) for cache in caches.values()}
    assert len(structures) == 1


# --- discovery


class Mixer(nnx.Module):
    """A decoder layer that attends, or convolves where `layer_idx` is odd."""

    def __init__(self, layer_idx, *, rngs):
        self.layer_idx, self.proj = layer_idx, nnx.Linear(6, 6, rngs=rngs)

    def __call__(self, x, cache, mask):
        y = self.proj(x)
        if self.layer_idx % 2:
            y = cache.update_conv_state(y.swapaxes(1, 2), self.layer_idx, conv_kernel_size=3)
            y = jnp.pad(y, ((0, 0), (0, 0), (2, 0)))
            y = (y[..., 2:] + 2 * y[..., 1:-1] + 3 * y[..., :-2])[..., -x.shape[1] :]
            return x + y.swapaxes(1, 2)
        heads = y.reshape(*y.shape[:2], 2, 3).swapaxes(1, 2)
        keys, values = cache.update(heads, heads[..., :2], self.layer_idx)
        weights = jax.nn.softmax(heads @ keys.swapaxes(2, 3) + mask)
        return x + jnp.concatenate([weights @ values] * 3, -1).mean(1).repeat(1, -1)[..., :6]


class Decoder(nnx.Module):
    def __init__(self, scan, *, rngs):
        self.scan = scan
        self.embed = nnx.Embed(11, 6, rngs=rngs)
        self.layers = nnx.List([Mixer(i, rngs=rngs) for i in range(4)])

    def __call__(self, input_ids, cache=None):
        x = self.embed(input_ids)
        mask = create_causal_mask(types.SimpleNamespace(), x, None, cache)
        if not self.scan or not cache.recording:
            for layer in self.layers:
                x = layer(x, cache, mask)
            return x, cache
        for position, group in enumerate(((0, 2), (1, 3))):
            with cache.recorded(group):
                x = self.layers[position](x, cache, mask)
        return x, cache


@pytest.mark.parametrize("scan", [False, True])
def test_init_cache_discovers_what_layers_store(scan):
    model = Decoder(scan, rngs=nnx.Rngs(0))
    cache = init_cache(model, BATCH, LENGTH, dtype=jnp.bfloat16)
    assert len(cache) == 4
    assert cache.is_linear == [False, True, False, True]
    assert cache.layers[2].keys.shape == (BATCH, 2, LENGTH, 3)
    assert cache.layers[2].values.shape == (BATCH, 2, LENGTH, 2)
    assert cache.layers[2].keys.dtype == jnp.bfloat16
    assert cache._slot(3).read("conv.0").shape == (BATCH, 6, 3)
    assert cache._slot(3).read("conv.0").dtype == jnp.float32
    assert len(jax.tree.leaves(cache)) == (4 if scan else 8)


@pytest.mark.parametrize("steps", [(7,), (4, 1, 1, 1), (1,) * 7, (3, 4)])
def test_any_split_of_the_tokens_gives_the_same(steps):
    model = Decoder(False, rngs=nnx.Rngs(0))
    tokens = jnp.asarray(random.integers(0, 11, (BATCH, 7)))
    whole, _ = model(tokens, init_cache(model, BATCH, 7))
    cache, parts, start = init_cache(model, BATCH, LENGTH), [], 0
    for step in steps:
        part, cache = jax.jit(model.__call__)(tokens[:, start : start + step], cache)
        parts.append(part)
        start += step
    np.testing.assert_allclose(jnp.concatenate(parts, 1), whole, rtol=1e-5, atol=1e-5)


class Seq2Seq(nnx.Module):
    def __init__(self, *, rngs):
        self.embed = nnx.Embed(11, 6, rngs=rngs)

    def __call__(self, input_ids, decoder_input_ids, cache=None):
        encoded, x = self.embed(input_ids)[:, None], self.embed(decoder_input_ids)[:, None]
        cache.self_attention_cache.update(x, x, 0)
        if not cache.is_updated.get(0):
            cache.cross_attention_cache.update(encoded, encoded, 0)
            cache.is_updated[0] = True
        return x.sum() + cache.cross_attention_cache.layers[0].keys.sum()


def test_init_cache_of_an_encoder_decoder():
    model = Seq2Seq(rngs=nnx.Rngs(0))
    cache = init_cache(model, BATCH, LENGTH, encoder_length=5)
    assert isinstance(cache, EncoderDecoderCache)
    assert cache.self_attention_cache.layers[0].keys.shape == (BATCH, 1, LENGTH, 6)
    assert cache.cross_attention_cache.layers[0].keys.shape == (BATCH, 1, 5, 6)
    assert not cache.is_updated[0]
    with pytest.raises(ValueError, match="encoder_length"):
        init_cache(model, BATCH, LENGTH)
    with pytest.raises(ValueError, match="takes no `cache`"):
        init_cache(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), BATCH, LENGTH)


# --- cost


def test_decoding_copies_no_buffer():
    """Inside one compiled loop over tokens and layers the stacked buffers are written in place."""
    layers, groups = 5, ((0, 1, 2, 3, 4),)

    def token(cache, x):
        state = cache.open(groups)

        def body(carry, index):
            x, state = carry
            with cache.bound(state, 0, index) as opened:
                keys, values = cache.update(x[..., :4], x, None)
                weights = jax.nn.softmax(x[..., :4] @ keys.swapaxes(2, 3))
                x = weights @ values
            return (x, opened.state), None

        (x, state), _ = lax.scan(body, (x, state), jnp.arange(layers))
        cache.close(groups, state)
        return cache, x

    def loop(cache, x, count):
        return lax.while_loop(lambda s: s[0] < count, lambda s: (s[0] + 1, *token(*s[1:])), (0, cache, x))

    cache = Cache([(groups[0], True, attention_arrays(layers, length=129))])
    compiled = jax.jit(loop, donate_argnums=0).lower(cache, jnp.zeros((BATCH, 3, 1, 5)), 4).compile()
    buffers = rf"f32\[{layers},{BATCH},3,129,[45]\]\S* copy\("
    assert not re.findall(buffers, compiled.as_text())
    assert compiled.memory_analysis().alias_size_in_bytes >= layers * BATCH * 3 * 129 * 9 * 4
