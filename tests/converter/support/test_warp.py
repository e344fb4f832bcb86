"""Sampling at points against torch: values and gradients, inside, outside and on the edges."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support import warp

SIZES = [(2, 3, 5, 4), (1, 2, 1, 3), (2, 2, 3, 4, 5)]
PADDINGS = ("zeros", "border", "reflection")


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def data(shape):
    """An input and points from -2.5 to 2.5, some of them exactly on corners and edges."""
    random = np.random.default_rng(0)
    spatial = len(shape) - 2
    points = random.uniform(-2.5, 2.5, (shape[0], *(3, 4, 2)[:spatial], spatial))
    points[0, 0] = np.array([-1.0, 1.0, 0.0])[:spatial]
    return random.standard_normal(shape), points


def modes(shape):
    return ("bilinear", "nearest", "bicubic") if len(shape) == 4 else ("bilinear", "nearest")


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_values_and_gradients(shape, padding):
    array, points = data(shape)
    for mode, align_corners in itertools.product(modes(shape), (False, True)):
        options = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
        tensors = [torch.from_numpy(a.copy()).requires_grad_() for a in (array, points)]
        want = torch.nn.functional.grid_sample(*tensors, **options)
        found = warp.grid_sample(jnp.asarray(array), jnp.asarray(points), **options)
        np.testing.assert_allclose(found, want.detach().numpy(), 1e-11, 1e-12, err_msg=str(options))
        torch.sin(want).sum().backward()
        inside = np.s_[:, 1:]  # on an edge torch and JAX choose between one-sided derivatives
        gradients = jax.grad(lambda *a, o=options: jnp.sin(warp.grid_sample(*a, **o)).sum(), (0, 1))(array, points)
        np.testing.assert_allclose(gradients[0], tensors[0].grad.numpy(), 1e-9, 1e-11, err_msg=str(options))
        wanted = tensors[1].grad.numpy()[inside]
        np.testing.assert_allclose(gradients[1][inside], wanted, 1e-9, 1e-11, err_msg=str(options))


@pytest.mark.parametrize("padding", PADDINGS)
def test_single_precision_and_halves_between_entries(padding):
    array = np.arange(8, dtype=np.float32).reshape(1, 1, 1, 8)
    points = np.zeros((1, 1, 41, 2), np.float32)
    points[0, 0, :, 0] = np.linspace(-1.25, 1.25, 41)  # quarter steps: halves must fall to the even entry
    for mode in ("bilinear", "nearest"):
        options = {"mode": mode, "padding_mode": padding, "align_corners": False}
        want = torch.nn.functional.grid_sample(torch.from_numpy(array), torch.from_numpy(points), **options)
        found = jax.jit(lambda *a, o=options: warp.grid_sample(*a, **o))(array, points)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, want.numpy(), 1e-6, 1e-6)


def test_points_that_are_no_numbers():
    array = np.arange(1.0, 7).reshape(1, 1, 2, 3)
    points = np.full((1, 1, 1, 2), np.nan)
    for padding in ("border", "reflection"):
        want = torch.nn.functional.grid_sample(
            torch.from_numpy(array), torch.from_numpy(points), padding_mode=padding, align_corners=False
        )
        np.testing.assert_array_equal(warp.grid_sample(array, points, padding_mode=padding), want.numpy())


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 1, 2), (2, 1, 3, 2, 4)], ids=str)
def test_affine_grid(size, align_corners):
    spatial = len(size) - 2
    theta = np.random.default_rng(0).standard_normal((2, spatial, spatial + 1))
    want = torch.nn.functional.affine_grid(torch.from_numpy(theta), size, align_corners=align_corners).numpy()
    np.testing.assert_allclose(warp.affine_grid(jnp.asarray(theta), size, align_corners), want, 1e-12, 1e-13)


def test_what_cannot_be_sampled_is_refused():
    array, points = data(SIZES[2])
    with pytest.raises(ValueError, match="takes an input of 4 axes"):
        warp.grid_sample(array, points, mode="bicubic")
    with pytest.raises(ValueError, match="expected one of bilinear"):
        warp.grid_sample(array, points, mode="linear")
