"""Clipping beside torch.nn.utils."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support.gradients import clip_grad_norm, clip_grad_value


def grads(scale):
    random = np.random.default_rng(0)
    return [scale * random.standard_normal(shape) for shape in ((4, 3), (5,), (2, 2, 2))]


def in_torch(values, clip):
    parameters = [torch.nn.Parameter(torch.zeros(v.shape, dtype=torch.float64)) for v in values]
    for parameter, value in zip(parameters, values, strict=True):
        parameter.grad = torch.tensor(value)
    norm = clip(parameters)
    return [p.grad.numpy() for p in parameters], norm


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf, "inf"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_norms_are_torchs(scale, norm_type):
    with jax.enable_x64(True):
        ours, norm = clip_grad_norm([jnp.asarray(v) for v in grads(scale)], 0.7, norm_type)
        theirs, expected = in_torch(grads(scale), lambda p: torch.nn.utils.clip_grad_norm_(p, 0.7, norm_type))
        assert float(norm) == pytest.approx(float(expected), rel=1e-13)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)


def test_values_are_limited():
    with jax.enable_x64(True):
        ours, _ = clip_grad_value([jnp.asarray(v) for v in grads(1.0)], 0.25)
        theirs, _ = in_torch(grads(1.0), lambda p: torch.nn.utils.clip_grad_value_(p, 0.25))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
