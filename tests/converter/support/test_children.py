"""Looking at the children of a module, and putting others in their place, in stacks too."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from maxcode.converter.support.children import children, named_children, set_child
from maxcode.converter.support.container import Sequential
from maxcode.converter.support.layers import Linear, Module
from maxcode.converter.support.norm import BatchNorm2d
from maxcode.converter.support.stack import LayerStack

WIDTH, DEPTH = 3, 4


class Frozen(Module):
    def __init__(self, count):
        self.count = count

    def __call__(self, x):
        return x + self.count


class Block(Module):
    def __init__(self, *, rngs):
        self.norm = BatchNorm2d(WIDTH)
        self.proj = Linear(WIDTH, WIDTH, rngs=rngs)


class Config:
    scan_layers = True


class Net(Module):
    def __init__(self, *, rngs):
        self.stem = Sequential(BatchNorm2d(WIDTH), jnp.tanh)
        self.blocks = LayerStack(lambda i, *, rngs: Block(rngs=rngs), DEPTH, config=Config, rngs=rngs)


def replace(model):
    for name, module in named_children(model):
        if isinstance(module, BatchNorm2d):
            set_child(model, name, Frozen(module.num_features))
        replace(module)


def test_children_keep_their_order_and_functions_are_none():
    net = Net(rngs=nnx.Rngs(0))
    assert [name for name, _ in named_children(net)] == ["stem", "blocks"]
    assert [name for name, _ in named_children(net.stem)] == ["0"]
    assert len(list(children(net.blocks))) == DEPTH


def test_layers_of_a_scanned_stack_are_replaced_within():
    net = Net(rngs=nnx.Rngs(0))
    before = [np.asarray(layer.proj.kernel[...]) for layer in net.blocks]
    assert net.blocks.plan.repeats == DEPTH
    replace(net)
    assert isinstance(vars(net.stem)["0"], Frozen)
    assert net.blocks.plan.repeats == DEPTH
    for layer, kernel in zip(net.blocks, before, strict=True):
        assert isinstance(layer.norm, Frozen)
        np.testing.assert_array_equal(layer.proj.kernel[...], kernel)


def test_a_layer_of_a_stack_itself_stays():
    with pytest.raises(TypeError, match="layer 0 of a stack"):
        set_child(Net(rngs=nnx.Rngs(0)).blocks, "0", Frozen(1))
