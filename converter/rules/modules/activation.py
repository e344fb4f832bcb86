"""Activation layers: functions where there are no arguments, else small callables of the emitted `ops` module."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from maxcode.converter.arguments import is_omitted, literal
from maxcode.converter.rule import helper, module
from maxcode.converter.rules.ops.activation import hardshrink, softplus, tanhshrink
from maxcode.converter.support import activations
from maxcode.converter.support.weighted import PReLU

_NO_DIM = {"dim is not given; torch chooses it from the rank with a warning, so name it": lambda dim: is_omitted(dim)}


@module("torch.nn.GELU", when=lambda approximate: approximate is None or literal(approximate) == "none")
def gelu(approximate="none"):
    return activations.gelu


@module("torch.nn.GELU", when=lambda approximate: literal(approximate) == "tanh")
def gelu_tanh(approximate):
    return activations.gelu_tanh


@module("torch.nn.ReLU")
def relu(inplace=False):
    return activations.relu


@module("torch.nn.ReLU6")
def relu6(inplace=False):
    return activations.relu6


@module("torch.nn.SiLU")
def silu(inplace=False):
    return activations.silu


@module("torch.nn.Mish")
def mish(inplace=False):
    return activations.mish


@module("torch.nn.Hardswish")
def hardswish(inplace=False):
    return activations.hardswish


@module("torch.nn.Tanh")
def tanh():
    return activations.tanh


@module("torch.nn.Sigmoid")
def sigmoid():
    return activations.sigmoid


@module("torch.nn.LogSigmoid")
def log_sigmoid():
    return jax.nn.log_sigmoid


@module("torch.nn.Softsign")
def soft_sign():
    return jax.nn.soft_sign


@module("torch.nn.SELU")
def selu(inplace=False):
    return jax.nn.selu


@module("torch.nn.Hardsigmoid")
def hard_sigmoid(inplace=False):
    return jax.nn.hard_sigmoid


@helper
@dataclass(frozen=True)
class LeakyReLU:
    """x where positive, else negative_slope * x."""

    negative_slope: float = 0.01

    def __call__(self, input):
        return jax.nn.leaky_relu(input, self.negative_slope)


@module("torch.nn.LeakyReLU")
def leaky_relu(negative_slope=0.01, inplace=False):
    return LeakyReLU(negative_slope=negative_slope)


@helper
@dataclass(frozen=True)
class ELU:
    """x where positive, else alpha * (exp(x) - 1)."""

    alpha: float = 1.0

    def __call__(self, input):
        return jax.nn.elu(input, self.alpha)


@module("torch.nn.ELU")
def elu(alpha=1.0, inplace=False):
    return ELU(alpha=alpha)


@helper
@dataclass(frozen=True)
class CELU:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0

    def __call__(self, input):
        return jax.nn.celu(input, self.alpha)


@module("torch.nn.CELU")
def celu(alpha=1.0, inplace=False):
    return CELU(alpha=alpha)


@helper
@dataclass(frozen=True)
class Softplus:
    """log(1 + exp(beta x)) / beta, and x itself where beta x exceeds the threshold."""

    beta: float = 1.0
    threshold: float = 20.0

    def __call__(self, input):
        return softplus(input, self.beta, self.threshold)


@module("torch.nn.Softplus")
def softplus_layer(beta=1.0, threshold=20.0):
    return Softplus(beta=beta, threshold=threshold)


@helper
@dataclass(frozen=True)
class Hardtanh:
    """x cut off to [min_val, max_val]."""

    min_val: float = -1.0
    max_val: float = 1.0

    def __call__(self, input):
        return jnp.clip(input, self.min_val, self.max_val)


@module("torch.nn.Hardtanh")
def hardtanh(min_val=-1.0, max_val=1.0, inplace=False):
    return Hardtanh(min_val=min_val, max_val=max_val)


@helper
@dataclass(frozen=True)
class GLU:
    """The first half of an axis times the sigmoid of the second."""

    dim: int = -1

    def __call__(self, input):
        return jax.nn.glu(input, axis=self.dim)


@module("torch.nn.GLU")
def glu(dim=-1):
    return GLU(dim=dim)


@helper
@dataclass(frozen=True)
class Softmax:
    """Softmax over an axis."""

    dim: int

    def __call__(self, input):
        return jax.nn.softmax(input, axis=self.dim)


@module("torch.nn.Softmax", limits=_NO_DIM)
def softmax(dim=None):
    return Softmax(dim)


@helper
@dataclass(frozen=True)
class LogSoftmax:
    """Logarithm of the softmax over an axis."""

    dim: int

    def __call__(self, input):
        return jax.nn.log_softmax(input, axis=self.dim)


@module("torch.nn.LogSoftmax", limits=_NO_DIM)
def log_softmax(dim=None):
    return LogSoftmax(dim)


@helper
@dataclass(frozen=True)
class Threshold:
    """x where above the threshold, else the value."""

    threshold: float
    value: float

    def __call__(self, input):
        return jnp.where(input > self.threshold, input, self.value)


@module("torch.nn.Threshold")
def threshold(threshold, value, inplace=False):
    return Threshold(threshold, value)


@helper
@dataclass(frozen=True)
class Softshrink:
    """x moved towards 0 by lambd, 0 within it."""

    lambd: float = 0.5

    def __call__(self, input):
        return jnp.where(jnp.abs(input) > self.lambd, input - jnp.sign(input) * self.lambd, 0)


@module("torch.nn.Softshrink")
def softshrink(lambd=0.5):
    return Softshrink(lambd=lambd)


@helper
@dataclass(frozen=True)
class Hardshrink:
    """x outside [-lambd, lambd], 0 within."""

    lambd: float = 0.5

    def __call__(self, input):
        return hardshrink(input, self.lambd)


@module("torch.nn.Hardshrink")
def hardshrink_layer(lambd=0.5):
    return Hardshrink(lambd=lambd)


@module("torch.nn.Tanhshrink")
def tanhshrink_layer():
    return tanhshrink


@helper
@dataclass(frozen=True)
class Softmin:
    """Softmax of the negative over an axis."""

    dim: int

    def __call__(self, input):
        return jax.nn.softmax(-input, axis=self.dim)


@module("torch.nn.Softmin", limits=_NO_DIM)
def softmin(dim=None):
    return Softmin(dim)


@helper
@dataclass(frozen=True)
class Softmax2d:
    """Softmax over the channels of [n, c, h, w] or [c, h, w]."""

    def __call__(self, input):
        return jax.nn.softmax(input, axis=-3)


@module("torch.nn.Softmax2d")
def softmax2d():
    return Softmax2d()


@module("torch.nn.PReLU", weights={"weight": ("weight", "")})
def prelu_layer(num_parameters=1, init=0.25, device=None, dtype=None):
    return PReLU(num_parameters, init=init)
