"""Solvers that report success beside their result, LAPACK's packed factors, least squares, eigenvalues."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import is_omitted, literal
from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.linear_algebra import (
    LUFactors,
    cholesky,
    inverse,
    lu_factor,
    one_triangle,
    pinv,
    solve,
    solve_triangular,
)

_TOLERANCE = {"rtol": 1e-6, "atol": 1e-7}


@helper
def first_zero(diagonal):
    """The position, counted from 1, of the first 0 on a diagonal [..., n], 0 where there is none; int32 as in torch."""
    zero = diagonal == 0
    return jnp.where(zero.any(-1), jnp.argmax(zero, -1) + 1, 0).astype(jnp.int32) if zero.size else first_of_none(zero)


@helper
def first_of_none(values):
    """Zeros for matrices without entries."""
    return jnp.zeros(values.shape[:-1], jnp.int32)


@helper
def failing_minor(A):
    """The order of the first leading minor of Hermitian matrices that is not positive definite, 0 where all are."""

    def eliminate(k, state):
        rest, info = state
        pivot = jnp.real(rest[..., k, k])
        positive = pivot > 0
        info = jnp.where((info == 0) & ~positive, k + 1, info)
        column = rest[..., :, k] / jnp.where(positive, pivot, 1)[..., None]
        return rest - column[..., :, None] * rest[..., k, None, :], info

    start = (lax.stop_gradient(A), jnp.zeros(A.shape[:-2], jnp.int32))
    if A.size == 0:
        return start[1]
    return lax.fori_loop(0, A.shape[-1], eliminate, start)[1].astype(jnp.int32)


@helper
class CholeskyResult(NamedTuple):
    """A Cholesky factor, and which leading minor was not positive definite."""

    L: jax.Array
    info: jax.Array


@op("torch.linalg.cholesky_ex", **_TOLERANCE)
def cholesky_ex(A, *, upper=False, check_errors=False):
    """The Cholesky factor (NaN where there is none) and the first leading minor that is not positive definite."""
    return CholeskyResult(cholesky(A, upper), failing_minor(one_triangle(A, upper)))


@helper
class InverseResult(NamedTuple):
    """An inverse, and which pivot was 0."""

    inverse: jax.Array
    info: jax.Array


@op("torch.linalg.inv_ex", **_TOLERANCE)
def inverse_ex(A, *, check_errors=False):
    """The inverse and the first pivot that is 0."""
    return InverseResult(inverse(A), lu_factor_ex(lax.stop_gradient(A)).info)


@helper
class SolveResult(NamedTuple):
    """A solution, and which pivot was 0."""

    result: jax.Array
    info: jax.Array


@op("torch.linalg.solve_ex", **_TOLERANCE)
def solve_ex(A, B, *, left=True, check_errors=False):
    """The solution of A X = B (X A = B unless `left`) and the first pivot that is 0."""
    return SolveResult(solve(A, B, left=left), lu_factor_ex(lax.stop_gradient(A)).info)


@helper
class LUResult(NamedTuple):
    """L and U in one matrix, the rows that were swapped, and which pivot was 0."""

    LU: jax.Array
    pivots: jax.Array
    info: jax.Array


_PIVOT = {
    "pivot=False is not converted": lambda pivot: not is_omitted(pivot) and literal(pivot) is not True,
}


@op("torch.linalg.lu_factor_ex", **_TOLERANCE, limits=_PIVOT)
def lu_factor_ex(A, *, pivot=True, check_errors=False):
    """L and U in one matrix, the rows that were swapped, and the first pivot that is 0."""
    found = lu_factor(A)
    return LUResult(*found, first_zero(jnp.diagonal(lax.stop_gradient(found.LU), axis1=-2, axis2=-1)))


@op("torch.lu", "torch.Tensor.lu", **_TOLERANCE, limits=_PIVOT)
def packed_lu(A, pivot=True, get_infos=False):
    """L and U in one matrix and the rows that were swapped; with `get_infos` also the first pivot that is 0."""
    return lu_factor_ex(A) if get_infos else LUFactors(*lu_factor_ex(A)[:2])


@op("torch.lu_unpack", **_TOLERANCE)
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """P, L and U of a packed factorisation; what is not wanted is empty."""
    rows, columns = LU_data.shape[-2:]
    size = min(rows, columns)
    permutation = lower = upper = jnp.zeros(0, LU_data.dtype)
    if unpack_pivots:
        order = lax.linalg.lu_pivots_to_permutation(LU_pivots - 1, rows)
        permutation = jax.nn.one_hot(order, rows, dtype=LU_data.dtype).mT
    if unpack_data:
        lower = jnp.tril(LU_data[..., :, :size], -1) + jnp.eye(rows, size, dtype=LU_data.dtype)
        upper = jnp.triu(LU_data[..., :size, :])
    return permutation, lower, upper


@op("torch.triangular_solve", "torch.Tensor.triangular_solve", **_TOLERANCE)
def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """X with A X = b, or A^T X = b, for triangular A, and A as it came."""
    matrix = A.mT if transpose else A
    return solve_triangular(matrix, b, upper=upper != transpose, unitriangular=unitriangular), A


@helper
class LeastSquares(NamedTuple):
    """What torch's `lstsq` returns."""

    solution: jax.Array
    residuals: jax.Array
    rank: jax.Array
    singular_values: jax.Array


