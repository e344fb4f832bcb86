"""Sampling of images and volumes at computed points, as `torch.nn.functional.grid_sample` does it on a CPU.

Points are given as fractions of the extent, from -1 to 1, the last axis of the data first (x, y or x, y, z).
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_CUBIC = -0.75  # Keys' a
_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def grid_sample(
    input: Float[Array, "n c *spatial"],
    grid: Float[Array, "n *points d"],
    mode: str | int = "bilinear",
    padding_mode: str | int = "zeros",
    align_corners: bool | None = None,
) -> Float[Array, "n c *points"]:
    """Values of `input` at the points of `grid`, by mode bilinear, nearest or (two spatial axes) bicubic.

    `padding_mode` says what lies outside: zeros, the border's values, or the reflection at the border. With
    `align_corners` -1 and 1 are the centres of the outermost entries, else their outer edges. Modes may be torch's
    numbers for them. The dtype is `input`'s. Raises ValueError for an unknown mode, or bicubic on a volume.
    """
    mode, padding_mode = _name(mode, _MODES), _name(padding_mode, _PADDINGS)
    sizes = input.shape[2:]
    if mode == "bicubic" and len(sizes) != 2:
        raise ValueError(f"grid_sample: mode 'bicubic' takes an input of 4 axes, got {input.ndim}")
    wide = jnp.promote_types(input.dtype, jnp.float32)
    points = grid.astype(wide)
    # One array of positions per axis of the data, [n, *points].
    positions = [_position(points[..., -1 - axis], size, align_corners) for axis, size in enumerate(sizes)]
    if mode != "bicubic":
        positions = [_pad(p, size, padding_mode, align_corners) for p, size in zip(positions, sizes, strict=True)]
    neighbours = [_neighbours(position, mode) for position in positions]
    flat = input.astype(wide).reshape(*input.shape[:2], -1)
    total = jnp.zeros((*input.shape[:2], *grid.shape[1:-1]), wide)
    for corner in itertools.product(*neighbours):
        places, weights = [place for place, _ in corner], [weight for _, weight in corner]
        if mode == "bicubic":
            places = [_pad(p, size, padding_mode, align_corners) for p, size in zip(places, sizes, strict=True)]
        value = _read(flat, places, sizes)
        for weight in weights:
            value = value if weight is None else value * weight[:, None]
        total = total + value
    return total.astype(input.dtype)


def affine_grid(
    theta: Float[Array, "n d d+1"], size: Sequence[int], align_corners: bool | None = None
) -> Float[Array, "n *points d"]:
    """Points for `grid_sample` of an output of `size` (n, c, *spatial): those of a regular grid under `theta`."""
    spatial = size[2:]
    axes = [_regular(n, align_corners, theta.dtype) for n in spatial]
    grids = jnp.meshgrid(*axes, indexing="ij")
    base = jnp.stack([*reversed(grids), jnp.ones(tuple(spatial), theta.dtype)], axis=-1)
    return jnp.einsum("...j,nij->n...i", base, theta, precision="highest")


def _name(value: str | int, names: tuple[str, ...]) -> str:
    value = names[value] if isinstance(value, int) else value
    if value not in names:
        raise ValueError(f"grid_sample: {value!r}; expected one of {', '.join(names)}")
    return value


def _regular(count: int, align_corners: bool | None, dtype: Any) -> Array:
    if count <= 1:
        return jnp.zeros(count, dtype)
    steps = jnp.linspace(-1, 1, count, dtype=dtype)
    return steps if align_corners else steps * (count - 1) / count


def _position(fraction: Array, size: int, align_corners: bool | None) -> Array:
    """From -1 … 1 to positions on an axis of `size` entries."""
    return (fraction + 1) * ((size - 1) / 2) if align_corners else (fraction + 1) * (size / 2) - 0.5


def _pad(position: Array, size: int, padding_mode: str, align_corners: bool | None) -> Array:
    """Move positions that lie outside; with "zeros" they stay, and `_read` gives zero there."""
    if padding_mode == "zeros":
        return position
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        distance = jnp.abs(position - low)
        rest = jnp.fmod(distance, 2 * span) if span else jnp.zeros_like(distance)
        position = jnp.minimum(rest, 2 * span - rest) + low
    position = jnp.where(jnp.isnan(position), 0, position)  # as torch: a point that is no number is the first entry
    return jnp.clip(position, 0, size - 1)


def _neighbours(position: Array, mode: str) -> list[tuple[Array, Array | None]]:
    """(place, weight) of every entry of an axis that counts at a position; places are whole floats."""
    if mode == "nearest":
        return [(jnp.round(position), None)]
    low = jax.lax.stop_gradient(jnp.floor(position))
    share = position - low
    if mode == "bilinear":
        return [(low, 1 - share), (low + 1, share)]
    return [
        (low - 1, _outer(share + 1)),
        (low, _inner(share)),
        (low + 1, _inner(1 - share)),
        (low + 2, _outer(2 - share)),
    ]


def _inner(distance: Array) -> Array:
    """Keys' cubic convolution kernel up to distance 1."""
    return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1


def _outer(distance: Array) -> Array:
    """Keys' cubic convolution kernel from distance 1 to 2."""
    return ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC


def _read(flat: Array, places: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Entries [n, c, *points] of data [n, c, entries] at one place per axis, zero for places outside."""
    index = jnp.zeros(places[0].shape, int)
    inside = jnp.ones(places[0].shape, bool)
    for place, size in zip(places, sizes, strict=True):
        within = (place >= 0) & (place <= size - 1)
        index = index * size + jnp.where(within, place, 0).astype(int)
        inside = inside & within
    value = jax.vmap(lambda image, at: jnp.take(image, at, axis=-1, mode="clip"))(flat, index)
    return jnp.where(inside[:, None], value, 0)
