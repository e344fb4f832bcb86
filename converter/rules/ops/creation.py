"""New tensors. torch's default float is `float32` whatever JAX's x64 switch says; its default integer is JAX's."""

import ast

import jax.numpy as jnp

from maxcode.converter.arguments import fact, is_number, is_omitted, is_sequence, is_tensor, literal
from maxcode.converter.facts import MISSING
from maxcode.converter.rule import op

float32 = jnp.float32


def _kind(node):
    """The Python kind of a fill value or of a list of them ("float", "int", "bool"), "" when not known."""
    value = literal(node)
    while isinstance(value, list | tuple) and value:
        value = next((item for item in value if isinstance(item, float | list | tuple)), value[0])
    return fact(node).kind if value is MISSING else type(value).__name__


def _has_dtype(dtype):
    return not is_omitted(dtype)


@op("torch.zeros")
def zeros(*size, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    return jnp.zeros(size, float32 if dtype is None else dtype)


@op("torch.ones")
def ones(*size, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    return jnp.ones(size, float32 if dtype is None else dtype)


@op("torch.empty")
def empty(
    *size, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None
):
    return jnp.empty(size, float32 if dtype is None else dtype)


@op("torch.full", when=_has_dtype)
def full_as(size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.full(size, fill_value, dtype)


@op("torch.full", when=lambda fill_value: _kind(fill_value) == "float")
def full_float(size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.full(size, fill_value, float32)


@op("torch.full", when=lambda fill_value: _kind(fill_value) in ("int", "bool"))
def full(size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.full(size, fill_value)


@op("torch.zeros_like")
def zeros_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jnp.zeros_like(input, dtype=dtype)


@op("torch.ones_like")
def ones_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jnp.ones_like(input, dtype=dtype)


@op("torch.empty_like")
def empty_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jnp.empty_like(input, dtype=dtype)


@op("torch.full_like")
def full_like(input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    return jnp.full_like(input, fill_value, dtype=dtype)


@op("torch.Tensor.new_zeros")
def new_zeros(input, *size, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    return jnp.zeros(size, input.dtype if dtype is None else dtype)


@op("torch.Tensor.new_ones")
def new_ones(input, *size, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    return jnp.ones(size, input.dtype if dtype is None else dtype)


@op("torch.Tensor.new_empty")
def new_empty(input, *size, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    return jnp.empty(size, input.dtype if dtype is None else dtype)


@op("torch.Tensor", "torch.FloatTensor", when=lambda size: not any(is_tensor(s) or is_sequence(s) for s in size))
def tensor_of_size(*size, device=None):
    return jnp.zeros(size, float32)


@op("torch.Tensor", "torch.FloatTensor", limits={"a size object": lambda data: not (
    isinstance(data, ast.List | ast.Tuple) or fact(data).kind == "list"
)})  # fmt: skip
def tensor_of_data(data, *, device=None):
    return jnp.asarray(data, float32)


@op("torch.LongTensor", limits={"sizes or a size object": lambda data: not (
    isinstance(data, ast.List | ast.Tuple) or fact(data).kind == "list"
)})  # fmt: skip
def long_tensor_of_data(data, *, device=None):
    return jnp.asarray(data, int)


@op("torch.Tensor.new", when=lambda size: not any(is_tensor(s) or is_sequence(s) for s in size))
def new(input, *size):
    return jnp.zeros(size, input.dtype)


@op("torch.Tensor.new", limits={"of a tensor or size": lambda data: not isinstance(data, ast.List)})
def new_of(input, data):
    return jnp.array(data, input.dtype)


@op("torch.Tensor.new_full")
def new_full(input, size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    return jnp.full(size, fill_value, input.dtype if dtype is None else dtype)


@op("torch.Tensor.new_tensor")
def new_tensor(input, data, *, dtype=None, device=None, requires_grad=False):
    return jnp.array(data, input.dtype if dtype is None else dtype)


@op("torch.arange", limits={"the length depends on data": lambda end: is_tensor(end)})
def arange_to(end, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.arange(end, dtype=dtype)


@op("torch.arange", limits={"the length depends on data": lambda start, end: is_tensor(start) or is_tensor(end)})
def arange(start, end, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.arange(start, end, dtype=dtype)


@op("torch.arange", limits={"the length depends on data": lambda start, end: is_tensor(start) or is_tensor(end)})
def arange_step(start, end, step, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.arange(start, end, step, dtype=dtype)


@op("torch.arange", limits={"the length depends on data": lambda end: is_tensor(end)})
def arange_named(*, end, start=0, step=1, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.arange(start, end, step, dtype=dtype)


@op("torch.linspace")
def linspace(start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.linspace(start, end, steps, dtype=float32 if dtype is None else dtype)


@op("torch.logspace")
def logspace(start, end, steps, base=10.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.logspace(start, end, steps, base=base, dtype=float32 if dtype is None else dtype)


@op("torch.eye")
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return jnp.eye(n, m, dtype=float32 if dtype is None else dtype)


@op("torch.tensor", "torch.as_tensor", "torch.asarray", when=lambda data: is_tensor(data))
def tensor_of_tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    return jnp.asarray(data, dtype=dtype)


@op("torch.tensor", "torch.as_tensor", "torch.asarray", "torch.scalar_tensor", when=_has_dtype)
def tensor_as(data, dtype=None, device=None, *, requires_grad=False, pin_memory=False):
    return jnp.array(data, dtype)


@op("torch.tensor", "torch.as_tensor", "torch.asarray", when=lambda data: _kind(data) == "float")
def tensor_of_floats(data, dtype=None, device=None, *, requires_grad=False, pin_memory=False):
    return jnp.array(data, float32)


@op("torch.scalar_tensor", when=lambda s: is_number(s))
def scalar_tensor(s, *, dtype=None, device=None, layout=None, pin_memory=False, requires_grad=False):
    return jnp.array(s, float32)


@op("torch.tensor", "torch.as_tensor", "torch.asarray")
def tensor(data, dtype=None, device=None, *, requires_grad=False, pin_memory=False):
    """A new array; Python floats make it `float32`, integers JAX's default integer."""
    array = jnp.array(data)
    return array.astype(float32) if array.weak_type and jnp.issubdtype(array.dtype, jnp.floating) else array


@op("torch.from_numpy")
def from_numpy(ndarray):
    return jnp.asarray(ndarray)


@op("torch.Tensor.fill", "torch.fill")
def fill(input, value):
    return jnp.full_like(input, value)


@op("torch.get_default_dtype")
def get_default_dtype():
    return float32


@op("torch.tril_indices")
def tril_indices(row, col, offset=0, *, dtype=None, device=None, layout=None):
    return jnp.stack(jnp.tril_indices(row, offset, col)).astype(int if dtype is None else dtype)


@op("torch.triu_indices")
def triu_indices(row, col, offset=0, *, dtype=None, device=None, layout=None):
    return jnp.stack(jnp.triu_indices(row, offset, col)).astype(int if dtype is None else dtype)
