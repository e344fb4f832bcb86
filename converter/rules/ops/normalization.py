"""Normalisation over axes. Statistics are taken in float32 at least, as torch's own kernels do."""

import math

import jax.numpy as jnp
from jax import lax

from maxcode.converter.arguments import is_true
from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.pointwise import absolute

_RUNNING = {
    "training mode updates running statistics in place; use the module": lambda training, running_mean: (
        is_true(training) and is_true(running_mean)
    )
}

_ZERO_D = ("input",)  # lifted to vectors where they are 0-d


@helper
def accurate(x):
    """`x` in float32 unless it is wider already."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


@helper
def standardize(x, axes, eps):
    """(x - mean) / sqrt(var + eps) over `axes`, in the dtype of `accurate(x)`."""
    x = accurate(x)
    centered = x - x.mean(axes, keepdims=True)
    return centered * lax.rsqrt(jnp.square(centered).mean(axes, keepdims=True) + eps)


@helper
def scale_and_shift(x, weight, bias):
    """x * weight + bias, either of which may be None."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@helper
def per_channel(values, ndim):
    """A vector over the channels (axis 1) shaped to broadcast against a tensor of rank `ndim`; None stays None."""
    return values if values is None else values.reshape(-1, *(1,) * (ndim - 2))


@op("torch.nn.functional.layer_norm", "torch.layer_norm")
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    """Normalise over the last len(normalized_shape) axes."""
    axes = tuple(range(-len(normalized_shape), 0))
    return scale_and_shift(standardize(input, axes, eps), weight, bias).astype(input.dtype)


@op("torch.nn.functional.rms_norm", "torch.rms_norm")
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x^2) + eps) over the last len(normalized_shape) axes; eps defaults to the dtype's."""
    axes = tuple(range(-len(normalized_shape), 0))
    x = accurate(input)
    eps = jnp.finfo(x.dtype).eps if eps is None else eps
    x = x * lax.rsqrt(jnp.square(x).mean(axes, keepdims=True) + eps)
    return scale_and_shift(x, weight, None).astype(input.dtype)


