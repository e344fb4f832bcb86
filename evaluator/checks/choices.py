"""Replaying the oracle's discrete choices (top-k, argmax), so that a low-precision run differs by rounding only."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from maxcode.evaluator.package import named_outputs, split_static, static_key, to_jax
from maxcode.evaluator.recording import Case


class Replay:
    """An unscanned model whose top-k and argmax calls, in trace order, take the recorded indices.

    `made` and `flipped` count rows of choices and those where JAX alone would have chosen another set.
    A call takes the next record of its shape; a call of a shape that no record has chooses for itself.
    """

    def __init__(self, model: nnx.Module):
        self.model, (self.graph, self.state) = model, nnx.split(model)
        self.made = self.flipped = 0
        self._functions: dict[str, Any] = {}

    def __call__(self, inputs: dict[str, Any], case: Case) -> dict[str, np.ndarray]:
        traced, static = split_static(self.model, inputs)
        choices = recorded_choices(case)
        key = repr((static_key(static), [c.shape for c in choices], jax.tree.map(jnp.shape, traced)))
        if key not in self._functions:
            self._functions[key] = jax.jit(lambda s, t, c: self._forward(s, t, c, static))
        outputs, counted = self._functions[key](self.state, to_jax(traced), choices)
        self.made += sum(int(made) for made, _ in counted)
        self.flipped += sum(int(flipped) for _, flipped in counted)
        return {name: np.asarray(value) for name, value in outputs.items()}

    def _forward(self, state, traced, choices, static):
        with replaced_choices(choices) as counted:
            outputs = named_outputs(nnx.merge(self.graph, state)(**traced, **static))
        return outputs, counted


def recorded_choices(case: Case) -> list[jax.Array]:
    """Indices of every recorded choice in call order."""
    return [jnp.asarray(case.read(choice["indices"])) for choice in case.record.get("choices", ())]


@contextlib.contextmanager
def replaced_choices(choices: list[jax.Array]) -> Iterator[list[tuple[int, jax.Array]]]:
    """While active, `jax.lax.top_k`, `jnp.argmax` and their aliases in jax.lax return recorded indices."""
    pending, counted = list(choices), []
    top_k, argmax = jax.lax.top_k, jnp.argmax

    def next_choice(shape):
        # A backend may leave out choices of the source (the maximum inside a softmax) or make some of its own: the next
        # record of the call's shape is taken, those before it are passed over, and without one nothing is replayed.
        ahead = next((i for i, choice in enumerate(pending) if choice.shape == shape), None)
        if ahead is None:
            return None
        del pending[:ahead]
        return pending.pop(0)

    def replayed_top_k(operand, k, **options):
        values, indices = top_k(operand, k, **options)
        chosen = next_choice(indices.shape)
        if chosen is None:
            return values, indices
        counted.append((int(np.prod(indices.shape[:-1])), (jnp.sort(indices) != jnp.sort(chosen)).any(-1).sum()))
        return jnp.take_along_axis(operand, chosen, -1), chosen.astype(indices.dtype)

    def replayed_argmax(a, axis=None, **options):
        indices = argmax(a, axis, **options)
        chosen = next_choice(indices.shape)
        if chosen is None:
            return indices
        counted.append((indices.size, (indices != chosen).sum()))
        return chosen.astype(indices.dtype)

    jax.lax.top_k, jnp.argmax = replayed_top_k, replayed_argmax
    try:
        yield counted
    finally:
        jax.lax.top_k, jnp.argmax = top_k, argmax
