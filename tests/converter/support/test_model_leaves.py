"""Leaves have the names that `leaf_paths` gives, for scanned and single layers, tied weights and merged models."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from maxcode.converter.support.layers import Embedding, Linear, Module, param
from maxcode.converter.support.leaves import leaf_paths, tie_weights
from maxcode.converter.support.model_leaves import leaves
from maxcode.converter.support.stack import LayerStack


class Config:
    dtype = weight_dtype = "float32"
    remat_policy = "none"

    def __init__(self, scan_layers):
        self.scan_layers = scan_layers


class Block(Module):
    def __init__(self, config, i, *, rngs):
        self.proj = Linear(4, 4, config=config, rngs=rngs)
        self.norms = nnx.List([Linear(4, 4, bias=False, config=config, rngs=rngs) for _ in range(2)])
        self.gate = param(jnp.full((3,), i), None, config)


class Net(Module):
    def __init__(self, config, *, rngs):
        self.embed = Embedding(7, 4, config=config, rngs=rngs)
        self.layers = LayerStack(lambda i, *, rngs: Block(config, i, rngs=rngs), 3, config=config, rngs=rngs)
        self.head = Linear(4, 7, bias=False, config=config, rngs=rngs)
        tie_weights(self, {"head.weight": "embed.weight"})


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("how", ["built", "abstract", "merged"])
def test_leaves_are_the_leaf_paths(scan, how):
    model = Net.abstract(Config(scan)) if how == "abstract" else Net(Config(scan), rngs=nnx.Rngs(0))
    if how == "merged":
        model = nnx.merge(*nnx.split(model))
    found = leaves(model)
    expected = leaf_paths(model)
    assert found.keys() == expected.keys()
    assert {n: (leaf.shape, leaf.dtype) for n, leaf in found.items()} == {
        n: (leaf.shape, leaf.dtype) for n, leaf in expected.items()
    }
    assert "embed.embedding" in found
    assert not any(name.startswith("head.") for name in found)
    if how != "abstract":
        np.testing.assert_array_equal(found["layers.2.gate"].read(), [2, 2, 2])
