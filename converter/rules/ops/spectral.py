"""Fourier transforms. `norm` has the same three meanings as in numpy."""

import math

import jax.numpy as jnp

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import helper, op

float32 = jnp.float32
_TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


@helper
def transform_axes(ndim, s, dim) -> tuple[int, ...]:
    """The axes that a transform over several goes over: those given, else the last len(s), else all."""
    if dim is not None:
        return (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(range(ndim)) if s is None else tuple(range(-len(s), 0))


@helper
def transform_sizes(shape, s, axes, to_real=False) -> tuple[int, ...] | None:
    """Signal lengths per axis, where -1 means the usual one; None when none are given.

    That is the axis's own, but for the last axis of a transform `to_real`, which holds half of a spectrum.
    """
    if s is None:
        return None
    usual = [shape[axis] for axis in axes]
    usual[-1:] = [2 * (usual[-1] - 1) if to_real else usual[-1]]
    sizes = (s,) if isinstance(s, int) else s
    return tuple(old if size == -1 else size for size, old in zip(sizes, usual, strict=True))


@helper
def fourier(transform, input, s, dim, norm, to_real=False):
    """A transform of `jnp.fft` over several axes."""
    axes = transform_axes(input.ndim, s, dim)
    return transform(input, transform_sizes(input.shape, s, axes, to_real), axes, norm)


@op("torch.fft.fft", **_TOLERANCE)
def fft(input, n=None, dim=-1, norm=None):
    return jnp.fft.fft(input, n, dim, norm)


@op("torch.fft.ifft", **_TOLERANCE)
def ifft(input, n=None, dim=-1, norm=None):
    return jnp.fft.ifft(input, n, dim, norm)


@op("torch.fft.rfft", **_TOLERANCE)
def rfft(input, n=None, dim=-1, norm=None):
    return jnp.fft.rfft(input, n, dim, norm)


@op("torch.fft.irfft", **_TOLERANCE)
def irfft(input, n=None, dim=-1, norm=None):
    return jnp.fft.irfft(input, n, dim, norm)


@op("torch.fft.hfft", **_TOLERANCE)
def hfft(input, n=None, dim=-1, norm=None):
    return jnp.fft.hfft(input, n, dim, norm)


@op("torch.fft.ihfft", **_TOLERANCE)
def ihfft(input, n=None, dim=-1, norm=None):
    return jnp.fft.ihfft(input, n, dim, norm)


@op("torch.fft.fftn", **_TOLERANCE)
def fftn(input, s=None, dim=None, norm=None):
    return fourier(jnp.fft.fftn, input, s, dim, norm)


@op("torch.fft.ifftn", **_TOLERANCE)
def ifftn(input, s=None, dim=None, norm=None):
    return fourier(jnp.fft.ifftn, input, s, dim, norm)


@op("torch.fft.rfftn", **_TOLERANCE)
def rfftn(input, s=None, dim=None, norm=None):
    return fourier(jnp.fft.rfftn, input, s, dim, norm)


@op("torch.fft.irfftn", **_TOLERANCE)
def irfftn(input, s=None, dim=None, norm=None):
    return fourier(jnp.fft.irfftn, input, s, dim, norm, to_real=True)


@op("torch.fft.hfftn", **_TOLERANCE)
def hfftn(input, s=None, dim=None, norm=None):
    """The transform of a signal that is Hermitian along the last of the axes."""
    *others, last = axes = transform_axes(input.ndim, s, dim)
    sizes = transform_sizes(input.shape, s, axes, to_real=True)
    if others:
        input = jnp.fft.fftn(input, None if sizes is None else sizes[:-1], others, norm)
    return jnp.fft.hfft(input, None if sizes is None else sizes[-1], last, norm)


@op("torch.fft.ihfftn", **_TOLERANCE)
def ihfftn(input, s=None, dim=None, norm=None):
    """The inverse of `hfftn`."""
    axes = transform_axes(input.ndim, s, dim)
    sizes = transform_sizes(input.shape, s, axes)
    output = jnp.fft.ihfft(input, None if sizes is None else sizes[-1], axes[-1], norm)
    return output if len(axes) == 1 else jnp.fft.ifftn(output, None if sizes is None else sizes[:-1], axes[:-1], norm)


@op("torch.fft.fft2", **_TOLERANCE)
def fft2(input, s=None, dim=(-2, -1), norm=None):
    return fourier(jnp.fft.fftn, input, s, dim, norm)


@op("torch.fft.ifft2", **_TOLERANCE)
def ifft2(input, s=None, dim=(-2, -1), norm=None):
    return fourier(jnp.fft.ifftn, input, s, dim, norm)


@op("torch.fft.rfft2", **_TOLERANCE)
def rfft2(input, s=None, dim=(-2, -1), norm=None):
    return fourier(jnp.fft.rfftn, input, s, dim, norm)


@op("torch.fft.irfft2", **_TOLERANCE)
def irfft2(input, s=None, dim=(-2, -1), norm=None):
    return fourier(jnp.fft.irfftn, input, s, dim, norm, to_real=True)


@op("torch.fft.hfft2", **_TOLERANCE)
def hfft2(input, s=None, dim=(-2, -1), norm=None):
    return hfftn(input, s, dim, norm)


@op("torch.fft.ihfft2", **_TOLERANCE)
def ihfft2(input, s=None, dim=(-2, -1), norm=None):
    return ihfftn(input, s, dim, norm)


@op("torch.fft.fftshift")
def fftshift(input, dim=None):
    return jnp.fft.fftshift(input, dim)


@op("torch.fft.ifftshift")
def ifftshift(input, dim=None):
    return jnp.fft.ifftshift(input, dim)


@op("torch.fft.fftfreq")
def fftfreq(n, d=1.0, *, dtype=None, device=None, layout=None, requires_grad=False):
    return jnp.fft.fftfreq(n, d).astype(float32 if dtype is None else dtype)


@op("torch.fft.rfftfreq")
def rfftfreq(n, d=1.0, *, dtype=None, device=None, layout=None, requires_grad=False):
    return jnp.fft.rfftfreq(n, d).astype(float32 if dtype is None else dtype)


@helper
def centred_window(window, win_length, n_fft, dtype):
    """A window (ones by default) of `win_length` entries in the middle of `n_fft`."""
    window = jnp.ones(win_length, dtype) if window is None else window
    left = (n_fft - win_length) // 2
    return jnp.pad(window, (left, n_fft - win_length - left))


@op(
    "torch.stft", "torch.Tensor.stft", **_TOLERANCE,
    limits={"align_to_window is not converted": lambda align_to_window: is_true(align_to_window)},
)  # fmt: skip
def stft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False,
    onesided=None, return_complex=None, align_to_window=None,
):  # fmt: skip
    """Short-time Fourier transform [..., frequencies, frames] of signals [n, t] or [t]."""
    hop = n_fft // 4 if hop_length is None else hop_length
    weights = centred_window(window, n_fft if win_length is None else win_length, n_fft, input.dtype)
    if center:
        mode = {"reflect": "reflect", "replicate": "edge", "circular": "wrap", "constant": "constant"}[pad_mode]
        input = jnp.pad(input, [(0, 0)] * (input.ndim - 1) + [(n_fft // 2, n_fft // 2)], mode)
    starts = jnp.arange(0, input.shape[-1] - n_fft + 1, hop)
    frames = input[..., starts[:, None] + jnp.arange(n_fft)] * weights
    real = not jnp.issubdtype(frames.dtype, jnp.complexfloating)
    onesided = real if onesided is None else onesided
    spectrum = jnp.fft.rfft(frames) if onesided else jnp.fft.fft(frames)
    spectrum = (spectrum / math.sqrt(n_fft) if normalized else spectrum).swapaxes(-2, -1)
    wants_complex = return_complex or (return_complex is None and not real)
    return spectrum if wants_complex else jnp.stack([spectrum.real, spectrum.imag], -1)


@op("torch.istft", "torch.Tensor.istft", **_TOLERANCE)
def istft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None,
    length=None, return_complex=False,
):  # fmt: skip
    """Signals [n, t] or [t] whose short-time Fourier transform is closest to `input` [..., frequencies, frames]."""
    hop = n_fft // 4 if hop_length is None else hop_length
    real = jnp.finfo(input.dtype).dtype
    weights = centred_window(window, n_fft if win_length is None else win_length, n_fft, real)
    spectrum = input.swapaxes(-2, -1) * (math.sqrt(n_fft) if normalized else 1)
    if return_complex:
        frames = jnp.fft.ifft(spectrum)
    else:  # a real signal: of a whole spectrum torch reads the first half too
        frames = jnp.fft.irfft(spectrum[..., : n_fft // 2 + 1], n_fft)
    count = frames.shape[-2]
    total = n_fft + hop * (count - 1)
    places = (hop * jnp.arange(count)[:, None] + jnp.arange(n_fft)).reshape(-1)
    pieces = (frames * weights).reshape(*frames.shape[:-2], -1)
    signal = jnp.zeros((*frames.shape[:-2], total), pieces.dtype).at[..., places].add(pieces)
    envelope = jnp.zeros(total, weights.dtype).at[places].add(jnp.tile(jnp.square(weights), count))
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    signal, envelope = signal[..., start:end], envelope[start:end]
    missing = 0 if length is None else max(length - signal.shape[-1], 0)
    return jnp.pad(signal / envelope, [(0, 0)] * (signal.ndim - 1) + [(0, missing)])
