"""Connectionist temporal classification (Graves et al. 2006, section 4.1), in log space."""

import functools
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from .losses import reduce_loss

_NEVER = -1e30  # log of a probability of 0: finite, so that no gradient becomes NaN


def ctc_loss(
    log_probs: Float[Array, "t *n c"],
    targets: Int[Array, "..."],
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Float[Array, "..."]:
    """Negative log likelihood of target sequences, summed over all alignments with log probabilities [t, n, c].

    Targets are [n, s], or all in one row [sum of lengths]; lengths are [n] each. Without n all are of one sequence.
    "mean" divides each loss by its target's length first. Sequences that do not fit give infinity, or 0 with
    `zero_infinity`. The gradient is torch's: that of scores whose log-softmax `log_probs` is.
    """
    single = log_probs.ndim == 2
    frames = log_probs[:, None] if single else log_probs
    sizes, lengths = jnp.asarray(target_lengths).reshape(-1), jnp.asarray(input_lengths).reshape(-1)
    labels = _in_rows(targets, sizes).reshape(frames.shape[1], -1)
    labels = labels if labels.shape[1] else jnp.full((frames.shape[1], 1), blank, labels.dtype)
    loss = -_log_likelihood(frames, labels, sizes, lengths, blank)
    used = jnp.exp(frames) * (jnp.arange(len(frames))[:, None] < lengths)[..., None]
    loss = loss + (used - lax.stop_gradient(used)).sum((0, 2))
    loss = jnp.where(loss > -0.1 * _NEVER, 0 if zero_infinity else jnp.inf, loss)
    if reduction == "mean":
        return (loss / jnp.maximum(sizes, 1).astype(loss.dtype)).mean()
    return reduce_loss(loss[0] if single else loss, reduction)


def _in_rows(targets: Array, sizes: Array) -> Array:
    """Targets [n, s]: as they are, or out of one row, each sequence's own first."""
    if targets.ndim == 2:
        return targets
    starts = jnp.cumsum(sizes) - sizes
    return jnp.take(targets, starts[:, None] + jnp.arange(targets.shape[0]), mode="clip")


def _log_likelihood(log_probs: Array, labels: Array, sizes: Array, lengths: Array, blank: int) -> Array:
    """The forward recursion over states: a blank before, between and after the labels [n, s]. [n]"""
    count, size = labels.shape
    states = jnp.full((count, 2 * size + 1), blank, labels.dtype).at[:, 1::2].set(labels)
    # A label may be reached from the label before it, unless both are the same.
    skips = jnp.zeros(states.shape, bool).at[:, 3::2].set(labels[:, 1:] != labels[:, :-1])
    places = jnp.broadcast_to(states, (len(log_probs), *states.shape))
    scores = jnp.maximum(jnp.take_along_axis(log_probs, places, 2), _NEVER)

    def shifted(alpha: Array, by: int) -> Array:
        return jnp.pad(alpha, ((0, 0), (by, 0)), constant_values=_NEVER)[:, : alpha.shape[1]]

    def step(alpha: Array, frame: tuple[Array, Array]) -> tuple[Array, None]:
        time, score = frame
        before = jnp.logaddexp(alpha, shifted(alpha, 1))
        before = jnp.logaddexp(before, jnp.where(skips, shifted(alpha, 2), _NEVER))
        return jnp.where((time < lengths)[:, None], before + score, alpha), None

    # Before the first frame all weight is ahead of the first blank, from where two states can be reached.
    first = jnp.where(jnp.arange(2 * size + 1) < 2, scores[0], _NEVER)
    alpha, _ = lax.scan(step, first, (jnp.arange(1, len(log_probs)), scores[1:]))
    end = 2 * sizes[:, None]
    last = jnp.take_along_axis(alpha, end, 1)[:, 0]
    label = jnp.where(sizes > 0, jnp.take_along_axis(alpha, jnp.maximum(end - 1, 0), 1)[:, 0], _NEVER)
    return jnp.where(lengths > 0, jnp.logaddexp(last, label), jnp.where(sizes > 0, _NEVER, 0))


CTCLoss = functools.partial(functools.partial, ctc_loss)
