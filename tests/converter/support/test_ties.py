"""Ties by patterns and by modules, against what the framework makes of the same table."""

import pytest
from flax import nnx

from maxcode.converter.support.container import ModuleList
from maxcode.converter.support.layers import Linear, Module
from maxcode.converter.support.leaves import leaf_paths, tie_weights
from maxcode.converter.support.ties import expanded_ties


class Decoder(Module):
    def __init__(self, *, rngs):
        self.heads = ModuleList([Linear(2, 2, rngs=rngs) for _ in range(3)])


class Net(Module):
    def __init__(self, *, rngs):
        self.heads = ModuleList([Linear(2, 2, rngs=rngs) for _ in range(3)])
        self.decoder = Decoder(rngs=rngs)


@pytest.fixture
def net() -> Net:
    return Net(rngs=nnx.Rngs(0))


def test_a_pattern_ties_all_that_it_matches(net):
    ties = expanded_ties(net, {r"heads.(?![0])\d+": r"^heads.0"})
    assert ties == {f"heads.{i}.{leaf}": f"heads.0.{leaf}" for i in (1, 2) for leaf in ("bias", "weight")}


def test_a_module_is_tied_to_the_first_source(net):
    ties = expanded_ties(net, {r"heads.(?![0])\d+": "heads.0", "decoder.heads": "heads"})
    assert ties["decoder.heads.2.weight"] == "heads.0.weight"
    tie_weights(net, ties)
    assert set(leaf_paths(net)) == {"heads.0.kernel", "heads.0.bias"}


def test_what_matches_nothing_is_refused(net):
    with pytest.raises(ValueError, match="cannot tie 'tails'"):
        expanded_ties(net, {"tails": "heads.0"})
    with pytest.raises(ValueError, match="cannot tie"):
        expanded_ties(net, {"heads.0": "heads"})
