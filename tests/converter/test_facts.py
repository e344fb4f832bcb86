"""Facts survive JSON and join conservatively."""

import copy
import json
import math

import pytest

from maxcode.converter.facts import MISSING, Fact, join

TENSOR = Fact("tensor", frozenset({"float32"}), frozenset({2}), ((2, 3),), "torch.Tensor.view")


@pytest.mark.parametrize("fact", [TENSOR, Fact("none", literal=None), Fact("float", literal=math.inf), Fact()])
def test_json_round_trip(fact):
    assert Fact.from_json(json.loads(json.dumps(fact.to_json()))) == fact


def test_from_json_refuses_unknown_fields():
    with pytest.raises(ValueError, match="shpes"):
        Fact.from_json({"kind": "tensor", "shpes": []})


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="expected one of"):
        Fact("tesnor")


def test_join_unites_sets_and_drops_disagreement():
    other = Fact("param", frozenset({"bfloat16"}), frozenset({2}), ((4, 3),), "torch.Tensor.reshape")
    joined = TENSOR.join(other)
    assert joined.kind == "tensor"
    assert joined.dtypes == {"float32", "bfloat16"}
    assert joined.shapes == ((2, 3), (4, 3))
    assert joined.callee is None
    assert joined.shape is None
    assert joined.ndim == 2


@pytest.mark.parametrize(("left", "right"), [(1, True), (1, 1.0), (None, MISSING), ("a", "b")])
def test_join_keeps_only_the_same_literal(left, right):
    assert join([Fact(literal=left), Fact(literal=right)]).literal is MISSING


def test_join_keeps_a_literal_all_runs_saw():
    assert join([Fact("int", literal=3)] * 3).literal == 3


def test_missing_is_one_object():
    assert copy.deepcopy(MISSING) is MISSING
