"""Resizing of the spatial axes of [n, c, *spatial] as `torch.nn.functional.interpolate` does it on a CPU.

Every mode but "area" works axis by axis: output i of an axis is a weighted sum of a few inputs. Both the positions and
the weights follow from sizes alone, so they are numpy tables (in the dtype in which torch computes them, since a
rounding there decides which neighbour is read), and an axis costs one `take` and one product per neighbour.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from .module import Module
from .pool import adaptive_pool

_MODES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "lanczos": 2}
_REACH = {"linear": 1, "bicubic": 2, "lanczos": 3}  # of the antialiasing filters, at scale 1
_CUBIC, _CUBIC_ANTIALIAS = -0.75, -0.5  # Keys' a: torch's own for plain, Pillow's for antialiased resizing

_SMALL = 128  # torch has another kernel for an output of two axes whose height and width add up to this at most


class Table(NamedTuple):
    """One axis: output i is the sum over k of `weights[k, i]` times input `indices[k, i]`; no weights mean ones."""

    indices: np.ndarray
    weights: np.ndarray | None


def interpolate(
    input: Float[Array, "n c *spatial"],
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Float[Array, "n c *resized"]:
    """Resize the axes after the second to `size` or by `scale_factor` (a number, or one per axis); the dtype stays.

    Positions are computed with the given factors, unless `recompute_scale_factor` asks for the ratio of the sizes.

    Raises:
        ValueError: for a mode that does not exist for this rank, and unless one of size and factor is given.
        TypeError: for integers in a mode that computes new values (torch does that in fixed point).
    """
    spatial = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give one of size and scale_factor")
    factors: list[Any] = [None] * spatial
    if size is None:
        factors = _per_axis(scale_factor, spatial)
        sizes = [int(n * factor) for n, factor in zip(input.shape[2:], factors, strict=True)]
    else:
        sizes = _per_axis(size, spatial)
    if mode == "area":
        return adaptive_pool(input, tuple(sizes), spatial, jnp.mean)
    if recompute_scale_factor:
        factors = [None] * spatial
    if mode not in ("nearest", "nearest-exact"):
        _check(input, mode, spatial, antialias)
    dtype = _table_dtype(input.dtype)
    x = input if mode.startswith("nearest") else input.astype(dtype)
    small = spatial == 2 and mode.startswith("nearest") and sum(sizes) <= _SMALL
    # torch resizes the last axis first.
    for axis in reversed(range(spatial)):
        n = input.shape[axis + 2]
        if small:
            table = _nearest_of_small(n, int(sizes[axis]), factors[axis], mode)
        else:
            table = _table(n, int(sizes[axis]), factors[axis], mode, bool(align_corners), antialias, dtype)
        x = _apply(x, table, axis + 2)
    return x.astype(input.dtype)


def _per_axis(value: Any, spatial: int) -> list[Any]:
    values = list(value) if isinstance(value, Sequence) else [value] * spatial
    if len(values) != spatial:
        raise ValueError(f"interpolate: {values} for {spatial} spatial axes; give one number per axis")
    return values


def _check(input: Array, mode: str, spatial: int, antialias: bool) -> None:
    if _MODES.get(mode) != spatial or (antialias and spatial != 2) or (mode == "lanczos" and not antialias):
        detail = " with antialias" if antialias else ""
        raise ValueError(f"interpolate: there is no mode {mode!r}{detail} for an input of {input.ndim} axes")
    if not jnp.issubdtype(input.dtype, jnp.floating):
        raise TypeError(f"interpolate: mode {mode!r} of {input.dtype}; only 'nearest' takes integers, cast to float")


def _table_dtype(dtype: Any) -> Any:
    """float64 for float64, else float32: what torch's kernels compute positions and sums in."""
    return np.float64 if dtype == jnp.float64 else np.float32


def _table(n: int, m: int, factor: float | None, mode: str, align_corners: bool, antialias: bool, dtype: Any) -> Table:
    kind = "linear" if mode.endswith("linear") else mode
    scale = _scale(n, m, factor, align_corners and not mode.startswith("nearest"), dtype)
    if antialias:
        same = Table(np.arange(m)[None], None)
        return same if n == m else _antialiased(n, m, scale, kind, dtype)
    if kind == "nearest":
        return Table(_floor(np.arange(m).astype(dtype) * scale, n)[None], None)
    if kind == "nearest-exact":
        centred = np.maximum(_source(m, scale, False, dtype), 0)
        return Table(_floor(centred + 0.5, n)[None], None)
    if kind == "linear":
        return _linear(n, m, scale, align_corners, dtype)
    return _cubic(n, m, scale, align_corners, dtype)


def _scale(n: int, m: int, factor: float | None, align_corners: bool, dtype: Any) -> Any:
    """Input steps per output step."""
    if align_corners:
        return dtype(n - 1) / dtype(m - 1) if m > 1 else dtype(0)
    return dtype(1.0 / factor) if factor is not None and factor > 0 else dtype(n) / dtype(m)


