"""Functions of one tensor, entry by entry."""

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import fact, is_floating, is_integral
from maxcode.converter.rule import op

# torch's rounding functions leave integers as they are; jnp's turn them into floats.


@op("torch.floor", "torch.Tensor.floor", when=lambda input: is_integral(input))
def floor_integer(input):
    return input


@op("torch.floor", "torch.Tensor.floor")
def floor_real(input):
    return jnp.floor(input)


@op("torch.ceil", "torch.Tensor.ceil", when=lambda input: is_integral(input))
def ceil_integer(input):
    return input


@op("torch.ceil", "torch.Tensor.ceil")
def ceil_real(input):
    return jnp.ceil(input)


@op("torch.trunc", "torch.Tensor.trunc", "torch.fix", "torch.Tensor.fix", when=lambda input: is_integral(input))
def trunc_integer(input):
    return input


@op("torch.trunc", "torch.Tensor.trunc", "torch.fix", "torch.Tensor.fix")
def trunc_real(input):
    return jnp.trunc(input)


@op("torch.round", "torch.Tensor.round", "torch.special.round", when=lambda input: is_integral(input))
def round_integer(input, *, decimals=0):
    return input


@op("torch.round", "torch.Tensor.round", "torch.special.round")
def round_real(input):
    return jnp.round(input)


@op("torch.round", "torch.Tensor.round", "torch.special.round")
def round_decimals(input, *, decimals):
    return jnp.round(input, decimals)


@op("torch.frac", "torch.Tensor.frac")
def frac(input):
    return lax.rem(input, lax.full_like(input, 1))


_ABS = ("torch.abs", "torch.Tensor.abs", "torch.absolute", "torch.Tensor.absolute")


def _is_real_or_complex(input):
    """Whether some run saw numbers that have derivatives."""
    return any(not name.startswith(("int", "uint", "bool")) for name in fact(input).dtypes)


@op(*_ABS, when=_is_real_or_complex)
def absolute(input):
    """|x|, whose derivative at 0 is 0 as in torch; JAX's is 1."""
    return jnp.where(input == 0, 0, jnp.abs(jnp.where(input == 0, 1, input)))


@op(*_ABS)
def abs_(input):
    return jnp.abs(input)


@op("torch.neg", "torch.Tensor.neg", "torch.negative", "torch.Tensor.negative")
def negative(input):
    return -input


@op("torch.positive", "torch.Tensor.positive")
def positive(input):
    return input


@op("torch.sign", "torch.Tensor.sign")
def sign(input):
    return jnp.sign(input)


@op("torch.sgn", "torch.Tensor.sgn")
def sgn(input):
    return jnp.sign(input)


@op("torch.signbit", "torch.Tensor.signbit")
def signbit(input):
    return jnp.signbit(input)


@op("torch.square", "torch.Tensor.square")
def square(input):
    return jnp.square(input)


@op("torch.sqrt", "torch.Tensor.sqrt")
def sqrt(input):
    return jnp.sqrt(input)


@op("torch.rsqrt", "torch.Tensor.rsqrt", when=lambda input: is_floating(input))
def rsqrt_float(input):
    return lax.rsqrt(input)


@op("torch.rsqrt", "torch.Tensor.rsqrt")
def rsqrt(input):
    return 1 / jnp.sqrt(input)


@op("torch.reciprocal", "torch.Tensor.reciprocal")
def reciprocal(input):
    return 1 / input


@op("torch.exp", "torch.Tensor.exp")
def exp(input):
    return jnp.exp(input)


@op("torch.exp2", "torch.Tensor.exp2", "torch.special.exp2")
def exp2(input):
    return jnp.exp2(input)


@op("torch.expm1", "torch.Tensor.expm1", "torch.special.expm1")
def expm1(input):
    return jnp.expm1(input)


@op("torch.log", "torch.Tensor.log")
def log(input):
    return jnp.log(input)


@op("torch.log2", "torch.Tensor.log2")
def log2(input):
    return jnp.log2(input)


@op("torch.log10", "torch.Tensor.log10")
def log10(input):
    return jnp.log10(input)


@op("torch.log1p", "torch.Tensor.log1p", "torch.special.log1p")
def log1p(input):
    return jnp.log1p(input)


@op("torch.sigmoid", "torch.Tensor.sigmoid", "torch.special.expit", "torch.nn.functional.sigmoid")
def sigmoid(input):
    return jax.nn.sigmoid(input)


@op("torch.logit", "torch.Tensor.logit", "torch.special.logit")
def logit(input):
    return jax.scipy.special.logit(input)


@op("torch.erf", "torch.Tensor.erf", "torch.special.erf")
def erf(input):
    return jax.scipy.special.erf(input)


