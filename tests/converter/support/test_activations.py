"""Activations agree with transformers.activations, in values, dtypes and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import activations as framework
from transformers.activations import ACT2CLS
from transformers.activations import ACT2FN as SOURCE

from maxcode.converter.support import activations
from maxcode.converter.support.activations import ACT2FN, get_activation

STATEFUL = {"prelu", "xielu"}
NAMES = sorted(set(ACT2CLS) - STATEFUL)
POINTS = np.concatenate([np.linspace(-12, 12, 401), [0.0, -0.0, 3.0, -3.0, 6.0, 1e-8, -1e-8, 60.0, -60.0]])


def test_every_function_of_the_source_is_there():
    assert sorted(ACT2FN) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_in_float64(name):
    x = torch.tensor(POINTS, requires_grad=True)
    expected = SOURCE[name](x)
    (slope,) = torch.autograd.grad(expected.sum(), x)
    kinks = np.isin(POINTS, [0.0, 3.0, -3.0, 6.0, -10, 10])
    with jax.enable_x64(True):
        actual = ACT2FN[name](jnp.asarray(POINTS))
        gradient = jax.vmap(jax.grad(ACT2FN[name]))(jnp.asarray(POINTS))
        assert actual.dtype == jnp.float64
    np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(gradient)[~kinks], slope.numpy()[~kinks], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16_stays_and_rounds_like_the_source(name):
    x = torch.tensor(POINTS, dtype=torch.bfloat16)
    expected = SOURCE[name](x)
    actual = jax.jit(ACT2FN[name])(jnp.asarray(x.float().numpy(), jnp.bfloat16))
    assert actual.dtype == jnp.bfloat16
    exact = SOURCE[name](x.double()).numpy()
    ours = np.abs(np.asarray(actual, np.float64) - exact).max()
    theirs = np.abs(expected.double().numpy() - exact).max()
    assert ours <= theirs * 1.01 + 1e-6


def test_unknown_and_stateful_names_say_what_is_known():
    with pytest.raises(KeyError, match="'xielu'.*gelu_new.*modules"):
        get_activation("xielu")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("GELUActivation", {}),
        ("GELUActivation", {"use_gelu_python": True}),
        ("GELUTanh", {}),
        ("GELUTanh", {"use_gelu_tanh_python": True}),
        ("NewGELUActivation", {}),
        ("AccurateGELUActivation", {}),
        ("FastGELUActivation", {}),
        ("QuickGELUActivation", {}),
        ("ClippedGELUActivation", {"min": -0.1, "max": 1.5}),
        ("SiLUActivation", {}),
        ("MishActivation", {}),
        ("LinearActivation", {}),
        ("ReLUSquaredActivation", {}),
        ("SqrtSoftplusActivation", {}),
    ],
)
def test_classes_of_the_framework_make_its_functions(name, options):
    theirs = getattr(framework, name, None)
    if theirs is None:
        pytest.skip(f"this release has no {name}")
    x = np.linspace(-4, 4, 41, dtype=np.float32)
    found = getattr(activations, name)(**options)(jnp.asarray(x))
    np.testing.assert_allclose(found, theirs(**options)(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)
