"""Casts, copies and moves between devices."""

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import is_device, is_dtype, is_omitted, is_string, is_tensor
from maxcode.converter.rule import attribute, op
from maxcode.converter.support.casting import cast_module

float32 = jnp.float32


@op("torch.Tensor.to", when=lambda dtype: is_dtype(dtype))
def to_dtype(input, dtype, non_blocking=False, copy=False, *, memory_format=None):
    return input.astype(dtype)


@op("torch.Tensor.to", when=lambda other: is_tensor(other))
def to_other(input, other, non_blocking=False, copy=False, *, memory_format=None):
    return input.astype(other.dtype)


@op("torch.Tensor.to", when=lambda dtype: not is_omitted(dtype))
def to_device_and_dtype(input, device=None, dtype=None, non_blocking=False, copy=False, *, memory_format=None):
    return input.astype(dtype)


@op("torch.Tensor.to", when=lambda device: device is None or is_omitted(device) or is_device(device))
def to_device(input, device=None, dtype=None, non_blocking=False, copy=False, *, memory_format=None):
    return input


@op("torch.Tensor.to")
def to_whatever(input, target, non_blocking=False, copy=False, *, memory_format=None):
    """Cast to an array's dtype or to a dtype; None and the name of a device leave the array as it is."""
    if target is None or isinstance(target, str):
        return input
    is_dtype = isinstance(target, type | jnp.dtype) or not hasattr(target, "shape")
    return input.astype(target if is_dtype else target.dtype)


@op("torch.nn.Module.to", when=lambda dtype: is_dtype(dtype))
def module_to_dtype(module, dtype, non_blocking=False, *, memory_format=None):
    return cast_module(module, dtype)


@op("torch.nn.Module.to", when=lambda dtype: not is_omitted(dtype))
def module_to_device_and_dtype(module, device=None, dtype=None, non_blocking=False, *, memory_format=None):
    return cast_module(module, dtype)


@op("torch.nn.Module.to")
def module_to_device(module, device=None, dtype=None, non_blocking=False, *, memory_format=None):
    return module


@op("torch.nn.Module.float")
def module_to_float(module):
    return cast_module(module, float32)


@op("torch.nn.Module.half")
def module_to_half(module):
    return cast_module(module, jnp.float16)


@op("torch.nn.Module.bfloat16")
def module_to_bfloat16(module):
    return cast_module(module, jnp.bfloat16)


@op("torch.Tensor.type_as")
def type_as(input, other):
    return input.astype(other.dtype)


@op("torch.Tensor.type", when=lambda dtype: not is_string(dtype))
def type_to(input, dtype):
    return input.astype(dtype)


@op("torch.Tensor.float")
def to_float(input, memory_format=None):
    return input.astype(float32)


# Python's `float` and `int` as dtypes are 64 bits wide where x64 is on, and silently 32 where it is off.
@op("torch.Tensor.double")
def to_double(input, memory_format=None):
    return input.astype(float)


@op("torch.Tensor.long")
def to_long(input, memory_format=None):
    return input.astype(int)


@op("torch.Tensor.half")
def to_half(input, memory_format=None):
    return input.astype(jnp.float16)


@op("torch.Tensor.bfloat16")
def to_bfloat16(input, memory_format=None):
    return input.astype(jnp.bfloat16)


@op("torch.Tensor.int")
def to_int(input, memory_format=None):
    return input.astype(jnp.int32)


@op("torch.Tensor.short")
def to_short(input, memory_format=None):
    return input.astype(jnp.int16)


@op("torch.Tensor.char")
def to_char(input, memory_format=None):
    return input.astype(jnp.int8)


@op("torch.Tensor.byte")
def to_byte(input, memory_format=None):
    return input.astype(jnp.uint8)


@op("torch.Tensor.bool")
def to_bool(input, memory_format=None):
    return input.astype(bool)


@op("torch.Tensor.cfloat")
def to_cfloat(input, memory_format=None):
    return input.astype(jnp.complex64)


@op("torch.Tensor.cdouble")
def to_cdouble(input, memory_format=None):
    return input.astype(complex)


@op("torch.clone", "torch.Tensor.clone", "torch.Tensor.contiguous")
def same(input, memory_format=None, *, _memory_format=None):
    return input


@op(
    "torch.Tensor.cpu", "torch.Tensor.cuda", "torch.Tensor.pin_memory", "torch.resolve_conj",
    "torch.Tensor.resolve_conj", "torch.resolve_neg", "torch.Tensor.resolve_neg",
)  # fmt: skip
def same_device(input, device=None, non_blocking=False, memory_format=None):
    return input