@op("torch.nn.functional.group_norm", "torch.group_norm")
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """Normalise groups of channels; input is [n, c, ...]."""
    grouped = input.reshape(input.shape[0], num_groups, math.prod(input.shape[1:]) // num_groups)
    normal = standardize(grouped, -1, eps).reshape(input.shape)
    channels = (per_channel(weight, input.ndim), per_channel(bias, input.ndim))
    return scale_and_shift(normal, *channels).astype(input.dtype)


@op("torch.nn.functional.batch_norm", limits=_RUNNING)
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalise each channel (axis 1) by the batch's statistics in training, else by the running ones."""
    if training:
        normal = standardize(input, (0, *range(2, input.ndim)), eps)
    else:
        mean, var = per_channel(running_mean, input.ndim), per_channel(running_var, input.ndim)
        normal = (accurate(input) - mean) * lax.rsqrt(var + eps)
    channels = (per_channel(weight, input.ndim), per_channel(bias, input.ndim))
    return scale_and_shift(normal, *channels).astype(input.dtype)


@op(
    "torch.nn.functional.instance_norm",
    limits={"running statistics are not converted": lambda running_mean: is_true(running_mean)},
)
def instance_norm(
    input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5
):
    """Normalise each channel of each sample over its positions; input is [n, c, ...]."""
    normal = standardize(input, tuple(range(2, input.ndim)), eps)
    channels = (per_channel(weight, input.ndim), per_channel(bias, input.ndim))
    return scale_and_shift(normal, *channels).astype(input.dtype)


@op("torch.nn.functional.local_response_norm")
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta."""
    window = (1, size, *(1,) * (input.ndim - 2))
    padding = [(0, 0)] * input.ndim
    padding[1] = (size // 2, (size - 1) // 2)
    total = lax.reduce_window(jnp.square(input), 0.0, lax.add, window, (1,) * input.ndim, padding)
    return input / (k + alpha * total / size) ** beta


@helper
def p_norm(x, p, axis, keepdims):
    """(sum |x|^p)^(1/p) over axes, with gradient 0 (not NaN) where all entries are 0, as in torch.

    No axes are all of them, and a 0-d array has an axis 0 that keeps its shape.
    """
    size = absolute(x)
    axis = None if axis == () or x.ndim == 0 else axis
    if p == jnp.inf:
        return size.max(axis, keepdims=keepdims)
    if p == -jnp.inf:
        return size.min(axis, keepdims=keepdims)
    if p == 0:
        return (x != 0).sum(axis, keepdims=keepdims).astype(size.dtype)
    if p == 1:
        return size.sum(axis, keepdims=keepdims)
    # Powers below 1 have an infinite derivative at 0, where torch's is 0.
    powers = size**p if p > 1 or p < 0 else jnp.where(size > 0, jnp.where(size > 0, size, 1) ** p, 0)
    total = (jnp.square(size) if p == 2 else powers).sum(axis, keepdims=keepdims)
    positive = total > 0
    root = jnp.where(positive, total, 1) ** (1 / p) if p != 2 else jnp.sqrt(jnp.where(positive, total, 1))
    return jnp.where(positive, root, 0 if p > 0 else jnp.inf).astype(size.dtype)


@op("torch.nn.functional.normalize", vectors=_ZERO_D)
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """x / max(||x||_p, eps) along an axis."""
    return input / jnp.maximum(p_norm(input, p, dim, True), eps)


@op("torch.linalg.vector_norm")
def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The p-norm over the given axes (all by default) taken as one vector."""
    x = x if dtype is None else x.astype(dtype)
    return p_norm(x, ord, tuple(dim) if isinstance(dim, list) else dim, keepdim)


@op("torch.norm", "torch.Tensor.norm")
def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """The p-norm over the given axes (all by default) taken as one vector; "fro" is 2, "nuc" sums singular values."""
    input = input if dtype is None else input.astype(dtype)
    axes = tuple(dim) if isinstance(dim, list) else dim
    if p == "nuc":
        return jnp.linalg.norm(input, "nuc", axes or (-2, -1), keepdim)
    return p_norm(input, 2 if p in ("fro", None) else p, axes, keepdim)


@op("torch.linalg.norm")
def linalg_norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """The norm of vectors along one axis, or of matrices along two, as numpy's; all entries without either."""
    A = A if dtype is None else A.astype(dtype)
    axes = (dim,) if isinstance(dim, int) else dim
    if ord is None or (A.ndim == 1 if axes is None else len(axes) == 1):
        return p_norm(A, 2 if ord is None else ord, axes, keepdim)
    return matrix_norm(A, ord, (-2, -1) if axes is None else axes, keepdim)


@op("torch.linalg.matrix_norm")
def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """The norm of matrices along two axes: "fro", "nuc", 2 and -2 of singular values, 1 and inf of sums of sizes."""
    A = A if dtype is None else A.astype(dtype)
    if ord == "fro":
        return p_norm(A, 2, tuple(dim), keepdim)
    if ord == "nuc" or abs(ord) == 2:
        return jnp.linalg.norm(A, ord, tuple(dim), keepdims=keepdim)
    summed, other = (axis % A.ndim for axis in (dim if abs(ord) == 1 else dim[::-1]))
    sums = absolute(A).sum(summed, keepdims=True)
    found = sums.max(other, keepdims=True) if ord > 0 else sums.min(other, keepdims=True)
    return found if keepdim else found.squeeze((summed, other))


@op("torch.cosine_similarity", "torch.nn.functional.cosine_similarity", vectors=("x1", "x2"))
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along an axis; each norm is at least eps."""
    x1, x2 = jnp.broadcast_arrays(x1, x2)
    n1, n2 = p_norm(x1, 2, dim, True), p_norm(x2, 2, dim, True)
    return ((x1 / jnp.maximum(n1, eps)) * (x2 / jnp.maximum(n2, eps))).sum(dim)


@op("torch.pairwise_distance", "torch.nn.functional.pairwise_distance")
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    return p_norm(x1 - x2 + eps, p, -1, keepdim)


@op("torch.cdist")
def cdist(x1, x2, p=2.0, compute_mode=None):
    """Distances between every row of x1 [..., n, d] and every row of x2 [..., m, d]."""
    return p_norm(x1[..., :, None, :] - x2[..., None, :, :], p, -1, False)


@op("torch.nn.functional.pdist", "torch.pdist")
def pdist(input, p=2.0):
    """Distances between every two rows of [n, d], as the vector of the pairs (0, 1), (0, 2), ... (n - 2, n - 1)."""
    first, second = jnp.triu_indices(input.shape[0], 1)
    return p_norm(input[first] - input[second], p, -1, False)


@op("torch.dist", "torch.Tensor.dist")
def dist(input, other, p=2):
    return p_norm(input - other, p, None, False)
