"""Attention backends agree with the eager functions of the source."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as capped_forward
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as sink_forward
from transformers.models.llama.modeling_llama import eager_attention_forward
from transformers.models.llama.modeling_llama import repeat_kv as torch_repeat_kv

from maxcode.converter.support.attention import BACKENDS, get_attention, repeat_kv

random = np.random.default_rng(1)
SHAPES = {"grouped heads": (6, 2, 5, 9), "one head each": (3, 3, 4, 4), "one kv head": (4, 1, 1, 7)}


def config(name):
    return types.SimpleNamespace(attention=name)


def inputs(heads, kv_heads, queries, keys, dim=8, value_dim=None):
    query, key = random.standard_normal((2, heads, queries, dim)), random.standard_normal((2, kv_heads, keys, dim))
    value = random.standard_normal((2, kv_heads, keys, value_dim or dim))
    mask = np.where(random.random((2, 1, queries, keys)) < 0.3, np.finfo(np.float32).min, 0.0)
    mask[..., 0] = 0.0
    return [x.astype(np.float32) for x in (query, key, value, mask)]


def expected(forward, arrays, heads, kv_heads, sinks=None, **kwargs):
    module = types.SimpleNamespace(num_key_value_groups=heads // kv_heads, training=False, sinks=sinks)
    output, _ = forward(module, *map(torch.from_numpy, arrays), **kwargs)
    return output.numpy()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("masked", [True, False])
def test_backends_agree_with_eager(backend, shape, masked):
    heads, kv_heads, *_ = SHAPES[shape]
    arrays = inputs(*SHAPES[shape])
    arrays[3] = arrays[3] if masked else np.zeros_like(arrays[3])
    want = expected(eager_attention_forward, arrays, heads, kv_heads, scaling=0.3)
    if not masked:
        arrays[3] = None
    got, weights = get_attention(config(backend), None)(None, *arrays, scaling=0.3, dropout=0.0, use_cache=True)
    assert weights is None
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sinks_take_their_share(backend):
    sinks = random.standard_normal(6).astype(np.float32) * 3
    arrays = inputs(*SHAPES["grouped heads"])
    want = expected(sink_forward, arrays, 6, 2, sinks=torch.from_numpy(sinks), scaling=0.3)
    got, _ = BACKENDS[backend](None, *map(jnp.asarray, arrays), scaling=0.3, s_aux=jnp.asarray(sinks), sliding_window=3)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_grouped_caps_scores_and_takes_other_value_widths():
    arrays = inputs(*SHAPES["grouped heads"], value_dim=5)
    want = expected(capped_forward, arrays, 6, 2, scaling=0.9, softcap=1.5)
    got, _ = BACKENDS["grouped"](None, *map(jnp.asarray, arrays), scaling=0.9, softcap=1.5)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_position_bias_per_head_and_boolean_masks(backend):
    query, key, value, mask = map(jnp.asarray, inputs(*SHAPES["grouped heads"]))
    bias = jnp.asarray(random.standard_normal((1, 6, 5, 9)), jnp.float32)
    scores = query @ repeat_kv(key, 3).swapaxes(2, 3) + bias + mask
    want = (jax.nn.softmax(scores) @ repeat_kv(value, 3)).swapaxes(1, 2)
    got, _ = BACKENDS[backend](None, query, key, value, mask == 0, scaling=1.0, position_bias=bias)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_dtypes_are_kept(backend, dtype):
    with jax.enable_x64(dtype == "float64"):
        arrays = [jnp.asarray(x, dtype) for x in inputs(*SHAPES["grouped heads"])]
        got, _ = BACKENDS[backend](None, *arrays, scaling=0.3)
        assert got.dtype == dtype
        wide = [jnp.asarray(x, jnp.float32) for x in arrays]
        want, _ = BACKENDS[backend](None, *wide, scaling=0.3)
        np.testing.assert_allclose(np.asarray(got, np.float32), want, atol=2e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_fully_hidden_rows_are_finite(backend):
    query, key, value, mask = map(jnp.asarray, inputs(*SHAPES["one head each"]))
    mask = jnp.full_like(mask, jnp.finfo(mask.dtype).min)
    grads = jax.grad(lambda q, k, v: BACKENDS[backend](None, q, k, v, mask, scaling=1.0)[0].sum(), (0, 1, 2))
    assert all(bool(jnp.isfinite(g).all()) for g in grads(query, key, value))


def test_what_is_not_computed_raises():
    arrays = list(map(jnp.asarray, inputs(*SHAPES["grouped heads"])))
    for backend in BACKENDS.values():
        with pytest.raises(NotImplementedError, match=r"dropout=0\.1"):
            backend(None, *arrays, scaling=1.0, dropout=0.1)
        with pytest.raises(NotImplementedError, match=r"\['block_table'\]"):
            backend(None, *arrays, scaling=1.0, block_table=1, output_attentions=None)
    with pytest.raises(NotImplementedError, match="softcap"):
        BACKENDS["dot_product"](None, *arrays, scaling=1.0, softcap=3.0)
    with pytest.raises(NotImplementedError, match="equal head dims"):
        BACKENDS["dot_product"](None, *arrays[:2], arrays[2][..., :5], arrays[3], scaling=1.0)
    with pytest.raises(ValueError, match="'flash', expected one of"):
        get_attention(config("flash"), None)


def test_eager_is_the_source_function():
    def eager():
        raise AssertionError

    assert get_attention(config("eager"), eager) is eager


def test_repeat_kv():
    states = random.standard_normal((2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(repeat_kv(states, 1), states)
    np.testing.assert_array_equal(repeat_kv(states, 2), torch_repeat_kv(torch.from_numpy(states), 2).numpy())
