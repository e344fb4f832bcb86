"""Activation functions."""

import jax
import jax.numpy as jnp

from maxcode.converter.arguments import is_omitted, literal
from maxcode.converter.rule import op
from maxcode.converter.support import drawn

_ZERO_D = ("input",)  # lifted to vectors where they are 0-d
_NO_DIM = {"dim is not given; torch chooses it from the rank with a warning, so name it": lambda dim: is_omitted(dim)}


@op("torch.relu", "torch.Tensor.relu", "torch.nn.functional.relu")
def relu(input, inplace=False):
    return jax.nn.relu(input)


@op("torch.nn.functional.relu6")
def relu6(input, inplace=False):
    return jax.nn.relu6(input)


@op("torch.nn.functional.gelu", when=lambda approximate: approximate is None or literal(approximate) == "none")
def gelu(input, *, approximate="none"):
    return jax.nn.gelu(input, approximate=False)


@op("torch.nn.functional.gelu", when=lambda approximate: literal(approximate) == "tanh")
def gelu_tanh(input, *, approximate):
    return jax.nn.gelu(input, approximate=True)


@op("torch.nn.functional.gelu")
def gelu_by_name(input, *, approximate):
    return jax.nn.gelu(input, approximate=approximate == "tanh")


@op("torch.nn.functional.silu")
def silu(input, inplace=False):
    return jax.nn.silu(input)


@op("torch.nn.functional.mish")
def mish(input, inplace=False):
    return jax.nn.mish(input)


@op("torch.nn.functional.softplus")
def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold."""
    scaled = input * beta
    return jnp.where(scaled > threshold, input, jax.nn.softplus(scaled) / beta)


@op("torch.nn.functional.logsigmoid")
def logsigmoid(input):
    return jax.nn.log_sigmoid(input)


@op("torch.nn.functional.elu")
def elu(input, alpha=1.0, inplace=False):
    return jax.nn.elu(input, alpha)


@op("torch.selu", "torch.nn.functional.selu")
def selu(input, inplace=False):
    return jax.nn.selu(input)


@op("torch.celu", "torch.nn.functional.celu")
def celu(input, alpha=1.0, inplace=False):
    return jax.nn.celu(input, alpha)


@op("torch.nn.functional.leaky_relu")
def leaky_relu(input, negative_slope=0.01, inplace=False):
    return jax.nn.leaky_relu(input, negative_slope)


@op("torch.rrelu", "torch.nn.functional.rrelu")
def rrelu(input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False):
    return drawn.rrelu(input, lower, upper, training)


@op("torch.prelu", "torch.nn.functional.prelu", "torch.Tensor.prelu")
def prelu(input, weight):
    """x where positive, else x times its channel's slope (axis 1, or one slope for all)."""
    if weight.size > 1 and input.ndim > 1:
        weight = weight.reshape(-1, *(1,) * (input.ndim - 2))
    elif input.ndim == 0:
        weight = weight.reshape(())
    return jnp.where(input > 0, input, weight * input)


@op("torch.nn.functional.hardtanh")
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    return jnp.clip(input, min_val, max_val)


@op("torch.nn.functional.hardswish")
def hardswish(input, inplace=False):
    return jax.nn.hard_swish(input)


@op("torch.nn.functional.hardsigmoid")
def hardsigmoid(input, inplace=False):
    return jax.nn.hard_sigmoid(input)


@op("torch.nn.functional.softsign")
def softsign(input):
    return jax.nn.soft_sign(input)


@op("torch.nn.functional.tanhshrink")
def tanhshrink(input):
    return input - jnp.tanh(input)


@op("torch.nn.functional.softshrink")
def softshrink(input, lambd=0.5):
    return jnp.where(jnp.abs(input) > lambd, input - jnp.sign(input) * lambd, 0)


@op("torch.nn.functional.hardshrink", "torch.hardshrink", "torch.Tensor.hardshrink")
def hardshrink(input, lambd=0.5):
    return jnp.where(jnp.abs(input) > lambd, input, 0)


@op("torch.threshold", "torch.nn.functional.threshold")
def threshold(input, threshold, value, inplace=False):
    return jnp.where(input > threshold, input, value)


@op("torch.nn.functional.glu", vectors=_ZERO_D)
def glu(input, dim=-1):
    return jax.nn.glu(input, axis=dim)


@op(
    "torch.softmax", "torch.Tensor.softmax", "torch.nn.functional.softmax", "torch.special.softmax",
    vectors=_ZERO_D, limits=_NO_DIM, when=lambda dtype: is_omitted(dtype),
)  # fmt: skip
def softmax(input, dim=None, dtype=None, *, _stacklevel=3):
    return jax.nn.softmax(input, axis=dim)


@op("torch.softmax", "torch.Tensor.softmax", "torch.special.softmax", vectors=_ZERO_D)
def softmax_as(input, dim, dtype):
    return jax.nn.softmax(input.astype(dtype), axis=dim)


@op("torch.nn.functional.softmax", vectors=_ZERO_D, limits=_NO_DIM)
def softmax_with_dtype(input, dim=None, _stacklevel=3, dtype=None):
    return jax.nn.softmax(input if dtype is None else input.astype(dtype), axis=dim)


@op("torch._softmax_backward_data", vectors=("grad_output", "output"))
def softmax_gradient(grad_output, output, dim, input_dtype):
    """The gradient of softmax, of its result and the result's gradient."""
    product = grad_output * output
    return (product - output * product.sum(dim, keepdims=True)).astype(input_dtype)


@op("torch._log_softmax_backward_data", vectors=("grad_output", "output"))
def log_softmax_gradient(grad_output, output, dim, input_dtype):
    """The gradient of log_softmax, of its result and the result's gradient."""
    return (grad_output - jnp.exp(output) * grad_output.sum(dim, keepdims=True)).astype(input_dtype)


@op("torch.nn.functional.softmin", vectors=_ZERO_D, limits=_NO_DIM)
def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return jax.nn.softmax(-input if dtype is None else -input.astype(dtype), axis=dim)


@op(
    "torch.log_softmax", "torch.Tensor.log_softmax", "torch.nn.functional.log_softmax", "torch.special.log_softmax",
    vectors=_ZERO_D, limits=_NO_DIM, when=lambda dtype: is_omitted(dtype),
)  # fmt: skip
def log_softmax(input, dim=None, dtype=None, *, _stacklevel=3):
    return jax.nn.log_softmax(input, axis=dim)


@op("torch.log_softmax", "torch.Tensor.log_softmax", "torch.special.log_softmax", vectors=_ZERO_D)
def log_softmax_as(input, dim, dtype):
    return jax.nn.log_softmax(input.astype(dtype), axis=dim)


@op("torch.nn.functional.log_softmax", vectors=_ZERO_D, limits=_NO_DIM)
def log_softmax_with_dtype(input, dim=None, _stacklevel=3, dtype=None):
    return jax.nn.log_softmax(input if dtype is None else input.astype(dtype), axis=dim)
