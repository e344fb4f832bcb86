"""Small layers with weights of their own that are neither linear maps nor convolutions."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from .module import Leaf, Module, compute_dtype, full, matmul_precision, param, uniform


class PReLU(Module):
    """x where positive, else x times a learned slope: one for all, or one per channel (axis 1)."""

    weight: Any = Leaf()

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        *,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.num_parameters, self.init, self.dtype = num_parameters, init, compute_dtype(config)
        self.weight = param(full((num_parameters,), init), axes, config)

    def __call__(self, input: Array) -> Array:
        """Scale the negative elements of [n, c, ...]. Raises ValueError for several slopes without a channel axis."""
        shape = [1] * input.ndim
        if self.num_parameters > 1:
            if input.ndim < 2:
                raise ValueError(f"PReLU: {self.num_parameters} slopes for an input of shape {input.shape}, not [n, c]")
            shape[1] = self.num_parameters
        return jnp.where(input > 0, input, self.weight.reshape(shape) * input)


class Bilinear(Module):
    """y_o = x1 W_o x2 + b_o with weight [out_features, in1_features, in2_features]."""

    weight: Any = Leaf()
    bias: Any = Leaf()

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        *,
        axes: Sequence[str | None] | None = None,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.dtype, self.precision = compute_dtype(config), matmul_precision(config)
        bound = 1 / math.sqrt(in1_features)
        self.weight = param(uniform((out_features, in1_features, in2_features), bound), axes, config, rngs=rngs)
        bias_axes = None if axes is None else tuple(axes)[:1]
        self.bias = param(uniform((out_features,), bound), bias_axes, config, rngs=rngs) if bias else None

    def __call__(self, input1: Array, input2: Array) -> Array:
        """Map [..., in1_features] and [..., in2_features] of the same leading axes to [..., out_features]."""
        y = jnp.einsum("...i,oij,...j->...o", input1, self.weight, input2, precision=self.precision)
        return y if self.bias is None else y + self.bias
