"""Convolutions against torch."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter.support import conv
from tests.converter.support.torch_pairs import array, assert_same, config, copy_weights


def both(name, *args, **options):
    make = lambda c: getattr(conv, name)(*args, **options, config=c, rngs=nnx.Rngs(0))  # noqa: E731
    return make, getattr(torch.nn, name)(*args, **options)


SHAPES = {1: (2, 4, 13), 2: (2, 4, 9, 8), 3: (2, 4, 6, 5, 7)}
CASES = [
    {},
    {"stride": 2, "padding": 1},
    {"dilation": 2, "groups": 2, "bias": False},
    {"padding": "same", "dilation": 2},
    {"padding": "valid"},
    {"padding": 2, "padding_mode": "reflect"},
    {"padding": 1, "padding_mode": "replicate", "stride": 2},
    {"padding": 1, "padding_mode": "circular", "groups": 4},
]


@pytest.mark.parametrize("options", CASES)
@pytest.mark.parametrize("spatial", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_convolution(spatial, options):
    assert_same(*both(f"Conv{spatial}d", 4, 8, 3, **options), SHAPES[spatial])


def test_uneven_windows():
    options = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (0, 1), "dilation": (1, 2)}
    assert_same(*both("Conv2d", 4, 6, **options), SHAPES[2])
    assert_same(*both("Conv3d", 4, 6, (1, 2, 3), padding=(0, 1, 1)), SHAPES[3])
    assert_same(*both("Conv2d", 4, 6, (4, 3), padding="same"), SHAPES[2])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"groups": 2, "dilation": 2},
        {"bias": False, "stride": 3, "groups": 4},
    ],
)
@pytest.mark.parametrize("spatial", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_transposed_convolution(spatial, options):
    assert_same(*both(f"ConvTranspose{spatial}d", 4, 8, 3, **options), SHAPES[spatial])


@pytest.mark.slow
def test_transposed_convolution_in_three_dimensions():
    assert_same(*both("ConvTranspose3d", 4, 6, (2, 3, 1), stride=(1, 2, 2), groups=2), SHAPES[3])


def test_output_size_of_a_transposed_convolution():
    make, module = both("ConvTranspose2d", 4, 4, 3, stride=2, padding=1)
    layer = make(config())
    copy_weights(layer, module)
    x = torch.randn(SHAPES[2])
    expected = module(x, output_size=[18, 15])
    np.testing.assert_allclose(layer(jnp.asarray(array(x)), (18, 15)), array(expected), atol=1e-5)
    with pytest.raises(ValueError, match="output size"):
        layer(jnp.asarray(array(x)), (20, 15))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes(dtype):
    assert_same(*both("Conv2d", 4, 8, 3, padding=1), SHAPES[2], dtype=dtype, gradients=dtype != "bfloat16")


@pytest.mark.parametrize("name", ["Conv2d", "ConvTranspose2d"])
def test_views_and_attributes(name):
    make, module = both(name, 4, 8, (3, 2), groups=2)
    layer = make(config())
    copy_weights(layer, module)
    np.testing.assert_array_equal(layer.weight, array(module.weight))
    np.testing.assert_array_equal(layer.bias, array(module.bias))
    for attribute in ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"):
        assert getattr(layer, attribute) == getattr(module, attribute)


def test_input_without_batch():
    assert_same(*both("Conv1d", 4, 8, 3), (4, 13))


def test_16_bit_gradients_exist():
    import jax

    make, _ = both("Conv2d", 4, 8, 3)
    layer = make(config("bfloat16"))
    grad = jax.grad(lambda x: layer(x).astype(jnp.float32).sum())(jnp.ones(SHAPES[2], jnp.bfloat16))
    assert grad.dtype == jnp.bfloat16


def test_bad_arguments():
    with pytest.raises(ValueError, match="not divisible"):
        conv.Conv1d(3, 4, 3, groups=2, rngs=nnx.Rngs(0))
    layer = conv.Conv1d(3, 4, 3, stride=2, padding="same", rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="stride 1"):
        layer(jnp.ones((1, 3, 9)))
