"""Connectionist temporal classification (Graves et al., 2006): the loss of label sequences without alignment."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .losses import reduce_loss


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
    `zero_infinity`.
    """
    if log_probs.ndim == 2:
        lengths = [jnp.asarray(length).reshape(1) for length in (input_lengths, target_lengths)]
        loss = ctc_loss(
            log_probs[:, None], targets.reshape(1, -1), *lengths, blank=blank,
            reduction="mean" if reduction == "mean" else "none", zero_infinity=zero_infinity,
        )  # fmt: skip
        return loss if reduction == "mean" else reduce_loss(loss[0], reduction)
    steps, target_lengths = jnp.asarray(input_lengths), jnp.asarray(target_lengths)
    if targets.ndim == 1:
        targets = _in_rows(targets, target_lengths)
    loss = -_log_likelihood(log_probs, targets, steps, target_lengths, blank)
    loss = jnp.where(jnp.isinf(loss), 0, loss) if zero_infinity else loss
    if reduction == "mean":
        return (loss / jnp.maximum(target_lengths, 1).astype(loss.dtype)).mean()
    return reduce_loss(loss, reduction)


def _in_rows(targets: Array, lengths: Array) -> Array:
    """Targets in one row as [n, size], each row's own first."""
    index = (jnp.cumsum(lengths) - lengths)[:, None] + jnp.arange(targets.size)
    return targets[jnp.minimum(index, max(targets.size - 1, 0))] if targets.size else targets.reshape(lengths.size, 0)


def _log_likelihood(log_probs: Array, targets: Array, steps: Array, lengths: Array, blank: int) -> Array:
    """The forward recursion over states: a blank before, between and after the labels. [n]"""
    batch, size = targets.shape
    labels = jnp.full((batch, 2 * size + 1), blank).at[:, 1::2].set(targets)
    states = jnp.arange(2 * size + 1)
    # A state may be reached from two before it unless it is a blank or repeats the label.
    skips = (labels != blank) & (labels != jnp.roll(labels, 2, axis=1)) & (states >= 2)
    emitted = jnp.take_along_axis(log_probs, labels[None], axis=2)  # [t, n, states]
    never = jnp.asarray(-jnp.inf, log_probs.dtype)
    start = jnp.where(states < 2, emitted[0], never)

    def advance(alpha: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
        time, emits = step
        one = jnp.where(states >= 1, jnp.roll(alpha, 1, axis=1), never)
        two = jnp.where(skips, jnp.roll(alpha, 2, axis=1), never)
        reached = _log_sum((alpha, one, two)) + emits
        return jnp.where((time < steps)[:, None], reached, alpha), None

    alpha, _ = jax.lax.scan(advance, start, (jnp.arange(1, log_probs.shape[0]), emitted[1:]))
    last = jnp.take_along_axis(alpha, 2 * lengths[:, None], axis=1)[:, 0]
    label = jnp.take_along_axis(alpha, jnp.maximum(2 * lengths - 1, 0)[:, None], axis=1)[:, 0]
    return _log_sum((last, jnp.where(lengths > 0, label, never)))


def _log_sum(parts: tuple[Array, ...]) -> Array:
    """log of the sum of exponentials; -inf, with gradient 0, where all are -inf."""
    stacked = jnp.stack(parts)
    highest = jax.lax.stop_gradient(stacked.max(0))
    possible = highest > -jnp.inf
    total = jnp.exp(jnp.where(possible, stacked - jnp.where(possible, highest, 0), 0)).sum(0)
    return jnp.where(possible, jnp.log(total) + jnp.where(possible, highest, 0), -jnp.inf)


CTCLoss = functools.partial(functools.partial, ctc_loss)
