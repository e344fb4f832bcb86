"""What modules widen to float32, compared by size."""

from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from maxcode.evaluator.operations import module_names, not_widened, traced_operations


class Part(nnx.Module):
    def __call__(self, x):
        wide = x.astype(jnp.float32) * 2

        def step(carry, _):
            return carry + x[0].astype(jnp.float32), None

        carry, _ = jax.lax.scan(step, jnp.zeros(x.shape[1:]), length=3)
        return (wide + carry).astype(x.dtype)


class Net(nnx.Module):
    def __init__(self):
        self.part = Part()

    def __call__(self, x):
        return self.part(x)


def test_casts_in_a_loop_count_as_often_as_it_runs():
    model = Net()
    _, widened = traced_operations(model, {"x": jnp.ones((4, 8), jnp.bfloat16)})
    assert widened == {"part": Counter({32: 1, 8: 3})}
    assert not_widened(widened, {"part": {"32": 1, "8": 3}}, module_names(model)) == []


@pytest.mark.parametrize(
    ("ours", "source", "fault"),
    [
        ({"a": {32: 1}}, {"a": {"32": 1}}, False),
        ({"a": {32: 2, 8: 1}}, {"a": {"32": 1}}, False),  # more is wider, which shows at the boundary if anywhere
        ({"a": {32: 1}}, {"a": {"32": 2}}, True),
        ({"a": {64: 1}}, {"a": {"32": 1}}, True),  # another array does not stand for it
        ({}, {"a": {"32": 1}}, True),
        ({"a": {24: 1}}, {"a": {"8": 2, "4": 2}}, False),  # slices of several sizes, all rows at once
        ({"a": {16: 1}}, {"a": {"8": 2, "4": 2}}, True),
        ({"a": {32: 1}}, {"a.gone": {"32": 1}}, False),  # a module that is a function here
    ],
)
def test_fewer_of_a_size_is_a_fault(ours, source, fault):
    found = not_widened({fqn: Counter(sizes) for fqn, sizes in ours.items()}, source, ["", "a"])
    assert bool(found) is fault
    assert all("to float32, expected" in text for text in found)
