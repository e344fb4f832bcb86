"""Stored arrays by name, in stacked and single layers; tied weights."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from maxcode.converter.support.layers import Embedding, Linear, Module
from maxcode.converter.support.leaves import Leaf, get_leaf, get_node, leaf_paths, set_leaf, tie_weights
from maxcode.converter.support.stack import LayerStack


def settings(**changes):
    return SimpleNamespace(**{"dtype": "float32", "weight_dtype": "bfloat16", "scan_layers": True} | changes)


class Block(Module):
    def __init__(self, config, wide, *, rngs):
        self.up = Linear(4, 8 if wide else 4, axes=("embed", "mlp"), config=config, rngs=rngs)


class Head(Module):
    def __init__(self, config, *, rngs):
        self.decoder = Linear(4, 5, config=config, rngs=rngs)
        self.embed = Embedding(5, 4, axes=("vocab", "embed"), config=config, rngs=rngs)
        make = lambda layer_idx, *, rngs: Block(config, layer_idx == 0, rngs=rngs)  # noqa: E731
        self.layers = LayerStack(make, 4, config=config, rngs=rngs)

    def __call__(self, ids):
        return self.decoder(self.embed(ids))


def head(**changes):
    return Head(settings(**changes), rngs=nnx.Rngs(0))


def test_names_do_not_depend_on_the_layout():
    scanned, flat = leaf_paths(head()), leaf_paths(head(scan_layers=False))
    assert list(scanned) == list(flat)
    assert [(v.shape, v.dtype, v.axes, v.kind) for v in scanned.values()] == [
        (v.shape, v.dtype, v.axes, v.kind) for v in flat.values()
    ]
    path = ("layers", "periods", 0, "up", "kernel")
    assert scanned["layers.3.up.kernel"] == Leaf(path, 2, (4, 4), jnp.dtype("bfloat16"), ("embed", "mlp"), "Param")
    assert scanned["layers.0.up.bias"] == Leaf(
        ("layers", "prefix", 0, "up", "bias"), None, (8,), jnp.dtype("bfloat16"), ("mlp",), "Param"
    )


def test_abstract_models_have_the_same_leaves():
    expected = leaf_paths(head())
    assert leaf_paths(Head.abstract(settings())) == expected
    assert leaf_paths(nnx.eval_shape(head)) == expected


def test_get_and_set():
    model, flat = head(), head(scan_layers=False)
    for name in leaf_paths(model):
        np.testing.assert_array_equal(get_leaf(model, name), get_leaf(flat, name))
    set_leaf(model, "layers.2.up.kernel", jnp.ones((4, 4)))
    assert get_leaf(model, "layers.2.up.kernel").sum() == 16
    np.testing.assert_array_equal(get_leaf(model, "layers.1.up.kernel"), get_leaf(flat, "layers.1.up.kernel"))
    abstract = Head.abstract(settings())
    set_leaf(abstract, "decoder.bias", jnp.ones(5))
    assert vars(get_node(abstract, ("decoder",)))["bias"].get_raw_value().sum() == 5
    with pytest.raises(ValueError, match=r"expected \(4, 4\)"):
        set_leaf(model, "layers.2.up.kernel", jnp.ones((2, 4)))
    with pytest.raises(KeyError, match="no stored array 'layers.9.up.kernel'"):
        get_leaf(model, "layers.9.up.kernel")


def tied():
    model = head()
    tie_weights(model, {"decoder.weight": "embed.weight"})
    return model


@pytest.mark.parametrize("round_trip", [False, True])
def test_tied_linear_reads_the_table(round_trip):
    model = tied()
    if round_trip:
        model = nnx.merge(*nnx.split(model))
    names = list(leaf_paths(model))
    assert "embed.embedding" in names
    assert "decoder.bias" in names
    assert not any(name in names for name in ("decoder.kernel", "decoder.tied"))
    ids = jnp.asarray([1, 4])
    table, bias = model.embed.weight, model.decoder.bias
    np.testing.assert_allclose(model(ids), table[ids] @ table.T + bias, rtol=1e-6)
    np.testing.assert_array_equal(model.decoder.weight, table)
    set_leaf(model, "embed.embedding", jnp.zeros((5, 4)))
    np.testing.assert_array_equal(model(ids), jnp.broadcast_to(bias, (2, 5)))


def test_gradient_of_a_tied_table_sums_both_uses():
    model = Head(settings(weight_dtype="float32"), rngs=nnx.Rngs(0))
    table, bias, ids = model.embed.weight, model.decoder.bias, jnp.asarray([1, 1, 3])
    tie_weights(model, {"decoder.weight": "embed.weight"})
    graph, state = nnx.split(model)
    assert len([leaf for leaf in jax.tree.leaves(state) if leaf.shape == (5, 4)]) == 1
    grads = jax.jit(jax.grad(lambda s: (nnx.merge(graph, s)(ids) ** 2).sum()))(state)
    expected = jax.grad(lambda t: ((t[ids] @ t.T + bias) ** 2).sum())(table)
    np.testing.assert_allclose(get_leaf(nnx.merge(graph, grads), "embed.embedding"), expected, rtol=1e-5)


def test_ties_hold_for_abstract_models():
    def build():
        model = Head(settings(), rngs=nnx.Rngs(0))
        tie_weights(model, {"embed.weight": "decoder.weight"})  # the other way round: the table stays
        return model

    assert leaf_paths(nnx.eval_shape(build)) == leaf_paths(tied())


def test_embeddings_and_biases_share():
    class Two(Module):
        def __init__(self):
            self.shared = Embedding(3, 2, rngs=nnx.Rngs(0))
            self.copy = Embedding(3, 2, rngs=nnx.Rngs(1))
            self.a = Linear(2, 2, rngs=nnx.Rngs(2))
            self.b = Linear(2, 2, rngs=nnx.Rngs(3))

    model = Two()
    tie_weights(model, {"copy.weight": "shared.weight", "b.bias": "a.bias"})
    assert list(leaf_paths(nnx.merge(*nnx.split(model)))) == ["a.bias", "a.kernel", "b.kernel", "shared.embedding"]
    np.testing.assert_array_equal(model.copy.weight, model.shared.weight)


def test_ties_that_cannot_be():
    with pytest.raises(TypeError, match="layer stack"):
        tie_weights(head(), {"layers.1.up.weight": "embed.weight"})
    with pytest.raises(KeyError, match="no 'nothing'"):
        tie_weights(head(), {"nothing.weight": "embed.weight"})
    with pytest.raises(ValueError, match="shapes"):
        tie_weights(head(), {"embed.weight": "decoder.bias"})
