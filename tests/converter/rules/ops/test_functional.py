"""Entries for which torch has no samples, or none of what is delicate about them."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.rules.ops import conv, layout, pool, sampling
from maxcode.converter.support import bags, random

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def assert_same(found, want):
    np.testing.assert_allclose(found, want.detach().numpy(), 1e-9, 1e-11)


@pytest.mark.parametrize(
    ("norm_type", "stride", "ceil_mode"), [(2, None, False), (3.0, 2, True), (math.inf, 1, False), (-math.inf, 2, True)]
)
def test_lp_pool(norm_type, stride, ceil_mode):
    for spatial in (1, 2, 3):
        array = np.abs(numbers(2, 3, *(7, 6, 5)[:spatial]))
        arguments = (norm_type, 3, stride, ceil_mode)
        want = getattr(F, f"lp_pool{spatial}d")(torch.from_numpy(array), *arguments)
        assert_same(getattr(pool, f"lp_pool{spatial}d")(jnp.asarray(array), *arguments), want)


@pytest.mark.parametrize("options", [{}, {"stride": 1, "padding": 1}, {"dilation": 2}, {"ceil_mode": True}], ids=str)
def test_max_pool_with_indices(options):
    for spatial in (1, 2, 3):
        array = numbers(2, 3, *(7, 6, 7)[:spatial])
        want = getattr(F, f"max_pool{spatial}d")(torch.from_numpy(array), 3, return_indices=True, **options)
        found = getattr(pool, f"max_pool{spatial}d_with_indices")(jnp.asarray(array), 3, **options)
        for ours, theirs in zip(found, want, strict=True):
            np.testing.assert_array_equal(ours, theirs.numpy())


def test_max_unpool_to_a_given_size():
    array = numbers(2, 3, 7, 8)
    pooled = F.max_pool2d(torch.from_numpy(array), 2, return_indices=True)
    want = F.max_unpool2d(*pooled, 2, output_size=(2, 3, 7, 8))
    assert_same(pool.max_unpool2d(*[jnp.asarray(t.numpy()) for t in pooled], 2, output_size=(2, 3, 7, 8)), want)


def test_adaptive_maximum_of_uneven_windows():
    array = numbers(2, 3, 7, 5)
    for size in ((3, 2), (None, 4), 1):
        want = F.adaptive_max_pool2d(torch.from_numpy(array), size, return_indices=True)
        for ours, theirs in zip(pool.adaptive_max(jnp.asarray(array), size, 2), want, strict=True):
            np.testing.assert_array_equal(ours, theirs.numpy())


def test_convolution_over_time():
    arrays = [numbers(7, 2, 3), numbers(3, 3, 4), numbers(4)]
    want = torch.conv_tbc(*map(torch.from_numpy, arrays), 1)
    assert_same(conv.conv_tbc(*map(jnp.asarray, arrays), 1), want)


def test_strides_are_those_of_contiguous_tensors():
    for shape in ((), (3,), (2, 3, 4), (2, 0, 3), (1, 5)):
        assert layout.contiguous_strides(shape) == torch.empty(shape).stride()
    with pytest.raises(ValueError, match="reads entry 5 of 4"):
        layout.as_strided(jnp.arange(4), (3, 2), (2, 1))


def test_gumbel_softmax_draws_by_the_probabilities():
    logits = jnp.log(jnp.asarray([0.7, 0.2, 0.1]))
    with random.key_scope(jax.random.key(0)):
        hard = sampling.gumbel_softmax(jnp.broadcast_to(logits, (20000, 3)), tau=0.5, hard=True)
        soft = sampling.gumbel_softmax(jnp.broadcast_to(logits, (3, 3)), dim=0)
    np.testing.assert_allclose(hard.mean(0), [0.7, 0.2, 0.1], atol=0.02)
    assert set(np.unique(hard.round(12))) == {0.0, 1.0}
    np.testing.assert_allclose(soft.sum(0), 1)


def test_interleaved_options_of_embedding_bags():
    weight, ids = numbers(6, 3), np.array([0, 2, 5, 5, 1, 2])
    for mode, padding, last in itertools.product(("sum", "mean", "max"), (None, 5, -1), (False, True)):
        offsets = np.array([0, 2, 2, 4, 6] if last else [0, 2, 2, 4])
        options = {"mode": mode, "padding_idx": padding, "include_last_offset": last}
        want = F.embedding_bag(torch.from_numpy(ids), torch.from_numpy(weight), torch.from_numpy(offsets), **options)
        assert_same(bags.embedding_bag(jnp.asarray(ids), jnp.asarray(weight), jnp.asarray(offsets), **options), want)
