"""Activation functions by the names that configurations use (`config.hidden_act`).

Every function maps an array of any shape to one of the same shape and dtype. Functions that PyTorch runs as one kernel
compute in float32 for 16-bit inputs and round once (`_one_rounding`); those that the source writes as an expression
round after every operation, here as there. Formulas: GELU (Hendrycks and Gimpel, 2016), SiLU (Elfwing et al., 2017),
Mish (Misra, 2019), Laplace (Ma et al., MEGA, 2022), squared ReLU (So et al., Primer, 2021).

Activations with parameters of their own (`prelu`, `xielu`) are modules, not functions, and are not in this table.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Activation = Callable[[Float[Array, "..."]], Float[Array, "..."]]


def _one_rounding(fn: Activation) -> Activation:
    """Compute in at least float32 and round the result once to the input's dtype."""

    @functools.wraps(fn)
    def wrapped(x):
        return fn(x.astype(jnp.promote_types(x.dtype, jnp.float32))).astype(x.dtype)

    return wrapped


@_one_rounding
def gelu(x):
    """Exact GELU, x times the normal distribution function at x, through the error function."""
    return jax.nn.gelu(x, approximate=False)


@_one_rounding
def gelu_tanh(x):
    """The tanh approximation of GELU as one kernel."""
    return jax.nn.gelu(x, approximate=True)


def gelu_python(x):
    """Exact GELU written out, rounding after every operation."""
    return x * 0.5 * (1.0 + jax.lax.erf(x / math.sqrt(2.0)))


def gelu_new(x):
    """The tanh approximation of GELU written out, rounding after every operation."""
    return 0.5 * x * (1.0 + jnp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def gelu_fast(x):
    """The tanh approximation with sqrt(2 / pi) cut to ten digits."""
    return 0.5 * x * (1.0 + jnp.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


def gelu_10(x):
    """Exact GELU clipped to [-10, 10]."""
    return jnp.clip(gelu(x), -10, 10)


def quick_gelu(x):
    """The sigmoid approximation of GELU."""
    return x * sigmoid(1.702 * x)


@_one_rounding
def hardswish(x):
    """x * relu6(x + 3) / 6."""
    return x * jnp.clip(x + 3.0, 0.0, 6.0) / 6.0


def laplace(x, mu=0.707107, sigma=0.282095):
    """The distribution function of a normal with mean `mu` and deviation `sigma`."""
    return 0.5 * (1.0 + jax.lax.erf((x - mu) / (sigma * math.sqrt(2.0))))


@_one_rounding
def leaky_relu(x):
    """x where positive, else 0.01 x."""
    return jnp.where(x > 0, x, 0.01 * x)


def linear(x):
    """The identity."""
    return x


@_one_rounding
def mish(x):
    """x * tanh(softplus(x))."""
    return x * jnp.tanh(jax.nn.softplus(x))


def relu(x):
    """max(x, 0); its gradient at 0 is 0."""
    return jax.nn.relu(x)


def relu2(x):
    """The square of relu."""
    return jnp.square(jax.nn.relu(x))


def relu6(x):
    """relu cut off at 6."""
    return jax.nn.relu6(x)


@_one_rounding
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return jax.nn.sigmoid(x)


@_one_rounding
def silu(x):
    """x * sigmoid(x)."""
    return x * jax.nn.sigmoid(x)


@_one_rounding
def _softplus(x):
    return jax.nn.softplus(x)


def sqrtsoftplus(x):
    """The square root of softplus."""
    return jnp.sqrt(_softplus(x))


@_one_rounding
def tanh(x):
    """Hyperbolic tangent."""
    return jnp.tanh(x)


class _ActivationTable(dict[str, Activation]):
    def __missing__(self, name: str) -> Activation:
        raise KeyError(
            f"activation {name!r} is not a plain function of its input; known: {', '.join(sorted(self))}. "
            "Activations with parameters of their own are converted as modules."
        )


ACT2FN = _ActivationTable(
    gelu=gelu,
    gelu_10=gelu_10,
    gelu_accurate=gelu_new,
    gelu_fast=gelu_fast,
    gelu_new=gelu_new,
    gelu_python=gelu_python,
    gelu_python_tanh=gelu_new,
    gelu_pytorch_tanh=gelu_tanh,
    hardswish=hardswish,
    laplace=laplace,
    leaky_relu=leaky_relu,
    linear=linear,
    mish=mish,
    quick_gelu=quick_gelu,
    relu=relu,
    relu2=relu2,
    relu6=relu6,
    sigmoid=sigmoid,
    silu=silu,
    sqrtsoftplus=sqrtsoftplus,
    swish=silu,
    tanh=tanh,
)


def get_activation(activation_string: str) -> Activation:
    """The activation of that name; raises KeyError with the known names."""
    return ACT2FN[activation_string]


gelu_pytorch_tanh = gelu_tanh
linear_act = linear


def _always(activation: Activation) -> Callable[[], Activation]:
    """What stands for the class of a layer without parameters or settings: it makes the function."""
    return lambda: activation


NewGELUActivation = AccurateGELUActivation = _always(gelu_new)
FastGELUActivation = _always(gelu_fast)
QuickGELUActivation = _always(quick_gelu)
SiLUActivation = _always(silu)
MishActivation = _always(mish)
LinearActivation = _always(linear)
ReLUSquaredActivation = _always(relu2)
SqrtSoftplusActivation = _always(sqrtsoftplus)


def GELUActivation(use_gelu_python: bool = False) -> Activation:
    """Exact GELU as one kernel, or written out."""
    return gelu_python if use_gelu_python else gelu


def GELUTanh(use_gelu_tanh_python: bool = False) -> Activation:
    """The tanh approximation of GELU as one kernel, or written out."""
    return gelu_new if use_gelu_tanh_python else gelu_tanh


PytorchGELUTanh = GELUTanh


def ClippedGELUActivation(min: float, max: float) -> Activation:
    """Exact GELU clipped to [min, max]."""
    return lambda x: jnp.clip(gelu(x), min, max)
