"""Arguments that are handed on to torch's layers by `*args` and `**kwargs` reach them."""

import jax

from tests.golden.harness import both_outputs, convert_text, error_of

_SOURCE = """
import torch
from torch import nn
from torch.nn.utils import parametrizations

def normalised(*args, **kwargs):
    return parametrizations.weight_norm(nn.Conv1d(*args, **kwargs))

class Named(nn.Module):
    def __init__(self, a, b, device=None, **kwargs):
        super().__init__()
        placed = {"device": device, "dtype": None}
        self.conv = nn.Conv1d(a, b, 3, **kwargs)
        self.norm = nn.GroupNorm(2, b, **placed)
    def forward(self, x):
        return self.norm(self.conv(x))

class Derived(nn.Conv1d):
    def __init__(self, a, b, **kwargs):
        super().__init__(a, b, 3, **kwargs)
    def forward(self, x):
        return super().forward(x) * 2

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a = Named(3, width, padding=2, dilation=2)
        self.b = Named(width, width, bias=False)
        self.c = normalised(width, 2 * width, 3, padding=1, groups=2)
        self.d = normalised(2 * width, width, 1)
        self.e = Derived(width, width, padding=1, padding_mode="circular")
    def forward(self, x):
        return self.e(self.d(self.c(self.b(self.a(x)))))

def get_inputs():
    return [torch.randn(2, 3, 9)]
"""


def test_handed_on_arguments_reach_the_layer(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(_SOURCE, tmp_path)
        assert not converted.conversion.gaps
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name


_SWALLOWED = """
import torch
from torch import nn

class Keeps(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
    def forward(self, x, bias=None):
        return self.lin(x) if bias is None else self.lin(x) + bias

class Ignores(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
    def forward(self, x, **kwargs):
        return self.lin(x)

class Block(nn.Module):
    def __init__(self, width, keeps):
        super().__init__()
        self.parts = nn.ModuleList([Keeps(width) if keeps else Ignores(width)])
    def forward(self, x, bias=None):
        return self.parts[0](x, bias=bias)

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a, self.b = Block(width, True), Block(width, False)
        self.blocks = nn.ModuleList([Block(width, True) for _ in range(3)])
        self.drop = 0.5
    def forward(self, x):
        x = self.b(self.a(x, bias=x), bias=x)
        for block in self.blocks:
            skip = False
            if self.training and self.drop > 1:
                chance = torch.rand([])
                if chance < self.drop:
                    skip = True
            if not skip:
                x = block(x)
        return x

def get_inputs():
    return [torch.randn(2, 3, 4)]
"""


def test_a_keyword_that_one_callee_ignores_and_a_value_of_one_branch(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(_SWALLOWED, tmp_path)
        assert not converted.conversion.gaps
        assert "blocks.run" in converted.conversion.files["modeling.py"]
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name
