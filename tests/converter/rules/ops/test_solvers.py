"""Solvers and decompositions where torch's samples do not look: failures, the other triangle, factors that are 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.rules.ops import indexing, linear_algebra, pointwise, solvers


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def matrices(*shape):
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_ex_names_the_minor_that_fails(upper):
    good = torch.eye(4, dtype=torch.float64) * 3 + 0.1
    batch = torch.stack([good, good, good])
    batch[1, 2, 2] = -1.0
    batch[2, 0, 0] = 0.0
    found = solvers.cholesky_ex(jnp.asarray(batch.numpy()), upper=upper)
    want = torch.linalg.cholesky_ex(batch, upper=upper)
    np.testing.assert_array_equal(found.info, want.info)
    assert found.info.dtype == jnp.int32
    np.testing.assert_allclose(found.L[0], want.L[0])
    assert np.isnan(found.L[1]).any()


def test_info_of_singular_matrices():
    a = matrices(3, 4, 4)
    a[1, :, 2] = 0
    np.testing.assert_array_equal(solvers.lu_factor_ex(jnp.asarray(a.numpy())).info, torch.linalg.lu_factor_ex(a).info)


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvalues_read_one_triangle_also_where_differentiated(uplo):
    a = matrices(4, 4)
    want = torch.linalg.eigvalsh(a, UPLO=uplo).numpy()
    array = jnp.asarray(a.numpy())
    np.testing.assert_allclose(linear_algebra.eigvalsh(array, uplo), want)
    np.testing.assert_allclose(jax.vjp(lambda x: linear_algebra.eigh(x, uplo)[0], array)[0], want)
    cholesky = a @ a.mT + torch.triu(a, 1)
    found = jax.vjp(lambda x: linear_algebra.cholesky(x), jnp.asarray(cholesky.numpy()))[0]
    np.testing.assert_allclose(found, torch.linalg.cholesky(cholesky))


@pytest.mark.parametrize("left", [False, True])
def test_solve_from_either_side(left):
    a, b = matrices(4, 3, 3).split(2)
    found = linear_algebra.solve(jnp.asarray(a.numpy()), jnp.asarray(b.numpy()), left=left)
    np.testing.assert_allclose(found, torch.linalg.solve(a, b, left=left), atol=1e-12)


def test_products_at_repeated_places_have_gradients_with_zeros():
    start = torch.tensor([2.0, 3.0, 0.0, 5.0], dtype=torch.float64, requires_grad=True)
    factors = torch.tensor([4.0, 0.0, 7.0, 0.0, 0.0, 6.0], dtype=torch.float64, requires_grad=True)
    index = torch.tensor([0, 0, 0, 1, 1, 2])
    start.scatter_reduce(0, index, factors, "prod").sum().backward()

    def product(start, factors):
        return indexing.scatter_reduce(start, 0, jnp.asarray(index.numpy()), factors, "prod").sum()

    found = jax.grad(product, (0, 1))(jnp.asarray(start.detach().numpy()), jnp.asarray(factors.detach().numpy()))
    np.testing.assert_allclose(found[0], start.grad)
    np.testing.assert_allclose(found[1], factors.grad)


def test_absolute_value_is_flat_at_zero():
    assert jax.grad(pointwise.absolute)(0.0) == 0
    np.testing.assert_array_equal(pointwise.absolute(jnp.array([-2.0, jnp.nan, -jnp.inf])), [2, np.nan, np.inf])
    assert pointwise.absolute(jnp.array([3 + 4j, 0j])).tolist() == [5, 0]