@op("torch.erfc", "torch.Tensor.erfc", "torch.special.erfc")
def erfc(input):
    return jax.scipy.special.erfc(input)


@op("torch.erfinv", "torch.Tensor.erfinv", "torch.special.erfinv")
def erfinv(input):
    return jax.scipy.special.erfinv(input)


@op("torch.lgamma", "torch.Tensor.lgamma", "torch.special.gammaln")
def lgamma(input):
    return jax.scipy.special.gammaln(input)


@op("torch.sinc", "torch.Tensor.sinc", "torch.special.sinc")
def sinc(input):
    return jnp.sinc(input)


@op("torch.tanh", "torch.Tensor.tanh", "torch.nn.functional.tanh")
def tanh(input):
    return jnp.tanh(input)


@op("torch.deg2rad", "torch.Tensor.deg2rad")
def deg2rad(input):
    return jnp.deg2rad(input)


@op("torch.rad2deg", "torch.Tensor.rad2deg")
def rad2deg(input):
    return jnp.rad2deg(input)


@op("torch.isnan", "torch.Tensor.isnan")
def isnan(input):
    return jnp.isnan(input)


@op("torch.isinf", "torch.Tensor.isinf")
def isinf(input):
    return jnp.isinf(input)


@op("torch.isfinite", "torch.Tensor.isfinite")
def isfinite(input):
    return jnp.isfinite(input)


@op("torch.isposinf", "torch.Tensor.isposinf")
def isposinf(input):
    return jnp.isposinf(input)


@op("torch.isneginf", "torch.Tensor.isneginf")
def isneginf(input):
    return jnp.isneginf(input)


@op("torch.isreal", "torch.Tensor.isreal")
def isreal(input):
    return jnp.isreal(input)


@op("torch.logical_not", "torch.Tensor.logical_not")
def logical_not(input):
    return jnp.logical_not(input)


@op("torch.bitwise_not", "torch.Tensor.bitwise_not")
def bitwise_not(input):
    return ~input


@op("torch.conj", "torch.Tensor.conj", "torch.conj_physical", "torch.Tensor.conj_physical")
def conj(input):
    return jnp.conj(input)


@op("torch.angle", "torch.Tensor.angle")
def angle(input):
    return jnp.angle(input)


@op("torch.real")
def real(input):
    return jnp.real(input)


@op("torch.imag")
def imag(input):
    return jnp.imag(input)


@op("torch.view_as_complex")
def view_as_complex(input):
    return lax.complex(input[..., 0], input[..., 1])


@op("torch.view_as_real")
def view_as_real(input):
    return jnp.stack((input.real, input.imag), axis=-1)


@op("torch.sin", "torch.Tensor.sin")
def sin(input):
    return jnp.sin(input)


@op("torch.cos", "torch.Tensor.cos")
def cos(input):
    return jnp.cos(input)


@op("torch.tan", "torch.Tensor.tan")
def tan(input):
    return jnp.tan(input)


@op("torch.asin", "torch.Tensor.asin", "torch.arcsin", "torch.Tensor.arcsin")
def asin(input):
    return jnp.arcsin(input)


@op("torch.acos", "torch.Tensor.acos", "torch.arccos", "torch.Tensor.arccos")
def acos(input):
    return jnp.arccos(input)


@op("torch.atan", "torch.Tensor.atan", "torch.arctan", "torch.Tensor.arctan")
def atan(input):
    return jnp.arctan(input)


@op("torch.sinh", "torch.Tensor.sinh")
def sinh(input):
    return jnp.sinh(input)


@op("torch.cosh", "torch.Tensor.cosh")
def cosh(input):
    return jnp.cosh(input)


@op("torch.asinh", "torch.Tensor.asinh", "torch.arcsinh", "torch.Tensor.arcsinh")
def asinh(input):
    return jnp.arcsinh(input)


@op("torch.acosh", "torch.Tensor.acosh", "torch.arccosh", "torch.Tensor.arccosh")
def acosh(input):
    return jnp.arccosh(input)


@op("torch.atanh", "torch.Tensor.atanh", "torch.arctanh", "torch.Tensor.arctanh")
def atanh(input):
    return jnp.arctanh(input)


@op("torch.logit", "torch.Tensor.logit", "torch.special.logit")
def logit_clamped(input, eps):
    """log(x / (1 - x)) with x clamped to [eps, 1 - eps]."""
    if eps is not None:
        input = jnp.clip(input, eps, 1 - eps)
    return jnp.log(input / (1 - input))


@op("torch.nan_to_num", "torch.Tensor.nan_to_num")
def nan_to_num(input, nan=0.0, posinf=None, neginf=None):
    return jnp.nan_to_num(input, nan=nan, posinf=posinf, neginf=neginf)
