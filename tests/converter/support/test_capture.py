"""Hidden states that layers record, against a plain list, in scanned stacks too."""

from types import SimpleNamespace

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from maxcode.converter.support.capture import CapturingStack, capture_outputs, records_output
from maxcode.converter.support.layers import Linear, Module

WIDTH, DEPTH = 4, 5


@flax.struct.dataclass
class Record:
    last_hidden_state: jax.Array | None = None
    hidden_states: tuple | None = None


class Layer(Module):
    def __init__(self, config, *, rngs):
        self.proj = Linear(WIDTH, WIDTH, axes=("embed", "mlp"), config=config, rngs=rngs)

    @records_output()
    def __call__(self, x):
        return jnp.tanh(self.proj(x))


class Pair(Layer):
    @records_output(1, initial=False)
    def __call__(self, x):
        return x, jnp.tanh(self.proj(x))


def settings(**changes):
    defaults = {"dtype": "float32", "weight_dtype": "float32", "matmul_precision": "highest", "scan_layers": True}
    return SimpleNamespace(**defaults | {"remat_policy": "none", "tie_last_hidden_states": None} | changes)


class Tower(Module):
    def __init__(self, config, layer=Layer, *, rngs):
        self.config = config
        self.layers = CapturingStack(lambda i, *, rngs: layer(config, rngs=rngs), DEPTH, config=config, rngs=rngs)

    def step(self, _, layer, x):
        return layer(x)

    @capture_outputs(tie_last_hidden_states=False)
    def __call__(self, x, *, output_hidden_states=False):
        return Record(last_hidden_state=self.layers.run(self.step, x) * 2)


class PairTower(Tower):
    def step(self, _, layer, x):
        return layer(x)[1]


class Tied(Tower):
    @capture_outputs()
    def __call__(self, x, *, output_hidden_states=False):
        return Record(last_hidden_state=self.layers.run(self.step, x) * 2)


class Outer(Module):
    """Runs a tower that collects for itself; what is recorded there is not the outer model's."""

    def __init__(self, config, *, rngs):
        self.config, self.tower, self.last = config, Tower(config, rngs=rngs), Layer(config, rngs=rngs)

    @capture_outputs(tie_last_hidden_states=False)
    def __call__(self, x, *, output_hidden_states=False):
        return Record(last_hidden_state=self.last(self.tower(x).last_hidden_state))


def expected(model, x):
    states = [x]
    for layer in model.layers:
        states.append(jnp.tanh(layer.proj(states[-1])))
    return states


X = jnp.asarray(np.random.default_rng(0).normal(size=(2, WIDTH)), jnp.float32)


@pytest.mark.parametrize("changes", [{}, {"scan_layers": False}, {"remat_policy": "full"}])
def test_all_layers_and_the_first_input_are_collected(changes):
    model = Tower(settings(**changes), rngs=nnx.Rngs(0))
    record = jax.jit(lambda x: model(x, output_hidden_states=True))(X)
    assert len(record.hidden_states) == DEPTH + 1
    for state, wanted in zip(record.hidden_states, expected(model, X), strict=True):
        np.testing.assert_allclose(state, wanted, atol=1e-6)


def test_a_scanned_stack_stays_scanned_after_its_first_layer():
    model = Tower(settings(), rngs=nnx.Rngs(0))
    text = str(jax.make_jaxpr(lambda x: model(x, output_hidden_states=True))(X))
    assert text.count("tanh") == 2


def test_nobody_asks():
    model = Tower(settings(), rngs=nnx.Rngs(0))
    assert model(X).hidden_states is None
    assert model(X, output_hidden_states=None).hidden_states is None


def test_an_item_of_the_output_without_the_first_input():
    model = PairTower(settings(), Pair, rngs=nnx.Rngs(0))
    states = model(X, output_hidden_states=True).hidden_states
    assert len(states) == DEPTH
    np.testing.assert_allclose(states[0], expected(model, X)[1], atol=1e-6)


@pytest.mark.parametrize(("tied", "factor"), [(None, 2), (True, 2), (False, 1)])
def test_the_last_state_is_the_records_own_unless_the_configuration_says_not(tied, factor):
    model = Tied(settings(tie_last_hidden_states=tied), rngs=nnx.Rngs(0))
    states = model(X, output_hidden_states=True).hidden_states
    np.testing.assert_allclose(states[-1], factor * expected(model, X)[-1], atol=1e-6)


def test_an_inner_model_keeps_its_states_to_itself():
    model = Outer(settings(), rngs=nnx.Rngs(0))
    states = model(X, output_hidden_states=True).hidden_states
    assert len(states) == 2
    np.testing.assert_allclose(states[0], 2 * expected(model.tower, X)[-1], atol=1e-6)


def test_gradients_flow_through_collected_states():
    model = Tower(settings(), rngs=nnx.Rngs(0))
    grad = jax.grad(lambda x: sum((s**2).sum() for s in model(x, output_hidden_states=True).hidden_states))(X)
    plain = jax.grad(lambda x: sum((s**2).sum() for s in expected(model, x)))(X)
    np.testing.assert_allclose(grad, plain, atol=1e-5)


@pytest.mark.parametrize(("wanted", "kept"), [(-2, {DEPTH - 1}), ([1, -1], {1, DEPTH}), ([9], set())])
def test_only_the_states_asked_for_are_held(wanted, kept):
    tower, x = Tower(settings(), rngs=nnx.Rngs(0)), jnp.ones((2, WIDTH))
    every = tower(x, output_hidden_states=True).hidden_states
    some = tower(x, output_hidden_states=wanted).hidden_states
    assert {i for i, state in enumerate(some) if state is not None} == kept
    for i in kept:
        np.testing.assert_array_equal(some[i], every[i])