def _source(m: int, scale: Any, align_corners: bool, dtype: Any) -> np.ndarray:
    """Where each output lies on the input's axis."""
    outputs = np.arange(m).astype(np.float64)
    if align_corners:
        return outputs.astype(dtype) * scale
    # One rounding at the end, as of the fused multiply-add that compilers make of this.
    return (np.float64(scale) * (outputs + 0.5) - 0.5).astype(dtype)


def _floor(position: np.ndarray, n: int) -> np.ndarray:
    """Round down to an index, by way of float32 for every dtype as torch does."""
    return np.minimum(np.floor(position.astype(np.float32)).astype(np.int64), n - 1)


def _nearest_of_small(n: int, m: int, factor: float | None, mode: str) -> Table:
    """torch's kernel for small images: float32 whatever the input, and given factors do not count at 1x and 2x."""
    outputs = np.arange(m)
    if mode == "nearest" and m in (n, 2 * n):
        return Table((outputs // (m // max(n, 1)))[None], None)
    scale = _scale(n, m, factor, False, np.float32)
    offset = 0.5 if mode == "nearest-exact" else 0
    return Table(_floor((outputs + np.float32(offset)).astype(np.float32) * scale, n)[None], None)


def _linear(n: int, m: int, scale: Any, align_corners: bool, dtype: Any) -> Table:
    if n == m:
        return Table(np.arange(m)[None], None)
    position = _source(m, scale, align_corners, dtype)
    position = position if align_corners else np.maximum(position, 0)
    low = _floor(position, n)
    share = np.clip(position - low.astype(dtype), 0, 1)
    return Table(np.stack([low, np.minimum(low + 1, n - 1)]), np.stack([1 - share, share]).astype(dtype))


def _cubic(n: int, m: int, scale: Any, align_corners: bool, dtype: Any) -> Table:
    position = _source(m, scale, align_corners, dtype)
    low = _floor(position, n)
    share = np.clip(position - low.astype(dtype), 0, 1)
    weights = [_keys(distance, _CUBIC) for distance in (share + 1, share, 1 - share, 2 - share)]
    indices = np.clip(low + np.arange(-1, 3)[:, None], 0, n - 1)
    return Table(indices, np.stack(weights).astype(dtype))


def _keys(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel at distances >= 0."""
    inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    outer = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, inner, np.where(distance < 2, outer, 0))


def _antialiased(n: int, m: int, scale: Any, kind: str, dtype: Any) -> Table:
    """A filter that widens with the scale, cut at the edges and normalised to sum 1."""
    reach = _REACH[kind]
    support = dtype(reach) * (scale if scale >= 1 else dtype(1))
    most = math.ceil(support) * 2 + 1
    centre = scale * (np.arange(m).astype(dtype) + dtype(0.5))
    first = np.maximum((centre - support + dtype(0.5)).astype(np.int64), 0)
    count = np.clip(np.minimum((centre + support + dtype(0.5)).astype(np.int64), n) - first, 0, most)
    tap = np.arange(most)[:, None]
    offset = (tap + first).astype(dtype) - centre + dtype(0.5)
    weights = np.where(tap < count, _FILTERS[kind](np.abs(offset * (1 / scale if scale >= 1 else dtype(1)))), 0)
    weights = weights / weights.sum(0)
    used = int(count.max())
    return Table(np.minimum(tap + first, first + count - 1)[:used], weights[:used].astype(dtype))


def _lanczos(distance: np.ndarray) -> np.ndarray:
    return np.where(distance < 3, np.sinc(distance) * np.sinc(distance / 3), 0)


_FILTERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda distance: np.maximum(1 - distance, 0),
    "bicubic": lambda distance: _keys(distance, _CUBIC_ANTIALIAS),
    "lanczos": _lanczos,
}


def _apply(x: Array, table: Table, axis: int) -> Array:
    """The weighted sum of the neighbours along an axis, neighbour by neighbour in torch's order."""
    if table.weights is None:
        (index,) = table.indices
        same = len(index) == x.shape[axis] and np.array_equal(index, np.arange(len(index)))
        return x if same else jnp.take(x, index, axis=axis, mode="clip")
    column = (1,) * axis + (-1,) + (1,) * (x.ndim - axis - 1)
    terms = (
        jnp.take(x, index, axis=axis, mode="clip") * weight.reshape(column)
        for index, weight in zip(table.indices, table.weights, strict=True)
    )
    total = next(terms)
    for term in terms:
        total = total + term
    return total


class Upsample(Module):
    """`interpolate` with its options fixed; resizes [n, c, *spatial], the dtype stays."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.size = tuple(size) if isinstance(size, list) else size
        self.scale_factor = tuple(scale_factor) if isinstance(scale_factor, list) else scale_factor
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def __call__(self, input: Array) -> Array:
        """Resize the spatial axes."""
        target = (self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
        return interpolate(input, *target)
