"""CTC loss against torch: values and gradients, of scores and of the log probabilities themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter.support import ctc

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape)


def assert_same(found, want):
    np.testing.assert_allclose(found, want.detach().numpy(), 1e-9, 1e-11)


LABELS = np.array([[1, 1, 2, 3], [3, 2, 1, 2], [2, 0, 0, 0], [1, 1, 1, 1]])  # repeats need a blank between them
LENGTHS = [3, 4, 0, 4]


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_of_different_lengths(reduction, joined):
    scores, frames = numbers(9, 4, 5), [9, 6, 5, 5]  # the last needs 7 frames: impossible
    labels = np.concatenate([row[:n] for row, n in zip(LABELS, LENGTHS, strict=True)]) if joined else LABELS
    tensor = torch.from_numpy(scores).requires_grad_()
    options = {"blank": 4, "reduction": reduction, "zero_infinity": True}
    want = F.ctc_loss(tensor.log_softmax(-1), torch.from_numpy(labels), tuple(frames), tuple(LENGTHS), **options)
    torch.sin(want).sum().backward()

    def loss(x):
        return ctc.ctc_loss(jax.nn.log_softmax(x), jnp.asarray(labels), jnp.asarray(frames), LENGTHS, **options)

    assert_same(loss(scores), want)
    assert_same(jax.grad(lambda x: jnp.sin(loss(x)).sum())(jnp.asarray(scores)), tensor.grad)


def test_ctc_of_an_impossible_target_is_infinite():
    log_probs = jax.nn.log_softmax(numbers(2, 1, 5))
    assert ctc.ctc_loss(log_probs, jnp.asarray([[1, 2, 3]]), [2], [3]) == jnp.inf
    assert ctc.ctc_loss(log_probs[:, 0], jnp.asarray([1, 2]), jnp.asarray(2), jnp.asarray(2)) < jnp.inf


def test_gradient_at_the_log_probabilities_is_torchs():
    log_probs = F.log_softmax(torch.from_numpy(numbers(9, 4, 5)), -1).requires_grad_()
    frames = [9, 6, 5, 7]
    F.ctc_loss(log_probs, torch.from_numpy(LABELS), tuple(frames), tuple(LENGTHS), blank=4).backward()

    def loss(x):
        return ctc.ctc_loss(x, jnp.asarray(LABELS), jnp.asarray(frames), LENGTHS, blank=4)

    assert_same(jax.grad(loss)(jnp.asarray(log_probs.detach().numpy())), log_probs.grad)


def test_ctc_without_any_labels():
    log_probs = F.log_softmax(torch.from_numpy(numbers(4, 2, 3)), -1)
    for targets in (torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long)):
        want = F.ctc_loss(log_probs, targets, (4, 3), (0, 0), reduction="none")
        found = ctc.ctc_loss(log_probs.numpy(), jnp.asarray(targets.numpy()), [4, 3], [0, 0], reduction="none")
        assert_same(found, want)
