"""Transforms of complex signals and windows, for which torch has no samples in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.rules.ops import spectral, windows


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def signal(*shape):
    return np.random.default_rng(0).standard_normal(shape)


OPTIONS = [
    {},
    {"center": False, "window": None},
    {"hop_length": 3, "win_length": 6, "window": "hann"},
    {"onesided": False, "window": "hann"},
    {"normalized": True, "length": 25},
    {"length": 60},
]


@pytest.mark.filterwarnings("ignore:A window was not provided", "ignore:The length of signal is shorter")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_inverse_of_the_short_time_transform(options):
    options = dict(options)
    size = options.get("win_length", 8)
    window = torch.hann_window(size, dtype=torch.float64) + 0.1 if options.pop("window", "") == "hann" else None
    forward = {k: v for k, v in options.items() if k != "length"}
    array = signal(2, 40)
    spectrum = torch.stft(torch.from_numpy(array), 8, window=window, return_complex=True, **forward)
    want = torch.istft(spectrum, 8, window=window, **options).numpy()
    weights = None if window is None else jnp.asarray(window.numpy())
    found = spectral.istft(jnp.asarray(spectrum.numpy()), 8, window=weights, **options)
    np.testing.assert_allclose(found, want, 1e-9, 1e-11)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "hfftn", "irfftn"])
def test_transforms_of_complex_signals(name):
    array = signal(3, 4, 5) + 1j * signal(3, 4, 5)[::-1]
    for options in ({}, {"s": (2, -1)}, {"dim": (0, 2), "norm": "ortho"}, {"s": (4, 6), "dim": (1, 0)}):
        want = getattr(torch.fft, name)(torch.from_numpy(array), **options).numpy()
        found = getattr(spectral, name)(jnp.asarray(array), **options)
        np.testing.assert_allclose(found, want, 1e-9, 1e-11, err_msg=str(options))


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows(name):
    for length in (0, 1, 2, 7, 8):
        for periodic in (True, False):
            want = getattr(torch, f"{name}_window")(length, periodic, dtype=torch.float64)
            found = getattr(windows, f"{name}_window")(length, periodic, dtype=jnp.float64)
            np.testing.assert_allclose(found, want.numpy(), 1e-9, 1e-11, err_msg=f"{length} {periodic}")
            assert getattr(windows, f"{name}_window")(length, periodic).dtype == jnp.float32


def test_frequencies():
    for n in (1, 4, 5):
        for name in ("fftfreq", "rfftfreq"):
            want = getattr(torch.fft, name)(n, 0.5).numpy()
            found = getattr(spectral, name)(n, 0.5)
            assert found.dtype == want.dtype
            np.testing.assert_allclose(found, want)
