"""Layers that a constructor casts, and arguments of layers that mean nothing here."""

import jax

from tests.golden.harness import both_outputs, convert_text, error_of

_SOURCE = """
import torch
from torch import nn
class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return self.lin(x.float()) * self.scale
class Table(nn.Embedding):
    def __init__(self, n, d):
        super().__init__(n, d, sparse=False, _freeze=True)
    def forward(self, shape):
        return super().forward(torch.arange(shape[1]))
class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a = Gate(width).to(dtype=torch.float32)
        self.b = Gate(width).float()
        self.c = nn.LayerNorm(width).to("cpu")
        self.t = Table(9, width)
    def forward(self, x):
        return self.c(self.a(x) + self.b(x)) + self.t(x.shape)
def get_inputs():
    return [torch.randn(2, 3, 4)]
"""


def test_parts_of_a_model_have_dtypes_of_their_own(tmp_path):
    with jax.enable_x64(True):
        c = convert_text(_SOURCE, tmp_path)
        assert not c.conversion.gaps
        for name, theirs, ours in both_outputs(c):
            assert error_of(theirs, ours) <= 1e-12, name
