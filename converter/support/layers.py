"""Modules with torch's constructor arguments and attributes: the base classes, linear, embedding, layer norms, dropout.

Every layer takes `config` (compute dtype `dtype`, storage dtype `weight_dtype`, `matmul_precision`) and `rngs`. Kernels
are cast to the compute dtype; inputs are used as they come, so that a wrong dtype shows instead of being repaired.
"""

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Int

from .module import (
    Buffer,
    Constant,
    Initial,
    Leaf,
    Module,
    abstract_parameters,
    bias_initial,
    compute_dtype,
    constant,
    full,
    iter_modules,
    matmul_precision,
    normal,
    param,
    uniform,
    weight_dtype,
    weight_initial,
)
from .random import alpha_dropout, dropout, feature_alpha_dropout, feature_dropout

__all__ = [
    "AlphaDropout",
    "Buffer",
    "Constant",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "Embedding",
    "FeatureAlphaDropout",
    "Identity",
    "Initial",
    "LayerNorm",
    "Leaf",
    "Linear",
    "Module",
    "PreTrainedModel",
    "RMSNorm",
    "abstract_parameters",
    "constant",
    "full",
    "iter_modules",
    "normal",
    "param",
    "uniform",
    "weight_dtype",
]

DEBUG_CHECKS = os.environ.get("MAXCODE_DEBUG_CHECKS", "") not in ("", "0")


class ConfigDtype:
    """The dtype that a model computes in, by its configuration; an instance's attribute, where set, comes first."""

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        return self if model is None else compute_dtype(model.config)


class PreTrainedModel(Module):
    """A model with a configuration: loading, caches, dtype."""

    config: Any

    def init_cache(self, batch: int, length: int) -> Any:
        """Make an empty cache for `batch` sequences of at most `length` tokens (see cache.py)."""
        from .cache import init_cache

        return init_cache(self, batch, length)

    dtype = ConfigDtype()


class Linear(Module):
    """y = x @ kernel + bias, kernel [in_features, out_features].

    A tied layer (see leaves.tie_weights) has no kernel: `tied` is the embedding table [out_features, in_features].
    """

    bias: Any = Leaf()

    kernel: Any
    tied: Any

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        axes: Sequence[str | None] = (None, None),
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.in_features, self.out_features = in_features, out_features
        self.dtype, self.precision = compute_dtype(config), matmul_precision(config)
        self.kernel = param(weight_initial((in_features, out_features), in_features, config), axes, config, rngs=rngs)
        initial_bias = bias_initial(out_features, in_features, config)
        self.bias = param(initial_bias, axes[-1:], config, rngs=rngs) if bias else None

    @property
    def weight(self) -> Array:
        """The kernel in torch's layout [out_features, in_features]."""
        return (self.kernel[...].T if self.kernel is not None else self.tied[...]).astype(self.dtype)

    def __call__(self, input: Array) -> Array:
        """Map [..., in_features] to [..., out_features]."""
        if self.kernel is not None:
            return project(input, self.kernel[...].astype(self.dtype), self.bias, self.precision)
        return project(input, self.tied[...].astype(self.dtype).T, self.bias, self.precision)


def project(x: Array, kernel: Array, bias: Array | None = None, precision: str | None = None) -> Array:
    """Compute x [..., i] @ kernel [i, o] (+ bias [o]) in their common dtype.

    With a bias, 16-bit products are rounded once, after the bias is added, as torch's fused addmm does.
    """
    if bias is None:
        return jnp.dot(x, kernel, precision=precision)
    dtype = jnp.result_type(x, kernel)
    wide = jnp.promote_types(dtype, jnp.float32)
    return (jnp.dot(x, kernel, precision=precision, preferred_element_type=wide) + bias).astype(dtype)


