"""Scanned stacks against the same stacks run layer by layer."""

import contextlib
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from maxcode.converter.support import random
from maxcode.converter.support.layers import Buffer, Dropout, LayerNorm, Linear, Module, constant
from maxcode.converter.support.shared import SharedStates
from maxcode.converter.support.stack import LayerStack

WIDTH = 8


def settings(**changes):
    defaults = {"dtype": "float32", "weight_dtype": "float32", "matmul_precision": "default", "scan_layers": True}
    return SimpleNamespace(**defaults | {"remat_policy": "none"} | changes)


class Block(Module):
    def __init__(self, config, layer_idx, kind="a", *, rngs):
        self.layer_idx, self.kind = layer_idx, kind
        self.norm = LayerNorm(WIDTH, config=config)
        self.proj = Linear(WIDTH, WIDTH, axes=("embed", "mlp"), config=config, rngs=rngs)
        self.dropout = Dropout(0.5)
        self.table = constant(np.arange(WIDTH, dtype=np.float32))

    def __call__(self, x, scale=1.0):
        y = self.proj(self.norm(x) + self.table[...])
        y = jnp.tanh(y) if self.kind == "a" else jnp.sin(y)
        return x + self.dropout(y) * scale


class Net(Module):
    def __init__(self, config, kinds, *, rngs):
        self.kinds = kinds

        def make(layer_idx, *, rngs):
            return Block(config, layer_idx, kinds[layer_idx], rngs=rngs)

        self.layers = LayerStack(make, len(kinds), config=config, rngs=rngs)


def pair(kinds, **changes):
    """The same net scanned and unrolled."""
    return (
        Net(settings(**changes), kinds, rngs=nnx.Rngs(0)),
        Net(settings(**changes, scan_layers=False), kinds, rngs=nnx.Rngs(0)),
    )


def run(net, *carry, step=None, **options):
    def apply(state, carry):
        return nnx.merge(graph, state).layers.run(step or (lambda i, layer, x: layer(x)), *carry, **options)

    graph, state = nnx.split(net)
    return jax.jit(apply)(state, carry)


def scans(net, *carry, step=None, **options):
    """Lengths of the scans in the traced call."""
    graph, state = nnx.split(net)

    def apply(state, carry):
        return nnx.merge(graph, state).layers.run(step or (lambda i, layer, x: layer(x)), *carry, **options)

    jaxpr = jax.make_jaxpr(apply)(state, carry)
    return [eqn.params["length"] for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]


