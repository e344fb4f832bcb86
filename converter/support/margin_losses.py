"""Losses of margins, distances and distributions, with PyTorch's arguments and meaning.

`reduction` is "mean", "sum" or "none"; losses are of any common shape unless a function says otherwise.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .losses import reduce_loss

Distance = Callable[[Array, Array], Array]


def _at_least(x: Array, low: float) -> Array:
    """The larger of both, with the whole gradient where they are equal, as torch's clamp has it."""
    return jnp.where(x >= low, x, low)


def poisson_nll_loss(
    input: Float[Array, "..."],
    target: Float[Array, "..."],
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Negative log likelihood of counts under a Poisson rate, or its logarithm; `full` adds Stirling's term."""
    loss = jnp.exp(input) - target * input if log_input else input - target * jnp.log(input + eps)
    if full:
        large = jnp.where(target > 1, target, 2.0)
        stirling = large * jnp.log(large) - large + 0.5 * jnp.log(2 * math.pi * large)
        loss = loss + jnp.where(target > 1, stirling, 0)
    return reduce_loss(loss, reduction)


def gaussian_nll_loss(
    input: Float[Array, "..."],
    target: Float[Array, "..."],
    var: Float[Array, "..."] | float,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Negative log likelihood under normals of variance `var`, at least eps: of input's shape, or one per row of it.

    The gradient passes where the variance is cut off, as in PyTorch. Raises ValueError for a shape that fits neither.
    """
    var = jnp.broadcast_to(jnp.asarray(var, input.dtype), input.shape) if isinstance(var, int | float) else var
    if var.shape == input.shape[:-1] and var.shape != input.shape:
        var = var[..., None]
    pairs = list(zip(input.shape, var.shape, strict=False))
    if var.ndim != input.ndim or sum(b for a, b in pairs if a != b) not in (0, 1):
        raise ValueError(f"gaussian_nll_loss: var {var.shape} does not fit input {input.shape}")
    var = jax.lax.stop_gradient(jnp.maximum(var, eps)) + (var - jax.lax.stop_gradient(var))
    loss = 0.5 * (jnp.log(var) + jnp.square(input - target) / var)
    return reduce_loss(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def hinge_embedding_loss(input, target, *, margin: float = 1.0, reduction: str = "mean"):
    """The distance where the target is 1, what it lacks of the margin where it is -1, their sum for others."""
    near = jnp.where(target != -1, input, 0)
    far = jnp.where(target != 1, _at_least(margin - input, 0), 0)
    return reduce_loss(near + far, reduction)


def margin_ranking_loss(input1, input2, target, *, margin: float = 0.0, reduction: str = "mean"):
    """What the first input lacks of being a margin above the second (target 1) or below it (-1)."""
    return reduce_loss(_at_least(margin - target * (input1 - input2), 0), reduction)


def soft_margin_loss(input, target, *, reduction: str = "mean"):
    """log(1 + exp(-target * input)) for targets 1 and -1."""
    return reduce_loss(jnp.log1p(jnp.exp(-target * input)), reduction)


def cosine_embedding_loss(
    input1: Float[Array, "*n d"],
    input2: Float[Array, "*n d"],
    target: Array,
    *,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """1 - cos where the target ([n], or of no axes for vectors) is 1, cos above the margin where it is -1."""
    squares = (jnp.square(input1).sum(-1) + 1e-12) * (jnp.square(input2).sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / jnp.sqrt(squares)
    loss = jnp.where(target == 1, 1 - cosine, 0) + jnp.where(target == -1, _at_least(cosine - margin, 0), 0)
    return reduce_loss(loss, reduction)


def multilabel_soft_margin_loss(
    input: Float[Array, "*n c"],
    target: Float[Array, "*n c"],
    weight: Float[Array, " c"] | None = None,
    *,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Mean over classes of the binary cross entropies of scores."""
    loss = -(target * jax.nn.log_sigmoid(input) + (1 - target) * jax.nn.log_sigmoid(-input))
    return reduce_loss((loss if weight is None else loss * weight).mean(-1), reduction)


def multi_margin_loss(
    input: Float[Array, "*n c"],
    target: Int[Array, "..."],
    weight: Float[Array, " c"] | None = None,
    *,
    p: int = 1,
    margin: float = 1.0,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Mean over the other classes of what the target's score lacks of a margin above theirs, to the power 1 or 2.

    Target [n], or [] or [1] for scores [c] or []; "weight" scales by the target's class.
    """
    classes = input.shape[-1] if input.ndim else 1
    scores, labels = input.reshape(-1, classes), target.reshape(-1)
    chosen = jnp.take_along_axis(scores, labels[:, None], axis=1)
    lack = jax.nn.relu(margin - chosen + scores) ** p
    lack = lack if weight is None else lack * weight[labels][:, None]
    loss = jnp.where(jnp.arange(classes) == labels[:, None], 0, lack).sum(1) / classes
    return reduce_loss(loss.reshape(target.shape), reduction)


def multilabel_margin_loss(
    input: Float[Array, "*n c"], target: Int[Array, "*n c"], *, reduction: str = "mean"
) -> Float[Array, "..."]:
    """Sum over a row's target classes, which end at the first -1, and all others of the margin lacking, over c."""
    classes = input.shape[-1] if input.ndim else 1
    scores, labels = input.reshape(-1, classes), target.reshape(-1, classes)
    counts = jnp.cumprod(labels >= 0, axis=1).astype(bool)
    is_label = ((labels[:, :, None] == jnp.arange(classes)) & counts[:, :, None]).any(1)
    chosen = jnp.take_along_axis(scores, jnp.where(counts, labels, 0), axis=1)
    lack = jax.nn.relu(1 - chosen[:, :, None] + scores[:, None, :])
    loss = jnp.where(counts[:, :, None] & ~is_label[:, None, :], lack, 0).sum((1, 2)) / classes
    return reduce_loss(loss.reshape(input.shape[:-1]), reduction)


def triplet_margin_with_distance_loss(
    anchor: Float[Array, "..."],
    positive: Float[Array, "..."],
    negative: Float[Array, "..."],
    *,
    distance_function: Distance | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """What the negative lacks of being a margin farther from the anchor than the positive.

    With `swap` the negative's distance is the smaller of those to anchor and positive. The distance is Euclidean.
    """
    distance = functools.partial(_distance, p=2.0, eps=1e-6) if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    far = jnp.minimum(far, distance(positive, negative)) if swap else far
    return reduce_loss(_at_least(margin + near - far, 0), reduction)


def triplet_margin_loss(
    anchor, positive, negative, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
    reduction: str = "mean",
):  # fmt: skip
    """`triplet_margin_with_distance_loss` for the p-norm of the differences along the last axis."""
    distance = functools.partial(_distance, p=p, eps=eps)
    options = {"distance_function": distance, "margin": margin, "swap": swap, "reduction": reduction}
    return triplet_margin_with_distance_loss(anchor, positive, negative, **options)


def _distance(a: Array, b: Array, p: float, eps: float) -> Array:
    return jnp.linalg.norm(a - b + eps, ord=p, axis=-1)


# The losses as PyTorch's module classes offer them: settings first, arrays on the call.
PoissonNLLLoss = functools.partial(functools.partial, poisson_nll_loss)
GaussianNLLLoss = functools.partial(functools.partial, gaussian_nll_loss)
HingeEmbeddingLoss = functools.partial(functools.partial, hinge_embedding_loss)
MarginRankingLoss = functools.partial(functools.partial, margin_ranking_loss)
SoftMarginLoss = functools.partial(functools.partial, soft_margin_loss)
CosineEmbeddingLoss = functools.partial(functools.partial, cosine_embedding_loss)
MultiLabelSoftMarginLoss = functools.partial(functools.partial, multilabel_soft_margin_loss)
MultiMarginLoss = functools.partial(functools.partial, multi_margin_loss)
MultiLabelMarginLoss = functools.partial(functools.partial, multilabel_margin_loss)
TripletMarginLoss = functools.partial(functools.partial, triplet_margin_loss)
TripletMarginWithDistanceLoss = functools.partial(functools.partial, triplet_margin_with_distance_loss)