class Embedding(Module):
    """Rows of a table [num_embeddings, embedding_dim]; the row `padding_idx` receives no gradient."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        *,
        axes: Sequence[str | None] = (None, None),
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        if max_norm is not None or scale_grad_by_freq:
            raise NotImplementedError(
                f"Embedding: max_norm={max_norm!r}, scale_grad_by_freq={scale_grad_by_freq!r}; only None and False are "
                "supported (the first changes weights in the forward pass); drop the argument or normalise explicitly"
            )
        if padding_idx is not None and padding_idx < 0:
            padding_idx += num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.dtype = compute_dtype(config)
        self.embedding = param(_table(num_embeddings, embedding_dim, padding_idx, config), axes, config, rngs=rngs)

    @property
    def weight(self) -> Array:
        """The table [num_embeddings, embedding_dim]."""
        return self.embedding[...].astype(self.dtype)

    def __call__(self, input: Int[Array, "..."]) -> Array:
        """Look up ids [...]: [..., embedding_dim]. Ids must lie in [0, num_embeddings), checked under DEBUG_CHECKS.

        Raises ValueError for None: a model that was given neither ids nor embeddings.
        """
        if input is None:
            raise ValueError("there are no ids to look up; give the model its input ids, or their embeddings")
        if DEBUG_CHECKS:
            jax.debug.callback(_check_ids, input, size=self.num_embeddings)
        rows = self.embedding[...][input].astype(self.dtype)
        if self.padding_idx is None:
            return rows
        return jnp.where((input == self.padding_idx)[..., None], jax.lax.stop_gradient(rows), rows)


def _table(rows: int, width: int, padding_idx: int | None, config: Any) -> Initial:
    std = getattr(config, "initializer_range", None)
    table = normal((rows, width), 1.0 if std is None else std)
    if padding_idx is None:
        return table
    return Initial(table.shape, lambda key, dtype: table.draw(key, dtype).at[padding_idx].set(0))


def _check_ids(ids: Any, size: int) -> None:
    low, high = int(np.min(ids, initial=0)), int(np.max(ids, initial=0))
    if low < 0 or high >= size:
        raise IndexError(
            f"Embedding: ids between {low} and {high} for a table of {size} rows; expected 0 <= id < {size}; "
            "check the tokenizer and the vocabulary size"
        )


class _Norm(Module):
    """Attributes shared by layer norms: `scale` and `bias` over the last dimensions, or None."""

    bias: Any = Leaf()

    def __init__(self, normalized_shape: Any, eps: Any, affine: bool, bias: bool, axes: Any, config: Any):
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        axes = (None,) * len(shape) if axes is None else axes
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, affine
        self.dtype = compute_dtype(config)
        self.scale = param(full(shape, 1.0), axes, config) if affine else None
        self.bias = param(full(shape, 0.0), axes, config) if affine and bias else None

    @property
    def weight(self) -> Any:
        """The scale, or None."""
        return None if self.scale is None else self.scale[...].astype(self.dtype)

    @property
    def _dimensions(self) -> tuple[int, ...]:
        return tuple(range(-len(self.normalized_shape), 0))


class LayerNorm(_Norm):
    """(x - mean) / sqrt(var + eps) * scale + bias over the last dimensions, at least in float32."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        super().__init__(normalized_shape, eps, elementwise_affine, bias, axes, config)

    def __call__(self, input: Array) -> Array:
        """Normalise [..., *normalized_shape]; shape and dtype stay."""
        return layer_norm(input, self._dimensions, self.weight, self.bias, self.eps)


def layer_norm(x: Array, axes: Any, weight: Array | None, bias: Array | None, eps: float) -> Array:
    """Normalise over `axes` with at least float32 in between; the result has x's dtype."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centred = wide - wide.mean(axes, keepdims=True)
    y = centred * jax.lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).astype(x.dtype)


class RMSNorm(_Norm):
    """x / sqrt(mean(x^2) + eps) * scale over the last dimensions, at least in float32; eps defaults to that dtype's."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        super().__init__(normalized_shape, eps, elementwise_affine, False, axes, config)

    def __call__(self, x: Array) -> Array:  # torch's own name for it
        """Normalise [..., *normalized_shape]; shape and dtype stay."""
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        eps = jnp.finfo(wide.dtype).eps if self.eps is None else self.eps
        y = wide * jax.lax.rsqrt(jnp.square(wide).mean(self._dimensions, keepdims=True) + eps)
        return (y if self.scale is None else y * self.weight).astype(x.dtype)


class Identity(Module):
    """Returns its input; constructor arguments are ignored."""

    def __init__(self, *args: Any, config: Any = None, rngs: nnx.Rngs | None = None, **kwargs: Any):
        pass

    def __call__(self, input: Any) -> Any:
        """Return the input."""
        return input


class Dropout(Module):
    """Zeroes elements with probability p in training; keys come from `random.key_scope`."""

    spatial = 0

    def __init__(self, p: float = 0.5, inplace: bool = False, *, config: Any = None, rngs: nnx.Rngs | None = None):
        self.p = p

    def __call__(self, input: Array) -> Array:
        """Drop; shape and dtype stay."""
        if self.spatial:
            return feature_dropout(input, self.p, self.training, self.spatial)
        return dropout(input, self.p, self.training)


class Dropout1d(Dropout):
    """Drops whole channels of [n, c, l]."""

    spatial = 1


class Dropout2d(Dropout):
    """Drops whole channels of [n, c, h, w]."""

    spatial = 2


class Dropout3d(Dropout):
    """Drops whole channels of [n, c, d, h, w]."""

    spatial = 3


class AlphaDropout(Dropout):
    """Dropout that keeps the mean and variance of SELU networks."""

    def __call__(self, input: Array) -> Array:
        """Drop; shape and dtype stay."""
        return alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels of [n, c, ...]."""

    def __call__(self, input: Array) -> Array:
        """Drop; shape and dtype stay."""
        return feature_alpha_dropout(input, self.p, self.training)
