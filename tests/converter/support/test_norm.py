"""Batch, group and instance norm against torch, statistics included."""

import jax.numpy as jnp
import pytest
import torch
from flax import nnx

from maxcode.converter.support import norm
from maxcode.converter.support.norm import BatchNorm1d
from tests.converter.support.torch_pairs import assert_same, config

SHAPES = {"1d": (4, 6, 5), "2d": (4, 6, 3, 2), "3d": (2, 6, 3, 2, 2)}


def both(name, *args, **options):
    module = getattr(torch.nn, name)(*args, **options)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    if getattr(module, "running_var", None) is not None:
        torch.nn.init.normal_(module.running_mean)
        torch.nn.init.uniform_(module.running_var, 0.5, 2)
    return lambda c: getattr(norm, name)(*args, **options, config=c, rngs=nnx.Rngs(0)), module


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["BatchNorm", "InstanceNorm"])
@pytest.mark.parametrize("dim", ["1d", "2d", pytest.param("3d", marks=pytest.mark.slow)])
def test_defaults(kind, dim, training):
    assert_same(*both(kind + dim, 6), SHAPES[dim], training=training)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["BatchNorm2d", "InstanceNorm2d"])
@pytest.mark.parametrize(
    "options",
    [
        {"affine": True, "track_running_stats": True},
        {"momentum": 0.3, "eps": 1e-2, "track_running_stats": True},
        {"momentum": None, "track_running_stats": True},
        {"affine": False, "track_running_stats": False},
    ],
)
def test_options(kind, options, training):
    assert_same(*both(kind, 6, **options), SHAPES["2d"], training=training)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes(dtype):
    assert_same(*both("BatchNorm2d", 6), SHAPES["2d"], dtype=dtype)
    assert_same(*both("GroupNorm", 3, 6), SHAPES["2d"], dtype=dtype)


def test_batch_norm_of_vectors():
    assert_same(*both("BatchNorm1d", 6), (5, 6), training=True)


@pytest.mark.parametrize("options", [{}, {"affine": False, "eps": 1e-2}])
@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 5), (4, 6, 3, 2)])
def test_group_norm(shape, options):
    assert_same(*both("GroupNorm", 2, 6, **options), shape)


def test_instance_norm_without_batch():
    assert_same(*both("InstanceNorm2d", 6, affine=True), (6, 3, 2))


def test_statistics_follow_several_batches():
    layer = BatchNorm1d(3, config=config()).train()
    module = torch.nn.BatchNorm1d(3)
    for seed in range(3):
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(seed))
        layer(jnp.asarray(x.numpy()))
        module(x)
    assert layer.num_batches_tracked[...] == 3
    assert jnp.allclose(layer.running_var[...], module.running_var.numpy(), rtol=1e-6)
    assert jnp.allclose(layer.running_mean[...], module.running_mean.numpy(), atol=1e-6)


def test_bad_inputs():
    with pytest.raises(ValueError, match="expected one of"):
        norm.BatchNorm2d(3)(jnp.ones((2, 3)))
    with pytest.raises(ValueError, match="more than one value"):
        BatchNorm1d(3).train()(jnp.ones((1, 3)))
    with pytest.raises(ValueError, match="4 groups"):
        norm.GroupNorm(4, 6)
