"""Layers that draw, against torch where draws are given or switched off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support import drawn, random


def test_rrelu_without_training_takes_the_mean_slope():
    x = torch.randn(50)
    layer = drawn.RReLU(0.1, 0.5)
    np.testing.assert_allclose(layer(jnp.asarray(x.numpy())), torch.nn.RReLU(0.1, 0.5).eval()(x), rtol=1e-6)


def test_rrelu_draws_slopes_in_training():
    x = -jnp.ones(4000)
    layer = drawn.RReLU(0.1, 0.5).train()
    with random.key_scope(jax.random.key(0)):
        slopes = -layer(x)
    assert slopes.min() >= 0.1
    assert slopes.max() <= 0.5
    assert abs(float(slopes.mean()) - 0.3) < 0.01
    assert float(slopes.std()) > 0.1


@pytest.mark.parametrize(
    ("spatial", "kernel", "size"), [(2, 3, (4, 5)), (2, (2, 3), 1), (3, 2, (3, 2, 4)), (3, (1, 2, 2), 3)]
)
def test_fractional_pool_with_given_draws(spatial, kernel, size):
    shape = (2, 3, 9, 10, 8)[: spatial + 2]
    x, draws = torch.randn(shape), torch.rand(2, 3, spatial)
    source = getattr(torch.nn, f"FractionalMaxPool{spatial}d")(kernel, size, return_indices=True, _random_samples=draws)
    want, places = source(x)
    layer = getattr(drawn, f"FractionalMaxPool{spatial}d")(
        kernel, size, return_indices=True, _random_samples=jnp.asarray(draws.numpy())
    )
    found, indices = layer(jnp.asarray(x.numpy()))
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(indices, places)


def test_fractional_pool_draws_windows_that_lie_inside():
    x = jnp.arange(2 * 3 * 7 * 9, dtype=float).reshape(2, 3, 7, 9)
    layer = drawn.FractionalMaxPool2d(2, output_ratio=0.5)
    with random.key_scope(jax.random.key(1)):
        found = layer(x)
    assert found.shape == (2, 3, 3, 4)
    assert (found[..., -1, -1] == x[..., -1, -1]).all()  # the last window ends at the end
