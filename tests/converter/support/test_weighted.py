"""Parametric activation, bilinear map, bags of embeddings and adaptive softmax against torch."""

import jax.numpy as jnp
import pytest
import torch
from flax import nnx

from maxcode.converter.support.adaptive_softmax import AdaptiveLogSoftmaxWithLoss
from maxcode.converter.support.bags import EmbeddingBag
from maxcode.converter.support.weighted import Bilinear, PReLU
from tests.converter.support.torch_trees import assert_same_tree, fill


def both(cls, *args, **options):
    torch.manual_seed(0)
    module = getattr(torch.nn, cls.__name__)(*args, **options)
    return lambda c: cls(*args, **options, config=c, rngs=nnx.Rngs(0)), module


@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 3), (2, 3, 2, 2)])
def test_slope_per_channel(shape):
    assert_same_tree(*both(PReLU, 3, init=0.1), torch.randn(shape))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4)])
def test_one_slope(shape):
    assert_same_tree(*both(PReLU), torch.randn(shape))


def test_slopes_need_channels():
    with pytest.raises(ValueError, match="3 slopes"):
        PReLU(3)(jnp.ones(3))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(4,), (2, 3), ()])
def test_bilinear(bias, lead):
    assert_same_tree(*both(Bilinear, 3, 5, 2, bias), torch.randn(*lead, 3), torch.randn(*lead, 5))


IDS = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9, 2])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 2, -1])
def test_bags_with_offsets(mode, padding_idx):
    pair = both(EmbeddingBag, 10, 3, mode=mode, padding_idx=padding_idx)
    assert_same_tree(*pair, IDS, torch.tensor([0, 4, 4, 7]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_as_rows(mode):
    assert_same_tree(*both(EmbeddingBag, 10, 3, mode=mode), IDS.reshape(3, 3))


def test_bag_options():
    pair = both(EmbeddingBag, 10, 3, mode="sum", include_last_offset=True)
    assert_same_tree(*pair, IDS, torch.tensor([0, 4, 9]), torch.randn(9))
    with pytest.raises(ValueError, match="offsets"):
        EmbeddingBag(4, 2, rngs=nnx.Rngs(0))(jnp.zeros(3, int))
    with pytest.raises(ValueError, match="mode='sum'"):
        EmbeddingBag(4, 2, rngs=nnx.Rngs(0))(jnp.zeros((1, 3), int), None, jnp.ones((1, 3)))
    with pytest.raises(ValueError, match="expected one of"):
        EmbeddingBag(4, 2, mode="min", rngs=nnx.Rngs(0))
    with pytest.raises(NotImplementedError, match="max_norm"):
        EmbeddingBag(4, 2, max_norm=1.0, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("head_bias", [True, False])
def test_adaptive_softmax(head_bias):
    pair = both(AdaptiveLogSoftmaxWithLoss, 16, 20, [4, 10, 15], div_value=2.0, head_bias=head_bias)
    target = torch.tensor([0, 5, 12, 19, 3])
    assert_same_tree(*pair, torch.randn(5, 16), target)
    assert_same_tree(*pair, torch.randn(16), torch.tensor(11))


def test_adaptive_softmax_by_class():
    make, module = both(AdaptiveLogSoftmaxWithLoss, 16, 20, [4, 10])
    layer = make(None)
    fill(layer, module)
    x = torch.randn(6, 16)
    assert jnp.allclose(layer.log_prob(x.numpy()), module.log_prob(x).detach().numpy(), atol=1e-5)
    assert layer.predict(x.numpy()).tolist() == module.predict(x).tolist()
    with pytest.raises(ValueError, match="rising"):
        AdaptiveLogSoftmaxWithLoss(4, 10, [5, 3], rngs=nnx.Rngs(0))
