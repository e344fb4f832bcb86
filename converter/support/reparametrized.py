"""Layers whose weight is computed from other parameters, named and laid out as torch keeps them.

Weight normalisation (Salimans and Kingma, 2016): `weight_g` and `weight_v`, or `parametrizations.weight.original0` and
`original1`. Spectral normalisation (Miyato et al., 2018): `weight_orig` with the Buffers `weight_u` and `weight_v`, or
`parametrizations.weight.original` with `parametrizations.weight.0._u` and `_v`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .conv import _Conv
from .layers import Linear
from .module import Buffer, Module, param


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Make the weight of a linear layer or convolution `weight_g * weight_v / ||weight_v||`; returns the layer.

    The norm is over all axes of torch's layout but `dim`, or over all (None, -1). Raises TypeError for another kind of
    layer, or another name than "weight".
    """
    direction = _take_weight(module, name)
    module.weight_g = param(_compute(functools.partial(norm_except, dim=dim), direction))
    module.weight_v, module.weight_dim = param(direction), dim
    return _as(_WEIGHT_NORM, module)


def parametrized_weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """`weight_norm` with the parameters where `torch.nn.utils.parametrizations` keeps them."""
    direction = _take_weight(module, name)
    parts = _add_parts(module)
    parts.original0 = param(_compute(functools.partial(norm_except, dim=dim), direction))
    parts.original1, module.weight_dim = param(direction), dim
    return _as(_PARAMETRIZED_WEIGHT_NORM, module)


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divide the weight of a linear layer or convolution by its largest singular value; returns the layer.

    The weight is a matrix of rows along `dim` of torch's layout (default: the output's axis). Buffers hold estimates of
    the singular vectors, which every call in training improves by `n_power_iterations`. Raises TypeError for another
    kind of layer, or another name than "weight".
    """
    weight = _take_weight(module, name)
    module.weight_dim, module.weight_iterations, module.weight_eps = _rows(module, dim), n_power_iterations, eps
    module.weight_orig = param(weight)
    module.weight_u, module.weight_v = _singular_vectors(weight, module.weight_dim)
    return _as(_SPECTRAL_NORM, module)


def parametrized_spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """`spectral_norm` with the parameters where `torch.nn.utils.parametrizations` keeps them."""
    weight = _take_weight(module, name)
    module.weight_dim, module.weight_iterations, module.weight_eps = _rows(module, dim), n_power_iterations, eps
    parts, vectors = _add_parts(module), Module()
    parts.original = param(weight)
    vectors._u, vectors._v = _singular_vectors(weight, module.weight_dim)
    setattr(parts, "0", vectors)
    return _as(_PARAMETRIZED_SPECTRAL_NORM, module)


def norm_except(x: Array, dim: int | None) -> Array:
    """The Euclidean norm over all axes but `dim`, which are kept with size 1; of no axes for None and -1."""
    if dim is None or dim == -1:
        return jnp.sqrt(jnp.square(x).sum())
    axes = tuple(axis for axis in range(x.ndim) if axis != dim % x.ndim)
    return jnp.sqrt(jnp.square(x).sum(axes, keepdims=True))


class _Form(NamedTuple):
    """A way of computing a layer's weight: the weight in torch's layout, and what a call in training does first."""

    weight: Callable[[Any], Array]
    before_training: Callable[[Any], None] | None = None


def _read(module: Any, variable: Any) -> Array:
    return variable[...].astype(module.dtype)


def _scaled(module: Any, magnitude: Any, direction: Any) -> Array:
    direction = _read(module, direction)
    return direction * (_read(module, magnitude) / norm_except(direction, module.weight_dim))


def _divided(module: Any, weight: Any, u: Any, v: Any) -> Array:
    weight, u, v = (_read(module, part) for part in (weight, u, v))
    sigma = jnp.dot(lax.stop_gradient(u), _matrix(weight, module.weight_dim) @ lax.stop_gradient(v))
    return weight / sigma


def _improve(module: Any, weight: Any, u: Any, v: Any, *, u_first: bool) -> None:
    """Power iterations of the singular vectors; torch's two forms begin at different ends."""
    matrix = lax.stop_gradient(_matrix(_read(module, weight), module.weight_dim))
    new_u, new_v = (vector[...].astype(matrix.dtype) for vector in (u, v))
    for _ in range(module.weight_iterations):
        if u_first:
            new_u = _unit(matrix @ new_v, module.weight_eps)
        new_v = _unit(matrix.T @ new_u, module.weight_eps)
        if not u_first:
            new_u = _unit(matrix @ new_v, module.weight_eps)
    u.set_value(new_u.astype(u[...].dtype))
    v.set_value(new_v.astype(v[...].dtype))


