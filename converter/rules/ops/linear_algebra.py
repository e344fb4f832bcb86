"""Decompositions and solvers. Signs of vectors are free in them; on a CPU they are LAPACK's, as torch's are."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import literal
from maxcode.converter.rule import helper, op

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


@helper
def smallest_counted(A, largest, atol, rtol):
    """Singular values up to this count as 0: atol, or rtol times the largest if that is more.

    rtol is max(m, n) eps by default, or 0 where a positive atol is given.
    """
    low = jnp.asarray(0.0 if atol is None else atol, largest.dtype)
    usual = jnp.where(low > 0, 0.0, max(A.shape[-2:]) * jnp.finfo(A.dtype).eps)
    return jnp.maximum(low, (usual if rtol is None else jnp.asarray(rtol)) * largest)


@helper
def one_triangle(A, upper):
    """The Hermitian matrix whose upper (or lower) triangle A holds; where it differentiates, JAX would read both."""
    half = jnp.triu(A, 1) if upper else jnp.tril(A, -1)
    diagonal = jnp.real(jnp.diagonal(A, axis1=-2, axis2=-1)).astype(A.dtype)
    return half + half.mT.conj() + diagonal[..., None] * jnp.eye(A.shape[-1], dtype=A.dtype)


@op("torch.linalg.pinv", **_TOLERANCE)
def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None):
    """The pseudo-inverse; `hermitian` reads the lower triangle only."""
    if hermitian:
        A = one_triangle(A, False)
    if A.size == 0:
        return A.mT
    largest = jnp.linalg.svdvals(lax.stop_gradient(A)).max(-1)
    least = smallest_counted(A, largest, atol, rcond if rtol is None else rtol)
    return jnp.linalg.pinv(A, rtol=jnp.where(largest > 0, least / largest, 0))


@op("torch.pinverse", "torch.Tensor.pinverse", **_TOLERANCE)
def pinverse(input, rcond=1e-15):
    return pinv(input, rcond)


@op("torch.linalg.det", "torch.det", "torch.Tensor.det", **_TOLERANCE)
def det(A):
    """Determinants of square matrices, 1 of those without entries."""
    return jnp.linalg.det(A) if A.size else jnp.ones(A.shape[:-2], A.dtype)


@op("torch.linalg.slogdet", "torch.slogdet", "torch.Tensor.slogdet", **_TOLERANCE)
def slogdet(A):
    return jnp.linalg.slogdet(A)


@op("torch.logdet", "torch.Tensor.logdet", **_TOLERANCE)
def logdet(A):
    """log det A, NaN where the determinant is negative."""
    sign, logarithm = jnp.linalg.slogdet(A)
    return jnp.where(sign < 0, jnp.nan, logarithm)


@op("torch.linalg.solve", **_TOLERANCE)
def solve(A, B, *, left=True):
    """X with A X = B (X A = B unless `left`); B holds vectors when its shape is A's without the last axis."""
    if not left:
        return jnp.linalg.solve(A.mT, B.mT).mT
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    return jnp.linalg.solve(A, B[..., None])[..., 0] if is_vector else jnp.linalg.solve(A, B)


@op("torch.linalg.cholesky", "torch.cholesky", "torch.Tensor.cholesky", **_TOLERANCE)
def cholesky(A, upper=False):
    """The Cholesky factor, lower or upper, of the Hermitian matrix whose triangle of that name is read."""
    if A.size == 0:
        return A
    return jnp.linalg.cholesky(one_triangle(A, upper), upper=upper, symmetrize_input=False)


@op("torch.linalg.eigvalsh", **_TOLERANCE)
def eigvalsh(A, UPLO="L"):
    return jnp.linalg.eigvalsh(one_triangle(A, UPLO in ("U", "u")))


@op("torch.linalg.svdvals", **_TOLERANCE)
def svdvals(A):
    return jnp.linalg.svdvals(A)


