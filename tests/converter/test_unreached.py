"""Code that no run came to is left out where it has no rule; what a run came to is a gap."""

from pathlib import Path

import jax
import pytest

from tests.golden.harness import Converted, both_outputs, convert_text, error_of

SOURCE = """
from contextlib import nullcontext
from functools import partial, wraps

import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import autocast
from torch.utils._pytree import tree_flatten, tree_unflatten

IS_NEW = torch.__version__.split(".") >= ["1", "0"]
Act = nn.GELU if hasattr(nn, "GELU") else nn.ReLU


def twice(function):
    @wraps(function)
    def inner(self, x):
        return function(self, function(self, x))
    return inner


@autocast("cuda", enabled=False)
def scaled(x, activation=nn.ReLU()):
    return activation(x) * 2


class Net(nn.Module):
    def __init__(self, dim=4, fancy=False, sort=False):
        super().__init__()
        settings = dict(locals())
        self.dim, self.fancy, self.sort = settings["dim"], fancy, sort
        self.act = Act()
        self.softmax = partial(F.softmax, dim=-1)
        version = torch.__version__
        assert torch.linalg.ldl_factor(torch.eye(2))[1].unique().numel() > 0

    @twice
    def shifted(self, x):
        return x + 1

    def forward(self, x):
        context = partial(autocast, "cuda", enabled=False) if self.fancy else nullcontext
        with context():
            y = self.act(scaled(self.shifted(x)))
        if self.fancy:
            y = torch.linalg.ldl_factor(y)[0]
            y = y + 1
        (first, *rest), spec = tree_flatten((y, [x]))
        y, (x,) = tree_unflatten([first, *rest], spec)
        y = torch.linalg.ldl_factor(y)[0] if self.sort else self.softmax(y)
        return y if IS_NEW else x


def get_inputs():
    return [torch.randn(3, 4)]
"""


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return convert_text(SOURCE, tmp_path_factory.mktemp("unreached"))


def test_a_model_converts_without_the_branches_that_it_never_takes(converted: Converted):
    assert converted.conversion.gaps == []


def test_what_is_left_out_raises_and_is_an_assumption(converted: Converted):
    said = {a.text.partition(",")[0] for a in converted.conversion.assumptions}
    assert any("no run came here" in text for text in said)
    assert converted.modeling.count("not converted, since no run came here: torch.linalg.ldl_factor") == 2


def test_a_block_is_left_out_as_a_whole(converted: Converted):
    assert "y = y + 1" not in converted.modeling


def test_a_check_without_a_rule_is_left_out(converted: Converted):
    assert "unique" not in converted.modeling
    assert any("this check of the source is left out" in a.text for a in converted.conversion.assumptions)


def test_questions_about_the_installed_torch_are_answered(converted: Converted):
    assert "__version__" not in converted.modeling


def test_both_sides_agree(converted: Converted):
    with jax.enable_x64(True):
        pairs = both_outputs(converted)
    assert pairs
    assert all(error_of(theirs, ours) < 1e-12 for _, theirs, ours in pairs)


def test_what_a_run_came_to_is_a_gap(tmp_path: Path):
    text = SOURCE.replace("fancy=False", "fancy=True").replace('autocast, "cuda"', 'autocast, "cpu"')
    text = text.replace("torch.randn(3, 4)", "torch.randn(4, 4)")
    gaps = convert_text(text, tmp_path).conversion.gaps
    assert [g.torch_name for g in gaps] == ["torch.linalg.ldl_factor"]
