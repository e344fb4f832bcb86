"""Functions of two or three tensors, entry by entry, beyond Python's operators."""

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import fact, is_number, is_omitted, literal
from maxcode.converter.rule import helper, op

float32 = jnp.float32


@op("torch.add", "torch.Tensor.add")
def add(input, other):
    return input + other


@op("torch.add", "torch.Tensor.add")
def add_scaled(input, other, *, alpha):
    return input + alpha * other


@op("torch.sub", "torch.Tensor.sub", "torch.subtract", "torch.Tensor.subtract")
def sub(input, other):
    return input - other


@op("torch.sub", "torch.Tensor.sub", "torch.subtract", "torch.Tensor.subtract")
def sub_scaled(input, other, *, alpha):
    return input - alpha * other


@op("torch.rsub")
def rsub(input, other):
    return other - input


@op("torch.rsub")
def rsub_scaled(input, other, *, alpha):
    return other - alpha * input


@op("torch.mul", "torch.Tensor.mul", "torch.multiply", "torch.Tensor.multiply")
def mul(input, other):
    return input * other


@op(
    "torch.div", "torch.Tensor.div", "torch.divide", "torch.Tensor.divide", "torch.true_divide",
    "torch.Tensor.true_divide", when=lambda rounding_mode: is_omitted(rounding_mode),
)  # fmt: skip
def div(input, other, *, rounding_mode=None):
    return input / other


@op(
    "torch.div", "torch.Tensor.div", "torch.divide", "torch.Tensor.divide",
    when=lambda rounding_mode: literal(rounding_mode) == "floor",
)  # fmt: skip
def div_floor(input, other, *, rounding_mode):
    return input // other


@op(
    "torch.div", "torch.Tensor.div", "torch.divide", "torch.Tensor.divide",
    when=lambda rounding_mode: literal(rounding_mode) == "trunc",
)  # fmt: skip
def div_trunc(input, other, *, rounding_mode):
    """The quotient rounded towards zero, integers staying integers."""
    dtype = jnp.result_type(input, other)
    if jnp.issubdtype(dtype, jnp.integer):
        return lax.div(*jnp.broadcast_arrays(jnp.asarray(input, dtype), jnp.asarray(other, dtype)))
    return jnp.trunc(input / other)


@op("torch.floor_divide", "torch.Tensor.floor_divide")
def floor_divide(input, other):
    return input // other


@op("torch.remainder", "torch.Tensor.remainder")
def remainder(input, other):
    return input % other


@op("torch.fmod", "torch.Tensor.fmod")
def fmod(input, other):
    return jnp.fmod(input, other)


@op("torch.pow", "torch.Tensor.pow", when=lambda exponent: literal(exponent) in (2, 2.0))
def pow_two(input, exponent):
    return jnp.square(input)


@op("torch.pow", "torch.Tensor.pow")
def power(input, exponent):
    return input**exponent


@op("torch.float_power", "torch.Tensor.float_power")
def float_power(input, exponent):
    return jnp.asarray(input, float) ** exponent


@op("torch.clamp", "torch.Tensor.clamp", "torch.clip", "torch.Tensor.clip")
def clamp(input, min=None, max=None):
    return jnp.clip(input, min=min, max=max)


@op("torch.clamp_min", "torch.Tensor.clamp_min")
def clamp_min(input, min):
    return jnp.maximum(input, min)


@op("torch.clamp_max", "torch.Tensor.clamp_max")
def clamp_max(input, max):
    return jnp.minimum(input, max)


@op("torch.maximum", "torch.Tensor.maximum")
def maximum(input, other):
    return jnp.maximum(input, other)


@op("torch.minimum", "torch.Tensor.minimum")
def minimum(input, other):
    return jnp.minimum(input, other)


@op("torch.fmax", "torch.Tensor.fmax")
def fmax(input, other):
    return jnp.fmax(input, other)


@op("torch.fmin", "torch.Tensor.fmin")
def fmin(input, other):
    return jnp.fmin(input, other)


@op("torch.lerp", "torch.Tensor.lerp")
def lerp(input, end, weight):
    return input + weight * (end - input)


@op("torch.addcmul", "torch.Tensor.addcmul")
def addcmul(input, tensor1, tensor2):
    return input + tensor1 * tensor2


@op("torch.addcmul", "torch.Tensor.addcmul")
def addcmul_scaled(input, tensor1, tensor2, *, value):
    return input + value * tensor1 * tensor2


@op("torch.addcdiv", "torch.Tensor.addcdiv")
def addcdiv(input, tensor1, tensor2):
    return input + tensor1 / tensor2


@op("torch.addcdiv", "torch.Tensor.addcdiv")
def addcdiv_scaled(input, tensor1, tensor2, *, value):
    return input + value * tensor1 / tensor2


@op("torch.atan2", "torch.Tensor.atan2", "torch.arctan2", "torch.Tensor.arctan2")
def atan2(input, other):
    return jnp.arctan2(input, other)


@op("torch.hypot", "torch.Tensor.hypot")
def hypot(input, other):
    return jnp.hypot(input, other)


@op("torch.logaddexp", "torch.Tensor.logaddexp")
def logaddexp(input, other):
    return jnp.logaddexp(input, other)


