"""Matrix products. Where beta is 0, torch does not read the added tensor, so NaNs in it do not count."""

import jax.numpy as jnp

from maxcode.converter.arguments import fact, is_omitted, is_sequence, literal, ndim
from maxcode.converter.rule import op
from maxcode.converter.support.layers import project

_TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}


@op("torch.nn.functional.linear", when=lambda bias: is_omitted(bias), **_TOLERANCE)
def linear_without_bias(input, weight, bias=None):
    return input @ weight.T


@op("torch.nn.functional.linear", **_TOLERANCE)
def linear(input, weight, bias=None):
    return project(input, weight.T, bias)


@op("torch.bilinear", "torch.nn.functional.bilinear", **_TOLERANCE)
def bilinear(input1, input2, weight, bias=None):
    """x1' W_k x2 + b_k for each output k; weight is [out, in1, in2]."""
    output = jnp.einsum("...i,kij,...j->...k", input1, weight, input2)
    return output if bias is None else output + bias


@op(
    "torch.matmul", "torch.Tensor.matmul", "torch.bmm", "torch.Tensor.bmm", "torch.mm", "torch.Tensor.mm",
    "torch.mv", "torch.Tensor.mv", "torch.dot", "torch.Tensor.dot", "torch.linalg.matmul", **_TOLERANCE,
)  # fmt: skip
def matmul(input, other):
    return input @ other


@op("torch.bmm", "torch.Tensor.bmm", "torch.mm", "torch.Tensor.mm", **_TOLERANCE)
def matmul_named(input, mat2):
    return input @ mat2


@op("torch.dot", "torch.Tensor.dot", **_TOLERANCE)
def dot_named(input, tensor):
    return input @ tensor


@op("torch.mv", "torch.Tensor.mv", **_TOLERANCE)
def mv_named(input, vec):
    return input @ vec


@op("torch.vdot", "torch.Tensor.vdot", **_TOLERANCE)
def vdot(input, other):
    return jnp.vdot(input, other)


@op("torch.inner", "torch.Tensor.inner", **_TOLERANCE)
def inner(input, other):
    return jnp.inner(input, other)


@op("torch.outer", "torch.Tensor.outer", "torch.ger", "torch.Tensor.ger")
def outer(input, vec2):
    return jnp.outer(input, vec2)


@op("torch.kron", "torch.Tensor.kron")
def kron(input, other):
    return jnp.kron(input, other)


@op("torch.addmm", "torch.Tensor.addmm", when=lambda input: ndim(input) == 1, **_TOLERANCE)
def addmm_bias(input, mat1, mat2):
    return project(mat1, mat2, input)


@op("torch.addmm", "torch.Tensor.addmm", **_TOLERANCE)
def addmm(input, mat1, mat2):
    return input + mat1 @ mat2


@op("torch.addmm", "torch.Tensor.addmm", **_TOLERANCE)
def addmm_scaled(input, mat1, mat2, *, beta=1, alpha=1):
    return alpha * (mat1 @ mat2) if beta == 0 else beta * input + alpha * (mat1 @ mat2)


@op("torch.baddbmm", "torch.Tensor.baddbmm", **_TOLERANCE)
def baddbmm(input, batch1, batch2):
    return input + batch1 @ batch2


@op("torch.baddbmm", "torch.Tensor.baddbmm", **_TOLERANCE)
def baddbmm_scaled(input, batch1, batch2, *, beta=1, alpha=1):
    return alpha * (batch1 @ batch2) if beta == 0 else beta * input + alpha * (batch1 @ batch2)


@op("torch.addbmm", "torch.Tensor.addbmm", **_TOLERANCE)
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    return alpha * (batch1 @ batch2).sum(0) if beta == 0 else beta * input + alpha * (batch1 @ batch2).sum(0)


@op("torch.addmv", "torch.Tensor.addmv", **_TOLERANCE)
def addmv(input, mat, vec, *, beta=1, alpha=1):
    return alpha * (mat @ vec) if beta == 0 else beta * input + alpha * (mat @ vec)


@op("torch.addr", "torch.Tensor.addr", **_TOLERANCE)
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    return alpha * jnp.outer(vec1, vec2) if beta == 0 else beta * input + alpha * jnp.outer(vec1, vec2)


@op("torch.einsum", when=lambda operands: is_sequence(operands), **_TOLERANCE)
def einsum_of(equation, operands):
    return jnp.einsum(equation, *operands)


@op("torch.einsum", **_TOLERANCE)
def einsum(equation, *operands):
    return jnp.einsum(equation, *operands)


def _contracts_unequal(a, b, dims):
    """Whether a pair of contracted axes has sizes 1 and n, which torch broadcasts."""
    axes, left, right = literal(dims), fact(a).shape, fact(b).shape
    if not isinstance(axes, tuple | list) or len(axes) != 2 or left is None or right is None:
        return False
    return any(left[i] != right[j] for i, j in zip(*axes, strict=True))


@op("torch.tensordot", limits={"contracted axes of different size are not broadcast": _contracts_unequal}, **_TOLERANCE)
def tensordot(a, b, dims=2):
    return jnp.tensordot(a, b, dims)


@op("torch.chain_matmul", "torch.linalg.multi_dot", **_TOLERANCE)
def multi_dot(tensors):
    return jnp.linalg.multi_dot(tensors)


@op("torch.trace", "torch.Tensor.trace")
def trace(input):
    return jnp.trace(input)


@op("torch.linalg.cross", "torch.cross", "torch.Tensor.cross")
def cross(input, other, dim=-1):
    return jnp.cross(input, other, axis=dim)


@op("torch.matrix_power", "torch.Tensor.matrix_power", "torch.linalg.matrix_power", **_TOLERANCE)
def matrix_power(input, n):
    return jnp.linalg.matrix_power(input, n)
