"""Pools against torch."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support import pool
from tests.converter.support.torch_pairs import assert_same

SHAPES = {1: (2, 3, 11), 2: (2, 3, 11, 8), 3: (2, 3, 7, 6, 5)}


def both(name, *args, **options):
    return lambda c: getattr(pool, name)(*args, **options, config=c), getattr(torch.nn, name)(*args, **options)


COMMON = [
    {},
    {"stride": 1},
    {"stride": 2, "padding": 1},
    {"ceil_mode": True},
    {"stride": 4, "padding": 1, "ceil_mode": True},
]


@pytest.mark.parametrize(
    "options", [*COMMON, {"dilation": 2, "stride": 1}, {"dilation": 2, "padding": 1, "ceil_mode": True}]
)
@pytest.mark.parametrize("spatial", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_max_pool(spatial, options):
    assert_same(*both(f"MaxPool{spatial}d", 3, **options), SHAPES[spatial])


@pytest.mark.parametrize("options", [*COMMON, {"padding": 1, "count_include_pad": False, "ceil_mode": True}])
@pytest.mark.parametrize("spatial", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_avg_pool(spatial, options):
    assert_same(*both(f"AvgPool{spatial}d", 3, **options), SHAPES[spatial])


def test_three_dimensions_and_divisor():
    assert_same(*both("MaxPool3d", (2, 3, 2), stride=(1, 2, 2)), SHAPES[3])
    assert_same(*both("AvgPool3d", 2, padding=1), SHAPES[3])
    assert_same(*both("AvgPool2d", (3, 2), divisor_override=5), SHAPES[2])


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@pytest.mark.parametrize(
    ("spatial", "size"), [(1, 1), (1, 4), (2, 1), (2, (5, 4)), (2, (None, 3)), (2, 16), (3, (7, 2, 4))]
)
def test_adaptive_pool(kind, spatial, size):
    assert_same(*both(f"Adaptive{kind}Pool{spatial}d", size), SHAPES[spatial])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes(dtype):
    for name in ("MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d"):
        assert_same(*both(name, 3), SHAPES[2], dtype=dtype)


def test_indices_of_maxima():
    x = np.random.default_rng(0).integers(0, 4, SHAPES[2]).astype(np.float32)  # with ties: the first one counts
    module = torch.nn.MaxPool2d(3, stride=2, padding=1, return_indices=True)
    expected, at = module(torch.from_numpy(x))
    got, where = pool.MaxPool2d(3, stride=2, padding=1, return_indices=True)(jnp.asarray(x))
    np.testing.assert_array_equal(got, expected.numpy())
    np.testing.assert_array_equal(where, at.numpy())


def test_integers_and_unbatched_input():
    x = np.arange(33, dtype=np.int32).reshape(3, 11)
    np.testing.assert_array_equal(
        pool.MaxPool1d(3)(jnp.asarray(x)), torch.nn.MaxPool1d(3)(torch.from_numpy(x).float()).numpy()
    )


def test_padding_of_more_than_half_a_window():
    with pytest.raises(ValueError, match="more than half"):
        pool.AvgPool1d(3, padding=2)(jnp.ones((1, 1, 9)))