@op("torch.Tensor.requires_grad_")
def wants_gradient(input, requires_grad=True):
    return input


@op("torch.detach", "torch.Tensor.detach")
def detach(input):
    return lax.stop_gradient(input)


@op("torch.Tensor.dim", "torch.Tensor.ndimension")
def dim_of(input):
    return input.ndim


@op("torch.Tensor.size", when=lambda dim: dim is None)
def size_of(input, dim=None):
    return input.shape


@op("torch.Tensor.size")
def size_along(input, dim):
    return input.shape[dim]


@op("torch.numel", "torch.Tensor.numel", "torch.Tensor.nelement")
def numel(input):
    return input.size


@op("torch.Tensor.element_size")
def element_size(input):
    return input.dtype.itemsize


@op("torch.is_tensor")
def is_array(obj):
    return isinstance(obj, jax.Array)


@op("torch.is_floating_point", "torch.Tensor.is_floating_point")
def is_floating_point(input):
    return jnp.issubdtype(input.dtype, jnp.floating)


@op("torch.is_complex", "torch.Tensor.is_complex")
def is_complex(input):
    return jnp.issubdtype(input.dtype, jnp.complexfloating)


@op("torch.promote_types")
def promote_types(type1, type2):
    return jnp.promote_types(type1, type2)


@op("torch.result_type")
def result_type(tensor1, tensor2):
    return jnp.result_type(tensor1, tensor2)


@op("torch.finfo")
def finfo(type):
    return jnp.finfo(type)


@op("torch.iinfo")
def iinfo(type):
    return jnp.iinfo(type)


@op("torch.Size")
def size(shape=()):
    return tuple(shape)


@op("torch.Tensor.item")
def item(input):
    return input.item()


@op("torch.Tensor.tolist")
def tolist(input):
    return input.tolist()


@attribute("torch.Tensor.shape")
def shape_attribute(input):
    return input.shape


@attribute("torch.Tensor.ndim")
def ndim_attribute(input):
    return input.ndim


@attribute("torch.Tensor.dtype")
def dtype_attribute(input):
    return input.dtype


@attribute("torch.Tensor.T")
def transposed(input):
    return input.T


@attribute("torch.Tensor.mT")
def matrix_transposed(input):
    return input.mT


@attribute("torch.Tensor.H", "torch.Tensor.mH")
def conjugate_transposed(input):
    return input.mT.conj()


@attribute("torch.Tensor.real")
def real_part(input):
    return input.real


@attribute("torch.Tensor.imag")
def imaginary_part(input):
    return input.imag


@attribute("torch.Tensor.data")
def data_of(input):
    return lax.stop_gradient(input)


@attribute("torch.Tensor.itemsize")
def itemsize(input):
    return input.dtype.itemsize


@attribute("torch.Tensor.nbytes")
def nbytes(input):
    return input.nbytes


@attribute(
    "torch.Tensor.is_cuda", "torch.Tensor.is_meta", "torch.Tensor.is_sparse", "torch.Tensor.is_quantized",
    "torch.Tensor.is_mps", "torch.Tensor.is_xpu", "torch.Tensor.is_nested", "torch.Tensor.is_mkldnn",
)  # fmt: skip
def never(input):
    return False


@attribute("torch.dtype.is_floating_point")
def dtype_is_floating_point(dtype):
    return jnp.issubdtype(dtype, jnp.floating)


@attribute("torch.dtype.is_complex")
def dtype_is_complex(dtype):
    return jnp.issubdtype(dtype, jnp.complexfloating)


@attribute("torch.dtype.is_signed")
def dtype_is_signed(dtype):
    return jnp.issubdtype(dtype, jnp.number) and not jnp.issubdtype(dtype, jnp.unsignedinteger)


@attribute("torch.dtype.itemsize")
def dtype_itemsize(dtype):
    return jnp.dtype(dtype).itemsize


# A Python float is weakly typed as in torch; finfo's own scalars would widen bfloat16 arrays.
@attribute("torch.finfo.min")
def finfo_min(info):
    return float(info.min)


@attribute("torch.finfo.max")
def finfo_max(info):
    return float(info.max)


@attribute("torch.finfo.eps")
def finfo_eps(info):
    return float(info.eps)


@attribute("torch.finfo.tiny", "torch.finfo.smallest_normal")
def finfo_tiny(info):
    return float(info.tiny)


@attribute("torch.iinfo.min")
def iinfo_min(info):
    return int(info.min)


@attribute("torch.iinfo.max")
def iinfo_max(info):
    return int(info.max)
