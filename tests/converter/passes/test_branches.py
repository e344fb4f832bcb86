"""Branches and loops on values agree with torch, whichever side is taken, compiled or not."""

from pathlib import Path

import jax
import pytest

from tests.golden.harness import Converted, both_outputs, convert_text, error_of

HEAD = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
"""
TAIL = """
def get_inputs():
    return [torch.linspace(-1, 2, 12).reshape(3, 4)]
"""
METHODS = """
    def both(self, x, limit):
        if x.mean() > limit:
            y = self.a(x)
        else:
            z = self.b(x)
            y = z - 1
        return y.tanh()

    def early(self, x, limit):
        if x.abs().max() > limit:
            return self.a(x)
        y = self.b(x)
        if (y > 100).any() or not bool(y.sum() < 100):
            return y * 2
        return y + x

    def number(self, x, limit):
        s = x.sum().item()
        if s > limit:
            x = x + 1
        elif -1 < x.mean() < limit:
            x = x - 1
        return x

    def loop(self, x, limit):
        n = 0
        y = x
        while y.norm() > limit:
            y = y * 0.5
            n = n + 1
        return y + n

    def settles(self, x, limit):
        h = x
        for _ in range(5):
            new = torch.tanh(self.a(h))
            if (new - h).abs().max() < limit:
                break
            h = new
        return h

    def skips(self, x, limit):
        total = torch.zeros_like(x[0])
        for row in x:
            if row.sum() < limit:
                continue
            total = total + self.a(row)
        return total

    def chooses(self, x, limit):
        if torch.isnan(x).any():
            raise ValueError("not a number")
        assert (x.abs() < 100).all()
        return self.a(x) if x.max() > limit else self.b(x)

    def forward(self, x):
        found = []
        for limit in (-5.0, 0.1, 0.9, 50.0):
            found += [self.both(x, limit), self.early(x, limit), self.number(x, limit), self.loop(x, abs(limit))]
            found += [self.settles(x, limit), self.skips(x, limit), self.chooses(x, limit)]
        return tuple(found)
"""


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    return convert_text(HEAD + METHODS + TAIL, tmp_path_factory.mktemp("branches"))


@pytest.mark.parametrize("jit", [False, True], ids=["plain", "compiled"])
def test_both_sides_agree_wherever_the_limit_lies(converted: Converted, jit: bool):
    assert converted.conversion.gaps == []
    with jax.enable_x64(True):
        pairs = both_outputs(converted, jit=jit)
    assert len(pairs) == 28
    assert {name: error_of(a, b) for name, a, b in pairs if error_of(a, b) > 1e-12} == {}


def test_checks_of_values_are_assumptions(converted: Converted):
    said = [a.text for a in converted.conversion.assumptions]
    assert sum("a check of values is left out" in text for text in said) == 2


GAPS = {
    "other shapes": ("if x.mean() > 0:\n            x = x[:2]\n        return x", "different shapes"),
    "an attribute": ("if x.mean() > 0:\n            self.last = x\n        return x", "it sets self.last"),
    "one side only": ("if x.mean() > 0:\n            y = x\n        return y", "only one branch binds 'y'"),
    "a return in a loop": (
        "for row in x:\n            if row.sum() > 0:\n                return row\n        return x",
        "",
    ),
}


@pytest.mark.parametrize(("body", "reason"), GAPS.values(), ids=GAPS)
def test_what_no_branch_can_do_is_a_gap(body: str, reason: str, tmp_path: Path):
    text = f"{HEAD}\n    def forward(self, x):\n        {body}\n{TAIL}"
    gaps = convert_text(text, tmp_path).conversion.gaps
    assert [g.code for g in gaps] == ["CV140"]
    assert reason in gaps[0].reason
    assert "torch.where" in gaps[0].hint
