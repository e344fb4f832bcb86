"""Loss functions with PyTorch's arguments and meaning, and the task losses that models pick by name.

Arrays of class scores have the class axis second, as in PyTorch: [n, c] or [n, c, d1, ...]. `reduction` is "mean",
"sum" or "none" ("batchmean" too for `kl_div`).
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

float32 = jnp.float32  # the exact check lifts this to float64


def reduce_loss(loss: Float[Array, "..."], reduction: str) -> Float[Array, "..."]:
    """Apply `reduction`; raises ValueError for an unknown one."""
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")


def cross_entropy(
    input: Float[Array, "n c *d"],
    target: Shaped[Array, "..."],
    weight: Float[Array, " c"] | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Float[Array, "..."]:
    """Cross entropy of scores `input` ([c], [n, c] or [n, c, ...]) with class indices, or with probabilities of
    `input`'s shape. "mean" divides by the summed weight of the targets that count (NaN if none does)."""
    axis = 0 if input.ndim == 1 else 1
    log_probs = jax.nn.log_softmax(input, axis=axis)
    if jnp.issubdtype(target.dtype, jnp.floating):
        return _cross_entropy_probabilities(log_probs, target, weight, reduction, label_smoothing, axis)
    num_classes = input.shape[axis]
    loss, counted = _nll(log_probs, target, weight, ignore_index, axis)
    if label_smoothing:
        smooth = -(log_probs if weight is None else log_probs * _along(weight, log_probs, axis)).sum(axis)
        smooth = jnp.where(target != ignore_index, smooth, 0)
        loss = (1 - label_smoothing) * loss + label_smoothing / num_classes * smooth
    return _weighted_reduction(loss, counted, reduction)


