"""Special functions and the anatomy of floating-point numbers."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from maxcode.converter.rule import helper, op


@op("torch.special.entr")
def entr(input):
    return jax.scipy.special.entr(input)


@op("torch.special.i0e")
def i0e(input):
    return jax.scipy.special.i0e(input)


@op("torch.special.i1")
def i1(input):
    return jax.scipy.special.i1(input)


@op("torch.special.i1e")
def i1e(input):
    return jax.scipy.special.i1e(input)


@op("torch.special.ndtr")
def ndtr(input):
    return jax.scipy.special.ndtr(input)


@op("torch.special.ndtri")
def ndtri(input):
    return jax.scipy.special.ndtri(input)


@op("torch.special.log_ndtr")
def log_ndtr(input):
    return jax.scipy.special.log_ndtr(input)


@op("torch.special.xlog1py")
def xlog1py(input, other):
    return jax.scipy.special.xlog1py(input, other)


@op("torch.special.zeta")
def zeta(input, other):
    return jax.scipy.special.zeta(input, other)


@op("torch.igamma", "torch.Tensor.igamma", "torch.special.gammainc")
def igamma(input, other):
    return jax.scipy.special.gammainc(input, other)


@op("torch.igammac", "torch.Tensor.igammac", "torch.special.gammaincc")
def igammac(input, other):
    return jax.scipy.special.gammaincc(input, other)


@op("torch.mvlgamma", "torch.Tensor.mvlgamma", "torch.special.multigammaln")
def mvlgamma(input, p):
    return jax.scipy.special.multigammaln(input, p)


@op("torch.nextafter", "torch.Tensor.nextafter")
def nextafter(input, other):
    return jnp.nextafter(input, other)


@op("torch.ldexp", "torch.Tensor.ldexp")
def ldexp(input, other):
    return input * jnp.exp2(jnp.asarray(other))


@helper
class MantissaAndExponent(NamedTuple):
    """What `torch.frexp` returns: input = mantissa * 2^exponent, 1/2 <= |mantissa| < 1."""

    mantissa: jax.Array
    exponent: jax.Array


@op("torch.frexp", "torch.Tensor.frexp")
def frexp(input):
    """Mantissa and exponent."""
    return MantissaAndExponent(*jnp.frexp(input))
