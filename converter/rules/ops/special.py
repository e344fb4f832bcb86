"""Special functions and the anatomy of floating-point numbers."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from maxcode.converter.rule import helper, op


@op("torch.special.entr")
def entr(input):
    return jax.scipy.special.entr(input)


@helper
def with_slope(function, slope, x):
    """function(x) whose derivative is slope(x): where JAX's own is imprecise, or wrong at 0."""
    sloped = jax.custom_jvp(function)
    sloped.defjvp(lambda primals, tangents: (sloped(*primals), slope(*primals) * tangents[0]))
    return sloped(x)


@op("torch.digamma", "torch.Tensor.digamma", "torch.special.digamma", "torch.special.psi")
def digamma(input):
    """The logarithmic derivative of the gamma function."""
    return with_slope(jax.scipy.special.digamma, lambda x: polygamma(1, x), input)


@op("torch.i0", "torch.Tensor.i0", "torch.special.i0", "torch.special.modified_bessel_i0")
def i0(input):
    """The modified Bessel function of order 0."""
    return with_slope(jax.scipy.special.i0, i1, input)


@op("torch.special.i0e")
def i0e(input):
    """exp(-|x|) i0(x)."""
    return with_slope(jax.scipy.special.i0e, lambda x: i1e(x) - jnp.sign(x) * i0e(x), input)


@helper
def over_itself(numerator, x):
    """i1(x) / x or its scaled form, 1/2 at 0."""
    return jnp.where(x == 0, 0.5, numerator / jnp.where(x == 0, 1, x))


@op("torch.special.i1", "torch.special.modified_bessel_i1")
def i1(input):
    """The modified Bessel function of order 1; its derivative is i0(x) - i1(x) / x."""
    return with_slope(jax.scipy.special.i1, lambda x: i0(x) - over_itself(i1(x), x), input)


@op("torch.special.i1e")
def i1e(input):
    """exp(-|x|) i1(x)."""
    slope = lambda x: i0e(x) - jnp.sign(x) * i1e(x) - over_itself(i1e(x), x)  # noqa: E731
    return with_slope(jax.scipy.special.i1e, slope, input)


@op("torch.special.ndtr")
def ndtr(input):
    return jax.scipy.special.ndtr(input)


@op("torch.special.ndtri")
def ndtri(input):
    return jax.scipy.special.ndtri(input)


@op("torch.special.log_ndtr")
def log_ndtr(input):
    return jax.scipy.special.log_ndtr(input)


@op("torch.special.erfcx")
def erfcx(input):
    """exp(x^2) erfc(x); beyond x = 5 by its asymptotic series with terms (2 k - 1)!! / (-2 x^2)^k / (x sqrt pi)."""
    near = jnp.minimum(input, 5.0)
    far = jnp.maximum(input, 5.0)
    ratio = -0.5 / jnp.square(far)
    term = total = jnp.ones_like(far)
    for k in range(1, 20):
        term = term * ratio * (2 * k - 1)
        total = total + term
    series = total / (far * math.sqrt(math.pi))
    return jnp.where(input > 5.0, series, jnp.exp(jnp.square(near)) * jax.scipy.special.erfc(near))


@op("torch.special.xlog1py")
def xlog1py(input, other):
    return jax.scipy.special.xlog1py(input, other)


@op("torch.igamma", "torch.Tensor.igamma", "torch.special.gammainc")
def igamma(input, other):
    return jax.scipy.special.gammainc(input, other)


@op("torch.igammac", "torch.Tensor.igammac", "torch.special.gammaincc")
def igammac(input, other):
    return jax.scipy.special.gammaincc(input, other)


@op("torch.mvlgamma", "torch.Tensor.mvlgamma", "torch.special.multigammaln")
def mvlgamma(input, p):
    return jax.scipy.special.multigammaln(input, p)


@op("torch.special.spherical_bessel_j0")
def spherical_bessel_j0(input):
    return jnp.sinc(input / jnp.pi)


@op("torch.polygamma", "torch.special.polygamma")
def polygamma(n, input):
    """The n-th derivative of digamma.

    jax.scipy's is right for positive arguments only. Others follow by differentiating digamma's reflection n times:
    (-1)^n psi_n(1 - x) - psi_n(x) = pi d^n/dx^n cot(pi x), where a derivative of cot is a polynomial in cot.
    """
    if n == 0:
        return jax.scipy.special.digamma(input)
    negative = input < 0
    right = jax.scipy.special.polygamma(n, jnp.where(negative, 1 - input, input))
    cot = np.poly1d([1, 0])
    for _ in range(n):
        cot = -np.poly1d([1, 0, 1]) * cot.deriv()
    fraction = jnp.where(negative, input - jnp.round(input), 0.25)
    derivative = jnp.polyval(jnp.asarray(cot.coeffs, right.dtype), 1 / jnp.tan(math.pi * fraction))
    reflected = (-1) ** n * right - math.pi ** (n + 1) * derivative
    return jnp.where(negative, reflected, right)


@op("torch.Tensor.polygamma")
def polygamma_of(input, n):
    return polygamma(n, input)


@op("torch.nextafter", "torch.Tensor.nextafter")
def nextafter(input, other):
    """The next number from `input` towards `other`; it moves with `input` unless both are the same."""
    step = jax.custom_jvp(jnp.nextafter)
    step.defjvp(lambda primals, tangents: (step(*primals), jnp.where(primals[0] == primals[1], 0, tangents[0])))
    return step(input, other)


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