@op("torch.logaddexp2", "torch.Tensor.logaddexp2")
def logaddexp2(input, other):
    return jnp.logaddexp2(input, other)


@op("torch.xlogy", "torch.Tensor.xlogy", "torch.special.xlogy")
def xlogy(input, other):
    return jax.scipy.special.xlogy(input, other)


@op("torch.copysign", "torch.Tensor.copysign")
def copysign(input, other):
    return jnp.copysign(input, other)


@op("torch.heaviside", "torch.Tensor.heaviside")
def heaviside(input, values):
    return jnp.heaviside(input, values)


@op("torch.complex", when=lambda real, imag: fact(real).shape is not None and fact(real).shape == fact(imag).shape)
def complex_of(real, imag):
    return lax.complex(real, imag)


@op("torch.complex")
def complex_broadcast(real, imag):
    return lax.complex(*jnp.broadcast_arrays(real, imag))


@op("torch.polar")
def polar(abs, angle):
    return lax.complex(abs * jnp.cos(angle), abs * jnp.sin(angle))


@op("torch.gcd", "torch.Tensor.gcd")
def gcd(input, other):
    return jnp.gcd(input, other)


@op("torch.lcm", "torch.Tensor.lcm")
def lcm(input, other):
    return jnp.lcm(input, other)


def _is_float(node):
    return isinstance(literal(node), float) or fact(node).kind == "float"


@op("torch.where", when=lambda input, other: _is_float(input) and is_number(other))
def where_floats(condition, input, other):
    return jnp.where(condition, input, other).astype(float32)


@op("torch.where")
def where(condition, input, other):
    return jnp.where(condition, input, other)


@op("torch.Tensor.where")
def where_method(input, condition, other):
    return jnp.where(condition, input, other)


@op("torch.masked_fill", "torch.Tensor.masked_fill", when=lambda value: is_number(value))
def masked_fill_number(input, mask, value):
    return jnp.where(mask, value, input)


@op("torch.masked_fill", "torch.Tensor.masked_fill")
def masked_fill(input, mask, value):
    return jnp.where(mask, jnp.asarray(value, input.dtype), input)


@op("torch.eq", "torch.Tensor.eq")
def eq(input, other):
    return input == other


@op("torch.ne", "torch.Tensor.ne", "torch.not_equal", "torch.Tensor.not_equal")
def ne(input, other):
    return input != other


@op("torch.lt", "torch.Tensor.lt", "torch.less", "torch.Tensor.less")
def lt(input, other):
    return input < other


@op("torch.le", "torch.Tensor.le", "torch.less_equal", "torch.Tensor.less_equal")
def le(input, other):
    return input <= other


@op("torch.gt", "torch.Tensor.gt", "torch.greater", "torch.Tensor.greater")
def gt(input, other):
    return input > other


@op("torch.ge", "torch.Tensor.ge", "torch.greater_equal", "torch.Tensor.greater_equal")
def ge(input, other):
    return input >= other


@op("torch.logical_and", "torch.Tensor.logical_and")
def logical_and(input, other):
    return jnp.logical_and(input, other)


@op("torch.logical_or", "torch.Tensor.logical_or")
def logical_or(input, other):
    return jnp.logical_or(input, other)


@op("torch.logical_xor", "torch.Tensor.logical_xor")
def logical_xor(input, other):
    return jnp.logical_xor(input, other)


@op("torch.bitwise_and", "torch.Tensor.bitwise_and")
def bitwise_and(input, other):
    return input & other


@op("torch.bitwise_or", "torch.Tensor.bitwise_or")
def bitwise_or(input, other):
    return input | other


@op("torch.bitwise_xor", "torch.Tensor.bitwise_xor")
def bitwise_xor(input, other):
    return input ^ other


@op("torch.bitwise_left_shift", "torch.Tensor.bitwise_left_shift")
def bitwise_left_shift(input, other):
    return input << other


@op("torch.bitwise_right_shift", "torch.Tensor.bitwise_right_shift")
def bitwise_right_shift(input, other):
    return input >> other


@op("torch.isclose", "torch.Tensor.isclose")
def isclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    return jnp.isclose(input, other, rtol, atol, equal_nan=equal_nan)


@op("torch.allclose", "torch.Tensor.allclose")
def allclose(input, other, rtol=1e-5, atol=1e-8, equal_nan=False):
    return jnp.allclose(input, other, rtol, atol, equal_nan=equal_nan)


@op("torch.equal", "torch.Tensor.equal")
def array_equal(input, other):
    return jnp.array_equal(input, other)


@op("torch.isin")
def isin(elements, test_elements, *, assume_unique=False, invert=False):
    return jnp.isin(elements, test_elements, invert=invert)


@helper
def divide(x, divisor):
    """x / divisor, correctly rounded. XLA otherwise turns division by one number into a product with its reciprocal."""
    dtype = jnp.result_type(x, divisor, jnp.float32 if jnp.issubdtype(jnp.result_type(x), jnp.integer) else x)
    full = jnp.broadcast_to(jnp.asarray(divisor, dtype), jnp.shape(x))
    return jnp.asarray(x, dtype) / lax.optimization_barrier(full)
