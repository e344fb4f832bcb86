"""Keys from scopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support.random import (
    alpha_dropout,
    dropout,
    feature_alpha_dropout,
    feature_dropout,
    key_scope,
    next_key,
    split_for_layers,
)


def draw(key):
    return float(jax.random.uniform(key))


def test_keys_advance_within_a_scope_and_repeat_with_it():
    with key_scope(jax.random.key(0)):
        first = [draw(next_key()) for _ in range(3)]
    with key_scope(jax.random.key(0)):
        assert [draw(next_key()) for _ in range(3)] == first
    assert len(set(first)) == 3
    with key_scope(jax.random.key(1)):
        assert draw(next_key()) not in first


def test_scopes_nest_and_none_keeps_the_outer_one():
    with key_scope(jax.random.key(0)):
        with key_scope(None):
            outer = draw(next_key())
        with key_scope(jax.random.key(5)):
            inner = draw(next_key())
        assert draw(next_key()) != outer
    with key_scope(jax.random.key(0)):
        assert draw(next_key()) == outer != inner


def test_no_scope():
    assert split_for_layers(3) is None
    with pytest.raises(RuntimeError, match="key scope"):
        next_key()
    with pytest.raises(RuntimeError, match="key scope"):
        dropout(jnp.ones(3), 0.5)


def test_layer_keys_differ():
    with key_scope(jax.random.key(0)):
        keys = split_for_layers(4)
    assert len({draw(key) for key in keys}) == 4


def test_dropout_keeps_the_mean_and_works_in_jit():
    def call(key):
        with key_scope(key):
            return dropout(jnp.ones((300, 300)), 0.4)

    y = jax.jit(call)(jax.random.key(0))
    assert abs(float(y.mean()) - 1) < 0.01
    np.testing.assert_array_equal(y, call(jax.random.key(0)))
    assert (y != jax.jit(call)(jax.random.key(1))).any()


@pytest.mark.parametrize(("p", "training", "expected"), [(0.0, True, 1), (1.0, True, 0), (0.9, False, 1)])
def test_dropout_edges_need_no_key(p, training, expected):
    assert (dropout(jnp.ones(5), p, training) == expected).all()
    assert (feature_dropout(jnp.ones((2, 3, 4)), p, training, 1) == expected).all()


def test_dropout_refuses_bad_probabilities():
    with pytest.raises(ValueError, match="p is 1.5"):
        dropout(jnp.ones(3), 1.5)


def test_gradient_passes_through_kept_elements():
    with key_scope(jax.random.key(0)):
        grad = jax.grad(lambda x: dropout(x, 0.5).sum())(jnp.ones(50))
    assert set(np.unique(grad)) == {0, 2}


def test_alpha_dropout_keeps_mean_and_variance():
    x = jax.random.normal(jax.random.key(1), (400, 400))
    with key_scope(jax.random.key(0)):
        y = alpha_dropout(x, 0.3)
    assert abs(float(y.mean())) < 0.02
    assert abs(float(y.var()) - 1) < 0.02


def test_alpha_dropout_has_torchs_two_outcomes():
    """Of all-ones, torch makes two numbers: a dropped and a kept one."""
    torch.manual_seed(0)
    expected = torch.nn.functional.alpha_dropout(torch.ones(200), 0.3, training=True).unique()
    with key_scope(jax.random.key(0)):
        found = np.unique(alpha_dropout(jnp.ones(200), 0.3))
        channels = np.asarray(feature_alpha_dropout(jnp.ones((20, 5, 4)), 0.3))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert (channels == channels[:, :, :1]).all()
    assert len(np.unique(channels)) == 2
    assert 0.1 < (channels == channels.min()).mean() < 0.5


@pytest.mark.parametrize(("p", "training", "expected"), [(0.0, True, 1), (1.0, True, 0), (0.9, False, 1)])
def test_alpha_dropout_edges_need_no_key(p, training, expected):
    assert (alpha_dropout(jnp.ones(5), p, training) == expected).all()
    assert (feature_alpha_dropout(jnp.ones(5), p, training) == expected).all()


def test_alpha_dropout_refuses_bad_arguments():
    with pytest.raises(ValueError, match="p is 1.5"):
        alpha_dropout(jnp.ones(3), 1.5)
    with pytest.raises(ValueError, match="1 dimensions"):
        feature_alpha_dropout(jnp.ones(3), 0.5)
