"""Decompositions and solvers."""

import jax
import jax.numpy as jnp

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import op

_HERMITIAN = {"hermitian=True reads one triangle only": lambda hermitian: is_true(hermitian)}
_TOLERANCE = {"rtol": 1e-6, "atol": 1e-7}


@op("torch.linalg.solve_triangular", **_TOLERANCE)
def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """X with A X = B (left) or X A = B, for triangular A [..., n, n]."""
    batch = jnp.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    a = jnp.broadcast_to(A, (*batch, *A.shape[-2:]))
    b = jnp.broadcast_to(B, (*batch, *B.shape[-2:]))
    if left:
        return jax.scipy.linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unitriangular)
    return jax.scipy.linalg.solve_triangular(a.mT, b.mT, lower=bool(upper), unit_diagonal=unitriangular).mT


@op("torch.linalg.inv", "torch.inverse", "torch.Tensor.inverse", **_TOLERANCE)
def inverse(A):
    return jnp.linalg.inv(A)


@op("torch.linalg.pinv", "torch.pinverse", limits=_HERMITIAN, **_TOLERANCE)
def pinv(A, *, rtol=None, hermitian=False):
    return jnp.linalg.pinv(A, rtol=rtol, hermitian=hermitian)


@op("torch.linalg.det", "torch.det", "torch.Tensor.det", **_TOLERANCE)
def det(A):
    return jnp.linalg.det(A)


@op("torch.linalg.slogdet", "torch.slogdet", "torch.Tensor.slogdet", **_TOLERANCE)
def slogdet(A):
    return jnp.linalg.slogdet(A)


@op("torch.logdet", "torch.Tensor.logdet", **_TOLERANCE)
def logdet(A):
    """log det A, NaN where the determinant is negative."""
    sign, logarithm = jnp.linalg.slogdet(A)
    return jnp.where(sign < 0, jnp.nan, logarithm)


@op(
    "torch.linalg.solve",
    limits={"left=False is not converted": lambda left: left is not None and not is_true(left)},
    **_TOLERANCE,
)
def solve(A, B, *, left=True):
    """X with A X = B; B holds vectors when its shape is A's without the last axis."""
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    return jnp.linalg.solve(A, B[..., None])[..., 0] if is_vector else jnp.linalg.solve(A, B)


@op("torch.linalg.cholesky", "torch.cholesky", "torch.Tensor.cholesky", **_TOLERANCE)
def cholesky(A, upper=False):
    return jnp.linalg.cholesky(A, upper=upper)


@op("torch.linalg.eigvalsh", **_TOLERANCE)
def eigvalsh(A, UPLO="L"):
    return jnp.linalg.eigvalsh(A, UPLO, symmetrize_input=False)


@op("torch.linalg.svdvals", **_TOLERANCE)
def svdvals(A):
    return jnp.linalg.svdvals(A)
