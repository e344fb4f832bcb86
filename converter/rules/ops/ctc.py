"""Connectionist temporal classification (Graves et al. 2006, section 4.1), in log space."""

import jax.numpy as jnp
from jax import lax

from maxcode.converter.rule import helper, op
from maxcode.converter.support import losses


@helper
def padded_targets(targets, lengths):
    """Labels [n, s] of targets that are padded already, or joined one after the other in a vector."""
    if targets.ndim == 2:
        return targets
    starts = jnp.cumsum(lengths) - lengths
    return jnp.take(targets, starts[:, None] + jnp.arange(targets.shape[0]), mode="clip")


@helper
def ctc_alignments(log_probs, labels, label_lengths, input_lengths, blank):
    """-log of the summed probability [n] of all alignments of labels [n, s] with frames [t, n, c].

    The states are the labels with a blank before, between and after them; "never" stands for a probability of 0 and is
    finite, so that no gradient becomes NaN.
    """
    never = -1e30
    count, size = labels.shape
    states = jnp.full((count, 2 * size + 1), blank, labels.dtype).at[:, 1::2].set(labels)
    # A label may be reached from the label before it, unless both are the same.
    skips = jnp.zeros(states.shape, bool).at[:, 3::2].set(labels[:, 1:] != labels[:, :-1])
    scores = jnp.maximum(
        jnp.take_along_axis(log_probs, jnp.broadcast_to(states, (len(log_probs), *states.shape)), 2), never
    )

    def shifted(alpha, by):
        return jnp.pad(alpha, ((0, 0), (by, 0)), constant_values=never)[:, : alpha.shape[1]]

    def step(alpha, frame):
        time, score = frame
        before = jnp.logaddexp(alpha, shifted(alpha, 1))
        before = jnp.logaddexp(before, jnp.where(skips, shifted(alpha, 2), never))
        return jnp.where((time < input_lengths)[:, None], before + score, alpha), None

    # Before the first frame all weight is ahead of the first blank, from where two states can be reached.
    first = jnp.where(jnp.arange(2 * size + 1) < 2, scores[0], never)
    alpha, _ = lax.scan(step, first, (jnp.arange(1, len(log_probs)), scores[1:]))
    end = 2 * label_lengths[:, None]
    last = jnp.take_along_axis(alpha, end, 1)[:, 0]
    label = jnp.where(label_lengths > 0, jnp.take_along_axis(alpha, jnp.maximum(end - 1, 0), 1)[:, 0], never)
    loss = -jnp.logaddexp(last, label)
    return jnp.where(input_lengths > 0, loss, jnp.where(label_lengths > 0, -never, 0))


@op("torch.nn.functional.ctc_loss", "torch.ctc_loss")
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """CTC loss of log probabilities [t, n, c] or [t, c]; "mean" divides each loss by its number of labels first.

    The gradient is torch's: that of scores whose log-softmax `log_probs` is.
    """
    single = log_probs.ndim == 2
    frames = log_probs[:, None] if single else log_probs
    sizes = jnp.asarray(target_lengths).reshape(-1)
    lengths = jnp.asarray(input_lengths).reshape(-1)
    labels = padded_targets(targets, sizes)
    labels = labels.reshape(frames.shape[1], -1)
    labels = labels if labels.shape[1] else jnp.full((frames.shape[1], 1), blank, labels.dtype)
    loss = ctc_alignments(frames, labels, sizes, lengths, blank)
    used = jnp.exp(frames) * (jnp.arange(len(frames))[:, None] < lengths)[..., None]
    loss = loss + (used - lax.stop_gradient(used)).sum((0, 2))
    loss = jnp.where(loss > 1e29, 0 if zero_infinity else jnp.inf, loss)
    if reduction == "mean":
        return (loss / jnp.maximum(sizes, 1)).mean()
    return losses.reduce_loss(loss[0] if single else loss, reduction)
