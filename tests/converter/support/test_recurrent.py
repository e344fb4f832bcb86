"""Recurrent layers and cells against torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter.support import recurrent, recurrent_steps
from maxcode.converter.support.leaves import leaf_paths
from maxcode.converter.support.random import key_scope
from tests.converter.support.torch_trees import assert_same_tree


def both(name, *args, **options):
    torch.manual_seed(0)
    cls = getattr(recurrent_steps if name.endswith("Cell") else recurrent, name)
    return lambda c: cls(*args, **options, config=c, rngs=nnx.Rngs(0)), getattr(torch.nn, name)(*args, **options)


def states(name, *shape):
    made = [torch.randn(shape) for _ in range(2)]
    return tuple(made) if name.startswith("LSTM") else made[0]


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2, "bidirectional": True},
        {"batch_first": True, "bias": False},
        {"num_layers": 2, "dropout": 0.5, "batch_first": True},
    ],
)
def test_layers(name, options):
    assert_same_tree(*both(name, 3, 4, **options), torch.randn(5, 2, 3))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_initial_states(name):
    batched = both(name, 3, 4, num_layers=2, bidirectional=True)
    assert_same_tree(*batched, torch.randn(5, 2, 3), states(name, 4, 2, 4), training=True)
    single = both(name, 3, 4, batch_first=True)
    assert_same_tree(*single, torch.randn(5, 3), states(name, 1, 4))


def test_projected_outputs():
    pair = both("LSTM", 3, 6, num_layers=2, proj_size=2, bidirectional=True, batch_first=True)
    assert_same_tree(*pair, torch.randn(2, 5, 3))
    given = torch.randn(4, 2, 2), torch.randn(4, 2, 6)
    assert_same_tree(*pair, torch.randn(2, 5, 3), given)


def test_relu_network():
    assert_same_tree(*both("RNN", 3, 4, 2, "relu"), torch.randn(5, 2, 3))


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("shape", [(2,), ()])
def test_cells(name, shape):
    assert_same_tree(*both(name, 3, 4), torch.randn(*shape, 3))
    assert_same_tree(*both(name, 3, 4, bias=False), torch.randn(*shape, 3), states(name, *shape, 4))


def test_relu_cell():
    assert_same_tree(*both("RNNCell", 3, 4, nonlinearity="relu"), torch.randn(2, 3))


def test_dropout_lies_between_layers():
    x = jnp.ones((3, 2, 3))
    layer = recurrent.GRU(3, 4, 2, dropout=1.0, rngs=nnx.Rngs(0)).train()
    with key_scope(jax.random.key(0)):
        dropped, (below, _) = layer(x)[0], layer(x)[1]
    first = recurrent.GRU(3, 4, dropout=1.0, rngs=nnx.Rngs(0)).train()
    np.testing.assert_allclose(below, first(x)[1][0], rtol=1e-6)  # a last layer's output is not dropped
    upper = recurrent.GRU(4, 4, rngs=nnx.Rngs(1))
    for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(upper, f"{kind}_l0", vars(layer)[f"{kind}_l1"])
    np.testing.assert_allclose(dropped, upper(jnp.zeros((3, 2, 4)))[0], rtol=1e-6)


def test_names_are_torchs():
    layer, module = both("LSTM", 3, 4, num_layers=2, bidirectional=True, proj_size=2)
    assert set(leaf_paths(layer(None))) == {name for name, _ in module.named_parameters()}


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_compute_dtype(name):
    layer = both(name, 3, 4)[0](nnx.State({}))
    assert layer(jnp.ones((2, 1, 3)))[0].dtype == jnp.float32


def test_bad_arguments():
    with pytest.raises(ValueError, match="nonlinearity"):
        recurrent.RNN(3, 4, nonlinearity="gelu", rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="nonlinearity"):
        recurrent_steps.RNNCell(3, 4, nonlinearity="gelu", rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="proj_size"):
        recurrent.LSTM(3, 4, proj_size=4, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="dropout"):
        recurrent.GRU(3, 4, dropout=2.0, rngs=nnx.Rngs(0))
    layer = recurrent.GRU(3, 4, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="3 last"):
        layer(jnp.ones((2, 1, 5)))
    with pytest.raises(ValueError, match="initial states"):
        layer(jnp.ones((2, 1, 3)), jnp.ones((1, 2, 4)))
    with pytest.raises(ValueError, match="states of shapes"):
        recurrent_steps.GRUCell(3, 4, rngs=nnx.Rngs(0))(jnp.ones((2, 3)), jnp.ones((3, 4)))
