"""What the probe says of a small model: its tree, its classes, its scenarios and its inputs."""

import json
import sys
from pathlib import Path

import pytest

from maxcode.evaluator.oracle.probe import _constructor, probe, wanted
from maxcode.evaluator.oracle.target import load_target

SOURCE = """
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x):
        if self.training:
            return x
        return x * self.weight


class Net(nn.Module):
    def __init__(self, width=4, kind="a"):
        super().__init__()
        self.kind = kind
        self.gate = Gate(width)
        self.again = self.gate

    def forward(self, x, mask=None):
        if mask is not None:
            x = x * mask
        return self.gate(x)


def get_inputs():
    return [torch.ones(2, 4)]
"""


@pytest.fixture
def facts(tmp_path: Path):
    path = tmp_path / "probe_source.py"
    path.write_text(SOURCE)
    finders = list(sys.meta_path)
    target = {"text": "probe_source.py:Net", "kind": "module", "module": "probe_source", "class_name": "Net"}
    target |= {"path": str(path), "init": {"width": 4, "kind": "b"}}
    yield probe(load_target(target))
    sys.meta_path[:] = finders
    del sys.modules["probe_source"]


def test_facts_are_json(facts: dict):
    assert json.loads(json.dumps(facts)).keys() == facts.keys()


def test_tree_tells_parameters_buffers_and_constants(facts: dict):
    gate = facts["tree"]["gate"]
    assert (gate["class"], gate["params"]) == ("probe_source.Gate", ["weight"])
    assert (gate["buffers"], gate["constants"]) == (["mean"], ["table"])
    assert "again" in facts["tree"], "shared modules are listed under every name"


def test_classes_tell_attribute_kinds(facts: dict):
    assert facts["classes"]["probe_source.Net"]["attributes"]["kind"] == ["str"]
    assert facts["classes"]["probe_source.Net"]["attributes"]["gate"] == ["module"]
    attributes = facts["classes"]["probe_source.Gate"]["attributes"]
    assert (attributes["weight"], attributes["mean"], attributes["table"]) == (["param"], ["buffer"], ["constant"])
    assert facts["classes"]["probe_source.Gate"]["mro"][1] == "torch.nn.modules.module.Module"


def test_training_is_a_scenario(facts: dict):
    assert {s["name"] for s in facts["scenarios"]} >= {"forward", "train"}
    assert not any(s["error"] for s in facts["scenarios"])


def test_constructor_tells_defaults_and_values(facts: dict):
    rows = {row["name"]: row for row in facts["constructor"]}
    assert rows["width"] == {"name": "width", "default": "4", "value": 4}
    assert rows["kind"]["default"] == "'a'"
    assert rows["kind"]["value"] == "b"


def test_inputs_are_described(facts: dict):
    assert list(facts["inputs"].values()) == [{"kind": "tensor", "dtype": "float32", "shape": [2, 4]}]
    assert facts["forward"] == ["x", "mask"]


def test_only_the_models_own_code_is_instrumented(tmp_path: Path):
    test = wanted({"module": "mine.model", "path": None})
    assert test("mine.layers", "/x/mine/layers.py")
    assert not test("torch.nn.modules.linear", "/x/torch/nn/modules/linear.py")
    assert not test("numpy", "/x/numpy/__init__.py")
    beside = wanted({"module": "model", "path": str(tmp_path / "model.py")})
    assert beside("helpers", str(tmp_path / "helpers.py"))


def test_framework_plumbing_is_not_instrumented():
    test = wanted({"module": "transformers.models.some.modeling_some", "path": None})
    assert test("transformers.models.some.modeling_some", "x.py")
    assert not test("transformers.models.some.configuration_some", "x.py")
    assert not test("transformers.cache_utils", "x.py")


def test_what_a_constructor_takes_as_keywords_are_arguments_too():
    class Net:
        def __init__(self, dim: int, **kwargs: int) -> None: ...

    rows = _constructor(Net, {"arguments": {"dim": 4, "scale": 3}})
    assert rows == [{"name": "dim", "value": 4}, {"name": "scale", "value": 3}]