def _spectral_parts(module: Any) -> tuple[Any, Any, Any]:
    parts = module.parametrizations.weight
    vectors = vars(parts)["0"]
    return parts.original, vectors._u, vectors._v


_WEIGHT_NORM = _Form(lambda m: _scaled(m, m.weight_g, m.weight_v))
_PARAMETRIZED_WEIGHT_NORM = _Form(
    lambda m: _scaled(m, m.parametrizations.weight.original0, m.parametrizations.weight.original1)
)
_SPECTRAL_NORM = _Form(
    lambda m: _divided(m, m.weight_orig, m.weight_u, m.weight_v),
    lambda m: _improve(m, m.weight_orig, m.weight_u, m.weight_v, u_first=False),
)
_PARAMETRIZED_SPECTRAL_NORM = _Form(
    lambda m: _divided(m, *_spectral_parts(m)), lambda m: _improve(m, *_spectral_parts(m), u_first=True)
)


def _as(form: _Form, module: Any) -> Any:
    object.__setattr__(module, "__class__", _derived(form, type(module)))  # nnx would keep it as an attribute
    return module


@functools.cache  # one class each, so that equal layers stay equal
def _derived(form: _Form, cls: Any) -> type:
    """A class whose kernel is computed when it is read."""

    def kernel(self: Any) -> Array:
        weight = form.weight(self)
        if isinstance(self, Linear):
            return weight.T
        return jnp.moveaxis(weight, (0, 1), (-2, -1) if self.transposed else (-1, -2))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.training and form.before_training is not None:
            form.before_training(self)
        return cls.__call__(self, *args, **kwargs)

    members = {"kernel": property(kernel), "__call__": call, "__module__": cls.__module__}
    return type(cls)(cls.__name__, (cls,), members)


def _take_weight(module: Any, name: str) -> Any:
    """Remove a layer's kernel and return its value in torch's layout, a shape where the model is built abstractly."""
    if name != "weight" or not isinstance(module, Linear | _Conv) or "kernel" not in vars(module):
        raise TypeError(f"{type(module).__name__}.{name}: only weights of plain linear layers and convolutions can be")
    raw = vars(module)["kernel"].get_raw_value()
    del module.kernel
    if isinstance(module, Linear):
        return _compute(jnp.transpose, raw)
    axes = (-2, -1) if module.transposed else (-1, -2)
    return _compute(lambda kernel: jnp.moveaxis(kernel, axes, (0, 1)), raw)


def _compute(function: Any, value: Any) -> Any:
    return jax.eval_shape(function, value) if isinstance(value, jax.ShapeDtypeStruct) else function(value)


def _add_parts(module: Any) -> Any:
    module.parametrizations = Module()
    module.parametrizations.weight = Module()
    return module.parametrizations.weight


def _rows(module: Any, dim: int | None) -> int:
    if dim is not None:
        return dim
    return 1 if isinstance(module, _Conv) and module.transposed else 0


def _matrix(weight: Array, dim: int) -> Float[Array, "rows columns"]:
    return jnp.moveaxis(weight, dim, 0).reshape(weight.shape[dim], -1)


def _singular_vectors(weight: Any, dim: int) -> tuple[Buffer, Buffer]:
    """Random unit vectors [rows] and [columns] of the weight as a matrix."""

    def draw(weight: Array) -> tuple[Array, Array]:
        keys = jax.random.split(jax.random.key(0))
        shape = _matrix(weight, dim).shape
        u, v = (_unit(jax.random.normal(key, (n,), weight.dtype), 1e-12) for key, n in zip(keys, shape, strict=True))
        return u, v

    u, v = _compute(draw, weight)
    return Buffer(u), Buffer(v)


def _unit(x: Array, eps: float) -> Array:
    return x / jnp.maximum(jnp.linalg.norm(x), eps)
