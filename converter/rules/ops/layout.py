"""Questions about memory. Arrays have no strides: every tensor is taken to be contiguous, as it is when made."""

import itertools

import jax.numpy as jnp

from maxcode.converter.rule import helper, op

float32 = jnp.float32


@helper
def contiguous_strides(shape):
    """Steps between neighbours along each axis of a contiguous array, in entries."""
    sizes = [max(size, 1) for size in shape]
    return tuple(itertools.accumulate(reversed(sizes[1:]), lambda a, b: a * b, initial=1))[::-1] if shape else ()


@op("torch.as_strided", "torch.Tensor.as_strided", "torch.as_strided_copy")
def as_strided(input, size, stride, storage_offset=None):
    """Entries at these strides of an `input` that is contiguous and alone in its memory; raises where it ends."""
    position = jnp.full((1,) * len(size), storage_offset or 0)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        position = position + (jnp.arange(count) * step).reshape(-1, *(1,) * (len(size) - axis - 1))
    last = (storage_offset or 0) + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if position.size and last >= input.size:
        raise ValueError(f"as_strided: reads entry {last} of {input.size}; the input is taken to be a whole tensor")
    return input.reshape(-1)[position]


@op("torch.Tensor.stride")
def stride_of(input):
    return contiguous_strides(input.shape)


@op("torch.Tensor.stride")
def stride_along(input, dim):
    return contiguous_strides(input.shape)[dim]


@op("torch.Tensor.is_contiguous")
def is_contiguous(input, memory_format=None):
    return True


@op("torch.Tensor.storage_offset")
def storage_offset(input):
    return 0


@op("torch.empty_strided")
def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    return jnp.empty(size, float32 if dtype is None else dtype)


@op("torch.empty_permuted")
def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.empty(size, float32 if dtype is None else dtype)
