"""Idioms of plain models: records of arrays, spread arguments, layers added by name, transformed functions."""

from pathlib import Path

import jax
import pytest

from tests.golden.harness import Converted, both_outputs, convert_text, error_of

SOURCE = """
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Pair(NamedTuple):
    value: torch.Tensor
    total: torch.Tensor


@dataclass
class Sides:
    left: torch.Tensor
    right: torch.Tensor
    scale: float = 2.0


class Net(nn.Module):
    def __init__(self, axes=(0, 1)):
        super().__init__()
        self.axes = axes
        self.inner = nn.Linear(4, 4)
        for i in range(2):
            self.add_module(f"layer{i}", nn.Linear(4, 4))
        self.add_module("last", nn.LayerNorm(4))

    def records(self, x):
        pair = Pair(self.inner(x), x.sum())
        sides = Sides(left=pair.value, right=pair[1])
        return sides.left * sides.right * sides.scale

    def forward(self, x):
        y = self.records(x)
        for i in range(2):
            y = getattr(self, f"layer{i}")(y)
        y = self.last(y).transpose(*self.axes)
        y = F.layer_norm(y, *[(3,)])
        per_row = torch.vmap(self.inner)(x)
        slope = torch.func.grad(lambda t: (self.inner(t) ** 2).sum())(x)
        curved = torch.func.hessian(lambda t: (t**3).sum())(x[0])
        gradient, value = torch.func.grad_and_value(lambda t: t.sin().sum())(x)
        return Pair(y, per_row), slope, curved, gradient, value


def get_inputs():
    return [torch.randn(3, 4)]


def get_init_inputs():
    return [(0, 1)]
"""


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return convert_text(SOURCE, tmp_path_factory.mktemp("idioms"))


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "compiled"])
def test_both_sides_agree(converted: Converted, jit: bool):
    assert converted.conversion.gaps == []
    with jax.enable_x64(True):
        pairs = both_outputs(converted, jit=jit)
    assert len(pairs) == 6
    assert {name: error_of(a, b) for name, a, b in pairs if error_of(a, b) > 1e-12} == {}


def test_records_of_arrays_come_out_of_compiled_code(tmp_path: Path):
    text = SOURCE.replace("return Pair(y, per_row), slope, curved, gradient, value", "return (Sides(y, per_row).left,)")
    modeling = convert_text(text, tmp_path).modeling
    assert "@jax.tree_util.register_dataclass" in modeling
    assert "class Pair(NamedTuple):" in modeling


SIZES = """
import torch
from torch import nn


class Base(nn.Module):
    def __init__(self, dim, scale=1.0, pads=False):
        super().__init__()
        self.inner, self.scale, self.pads = nn.Linear(dim, dim), scale, pads

    def forward(self, x):
        if self.pads and x.size(1) < 9:
            x = torch.cat([x, x], dim=1)
        return self.inner(x) * self.scale


class Net(Base):
    def __init__(self, dim=4, scale=3.0):
        super().__init__(dim, scale)


def get_inputs():
    return [torch.randn(3, 4)]
"""


def test_a_size_that_no_run_asked_for_is_no_tensor(tmp_path: Path):
    converted = convert_text(SIZES, tmp_path)
    assert converted.conversion.gaps == []
    assert "lax.cond" not in converted.modeling
    with jax.enable_x64(True):
        pairs = both_outputs(converted)
    assert [error_of(a, b) < 1e-12 for _, a, b in pairs] == [True]