def close(a, b, atol=1e-6):
    leaves_a, leaves_b = jax.tree.leaves(a), jax.tree.leaves(b)
    assert len(leaves_a) == len(leaves_b)
    for x, y in zip(leaves_a, leaves_b, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(np.asarray(x, np.float64), np.asarray(y, np.float64), atol=atol, rtol=1e-5)


X = jnp.linspace(-1, 1, 3 * WIDTH).reshape(3, WIDTH)


@pytest.mark.parametrize(
    ("kinds", "lengths"),
    [("aaaa", [4]), ("abababa", [3]), ("baabaabaa", [3]), ("bbabababb", [3]), ("abc", []), ("a", [])],
)
def test_scanned_equals_unrolled(kinds, lengths):
    scanned, unrolled = pair(kinds)
    assert scans(scanned, X) == lengths
    assert scans(unrolled, X) == []
    assert unrolled.layers.reason == "scan_layers is False"
    assert (scanned.layers.reason is None) == bool(lengths)
    close(run(scanned, X), run(unrolled, X))


def test_layers_are_numbered_and_located():
    net, flat = pair("bababaa")
    for i in range(7):
        layer = net.layers[i]
        assert (layer.layer_idx, layer.kind) == (i, net.kinds[i])
        close(layer.proj.kernel[...], flat.layers[i].proj.kernel[...])
        assert layer.proj.kernel.get_metadata()["out_sharding"] == ("embed", "mlp")
    assert net.layers.locate(4) == (("periods", 0), 2)
    assert net.layers.periods[0].proj.kernel.get_metadata()["out_sharding"] == ("layers", "embed", "mlp")
    assert [layer.layer_idx for layer in net.layers[1:3]] == [1, 2]
    assert len(list(net.layers)) == 7
    with pytest.raises(IndexError, match="layer 7 of 7"):
        net.layers[7]


def test_key_refines_the_periods():
    scanned, unrolled = pair("a" * 8)
    factors = [1.0, 1.0, 3.0] * 3

    def step(i, layer, x):
        return layer(x, factors[i])

    assert scans(scanned, X, step=step, key=lambda i: factors[i]) == [2]
    close(run(scanned, X, step=step, key=lambda i: factors[i]), run(unrolled, X, step=step))


def test_a_range_of_layers():
    scanned, unrolled = pair("ababab")
    close(run(scanned, X, start=1, stop=5), run(unrolled, X, start=1, stop=5))


def test_carry_that_starts_as_none():
    scanned, unrolled = pair("a" * 6)

    def step(i, layer, x, bias):
        x = layer(x)
        return x, (x.mean() if bias is None else bias + x.mean())

    def first(net):
        graph, state = nnx.split(net)
        return jax.jit(lambda s: nnx.merge(graph, s).layers.run(step, X, None))(state)

    close(first(scanned), first(unrolled))
    assert scans(scanned, X, step=lambda i, layer, x: step(i, layer, x, None)[0]) == [6]


def test_carry_that_changes_dtype_once():
    scanned, unrolled = pair("a" * 5)
    x = X.astype(jnp.bfloat16)
    assert scans(scanned, x) == [4]
    assert run(scanned, x).dtype == jnp.float32
    close(run(scanned, x), run(unrolled, x), atol=1e-3)


def test_carry_that_grows_is_unrolled():
    scanned, unrolled = pair("a" * 4)

    def step(i, layer, x):
        return jnp.concatenate([layer(x), x[:1]])

    close(run(scanned, X, step=step), run(unrolled, X, step=step))


def test_states_that_layers_share_are_carried():
    """Two layers store what all later ones read: the first of them by themselves, the rest of the stack in one scan."""

    def run(net):
        def step(i, layer, x, shared):
            if layer.kind == "b":
                shared["seen"] = x
            return layer(x, 0.5) + shared.get("seen", 0), shared

        return net.layers.run(step, jnp.ones((2, WIDTH)), SharedStates(), key=lambda i: net.kinds[i])

    scanned, unrolled = pair("abaabaaaaaaaa")
    (x, shared), (expected, expected_shared) = run(scanned), run(unrolled)
    np.testing.assert_allclose(x, expected, rtol=1e-5)
    np.testing.assert_allclose(shared["seen"], expected_shared["seen"], rtol=1e-5)
    assert not scanned.layers.note.text


def test_a_layer_that_uses_its_number_is_unrolled():
    scanned, unrolled = pair("a" * 4)

    def step(i, layer, x):
        return layer(x) / (layer.layer_idx + 1)

    close(run(scanned, X, step=step), run(unrolled, X, step=step))
    assert "computes with its own number" in scanned.layers.note.text


def test_collected_values_come_in_layer_order():
    scanned, unrolled = pair("abababa")

    def step(i, layer, x):
        y = layer(x)
        return y, {"in": x, "mean": y.mean(), "nothing": None}

    (x, got), (y, expected) = (run(net, X, step=step, collect=True) for net in (scanned, unrolled))
    assert len(got) == 7
    close((x, got), (y, expected))


@pytest.mark.parametrize("policy", ["none", "full", pytest.param("minimal", marks=pytest.mark.slow)])
def test_gradients(policy):
    scanned, unrolled = pair("babababa", remat_policy=policy)

    def gradients(net):
        graph, state = nnx.split(net)

        def loss(s):
            return (nnx.merge(graph, s).layers.run(lambda i, layer, x: layer(x), X) ** 2).sum()

        return nnx.merge(graph, jax.jit(jax.grad(loss))(state))

    a, b = gradients(scanned), gradients(unrolled)
    for i in range(8):
        close(a.layers[i].proj.kernel[...], b.layers[i].proj.kernel[...], atol=1e-4)
        assert jnp.abs(a.layers[i].proj.kernel[...]).max() > 0


@pytest.mark.parametrize("policy", ["none", "full"])
def test_dropout_draws_per_layer(policy):
    scanned, unrolled = (net.train() for net in pair("ababa", remat_policy=policy))

    def compiled(net):
        graph, state = nnx.split(net)

        def step(i, layer, x):
            y = layer(x)
            return y, y - x

        def apply(state, key):
            with random.key_scope(key):
                return nnx.merge(graph, state).layers.run(step, X, collect=True)

        program = jax.jit(apply)
        return lambda key: program(state, jax.random.key(key))

    call = compiled(scanned)
    (x, steps), other = call(1), call(2)
    close((x, steps), compiled(unrolled)(1))
    dropped = [np.asarray(step == 0) for step in steps]
    assert any((a != b).any() for a, b in itertools.pairwise(dropped))
    assert jnp.abs(x - other[0]).max() > 0
    with pytest.raises(RuntimeError, match="key scope"):
        run(scanned, X)


def test_unknown_remat_policy():
    with pytest.raises(ValueError, match="'everything'"):
        run(pair("aa", remat_policy="everything")[0], X)


class Counting(Module):
    def __init__(self, *, rngs):
        self.seen = Buffer(jnp.zeros(()))

    def __call__(self, x):
        self.seen.set_value(self.seen[...] + x.sum())
        return x + 1


def test_buffers_of_scanned_layers_are_updated():
    stack = LayerStack(lambda layer_idx, *, rngs: Counting(rngs=rngs), 3, config=settings(), rngs=nnx.Rngs(0))
    graph, state = nnx.split(stack)

    def apply(state, start):
        merged = nnx.merge(graph, state)
        merged.run(lambda i, layer, x: layer(x), jnp.zeros(2), start=start)
        return nnx.state(merged)

    assert jax.jit(apply, static_argnums=1)(state, 0)["periods"][0]["seen"][...].tolist() == [0, 2, 4]
    assert jax.jit(apply, static_argnums=1)(state, 2)["periods"][0]["seen"][...].tolist() == [0, 0, 0]
    assert jax.jit(apply, static_argnums=1)(state, 1)["periods"][0]["seen"][...].tolist() == [0, 0, 2]


class Memory:
    """A stand-in cache: each layer keeps a running sum; layers of a scanned period are stored stacked."""

    recording = False

    def __init__(self, rows):
        self.rows, self._opened = rows, None  # layer number -> array

    def add(self, x, layer_idx):
        if self._opened is None:
            self.rows[layer_idx] = self.rows[layer_idx] + x
            return self.rows[layer_idx]
        array, index = self._opened
        row = jax.lax.dynamic_index_in_dim(array, index, keepdims=False) + x
        self._opened = (jax.lax.dynamic_update_index_in_dim(array, row, index, 0), index)
        return row

    def open(self, groups):
        return [jnp.stack([self.rows[i] for i in group]) for group in groups]

    def close(self, groups, state):
        for group, array in zip(groups, state, strict=True):
            self.rows |= dict(zip(group, array, strict=True))

    @contextlib.contextmanager
    def bound(self, state, position, index):
        self._opened = (state[position], index)
        bound = SimpleNamespace(state=None)
        yield bound
        bound.state = [*state[:position], self._opened[0], *state[position + 1 :]]
        self._opened = None


class Recorder:
    recording = True

    def __init__(self):
        self.groups, self.seen = [], []

    def add(self, x, layer_idx):
        self.seen.append(layer_idx)
        return x

    @contextlib.contextmanager
    def recorded(self, layers):
        self.groups.append(layers)
        yield


def test_cache_is_opened_layer_by_layer():
    kinds = "bababaa"
    scanned, unrolled = pair(kinds)

    def call(net):
        graph, state = nnx.split(net)

        def apply(state, rows):
            cache, model = Memory(dict(rows)), nnx.merge(graph, state)
            for _ in range(2):
                x = model.layers.run(lambda i, layer, x: layer(x) + cache.add(x, layer.layer_idx), X, cache=cache)
            return x, cache.rows

        return jax.jit(apply)(state, {i: jnp.full_like(X, i) for i in range(len(kinds))})

    close(call(scanned), call(unrolled))


def test_recording_cache_learns_the_groups():
    net, _ = pair("bababaab")
    recorder = Recorder()

    def apply():
        return net.layers.run(lambda i, layer, x: layer(x) + recorder.add(x, layer.layer_idx), X, cache=recorder)

    assert jax.eval_shape(apply).shape == X.shape
    assert recorder.groups == [(0, 2, 4), (1, 3, 5)]
    assert recorder.seen == [0, 1, 6, 7]


def test_numbers_that_start_elsewhere_reach_the_cache():
    make = lambda layer_idx, *, rngs: Block(settings(), layer_idx + 4, rngs=rngs)  # noqa: E731
    stack = LayerStack(make, 3, config=settings(), rngs=nnx.Rngs(0))
    recorder = Recorder()
    jax.eval_shape(lambda: stack.run(lambda i, layer, x: layer(x), X, cache=recorder))
    assert recorder.groups == [(4, 5, 6)]
    assert stack[2].layer_idx == 6


def test_shared_parameters_are_not_stacked():
    shared = Block(settings(), 0, rngs=nnx.Rngs(0))
    stack = LayerStack(lambda layer_idx, *, rngs: shared, 3, config=settings(), rngs=nnx.Rngs(0))
    assert "share parameters" in stack.reason
    assert len(jax.tree.leaves(nnx.state(stack))) == 4


def test_abstract_and_eval_shape_builds():
    kinds = "baaaa"
    real = nnx.state(pair(kinds)[0])
    with_abstract = nnx.state(abstract_net(kinds))
    shapes = lambda state: jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), state)  # noqa: E731
    assert shapes(with_abstract) == shapes(real)
    assert shapes(nnx.state(nnx.eval_shape(lambda: pair(kinds)[0]))) == shapes(real)


