"""Functions that read values of concrete arrays, inside traced calls and outside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxcode.converter.support.host import TracedValueError, host_values

GRIDS = (np.array([[1, 2, 3], [2, 1, 1]]), np.array([[3, 1, 2]]))


@host_values("grid")
def places(x, grid):
    sizes = jnp.repeat(grid[:, 1] * grid[:, 2], grid[:, 0])
    parts = [jnp.arange(n) for n in sizes.tolist()]
    return x + jnp.concatenate(parts), sizes[sizes > 1]


def expected(grid):
    sizes = np.repeat(grid[:, 1] * grid[:, 2], grid[:, 0])
    return np.concatenate([np.arange(n) for n in sizes]), sizes[sizes > 1]


@pytest.mark.parametrize("grid", GRIDS, ids=["two images", "a clip"])
@pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_concrete_values_decide_shapes_while_the_rest_is_traced(grid, make):
    count = expected(grid)[0].size
    closed = make(grid)
    found, large = jax.jit(lambda x: places(x, closed))(jnp.ones(count))
    np.testing.assert_array_equal(found, expected(grid)[0] + 1)
    np.testing.assert_array_equal(large, expected(grid)[1])


def test_gradients_and_scans_go_through():
    grid = jnp.asarray(GRIDS[1])

    def loss(x):
        def step(carry, _):
            return places(carry, grid)[0] * 2, None

        return jax.lax.scan(step, x, None, length=3)[0].sum()

    np.testing.assert_allclose(jax.grad(loss)(jnp.ones(6)), np.full(6, 8.0))


def test_a_traced_value_is_refused_by_name():
    with pytest.raises(TracedValueError, match=r"places: the values of grid decide shapes.*closes over"):
        jax.jit(places)(jnp.ones(8), jnp.asarray(GRIDS[0]))


def test_errors_of_other_causes_stay_what_they_are():
    @host_values("grid")
    def wrong(x, grid):
        return jnp.arange(x), grid

    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda x: wrong(x, GRIDS[0]))(3)


def test_the_outermost_name_is_told():
    @host_values("image_grid")
    def outer(x, image_grid):
        return places(x, image_grid * 1)

    with pytest.raises(TracedValueError, match=r"outer: the values of image_grid decide"):
        jax.jit(outer)(jnp.ones(8), jnp.asarray(GRIDS[0]))
