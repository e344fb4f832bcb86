"""Layers that a value skips, in calls where the value is asked and in calls where Python knows the answer."""

import jax
import pytest

from tests.golden.harness import both_outputs, convert_text, error_of

_SOURCE = """
import torch
from torch import nn

class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
    def forward(self, x):
        return x + self.lin(x).tanh()

class Net(nn.Module):
    def __init__(self, width=4, asked=ASKED, limit=0.4):
        super().__init__()
        self.layers = nn.ModuleList([Layer(width) for _ in range(4)])
        self.more = nn.ModuleList([Layer(width) for _ in range(3)])
        self.asked, self.limit = asked, limit
    def forward(self, x):
        for layer in self.layers:
            to_drop = False
            if self.asked and self.limit > 0.0:
                chance = x.mean()
                if chance < self.limit:
                    to_drop = True
            if not to_drop:
                x = layer(x)
        for layer in self.more:
            if self.asked:
                chance = x.std()
                if chance > 1.2:
                    continue
            x = layer(x)
            x = x * 0.9
        for layer in self.layers:
            chance = x.amax()
            if not (self.asked and chance < self.limit):
                x = layer(x)
        return x

def get_inputs():
    return [torch.linspace(-1, 2, 12).reshape(3, 4)]
"""


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("asked", [True, False])
def test_layers_are_skipped_as_in_torch(tmp_path, asked, jit):
    with jax.enable_x64(True):
        converted = convert_text(_SOURCE.replace("ASKED", str(asked)), tmp_path)
        assert not converted.conversion.gaps
        for name, theirs, ours in both_outputs(converted, jit=jit):
            assert error_of(theirs, ours) <= 1e-12, name
