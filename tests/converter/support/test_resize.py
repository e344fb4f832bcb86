"""Resizing against torch, over many sizes: which neighbour a rounding falls to shows only there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support import resize

TOLERANCE = {"float32": 3e-6, "float64": 1e-12}
INTERPOLATING = {3: ["linear"], 4: ["bilinear", "bicubic"], 5: ["trilinear"]}
SHAPES = {3: (2, 3, 11), 4: (2, 3, 7, 10), 5: (1, 2, 4, 5, 6)}
TARGETS = {
    3: [{"size": 17}, {"scale_factor": 2.3}, {"scale_factor": 0.6}, {"size": 11}],
    4: [{"size": (9, 4)}, {"size": 6}, {"scale_factor": (2, 0.55)}, {"scale_factor": 1.05}],
    5: [{"size": (5, 3, 6)}, {"scale_factor": 1.7}],
}


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def assert_same(array, dtype="float64", **options):
    want = torch.nn.functional.interpolate(torch.from_numpy(array.astype(dtype)), **options).numpy()
    found = resize.interpolate(jnp.asarray(array, dtype), **options)
    assert found.dtype == want.dtype
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(found, want, tolerance, tolerance, err_msg=str(options))


def numbers(shape):
    return np.random.default_rng(0).standard_normal(shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_every_mode_of_a_rank(rank, dtype):
    array = numbers(SHAPES[rank])
    for target in TARGETS[rank]:
        for mode in ("nearest", "nearest-exact", "area"):
            assert_same(array, dtype, mode=mode, **target)
        for mode in INTERPOLATING[rank]:
            for align_corners in (False, True):
                assert_same(array, dtype, mode=mode, align_corners=align_corners, **target)
        if "scale_factor" in target:
            assert_same(array, dtype, mode=INTERPOLATING[rank][0], recompute_scale_factor=True, **target)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
def test_antialiased(mode):
    array = numbers(SHAPES[4])
    for target in TARGETS[4]:
        for align_corners in (False, True) if mode != "lanczos" else (False,):
            assert_same(array, mode=mode, antialias=True, align_corners=align_corners, **target)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_nearest_reads_the_neighbour_that_torch_reads(rank, dtype):
    table_dtype = np.float32 if dtype == "float32" else np.float64
    for n in (*range(1, 29, 3), 48, 70):
        array = torch.arange(n, dtype=getattr(torch, dtype)).expand(1, 2, *(1,) * (rank - 3), n).contiguous()
        targets = [(m, None) for m in range(1, 30)] + [(int(n * f), f) for f in (0.3, 0.9, 1.05, 1.7, 2.2, 2.7)]
        for m, factor in targets:
            for mode in ("nearest", "nearest-exact") if m else ():
                options = {"size": (*(1,) * (rank - 3), m)} if factor is None else {}
                options |= {"scale_factor": (*(1,) * (rank - 3), factor)} if factor is not None else {}
                want = torch.nn.functional.interpolate(array, mode=mode, **options).reshape(-1, m)[0]
                if rank == 4 and m < 128:
                    table = resize._nearest_of_small(n, m, factor, mode)
                else:
                    table = resize._table(n, m, factor, mode, False, False, table_dtype)
                np.testing.assert_array_equal(want, table.indices[0], f"{mode} {n} -> {m} by {factor}")


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic"])
def test_gradient(mode):
    array = numbers(SHAPES[3 if mode == "linear" else 4])
    for antialias in (False,) if mode == "linear" else (False, True):
        tensor = torch.from_numpy(array).requires_grad_()
        options = {"scale_factor": 0.6, "mode": mode, "antialias": antialias}
        torch.sin(torch.nn.functional.interpolate(tensor, **options)).sum().backward()
        found = jax.grad(lambda x, o=options: jnp.sin(resize.interpolate(x, **o)).sum())(jnp.asarray(array))
        np.testing.assert_allclose(found, tensor.grad.numpy(), 1e-10, 1e-12)


def test_half_precision_is_rounded_once():
    tensor = torch.randn(1, 2, 6, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    want = torch.nn.functional.interpolate(tensor, scale_factor=2, mode="bilinear").float().numpy()
    found = jax.jit(lambda x: resize.interpolate(x, scale_factor=2, mode="bilinear"))(
        jnp.asarray(tensor.float().numpy(), jnp.bfloat16)
    )
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(found.astype(jnp.float32), want, 1 / 128)


def test_integers_are_copied_but_never_interpolated():
    image = np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4)
    want = torch.nn.functional.interpolate(torch.from_numpy(image), scale_factor=2).numpy()
    np.testing.assert_array_equal(resize.interpolate(jnp.asarray(image), scale_factor=2), want)
    with pytest.raises(TypeError, match="cast to float"):
        resize.interpolate(jnp.asarray(image), scale_factor=2, mode="bilinear")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of size and scale_factor"),
        ({"size": 3, "scale_factor": 2}, "one of size and scale_factor"),
        ({"size": (3, 4, 5)}, "2 spatial axes"),
        ({"size": 3, "mode": "trilinear"}, "no mode 'trilinear'"),
        ({"size": 3, "mode": "lanczos"}, "no mode 'lanczos'"),
    ],
)
def test_what_cannot_be_resized_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        resize.interpolate(jnp.zeros((1, 2, 4, 4)), **options)