def abstract_net(kinds):
    from maxcode.converter.support.layers import abstract_parameters

    with abstract_parameters():
        return Net(settings(), kinds, rngs=nnx.Rngs(0))


def test_traced_size_does_not_grow_with_depth():
    def size(depth):
        net = abstract_net("ab" * depth)
        graph, state = nnx.split(net)
        jaxpr = jax.make_jaxpr(lambda s: nnx.merge(graph, s).layers.run(lambda i, layer, x: layer(x), X))(state)
        return len(str(jaxpr).splitlines())

    assert size(4) == size(24)


@pytest.mark.parametrize("key", [None, lambda i: i % 3])
def test_nothing_copies_the_whole_stack(key):
    """Reshaping or cutting stacked weights costs a decoding step more than its products."""
    net, _ = pair("a" * 8)
    graph, state = nnx.split(net)

    def outer_primitives(cached):
        def apply(state, rows):
            cache = Memory(dict(rows)) if cached else None
            return nnx.merge(graph, state).layers.run(lambda i, layer, x: layer(x), X, cache=cache, key=key, stop=6)

        eqns = jax.make_jaxpr(apply)(state, {i: jnp.ones(1) for i in range(8)}).eqns
        weights = [jax.tree.leaves(state)[0].shape[0]]
        return [
            e.primitive.name for e in eqns if e.invars and getattr(e.invars[0].aval, "shape", ())[:1] == (weights[0],)
        ]

    assert outer_primitives(cached=True) == []
    assert set(outer_primitives(cached=False)) >= {"slice"}  # a part of the stack: gradients want it as scan input


def test_scanned_inputs_of_a_whole_stack_are_its_arrays():
    net, _ = pair("a" * 8)
    graph, state = nnx.split(net)
    jaxpr = jax.make_jaxpr(lambda s: nnx.merge(graph, s).layers.run(lambda i, layer, x: layer(x), X))(state)
    assert {eqn.primitive.name for eqn in jaxpr.eqns} <= {"iota", "scan"}
