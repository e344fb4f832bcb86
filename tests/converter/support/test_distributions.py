"""Distributions beside torch's: densities, quantiles, entropies and their gradients, float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support import distributions as ours
from maxcode.converter.support.random import key_scope

LOC, SCALE = np.array([[0.3], [-1.0]]), np.array([0.5, 2.0, 1.5])
VALUE, SHARE = np.array([[0.1, -2.0, 0.7], [3.0, 0.2, -0.4]]), np.array([0.1, 0.5, 0.93])
PROBS = np.array([[0.2, 0.7, 0.4], [0.9, 0.5, 0.3]])
LOGITS = np.array([[1.0, -2.0, 0.5], [0.0, -np.inf, 3.0]])
CASES = [
    ("Normal", (LOC, SCALE), ("log_prob", "cdf"), VALUE), ("Normal", (LOC, SCALE), ("icdf",), SHARE),
    ("Laplace", (LOC, SCALE), ("log_prob", "cdf"), VALUE), ("Laplace", (LOC, SCALE), ("icdf",), SHARE),
    ("Uniform", (LOC - 2, LOC + SCALE), ("cdf",), VALUE), ("Uniform", (LOC - 2, LOC + SCALE), ("icdf",), SHARE),
    ("Bernoulli", (PROBS,), ("log_prob",), (VALUE > 0).astype(float)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    ("name", "parameters", "methods", "value"), CASES, ids=lambda x: x if isinstance(x, str) else ""
)
def test_values_and_gradients(name, parameters, methods, value):
    for method in methods:
        given = [torch.tensor(p, requires_grad=True) for p in parameters]
        expected = getattr(getattr(torch.distributions, name)(*given, validate_args=False), method)(torch.tensor(value))
        expected.sum().backward()

        def total(*arrays, method=method):
            return getattr(getattr(ours, name)(*arrays), method)(jnp.asarray(value)).sum()

        found = getattr(getattr(ours, name)(*map(jnp.asarray, parameters)), method)(jnp.asarray(value))
        np.testing.assert_allclose(found, expected.detach(), rtol=1e-12, atol=1e-14)
        gradients = jax.grad(total, argnums=tuple(range(len(parameters))))(*map(jnp.asarray, parameters))
        for mine, theirs in zip(gradients, given, strict=True):
            np.testing.assert_allclose(mine, theirs.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "parameters"), [(n, p) for n, p, *_ in CASES[::2]], ids=lambda x: str(x)[:7])
def test_entropies_and_means(name, parameters):
    theirs = getattr(torch.distributions, name)(*map(torch.tensor, parameters), validate_args=False)
    mine = getattr(ours, name)(*map(jnp.asarray, parameters))
    np.testing.assert_allclose(mine.entropy(), theirs.entropy(), rtol=1e-12)
    np.testing.assert_allclose(mine.mean, theirs.mean, rtol=1e-12)


def test_choices():
    index = np.array([[2, 0], [0, 2], [1, 2]])
    for keywords in ({"logits": LOGITS}, {"probs": PROBS}):
        theirs = torch.distributions.Categorical(**{k: torch.tensor(v) for k, v in keywords.items()})
        mine = ours.Categorical(**{k: jnp.asarray(v) for k, v in keywords.items()})
        np.testing.assert_allclose(mine.probs, theirs.probs, rtol=1e-12)
        np.testing.assert_allclose(mine.entropy(), theirs.entropy(), rtol=1e-12)
        np.testing.assert_allclose(mine.log_prob(jnp.asarray(index)), theirs.log_prob(torch.tensor(index)), rtol=1e-12)


def test_numbers_are_float32_parameters():
    assert ours.Normal(0, 1).icdf(jnp.float32(0.5)).dtype == jnp.float32
    assert ours.Normal(0, jnp.ones(3, jnp.bfloat16)).scale.dtype == jnp.bfloat16


def test_draws_have_shape_mean_and_gradient():
    with key_scope(jax.random.key(0)):
        drawn = ours.Normal(jnp.asarray(LOC), jnp.asarray(SCALE)).sample((20000,))
        assert drawn.shape == (20000, 2, 3)
        np.testing.assert_allclose(drawn.mean(0), np.broadcast_to(LOC, (2, 3)), atol=0.08)
        assert ours.Categorical(logits=jnp.asarray(LOGITS)).sample((5,)).shape == (5, 2)
        assert set(np.unique(ours.Bernoulli(jnp.asarray(PROBS)).sample((50,)))) == {0.0, 1.0}
    with key_scope(jax.random.key(1)):
        assert jax.grad(lambda loc: ours.Normal(loc, 1.0).rsample((4,)).sum())(jnp.array(2.0)) == 4


def test_both_or_neither_parameter_is_refused():
    with pytest.raises(ValueError, match="Categorical: give either probs or logits, not neither"):
        ours.Categorical()