@op("torch.cholesky_solve", "torch.Tensor.cholesky_solve", **_TOLERANCE)
def cholesky_solve(B, L, upper=False):
    """X with A X = B for the A = L L^T (or L^T L, `upper`) whose Cholesky factor is given."""
    if upper:
        return solve_triangular(L, solve_triangular(L.mT.conj(), B, upper=False), upper=True)
    return solve_triangular(L.mT.conj(), solve_triangular(L, B, upper=False), upper=True)


@op("torch.cholesky_inverse", "torch.Tensor.cholesky_inverse", **_TOLERANCE)
def cholesky_inverse(L, upper=False):
    """The inverse of the matrix whose Cholesky factor is given; the other triangle is not read."""
    factor = jnp.triu(L) if upper else jnp.tril(L)
    return cholesky_solve(jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape), factor, upper)


@op("torch.linalg.eigh", **_TOLERANCE)
def eigh(A, UPLO="L"):
    return jnp.linalg.eigh(one_triangle(A, UPLO in ("U", "u")))


@op(
    "torch.linalg.qr", **_TOLERANCE,
    limits={"mode must be a constant, 'reduced' or 'complete'": lambda mode: (
        mode is not None and literal(mode) not in ("reduced", "complete")
    )},
)  # fmt: skip
def linalg_qr(A, mode="reduced"):
    return jnp.linalg.qr(A, mode)


@op("torch.qr", "torch.Tensor.qr", **_TOLERANCE)
def qr(input, some=True):
    return jnp.linalg.qr(input, "reduced" if some else "complete")


@op("torch.linalg.svd", **_TOLERANCE, when=lambda full_matrices: literal(full_matrices) is False)
def linalg_svd(A, full_matrices, *, driver=None):
    return jnp.linalg.svd(A, full_matrices)


@op("torch.linalg.svd", **_TOLERANCE)
def full_svd(A, full_matrices=True, *, driver=None):
    """U, S and V^H. Gradients reach the vectors that belong to singular values; others span a null space in any way."""
    if not full_matrices or A.shape[-1] == A.shape[-2]:
        return jnp.linalg.svd(A, False)
    decompose = jax.custom_jvp(lambda matrix: jnp.linalg.svd(matrix, True))

    def differentiate(primals, tangents):
        full = jnp.linalg.svd(primals[0], True)
        slopes = jax.jvp(lambda matrix: jnp.linalg.svd(matrix, False), primals, tangents)[1]
        ends = [[(0, 0)] * (a.ndim - 1) for a in full]
        wider = [
            jnp.pad(slopes[0], [*ends[0], (0, full[0].shape[-1] - slopes[0].shape[-1])]),
            slopes[1],
            jnp.pad(slopes[2], [*ends[2][:-1], (0, full[2].shape[-2] - slopes[2].shape[-2]), (0, 0)]),
        ]
        return full, type(full)(*wider)

    decompose.defjvp(differentiate)
    return decompose(A)


@helper
class SVD(NamedTuple):
    """What `torch.svd` returns: `V` holds vectors in its columns."""

    U: jax.Array
    S: jax.Array
    V: jax.Array


@op("torch.svd", "torch.Tensor.svd", **_TOLERANCE, limits={
    "compute_uv=False is not converted; use torch.linalg.svdvals": lambda compute_uv: literal(compute_uv) is False,
})  # fmt: skip
def svd(input, some=True, compute_uv=True):
    """Singular value decomposition U diag(S) V^H."""
    left, values, right = full_svd(input, not some)
    return SVD(left, values, right.mT.conj())


@op("torch.matrix_exp", "torch.Tensor.matrix_exp", "torch.linalg.matrix_exp", **_TOLERANCE)
def matrix_exp(input):
    """The exponential of square matrices."""
    return jax.scipy.linalg.expm(input) if input.size else input


