"""Tests in place: torch writes ones and zeros of the tensor's own dtype, where the functions give booleans."""

import jax.numpy as jnp

from maxcode.converter.rule import op


@op("torch.Tensor.eq_")
def eq_in_place(input, other):
    return (input == other).astype(input.dtype)


@op("torch.Tensor.ne_")
def ne_in_place(input, other):
    return (input != other).astype(input.dtype)


@op("torch.Tensor.lt_")
def lt_in_place(input, other):
    return (input < other).astype(input.dtype)


@op("torch.Tensor.le_")
def le_in_place(input, other):
    return (input <= other).astype(input.dtype)


@op("torch.Tensor.gt_")
def gt_in_place(input, other):
    return (input > other).astype(input.dtype)


@op("torch.Tensor.ge_")
def ge_in_place(input, other):
    return (input >= other).astype(input.dtype)


@op("torch.Tensor.logical_and_")
def logical_and_in_place(input, other):
    return jnp.logical_and(input, other).astype(input.dtype)


@op("torch.Tensor.logical_or_")
def logical_or_in_place(input, other):
    return jnp.logical_or(input, other).astype(input.dtype)


@op("torch.Tensor.logical_not_")
def logical_not_in_place(input):
    return jnp.logical_not(input).astype(input.dtype)
