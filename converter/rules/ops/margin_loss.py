"""Losses of margins, pairs and distributions, by the formulas of torch's documentation."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from maxcode.converter.rule import helper, op
from maxcode.converter.rules.ops.loss import _OLD
from maxcode.converter.rules.ops.normalization import pairwise_distance
from maxcode.converter.support import losses


@helper
def at_least(x, low):
    """The larger of both, with the whole gradient where they are equal, as torch's clamp has it."""
    return jnp.where(x >= low, x, low)


@op("torch.nn.functional.cosine_embedding_loss", "torch.cosine_embedding_loss", limits=_OLD)
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos where the target is 1, and what cos exceeds the margin by where it is -1."""
    axis = jnp.ndim(target)
    product = (input1 * input2).sum(axis)
    squares = [jnp.square(x).sum(axis) + 1e-12 for x in (input1, input2)]
    cosine = product / jnp.sqrt(squares[0] * squares[1])
    loss = jnp.where(target == 1, 1 - cosine, 0) + jnp.where(target == -1, at_least(cosine - margin, 0), 0)
    return losses.reduce_loss(loss, reduction)


@op("torch.nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log var + (input - target)^2 / var) / 2, plus log(2 pi) / 2 with `full`; var is at least eps, gradient aside."""
    var = jnp.asarray(var, input.dtype)
    if var.ndim and var.shape == input.shape[:-1] != input.shape:
        var = var[..., None]
    var = var + lax.stop_gradient(jnp.maximum(var, eps) - var)
    loss = 0.5 * (jnp.log(var) + jnp.square(input - target) / var)
    return losses.reduce_loss(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@op("torch.nn.functional.hinge_embedding_loss", "torch.hinge_embedding_loss", limits=_OLD)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """The input where the target is 1, what it lacks of the margin where it is -1, their sum for others."""
    loss = jnp.where(target != 1, at_least(margin - input, 0), 0) + jnp.where(target != -1, input, 0)
    return losses.reduce_loss(loss, reduction)


@op("torch.nn.functional.margin_ranking_loss", "torch.margin_ranking_loss", limits=_OLD)
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    return losses.reduce_loss(at_least(-target * (input1 - input2) + margin, 0), reduction)


@op("torch.nn.functional.multi_margin_loss", limits=_OLD)
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """Over classes c other than the target y, the mean of max(0, margin - x[y] + x[c])^p, times y's weight."""
    classes = input.shape[-1] if input.ndim else 1
    scores, labels = input.reshape(-1, classes), target.reshape(-1)
    true = jnp.take_along_axis(scores, labels[:, None], axis=1)
    lack = jax.nn.relu(margin - true + scores) ** p
    lack = lack if weight is None else lack * weight[labels][:, None]
    loss = jnp.where(jnp.arange(classes) == labels[:, None], 0, lack).sum(1) / classes
    return losses.reduce_loss(loss.reshape(target.shape), reduction)


@op("torch.nn.functional.multilabel_margin_loss", limits=_OLD)
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Over pairs of a label and a class that is none, the sum of max(0, 1 - x[label] + x[class]) / classes.

    A row of `target` lists its labels up to the first -1.
    """
    classes = input.shape[-1] if input.ndim else 1
    scores, labels = input.reshape(-1, classes), target.reshape(-1, classes)
    counts = jnp.cumprod(labels >= 0, axis=1).astype(bool)
    is_label = ((labels[:, :, None] == jnp.arange(classes)) & counts[:, :, None]).any(1)
    true = jnp.take_along_axis(scores, jnp.where(counts, labels, 0), axis=1)
    lack = jax.nn.relu(1 - true[:, :, None] + scores[:, None, :])
    loss = jnp.where(counts[:, :, None] & ~is_label[:, None, :], lack, 0).sum((1, 2)) / classes
    return losses.reduce_loss(loss.reshape(input.shape[:-1]), reduction)


@op("torch.nn.functional.multilabel_soft_margin_loss", limits=_OLD)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over classes (the last axis) of the binary cross entropies of scores."""
    loss = -(target * jax.nn.log_sigmoid(input) + (1 - target) * jax.nn.log_sigmoid(-input))
    loss = loss if weight is None else loss * weight
    return losses.reduce_loss(loss.sum(-1) / input.shape[-1], reduction)


@op("torch.nn.functional.poisson_nll_loss", "torch.poisson_nll_loss", limits=_OLD)
def poisson_nll_loss(
    input, target, log_input=True, size_average=None, full=False, eps=1e-8, reduce=None, reduction="mean"
):
    """rate - target log(rate), plus Stirling's approximation of log(target!) with `full` where the target exceeds 1."""
    loss = jnp.exp(input) - target * input if log_input else input - target * jnp.log(input + eps)
    if full:
        safe = jnp.where(target > 1, target, 2)
        loss = loss + jnp.where(target > 1, safe * jnp.log(safe) - safe + 0.5 * jnp.log(2 * math.pi * safe), 0)
    return losses.reduce_loss(loss, reduction)


@op("torch.nn.functional.soft_margin_loss", limits=_OLD)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    return losses.reduce_loss(jnp.log1p(jnp.exp(-target * input)), reduction)


@op("torch.nn.functional.triplet_margin_loss", "torch.triplet_margin_loss", limits=_OLD)
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None,
    reduction="mean",
):  # fmt: skip
    """max(0, margin + |anchor - positive| - |anchor - negative|), with `swap` of the nearer of both to the negative."""
    far = pairwise_distance(anchor, negative, p, eps)
    far = jnp.minimum(far, pairwise_distance(positive, negative, p, eps)) if swap else far
    return losses.reduce_loss(at_least(margin + pairwise_distance(anchor, positive, p, eps) - far, 0), reduction)


@op("torch.nn.functional.triplet_margin_with_distance_loss")
def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """`triplet_margin_loss` with a distance of the caller's."""
    distance = distance_function or pairwise_distance
    far = distance(anchor, negative)
    far = jnp.minimum(far, distance(positive, negative)) if swap else far
    return losses.reduce_loss(at_least(margin + distance(anchor, positive) - far, 0), reduction)
