"""Filters leave the tokens and probabilities that transformers' leave."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.generation import logits_process

from maxcode.converter.support.sampling import Sampling, candidates, choose, penalise_seen

LOGITS = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32) * 3


def theirs(settings):
    scores = torch.from_numpy(LOGITS)
    ids = torch.zeros(3, 1, dtype=torch.long)
    if settings.get("temperature", 1.0) != 1.0:
        scores = logits_process.TemperatureLogitsWarper(settings["temperature"])(ids, scores)
    if settings.get("top_k"):
        scores = logits_process.TopKLogitsWarper(settings["top_k"])(ids, scores)
    if settings.get("top_p", 1.0) < 1.0:
        scores = logits_process.TopPLogitsWarper(settings["top_p"])(ids, scores)
    if settings.get("min_p"):
        scores = logits_process.MinPLogitsWarper(settings["min_p"])(ids, scores)
    return scores.softmax(-1).numpy()


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 0},
        {"temperature": 0.6, "top_k": 0},
        {"top_k": 5},
        {"top_k": 500},
        {"top_k": 0, "top_p": 0.8},
        {"top_k": 0, "top_p": 1e-9},
        {"top_k": 0, "min_p": 0.1},
        {"top_k": 20, "top_p": 0.7, "min_p": 0.05, "temperature": 1.7},
    ],
)
def test_candidates_are_those_of_transformers(settings):
    sampling = Sampling.from_settings({"do_sample": True} | settings)
    logits, ids = candidates(jnp.asarray(LOGITS), sampling.plan, sampling.numbers())
    ours = np.zeros_like(LOGITS)
    np.put_along_axis(ours, np.asarray(ids), np.asarray(jax.nn.softmax(logits, axis=-1)), axis=-1)
    np.testing.assert_allclose(ours, theirs(settings), atol=1e-6)
    np.testing.assert_array_equal(ours > 0, theirs(settings) > 0)


def test_draws_follow_the_probabilities():
    sampling = Sampling.from_settings({"do_sample": True, "top_k": 4, "temperature": 2.0})
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = jax.jit(jax.vmap(lambda key: choose(jnp.asarray(LOGITS), sampling.plan, sampling.numbers(), key)))
    counts = np.stack([np.bincount(row, minlength=50) for row in np.asarray(draw(keys)).T]) / 4000
    np.testing.assert_allclose(counts, theirs({"temperature": 2.0, "top_k": 4}), atol=0.04)


def test_repetition_penalty_is_that_of_transformers():
    ids = np.array([[1, 2, 2], [7, 8, 9], [0, 0, 49]])
    seen = np.zeros((3, 50), bool)
    np.put_along_axis(seen, ids, True, axis=1)
    want = logits_process.RepetitionPenaltyLogitsProcessor(1.3)(torch.from_numpy(ids), torch.from_numpy(LOGITS))
    got = penalise_seen(jnp.asarray(LOGITS), jnp.asarray(seen), jnp.float32(1.3))
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)


def test_greedy_takes_the_highest_in_any_dtype():
    sampling = Sampling.from_settings({})
    tokens = choose(jnp.asarray(LOGITS, jnp.bfloat16), sampling.plan, sampling.numbers(), None)
    np.testing.assert_array_equal(tokens, np.asarray(jnp.asarray(LOGITS, jnp.bfloat16).argmax(-1)))
    assert tokens.dtype == jnp.int32


def test_settings_have_the_files_names_and_forms():
    sampling = Sampling.from_settings({"eos_token_id": 3, "pad_token_id": None, "top_k": None, "max_length": 20})
    assert (sampling.eos_token_id, sampling.pad_token_id, sampling.top_k) == ((3,), 3, 50)
    assert Sampling.from_settings({"do_sample": True, "temperature": 0}).do_sample is False
    assert Sampling.from_settings({"temperature": 0.3}).plan == Sampling.from_settings({"temperature": 0.7}).plan
    with pytest.warns(UserWarning, match="num_beams"):
        Sampling.from_settings({"num_beams": 4, "typical_p": 1.0, "forced_bos_token_id": None})
    with pytest.warns(UserWarning, match="forced_bos_token_id"):
        Sampling.from_settings({"forced_bos_token_id": 0})