@op("torch.linalg.lstsq", **_TOLERANCE, limits={
    "the driver must be a constant": lambda driver: not is_omitted(driver) and not isinstance(literal(driver), str),
})  # fmt: skip
def lstsq(A, B, rcond=None, *, driver=None):
    """X of least norm with least |A X - B|.

    Residuals are given for more rows than columns, NaN where the columns depend on each other (torch gives none then).
    """
    rows, columns = A.shape[-2:]
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    right = B[..., None] if is_vector else B
    solution = pinv(A, rtol=rcond) @ right
    values = jnp.linalg.svdvals(lax.stop_gradient(A))
    least = max(rows, columns) * jnp.finfo(A.dtype).eps if rcond is None else rcond
    rank = (values > least * values.max(-1, keepdims=True, initial=0)).sum(-1)
    residuals = jnp.zeros(0, A.dtype)
    if rows > columns and driver != "gelsy":
        squares = jnp.square(jnp.abs(A @ solution - right)).sum(-2)
        residuals = jnp.where((rank == columns)[..., None], squares, jnp.nan)
    return LeastSquares(
        solution[..., 0] if is_vector else solution,
        residuals,
        jnp.zeros(0, int) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else jnp.zeros(0, values.dtype),
    )


@helper
class EigenResult(NamedTuple):
    """Eigenvalues and the matrix whose columns are eigenvectors."""

    eigenvalues: jax.Array
    eigenvectors: jax.Array


@op("torch.linalg.eig", **_TOLERANCE)
def eig(A):
    """Eigenvalues and eigenvectors of general square matrices; vectors are of length 1, their phases free."""
    if A.size == 0:
        wide = jnp.promote_types(A.dtype, jnp.complex64)
        return EigenResult(jnp.zeros(A.shape[:-1], wide), A.astype(wide))
    return EigenResult(*lax.linalg.eig(A, compute_left_eigenvectors=False, enable_eigvec_derivs=True))


@op("torch.linalg.eigvals", **_TOLERANCE)
def eigvals(A):
    return jnp.linalg.eigvals(A)


@helper
def reflected(reflectors, tau, other, adjoint):
    """Q other, or Q^H other, for the product Q of Householder reflections below the diagonal of [..., m, k]."""
    rows = jnp.arange(reflectors.shape[-2])
    count = tau.shape[-1]

    def reflect(value, i):
        column = jnp.where(rows > i, reflectors[..., :, i], jnp.where(rows == i, 1, 0).astype(reflectors.dtype))
        scale = tau[..., i].conj() if adjoint else tau[..., i]
        shares = (column.conj()[..., None, :] @ value) * scale[..., None, None]
        return value - column[..., None] * shares, None

    order = jnp.arange(count) if adjoint else jnp.arange(count)[::-1]
    return lax.scan(reflect, other, order)[0] if count else other


@op("torch.linalg.householder_product", "torch.orgqr", "torch.Tensor.orgqr", **_TOLERANCE)
def householder_product(input, tau):
    """The first columns of the product of Householder reflections."""
    start = jnp.broadcast_to(jnp.eye(*input.shape[-2:], dtype=input.dtype), input.shape)
    return reflected(input, tau, start, False)


@op("torch.ormqr", "torch.Tensor.ormqr", **_TOLERANCE)
def ormqr(input, tau, other, left=True, transpose=False):
    """`other` times the product Q of Householder reflections (or its adjoint), from the left or the right."""
    batch = jnp.broadcast_shapes(input.shape[:-2], other.shape[:-2])
    other = jnp.broadcast_to(other, (*batch, *other.shape[-2:]))
    if left:
        return reflected(input, tau, other, transpose)
    # other Q is (Q^H other^H)^H.
    return reflected(input, tau, other.mT.conj(), not transpose).mT.conj()
