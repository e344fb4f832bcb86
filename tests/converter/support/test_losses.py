"""Losses agree with torch.nn.functional and transformers.loss, in values and gradients."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.loss import loss_utils

from maxcode.converter.support import losses

RNG = np.random.default_rng(0)
N, C = 7, 5
SCORES = RNG.normal(size=(N, C))
INDEX = np.array([0, 4, -100, 2, 2, 1, 3])
WEIGHT = RNG.uniform(0.2, 2.0, size=C)
X, Y = RNG.normal(size=(N, C)), RNG.normal(size=(N, C))
P, Q = RNG.uniform(0.01, 0.99, size=(N, C)), RNG.uniform(0.01, 0.99, size=(N, C))
PROBABILITIES = Q / Q.sum(1, keepdims=True)
LOG_P = np.log(P)
GRID, GRID_INDEX = RNG.normal(size=(2, C, 3, 4)), RNG.integers(0, C, size=(2, 3, 4))

CALLS = {
    "cross_entropy": [
        (SCORES, INDEX, {}),
        (SCORES, INDEX, {"weight": WEIGHT}),
        (SCORES, INDEX, {"label_smoothing": 0.1}),
        (SCORES, INDEX, {"label_smoothing": 0.3, "weight": WEIGHT}),
        (SCORES, abs(INDEX) % C, {"ignore_index": 2, "label_smoothing": 0.1}),
        (SCORES, PROBABILITIES, {}),
        (SCORES, PROBABILITIES, {"label_smoothing": 0.2, "weight": WEIGHT}),
        (GRID, GRID_INDEX, {"weight": WEIGHT, "ignore_index": 1}),
        (SCORES[0], np.array(3), {}),
    ],
    "nll_loss": [(SCORES, INDEX, {}), (SCORES, INDEX, {"weight": WEIGHT}), (GRID, GRID_INDEX, {})],
    "mse_loss": [(X, Y, {})],
    "l1_loss": [(X, Y, {})],
    "smooth_l1_loss": [(X, Y, {}), (X, Y, {"beta": 0.3}), (X, Y, {"beta": 0.0})],
    "huber_loss": [(X, Y, {}), (X, Y, {"delta": 0.4})],
    "binary_cross_entropy": [(P, Q, {}), (P, Q, {"weight": WEIGHT}), (np.array([0.0, 1.0]), np.array([1.0, 0.0]), {})],
    "binary_cross_entropy_with_logits": [(X, Q, {}), (X, Q, {"weight": WEIGHT, "pos_weight": WEIGHT[::-1].copy()})],
    "kl_div": [(LOG_P, PROBABILITIES, {}), (LOG_P, np.log(Q), {"log_target": True})],
}
FLAT = [(name, *call) for name, calls in CALLS.items() for call in calls]


def torch_call(fn, args, settings):
    tensors = [torch.tensor(a) for a in args]
    tensors[0].requires_grad_()
    loss = fn(*tensors, **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in settings.items()})
    (gradient,) = torch.autograd.grad(loss.sum(), tensors[0])
    return loss.detach().numpy(), gradient.numpy()


def jax_call(fn, args, settings):
    with jax.enable_x64(True):
        args = [jnp.asarray(a) for a in args]
        settings = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in settings.items()}
        loss, gradient = jax.jit(jax.value_and_grad(lambda x, *rest: fn(x, *rest, **settings)))(*args)
    return np.asarray(loss), np.asarray(gradient)


@pytest.mark.filterwarnings("ignore:reduction. 'mean':UserWarning")  # kl_div's note about a future release
@pytest.mark.parametrize(("name", "x", "target", "settings"), FLAT)
def test_agrees_with_torch(name, x, target, settings):
    fn = getattr(losses, name)
    with jax.enable_x64(True):
        arrays = {k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in settings.items()}

        def all_reductions(x, target):
            return {r: fn(x, target, **arrays, reduction=r) for r in ("mean", "sum", "none")}

        actual = jax.jit(all_reductions)(jnp.asarray(x), jnp.asarray(target))
        gradient = jax.jit(jax.grad(lambda x, t: all_reductions(x, t)["mean"]))(jnp.asarray(x), jnp.asarray(target))
    for reduction, loss in actual.items():
        all_settings = {**settings, "reduction": reduction}
        expected, slope = torch_call(getattr(torch.nn.functional, name), (x, target), all_settings)
        np.testing.assert_allclose(loss, expected, rtol=1e-12, atol=1e-13)
        if reduction == "mean" and np.isfinite(slope).all() and not np.isin(x, (0.0, 1.0)).any():
            np.testing.assert_allclose(gradient, slope, rtol=1e-11, atol=1e-13)


def test_kl_div_batchmean():
    settings = {"reduction": "batchmean"}
    expected, _ = torch_call(torch.nn.functional.kl_div, (LOG_P, PROBABILITIES), settings)
    np.testing.assert_allclose(jax_call(losses.kl_div, (LOG_P, PROBABILITIES), settings)[0], expected, rtol=1e-12)


def test_only_ignored_targets_give_nan_mean_and_zero_sum():
    ignored = np.full(N, -100)
    assert np.isnan(jax_call(losses.cross_entropy, (SCORES, ignored), {})[0])
    assert jax_call(losses.cross_entropy, (SCORES, ignored), {"reduction": "sum"})[0] == 0


def test_out_of_vocabulary_ignore_index_does_not_reach_the_gather():
    loss, gradient = jax_call(losses.cross_entropy, (SCORES, np.array([0, 1, 2, 3, 4, 99, 99])), {"ignore_index": 99})
    assert np.isfinite(loss)
    assert not gradient[5:].any()


def test_loss_classes_fix_their_settings():
    loss = losses.CrossEntropyLoss(weight=jnp.asarray(WEIGHT, jnp.float32), reduction="sum")
    expected = torch.nn.CrossEntropyLoss(weight=torch.tensor(WEIGHT), reduction="sum")
    actual = loss(jnp.asarray(SCORES, jnp.float32), jnp.asarray(INDEX))
    np.testing.assert_allclose(actual, expected(torch.tensor(SCORES), torch.tensor(INDEX)), rtol=1e-5)
    assert losses.MSELoss()(jnp.ones(2), jnp.zeros(2)) == 1


def test_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match=r"'average'.*mean"):
        losses.mse_loss(jnp.ones(2), jnp.ones(2), reduction="average")


LOGITS, LABELS = RNG.normal(size=(2, 6, C)), RNG.integers(0, C, size=(2, 6))
LABELS[1, 4:] = -100


@pytest.mark.parametrize("name", ["ForCausalLMLoss", "ForMaskedLMLoss"])
@pytest.mark.parametrize("settings", [{}, {"num_items_in_batch": 7}, {"ignore_index": 3}])
def test_language_model_losses(name, settings):
    if "ignore_index" in settings:
        settings = {**settings}
        labels = np.where(LABELS < 0, 3, LABELS)
    else:
        labels = LABELS
    source = getattr(loss_utils, name)
    expected, slope = torch_call(source, (LOGITS.astype(np.float32), labels), {"vocab_size": C, **settings})
    actual, gradient = jax_call(
        getattr(losses, name), (LOGITS.astype(np.float32), labels), {"vocab_size": C, **settings}
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-7)


def test_causal_loss_takes_shifted_labels_and_computes_in_float32(monkeypatch):
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    shifted = jnp.asarray(np.roll(LABELS, -1, 1))
    loss = losses.ForCausalLMLoss(logits, None, C, shift_labels=shifted)
    assert loss.dtype == jnp.float32
    monkeypatch.setattr(losses, "float32", jnp.float64)
    with jax.enable_x64(True):
        assert losses.ForCausalLMLoss(logits, None, C, shift_labels=shifted).dtype == jnp.float64


@pytest.mark.parametrize(
    ("problem", "num_labels", "labels"),
    [
        (None, 1, RNG.normal(size=4)),
        (None, 3, np.array([0, 2, 1, 1])),
        (None, 3, RNG.integers(0, 2, size=(4, 3)).astype(float)),
        ("regression", 3, RNG.normal(size=(4, 3))),
    ],
)
def test_sequence_classification(problem, num_labels, labels):
    logits = RNG.normal(size=(4, num_labels))
    config = types.SimpleNamespace(num_labels=num_labels, problem_type=problem)
    expected = loss_utils.ForSequenceClassificationLoss(torch.tensor(labels), torch.tensor(logits), config)
    config = types.SimpleNamespace(num_labels=num_labels, problem_type=problem)
    with jax.enable_x64(True):
        actual = losses.ForSequenceClassificationLoss(jnp.asarray(labels), jnp.asarray(logits), config)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert config.problem_type == problem


def test_unknown_problem_type_is_refused():
    config = types.SimpleNamespace(num_labels=2, problem_type="ranking")
    with pytest.raises(ValueError, match="ranking"):
        losses.ForSequenceClassificationLoss(jnp.zeros(2), jnp.zeros((2, 2)), config)


def test_question_answering_ignores_positions_past_the_end():
    start, end = RNG.normal(size=(2, 3, 6))
    positions = np.array([[0], [9], [5]]), np.array([[1], [2], [40]])
    expected = loss_utils.ForQuestionAnsweringLoss(*map(torch.tensor, (start, end, *positions)))
    with jax.enable_x64(True):
        actual = losses.ForQuestionAnsweringLoss(*map(jnp.asarray, (start, end, *positions)))
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert losses.ForQuestionAnsweringLoss(start, end, None, None) is None


def test_token_classification():
    config = types.SimpleNamespace(num_labels=C)
    expected = loss_utils.ForTokenClassification(torch.tensor(LOGITS), torch.tensor(LABELS), config)
    actual = losses.ForTokenClassification(jnp.asarray(LOGITS), jnp.asarray(LABELS), config)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_mapping_names_are_the_sources():
    for name, loss in losses.LOSS_MAPPING.items():
        assert loss_utils.LOSS_MAPPING[name].__name__ == loss.__name__
