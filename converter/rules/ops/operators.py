"""Python's operators with a tensor on the right, as the methods that Python calls, and reading by an index."""

import jax.numpy as jnp
import numpy as np

from maxcode.converter.arguments import fact
from maxcode.converter.rule import op


@op("torch.Tensor.__radd__")
def add_to_left(input, other):
    return other + input


@op("torch.Tensor.__rsub__")
def subtract_from_left(input, other):
    return other - input


@op("torch.Tensor.__rmul__")
def multiply_left(input, other):
    return other * input


@op("torch.Tensor.__rdiv__", "torch.Tensor.__rtruediv__")
def divide_left(input, other):
    return other / input


@op("torch.Tensor.__rfloordiv__")
def floor_divide_left(input, other):
    return other // input


@op("torch.Tensor.__rmod__")
def remainder_of_left(input, other):
    return other % input


@op("torch.Tensor.__rpow__")
def power_of_left(input, other):
    return other**input


@op("torch.Tensor.__rmatmul__")
def matmul_left(input, other):
    return other @ input


@op("torch.Tensor.__rand__")
def and_left(input, other):
    return other & input


@op("torch.Tensor.__ror__")
def or_left(input, other):
    return other | input


@op("torch.Tensor.__rxor__")
def xor_left(input, other):
    return other ^ input


def _chooses_by_data(index):
    """Whether a mask that was computed takes part, so that the result's size depends on data."""
    parts = getattr(index, "elts", [index])
    return any(fact(part).is_tensor and fact(part).dtypes & {"bool", "uint8"} for part in parts)


@op("torch.Tensor.__getitem__", limits={"a mask as an index: the result's shape depends on data": _chooses_by_data})
def getitem(input, index):
    """Entries by an index as Python writes it; lists in it are positions, or masks known beforehand."""
    parts = index if isinstance(index, tuple) else (index,)
    return input[tuple(np.asarray(part) if isinstance(part, list) else part for part in parts)]


@op("torch.Tensor.zero", "torch.Tensor.zero_", "torch.zero_")
def zero(input):
    return jnp.zeros_like(input)
