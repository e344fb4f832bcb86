"""Rotary-embedding frequencies for every scaling type that configurations name in `rope_parameters["rope_type"]`.

Each function takes `(config, seq_len=None, layer_type=None)` and returns the inverse frequencies [rotary_dim / 2] in
`float32` and the factor by which cosines and sines are scaled. With a Python `seq_len` they are NumPy arrays, computed
on the host with correct rounding and concrete under any transformation, so that they can be model constants.

Sources of the formulas: linear (position interpolation, Chen et al., 2023), dynamic (NTK-aware scaling, 2023), yarn
(Peng et al., 2023), longrope (Ding et al., 2024), banded (long wavelengths only, 2024), proportional (a rotated share
of the head, zeros for the rest).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

float32 = jnp.float32  # the exact check lifts this to float64

RopeParameters = tuple[Float[Array | np.ndarray, " d"], float]


def _select(config: Any, layer_type: str | None) -> tuple[Any, Any]:
    """The configuration and rope parameters that hold for layers of `layer_type`."""
    if layer_type is None:
        return config, config.rope_parameters
    rope = config.rope_parameters[layer_type]
    if layer_type in (getattr(config, "layer_types", None) or ()) and hasattr(config, "per_layer_config"):
        config = config.per_layer_config[layer_type]  # head sizes may differ by layer type
    return config, rope


def _head_dim(config: Any, key: str = "head_dim") -> int:
    return getattr(config, key, None) or config.hidden_size // config.num_attention_heads


def _rotary_dim(config: Any, rope: Any) -> int:
    return int(_head_dim(config) * rope.get("partial_rotary_factor", 1.0))


def _exponents(dim: int, stop: int | None = None) -> np.ndarray:
    """0, 2, 4, ... below `stop` (default `dim`), divided by `dim`."""
    return np.arange(0, dim if stop is None else stop, 2).astype(float32) / dim


def default_frequencies(config: Any, seq_len: int | None = None, layer_type: str | None = None) -> RopeParameters:
    """theta^(-2i / d): no scaling."""
    config, rope = _select(config, layer_type)
    return 1.0 / (rope["rope_theta"] ** _exponents(_rotary_dim(config, rope))), 1.0


def linear_frequencies(config: Any, seq_len: int | None = None, layer_type: str | None = None) -> RopeParameters:
    """Default frequencies divided by `factor`."""
    inv_freq, scaling = default_frequencies(config, seq_len, layer_type)
    return inv_freq / _select(config, layer_type)[1]["factor"], scaling


def proportional_frequencies(
    config: Any, seq_len: int | None = None, layer_type: str | None = None, head_dim_key: str = "head_dim"
) -> RopeParameters:
    """Frequencies over the whole head of which only the first `partial_rotary_factor` rotate; the rest is zero."""
    config, rope = _select(config, layer_type)
    head_dim = _head_dim(config, head_dim_key)
    angles = int(rope.get("partial_rotary_factor", 1.0) * head_dim // 2)
    rotated = 1.0 / (rope["rope_theta"] ** _exponents(head_dim, 2 * angles))
    inv_freq = np.concatenate((rotated, np.zeros(max(head_dim // 2 - angles, 0), float32)))
    return inv_freq / rope.get("factor", 1.0), 1.0


def dynamic_frequencies(
    config: Any, seq_len: int | Int[Array, ""] | None = None, layer_type: str | None = None
) -> RopeParameters:
    """NTK scaling of theta for sequences longer than `config.max_position_embeddings`; `seq_len` may be traced."""
    config, rope = _select(config, layer_type)
    dim, factor, limit = _rotary_dim(config, rope), rope["factor"], config.max_position_embeddings
    if isinstance(seq_len, jax.Array):
        seq_len = jnp.maximum(seq_len, limit).astype(float32)
    else:
        seq_len = max(seq_len or 0, limit)
    base = rope["rope_theta"] * ((factor * seq_len / limit) - (factor - 1)) ** (dim / (dim - 2))
    return 1.0 / (base ** _exponents(dim)), 1.0


def yarn_frequencies(config: Any, seq_len: int | None = None, layer_type: str | None = None) -> RopeParameters:
    """Interpolated low and untouched high frequencies with a linear ramp between them."""
    outer = config
    config, rope = _select(config, layer_type)
    dim, base = _rotary_dim(config, rope), rope["rope_theta"]
    original = rope["original_max_position_embeddings"]
    factor = rope["factor"]
    if factor is None:
        factor = config.max_position_embeddings / original

    pos_freqs = base ** _exponents(dim)
    low, high = (
        dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))
        for rotations in (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1)
    )
    if outer.rope_parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001  # a ramp of no width would divide by zero
    ramp = np.clip((np.arange(dim // 2).astype(float32) - low) / (high - low), 0, 1)
    keep = 1 - ramp
    inv_freq = 1.0 / (factor * pos_freqs) * (1 - keep) + 1.0 / pos_freqs * keep
    return inv_freq, _yarn_attention_factor(rope, factor)


def _yarn_attention_factor(rope: Any, factor: float) -> float:
    def mscale(weight: float = 1.0) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if rope.get("attention_factor") is not None:
        return rope["attention_factor"]
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return mscale(rope["mscale"]) / mscale(rope["mscale_all_dim"])
    return mscale()


def longrope_frequencies(config: Any, seq_len: int | None = None, layer_type: str | None = None) -> RopeParameters:
    """Per-frequency factors: the long set beyond `original_max_position_embeddings`, else the short one."""
    config, rope = _select(config, layer_type)
    dim, original = _rotary_dim(config, rope), rope["original_max_position_embeddings"]
    factor, scaling = rope.get("factor"), rope.get("attention_factor")
    if factor is None:
        factor = config.max_position_embeddings / original
    if scaling is None:
        scaling = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(original))
    factors = rope["long_factor"] if seq_len and seq_len > original else rope["short_factor"]
    return 1.0 / (np.asarray(factors, dtype=float32) * rope["rope_theta"] ** _exponents(dim)), scaling


def banded_frequencies(config: Any, seq_len: int | None = None, layer_type: str | None = None) -> RopeParameters:
    """Long wavelengths divided by `factor`, short ones kept, a smooth blend between them."""
    inv_freq, scaling = default_frequencies(config, seq_len, layer_type)
    rope = _select(config, layer_type)[1]
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    wavelength = 2 * math.pi / inv_freq
    is_long, is_short = wavelength > original / low, wavelength < original / high
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    return np.where(is_long, inv_freq / factor, np.where(is_short, inv_freq, blended)), scaling


class RopeInitFunctions(dict[str, Callable[..., RopeParameters]]):
    """Rope types by name; one without an entry is told by its parameters: types are named after their first model."""

    def __missing__(self, rope_type: str) -> Callable[..., RopeParameters]:
        def by_parameters(config: Any, seq_len: int | None = None, layer_type: str | None = None) -> RopeParameters:
            rope = _select(config, layer_type)[1]
            if "low_freq_factor" in rope and "high_freq_factor" in rope:
                return banded_frequencies(config, seq_len, layer_type)
            known = sorted(self)
            raise ValueError(f"rope_type is {rope_type!r} with parameters {sorted(rope)}; expected one of {known}")

        return by_parameters


ROPE_INIT_FUNCTIONS = RopeInitFunctions(
    {
        "default": default_frequencies,
        "linear": linear_frequencies,
        "dynamic": dynamic_frequencies,
        "yarn": yarn_frequencies,
        "longrope": longrope_frequencies,
        "proportional": proportional_frequencies,
    }
)


def update_frequencies(
    inv_freq: Float[Array, " d"],
    config: Any,
    position_ids: Int[Array, "..."],
    rope_type: str,
    layer_type: str | None = None,
) -> Float[Array | np.ndarray, " d"]:
    """The frequencies for a call at `position_ids`, where the rope type depends on the sequence's length.

    Jit-able: the length, `max(position_ids) + 1`, may be traced. "longrope" picks its long factors for lengths beyond
    `original_max_position_embeddings`, `inv_freq` otherwise; types with "dynamic" in their name are rescaled beyond
    `max_position_embeddings`. All others return `inv_freq`. Unlike a stateful source, which keeps the largest length
    seen until a short sequence resets it, the result depends on this call alone.
    """
    if "dynamic" in rope_type:
        return ROPE_INIT_FUNCTIONS[rope_type](config, jnp.max(position_ids) + 1, layer_type)[0]
    if rope_type != "longrope":
        return inv_freq
    original = _select(config, layer_type)[1]["original_max_position_embeddings"]
    long_inv_freq, _ = longrope_frequencies(config, original + 1, layer_type)
    return jnp.where(jnp.max(position_ids) + 1 > original, long_inv_freq, inv_freq)