@op("torch.linalg.matrix_rank")
def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    """The number of singular values above `tol`, or above both atol and rtol times the largest."""
    values = jnp.abs(jnp.linalg.eigvalsh(A, symmetrize_input=False)) if hermitian else jnp.linalg.svdvals(A)
    largest = values.max(-1, initial=0)
    if tol is not None:
        return (values > jnp.broadcast_to(tol, largest.shape)[..., None]).sum(-1)
    limit = smallest_counted(A, largest, atol, rtol)
    return (values > limit[..., None]).sum(-1)


@op("torch.linalg.cond", **_TOLERANCE)
def cond(A, p=None):
    return jnp.linalg.cond(A, p)


@op("torch.linalg.lu", **_TOLERANCE, limits={
    "pivot=False is not converted": lambda pivot: pivot is not None and literal(pivot) is not True,
})  # fmt: skip
def lu(A, *, pivot=True):
    """P, L and U with A = P L U."""
    factors, _, order = lax.linalg.lu(A)
    rows, columns = A.shape[-2:]
    size = min(rows, columns)
    lower = jnp.tril(factors[..., :size], -1) + jnp.eye(rows, size, dtype=A.dtype)
    return jax.nn.one_hot(order, rows, dtype=A.dtype).mT, lower, jnp.triu(factors[..., :size, :])


@helper
class LUFactors(NamedTuple):
    """What torch's `lu_factor` returns; pivots count from 1."""

    LU: jax.Array
    pivots: jax.Array


@op("torch.linalg.lu_factor", **_TOLERANCE, limits={
    "pivot=False is not converted": lambda pivot: pivot is not None and literal(pivot) is not True,
})  # fmt: skip
def lu_factor(A, *, pivot=True):
    """L and U in one matrix, and the rows that were swapped."""
    factors, pivots = jax.scipy.linalg.lu_factor(A)
    return LUFactors(factors, pivots + 1)


@op("torch.linalg.lu_solve", **_TOLERANCE)
def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """X with A X = B (X A = B unless `left`), for A or its adjoint, from A's `lu_factor`."""
    batch = jnp.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    factors = jnp.broadcast_to(LU, (*batch, *LU.shape[-2:]))
    swaps = jnp.broadcast_to(pivots, (*batch, pivots.shape[-1])) - 1
    right = jnp.broadcast_to(B, (*batch, *B.shape[-2:]))
    if left:
        return jax.scipy.linalg.lu_solve((factors, swaps), right, 2 if adjoint else 0)
    # X A = B is A^H X^H = B^H.
    return jax.scipy.linalg.lu_solve((factors, swaps), right.mT.conj(), 0 if adjoint else 2).mT.conj()


@op("torch.lu_solve", "torch.Tensor.lu_solve", **_TOLERANCE)
def lu_solve_of(b, LU_data, LU_pivots):
    return lu_solve(LU_data, LU_pivots, b)


@op("torch.linalg.tensorinv", **_TOLERANCE)
def tensorinv(A, ind=2):
    return jnp.linalg.tensorinv(A, ind)


@op("torch.linalg.tensorsolve", **_TOLERANCE)
def tensorsolve(A, B, dims=None):
    """X with tensordot(A, X, X.ndim) = B; A's axes `dims` are moved to its end first."""
    moved = A if dims is None else jnp.moveaxis(A, dims, range(-len(dims), 0))
    solution = jnp.linalg.solve(moved.reshape(B.size, -1), B.reshape(-1))
    return solution.reshape(moved.shape[B.ndim :])


@op("torch.linalg.vander")
def vander(x, N=None):
    """Powers 0 … N - 1 of each entry, along a new last axis."""
    x = jnp.atleast_1d(x)
    return x[..., None] ** jnp.arange(x.shape[-1] if N is None else N)


@op("torch.linalg.vecdot", **_TOLERANCE)
def vecdot(x, y, dim=-1):
    return (x.conj() * y).sum(dim)
