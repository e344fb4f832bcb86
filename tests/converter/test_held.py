"""Parameters in lists and dictionaries: their paths, and what they compute."""

import jax

from tests.golden.harness import both_outputs, convert_text, error_of

_SOURCE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.steps = nn.ParameterList([nn.Parameter(torch.full((width,), 1.5)) for _ in range(2)])
        self.steps.append(nn.Parameter(torch.linspace(0, 1, width)))
        self.named = nn.ParameterDict({"scale": nn.Parameter(torch.ones(width))})
        self.named["shift"] = nn.Parameter(torch.randn(width))
        rows = []
        for row in range(2):
            rows.append(nn.Parameter(torch.randn(width, width)))
        self.rows = nn.ParameterList(rows)
    def forward(self, x):
        for step in self.steps:
            x = torch.tanh(x * step)
        for i in range(len(self.rows)):
            x = x @ self.rows[i]
        return x * self.named["scale"] + self.named["shift"]

def get_inputs():
    return [torch.randn(3, 4)]
"""


def test_parameters_in_containers_compute_what_torch_computes(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(_SOURCE, tmp_path)
        assert not converted.conversion.gaps
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name
