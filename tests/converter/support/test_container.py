"""Containers keep order, names and paths."""

from types import SimpleNamespace

import jax.numpy as jnp
import pytest
from flax import nnx

from maxcode.converter.support.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from maxcode.converter.support.layers import Dropout, Identity, Linear, Module, param
from maxcode.converter.support.leaves import leaf_paths


def linear(seed=0):
    return Linear(2, 2, bias=False, rngs=nnx.Rngs(seed))


def round_trip(module):
    return nnx.merge(*nnx.split(module))


def test_sequential_calls_in_order_also_after_a_merge():
    layers = [linear(seed) for seed in range(12)]
    model = Sequential(*layers)
    expected = jnp.ones(2)
    for layer in layers:
        expected = layer(expected)
    for chain in (model, round_trip(model)):
        assert jnp.allclose(chain(jnp.ones(2)), expected)
        assert len(chain) == 12
    assert set(leaf_paths(model)) == {f"{i}.kernel" for i in range(12)}
    assert len(model[1:3]) == 2
    assert model[-1] is layers[-1]


def test_sequential_with_names():
    model = Sequential({"second": linear(), "first": Identity()})
    assert list(leaf_paths(model)) == ["second.kernel"]
    assert model.second is model[0]
    assert isinstance(round_trip(model)[1], Identity)


def test_module_list():
    items = ModuleList([linear(i) for i in range(3)])
    items.append(Identity())
    items.extend([Dropout(0.1)])
    items.insert(0, Identity())
    assert [type(item).__name__ for item in items] == ["Identity", "Linear", "Linear", "Linear", "Identity", "Dropout"]
    items[0] = linear(7)
    assert isinstance(items.pop(), Dropout)
    assert len(items) == len(list(items)) == 5
    assert isinstance(items[1:], ModuleList)
    assert set(leaf_paths(items)) == {f"{i}.kernel" for i in range(4)}
    with pytest.raises(IndexError):
        items[5]


def test_module_dict():
    items = ModuleDict({"b": linear(1), "a": linear(2)})
    items["c"] = Identity()
    items.update({"a": Identity()})
    again = round_trip(items)
    assert list(again.keys()) == list(items) == ["b", "a", "c"]
    assert [name for name, _ in again.items()] == ["b", "a", "c"]
    assert "c" in again
    assert again.get("d") is None
    assert isinstance(items.pop("a"), Identity)
    assert len(items) == 2
    with pytest.raises(KeyError, match="has no 'a'"):
        items["a"]
    with pytest.raises(KeyError, match="a name of the container"):
        items["keys"] = Identity()


def test_parameters_in_a_list_and_modes():
    class Net(Module):
        def __init__(self):
            self.scales = ParameterList([param(jnp.ones(3)), param(jnp.zeros(2))])
            self.blocks = ModuleList([Sequential(Dropout(0.5))])

    net = Net().train()
    assert net.blocks[0][0].training
    assert list(leaf_paths(net)) == ["scales.0", "scales.1"]
    assert net.scales[0][...].sum() == 3


def test_parameters_read_in_the_compute_dtype():
    config = SimpleNamespace(dtype="bfloat16", weight_dtype="float32")
    items = ParameterList([param(jnp.ones(3), None, config)], config=config)
    items.append(param(jnp.zeros(2), None, config))
    items.insert(0, param(jnp.full(1, 2.0), None, config))
    for found in (items, round_trip(items)):
        assert [item.dtype for item in found] == ["bfloat16"] * 3
        assert (float(found[0][0]), found[-1].shape) == (2, (2,))
        assert found[1:][0].dtype == jnp.bfloat16
    assert items.pop(0)[...].dtype == jnp.float32  # the variable itself
    named = ParameterDict({"a": param(jnp.ones(3), None, config)}, config=config)
    named["n"] = nnx.Param(jnp.arange(2))
    assert (named["a"].dtype, named.get("n").dtype) == (jnp.bfloat16, jnp.arange(2).dtype)
    assert [value.shape for value in named.values()] == [(3,), (2,)]
    assert set(leaf_paths(named)) == {"a", "n"}
