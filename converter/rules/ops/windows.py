"""Windows of signals, in closed form (Harris 1978). `periodic` ones, and `sym=False`, leave out the last entry."""

import math

import jax
import jax.numpy as jnp

from maxcode.converter.rule import helper, op

float32 = jnp.float32


@helper
def window_steps(length, periodic, dtype):
    """0 … 1 from the first to the last entry of the symmetric window."""
    return jnp.arange(length, dtype=dtype) / max(length - (not periodic), 1)


@helper
def cosine_sum(length, periodic, coefficients, dtype):
    """The sum over k of (-1)^k a_k cos(2 pi k t) for t from 0 to 1; a single entry is 1."""
    dtype = float32 if dtype is None else dtype
    if length == 1:
        return jnp.ones(1, dtype)
    angle = 2 * math.pi * window_steps(length, periodic, dtype)
    terms = [(-1) ** k * a * jnp.cos(k * angle) for k, a in enumerate(coefficients)]
    return jnp.sum(jnp.stack(terms), axis=0).astype(dtype)


@op("torch.hann_window")
def hann_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    return cosine_sum(window_length, periodic, (0.5, 0.5), dtype)


@op("torch.hamming_window")
def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
):  # fmt: skip
    return cosine_sum(window_length, periodic, (alpha, beta), dtype)


@op("torch.blackman_window")
def blackman_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    return cosine_sum(window_length, periodic, (0.42, 0.5, 0.08), dtype)


@op("torch.bartlett_window")
def bartlett_window(
    window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """A triangle."""
    dtype = float32 if dtype is None else dtype
    if window_length == 1:
        return jnp.ones(1, dtype)
    return 1 - jnp.abs(2 * window_steps(window_length, periodic, dtype) - 1)


@op("torch.kaiser_window")
def kaiser_window(
    window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
):  # fmt: skip
    """I0(beta sqrt(1 - x^2)) / I0(beta) for x from -1 to 1."""
    dtype = float32 if dtype is None else dtype
    if window_length == 1:
        return jnp.ones(1, dtype)
    x = 2 * window_steps(window_length, periodic, dtype) - 1
    bessel = jax.scipy.special.i0
    return bessel(beta * jnp.sqrt(jnp.maximum(1 - x * x, 0))) / bessel(jnp.asarray(beta, dtype))


@op("torch.signal.windows.hann")
def signal_hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return cosine_sum(M, not sym, (0.5, 0.5), dtype)


@op("torch.signal.windows.hamming")
def signal_hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return cosine_sum(M, not sym, (0.54, 0.46), dtype)


@op("torch.signal.windows.general_hamming")
def signal_general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return cosine_sum(M, not sym, (alpha, 1.0 - alpha), dtype)


@op("torch.signal.windows.general_cosine")
def signal_general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return cosine_sum(M, not sym, a, dtype)


@op("torch.signal.windows.blackman")
def signal_blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return cosine_sum(M, not sym, (0.42, 0.5, 0.08), dtype)


@op("torch.signal.windows.nuttall")
def signal_nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return cosine_sum(M, not sym, (0.3635819, 0.4891775, 0.1365995, 0.0106411), dtype)


@op("torch.signal.windows.bartlett")
def signal_bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return bartlett_window(M, not sym, dtype=dtype)


@op("torch.signal.windows.kaiser")
def signal_kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return kaiser_window(M, not sym, beta, dtype=dtype)


@op("torch.signal.windows.cosine")
def signal_cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """The upper half of a sine, of entries at half steps."""
    dtype = float32 if dtype is None else dtype
    count = M if sym or M <= 1 else M + 1
    return jnp.sin((jnp.arange(M, dtype=dtype) + 0.5) * (math.pi / max(count, 1)))


@op("torch.signal.windows.gaussian")
def signal_gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-(x / std)^2 / 2) around the centre."""
    dtype = float32 if dtype is None else dtype
    x = jnp.arange(M, dtype=dtype) - (M - (1 if sym and M > 1 else 0)) / 2 if M > 1 else jnp.zeros(M, dtype)
    return jnp.exp(-jnp.square(x / std) / 2)


@op("torch.signal.windows.exponential")
def signal_exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-|x - center| / tau)."""
    dtype = float32 if dtype is None else dtype
    if center is None:
        center = (M - (1 if sym else 0)) / 2 if M > 1 else 0
    return jnp.exp(-jnp.abs(jnp.arange(M, dtype=dtype) - center) / tau)