def nll_loss(
    input: Float[Array, "n c *d"],
    target: Int[Array, "n ..."],
    weight: Float[Array, " c"] | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Float[Array, "..."]:
    """Negative log likelihood of class indices under log probabilities `input`."""
    loss, counted = _nll(input, target, weight, ignore_index, 0 if input.ndim == 1 else 1)
    return _weighted_reduction(loss, counted, reduction)


def _along(weight, like, axis):
    return weight.reshape([-1 if i == axis else 1 for i in range(like.ndim)])


def _nll(log_probs, target, weight, ignore_index, axis):
    """The loss per target and the weight with which each counts; both 0 where the target is ignored."""
    counts = target != ignore_index
    index = jnp.where(counts, target, 0)
    picked = jnp.take_along_axis(log_probs, jnp.expand_dims(index, axis), axis=axis).squeeze(axis)
    scale = jnp.ones_like(picked) if weight is None else weight[index].astype(picked.dtype)
    scale = jnp.where(counts, scale, 0)
    return jnp.where(counts, -picked * scale, 0), scale


def _weighted_reduction(loss, counted, reduction):
    return loss.sum() / counted.sum() if reduction == "mean" else reduce_loss(loss, reduction)


def _cross_entropy_probabilities(log_probs, target, weight, reduction, label_smoothing, axis):
    target = (1 - label_smoothing) * target + label_smoothing / log_probs.shape[axis]
    if weight is not None:
        target = target * _along(weight, log_probs, axis)
    loss = -(log_probs * target).sum(axis)
    return loss.sum() / max(loss.size, 1) if reduction == "mean" else reduce_loss(loss, reduction)


def mse_loss(input, target, *, reduction: str = "mean"):
    """Squared difference."""
    return reduce_loss(jnp.square(input - target), reduction)


def l1_loss(input, target, *, reduction: str = "mean"):
    """Absolute difference."""
    distance = input - target
    return reduce_loss(
        distance * jnp.sign(distance), reduction
    )  # at 0 the derivative is 0 as in torch, JAX's |x| has 1


def smooth_l1_loss(input, target, *, reduction: str = "mean", beta: float = 1.0):
    """Quadratic within `beta` of the target, linear beyond (plain L1 for beta 0)."""
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return huber_loss(input, target, reduction=reduction, delta=beta) / beta


def huber_loss(input, target, *, reduction: str = "mean", delta: float = 1.0):
    """Quadratic within `delta` of the target, linear with slope `delta` beyond."""
    distance = jnp.abs(input - target)
    loss = jnp.where(distance < delta, 0.5 * jnp.square(distance), delta * (distance - 0.5 * delta))
    return reduce_loss(loss, reduction)


def binary_cross_entropy(input, target, weight=None, *, reduction: str = "mean"):
    """Binary cross entropy of probabilities; logarithms are cut off at -100 as in PyTorch."""
    positive = jnp.maximum(jnp.log(input), -100.0)
    negative = jnp.maximum(jnp.log1p(-input), -100.0)
    loss = -(target * positive + (1 - target) * negative)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(input, target, weight=None, *, reduction: str = "mean", pos_weight=None):
    """Binary cross entropy of scores; `pos_weight` scales the positive term."""
    positive = target if pos_weight is None else target * pos_weight
    loss = -positive * jax.nn.log_sigmoid(input) - (1 - target) * jax.nn.log_sigmoid(-input)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def kl_div(input, target, *, reduction: str = "mean", log_target: bool = False):
    """Kullback-Leibler divergence of `target` from log probabilities `input`; "batchmean" divides by input.shape[0]."""
    if log_target:
        loss = jnp.exp(target) * (target - input)
    else:
        loss = jax.scipy.special.xlogy(target, target) - target * input
    return loss.sum() / input.shape[0] if reduction == "batchmean" else reduce_loss(loss, reduction)


def fixed_cross_entropy(source, target, num_items_in_batch=None, ignore_index: int = -100, **_):
    """Mean cross entropy, or its sum divided by `num_items_in_batch` where that is given."""
    if num_items_in_batch is None:
        return cross_entropy(source, target, ignore_index=ignore_index)
    return cross_entropy(source, target, ignore_index=ignore_index, reduction="sum") / num_items_in_batch


def ForCausalLMLoss(
    logits: Float[Array, "b t v"],
    labels: Int[Array, "b t"] | None,
    vocab_size: int,
    num_items_in_batch=None,
    ignore_index: int = -100,
    shift_labels: Int[Array, "b t"] | None = None,
    **kwargs,
) -> Float[Array, ""]:
    """Next-token cross entropy in float32: position t predicts label t + 1, the last position predicts nothing."""
    if shift_labels is None:
        if labels is None:
            raise ValueError("ForCausalLMLoss: neither labels nor shift_labels; give one of them")
        ignored = jnp.full_like(labels[..., :1], ignore_index)
        shift_labels = jnp.concatenate((labels[..., 1:], ignored), axis=-1)
    logits = logits.astype(float32).reshape(-1, vocab_size)
    return fixed_cross_entropy(logits, shift_labels.reshape(-1), num_items_in_batch, ignore_index, **kwargs)


def ForMaskedLMLoss(
    logits: Float[Array, "b t v"],
    labels: Int[Array, "b t"],
    vocab_size: int,
    num_items_in_batch=None,
    ignore_index: int = -100,
    **kwargs,
) -> Float[Array, ""]:
    """Cross entropy in float32 of every position that has a label."""
    logits = logits.astype(float32).reshape(-1, vocab_size)
    return fixed_cross_entropy(logits, labels.reshape(-1), num_items_in_batch, ignore_index, **kwargs)


def ForSequenceClassificationLoss(
    labels: Shaped[Array, "..."], pooled_logits: Float[Array, "b c"], config, **kwargs
) -> Float[Array, ""]:
    """Regression, single-label or multi-label loss by `config.problem_type`, or by labels and `config.num_labels`.

    Raises:
        ValueError: for an unknown problem type.
    """
    num_labels, problem = config.num_labels, config.problem_type
    if problem is None:
        indices = jnp.issubdtype(labels.dtype, jnp.integer)
        single = "single_label_classification" if indices else "multi_label_classification"
        problem = "regression" if num_labels == 1 else single
    if problem == "regression":
        if num_labels == 1:
            return mse_loss(pooled_logits.squeeze(), labels.squeeze())
        return mse_loss(pooled_logits, labels)
    if problem == "single_label_classification":
        return fixed_cross_entropy(pooled_logits.reshape(-1, num_labels), labels.reshape(-1), **kwargs)
    if problem == "multi_label_classification":
        return binary_cross_entropy_with_logits(pooled_logits, labels)
    raise ValueError(
        f"config.problem_type is {problem!r}, expected regression, single_label_classification or "
        "multi_label_classification"
    )


def ForQuestionAnsweringLoss(start_logits, end_logits, start_positions, end_positions, **kwargs):
    """Mean of the cross entropies of start and end positions [b] under scores [b, t]; positions past t are ignored."""
    if start_positions is None or end_positions is None:
        return None
    length = start_logits.shape[1]

    def loss(logits, positions):
        positions = positions.squeeze(-1) if positions.ndim > 1 else positions
        return fixed_cross_entropy(logits, jnp.clip(positions, 0, length), ignore_index=length, **kwargs)

    return (loss(start_logits, start_positions) + loss(end_logits, end_positions)) / 2


def ForTokenClassification(logits, labels, config, **kwargs):
    """Cross entropy in float32 of every position that has a label."""
    logits = logits.reshape(-1, config.num_labels).astype(float32)
    return fixed_cross_entropy(logits, labels.reshape(-1), **kwargs)


LOSS_MAPPING = {
    "ForCausalLM": ForCausalLMLoss,
    "ForConditionalGeneration": ForCausalLMLoss,
    "ForMaskedLM": ForMaskedLMLoss,
    "ForQuestionAnswering": ForQuestionAnsweringLoss,
    "ForSequenceClassification": ForSequenceClassificationLoss,
    "ForImageClassification": ForSequenceClassificationLoss,
    "ForVideoClassification": ForSequenceClassificationLoss,
    "ForAudioClassification": ForSequenceClassificationLoss,
    "ForTokenClassification": ForTokenClassification,
}


def _loss_class(loss):
    """The loss as PyTorch's module classes offer it: settings first, arrays on the call."""

    def make(weight=None, **settings):
        return (
            functools.partial(loss, **settings)
            if weight is None
            else functools.partial(_call_weighted, loss, weight, **settings)
        )

    make.__doc__ = f"`{loss.__name__}` with its settings fixed."
    return make


def _call_weighted(loss, weight, input, target, **settings):
    return loss(input, target, weight, **settings)


CrossEntropyLoss = _loss_class(cross_entropy)
NLLLoss = _loss_class(nll_loss)
BCELoss = _loss_class(binary_cross_entropy)
BCEWithLogitsLoss = _loss_class(binary_cross_entropy_with_logits)
MSELoss = functools.partial(functools.partial, mse_loss)
L1Loss = functools.partial(functools.partial, l1_loss)
SmoothL1Loss = functools.partial(functools.partial, smooth_l1_loss)
HuberLoss = functools.partial(functools.partial, huber_loss)
KLDivLoss = functools.partial(functools.partial, kl_div)
