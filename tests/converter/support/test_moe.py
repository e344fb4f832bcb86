"""Grouped experts agree with a loop over the experts, in values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxcode.converter.support.moe import BACKENDS, group_by_expert

TOKENS, K, EXPERTS, IN, OUT = 11, 3, 5, 6, 4


def problem(seed=0):
    rng = np.random.default_rng(seed)
    index = np.stack([rng.permutation(EXPERTS + 1)[:K] for _ in range(TOKENS)])  # index EXPERTS: no expert
    index[index == 2] = 1  # one expert without rows, one token with the same expert twice
    arrays = (
        rng.normal(size=(TOKENS, IN)),
        rng.normal(size=(EXPERTS, OUT, IN)),
        rng.normal(size=(EXPERTS, OUT)),
        rng.normal(size=(TOKENS, K)),
    )
    return jnp.asarray(index), *map(jnp.asarray, arrays)


def grouped(index, x, weight, bias, scores, backend="auto", layout="o i"):
    groups = group_by_expert(index, EXPERTS, backend=backend)
    rows = x[groups.token]
    if layout == "o i":
        y = groups.linear(rows, weight, bias)
    else:
        y = groups.matmul(rows, weight.swapaxes(1, 2)) + bias[groups.expert]
    return groups.combine(y * scores[groups.token, groups.slot, None])


def looped(index, x, weight, bias, scores):
    out = jnp.zeros((TOKENS, OUT), x.dtype)
    for token in range(TOKENS):
        for slot in range(K):
            if (expert := int(index[token, slot])) < EXPERTS:
                out = out.at[token].add((weight[expert] @ x[token] + bias[expert]) * scores[token, slot])
    return out


@pytest.mark.parametrize("layout", ["o i", "i o"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_equals_a_loop_over_the_experts(backend, layout):
    with jax.enable_x64(True):
        index, *arrays = problem()
        expected = looped(index, *arrays)
        actual = jax.jit(lambda *a: grouped(index, *a, backend=backend, layout=layout))(*arrays)
        assert actual.dtype == jnp.float64
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_equal_those_of_a_loop(backend):
    with jax.enable_x64(True):
        index, *arrays = problem(1)
        every = tuple(range(4))
        expected = jax.grad(lambda *a: jnp.sin(looped(index, *a)).sum(), every)(*arrays)
        actual = jax.grad(lambda *a: jnp.sin(grouped(index, *a, backend=backend)).sum(), every)(*arrays)
        for ours, theirs in zip(actual, expected):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)


def test_rows_without_expert_contribute_nothing_even_when_not_finite():
    index = jnp.full((2, 2), EXPERTS)
    groups = group_by_expert(index, EXPERTS)
    assert int(groups.sizes.sum()) == 0
    np.testing.assert_array_equal(groups.combine(jnp.full((4, 3), jnp.nan)), jnp.zeros((2, 3)))


def test_negative_index_is_no_expert():
    groups = group_by_expert(jnp.array([[0, -1]]), EXPERTS)
    assert groups.sizes.tolist() == [1, 0, 0, 0, 0]
    assert groups.valid.tolist() == [True, False]


def test_rows_of_a_token_are_added_in_expert_order():
    groups = group_by_expert(jnp.array([[3, 0, 1]]), EXPERTS)
    rows = jnp.array([[1.0], [2**-24], [-1.0]], jnp.float32)  # experts 0, 1, 3
    assert float(groups.combine(rows)[0, 0]) == 0.0  # (1 + 2^-24) - 1 in float32


def test_leading_axes_are_flattened_and_one_trace_serves_all_routings():
    traces = []

    @jax.jit
    def run(index, x, weight):
        traces.append(1)
        groups = group_by_expert(index, EXPERTS)
        return groups.combine(groups.linear(x[groups.token], weight))

    index, x, weight, *_ = problem()
    first = run(index.reshape(1, TOKENS, K), x, weight)
    run(jnp.zeros_like(index).reshape(1, TOKENS, K), x, weight)
    assert first.shape == (TOKENS, OUT)
    assert len(traces) == 1


def test_unknown_backend_is_refused():
    with pytest.raises(ValueError, match=r"'sparse'.*ragged"):
        group_by_expert(jnp.zeros((1, 1), int), EXPERTS, backend="sparse")
