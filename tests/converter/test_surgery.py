"""Models whose constructors build parts, change them and put others in their place."""

import jax

from tests.golden.harness import both_outputs, convert_text, error_of

_SOURCE = """
import torch
from torch import nn

class Frozen(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.register_buffer("weight", torch.ones(channels))
        self.register_buffer("bias", torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
    def forward(self, x):
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        return x * scale[:, None, None] + (self.bias - self.running_mean * scale)[:, None, None]

def freeze(model):
    for name, module in model.named_children():
        if isinstance(module, nn.BatchNorm2d):
            frozen = Frozen(module.num_features)
            if module.weight.device != torch.device("meta"):
                frozen.weight.copy_(module.weight)
                frozen.running_var.copy_(module.running_var)
            model._modules[name] = frozen
        if len(list(module.children())) > 0:
            freeze(module)

class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))

class Gate(nn.Module):
    def __init__(self, width, kind="random"):
        super().__init__()
        self.mix = nn.Linear(width, 2 * width, bias=False)
        a = nn.Parameter(torch.randn(width))
        b = nn.Parameter(torch.randn(width))
        self.mix.bias = nn.Parameter(torch.cat([a, b]))
        self.table = self._table(width, kind)
        self.act = nn.PReLU()
    @staticmethod
    def _table(width, kind):
        if kind == "random":
            table = nn.Parameter(torch.randn(width, width))
        else:
            table = nn.Parameter(torch.eye(width))
        return table
    def forward(self, x):
        left, right = self.mix(x).chunk(2, dim=-1)
        return self.act(left @ self.table) * right

class Net(nn.Module):
    def __init__(self, channels=4, depth=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 1), nn.BatchNorm2d(channels), nn.ReLU())
        self.blocks = nn.ModuleList([Block(channels) for _ in range(depth)])
        freeze(self)
        self.gate = Gate(channels)
    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.gate(x.mean((2, 3)))

def get_inputs():
    return [torch.randn(2, 3, 5, 6)]

def get_init_inputs():
    return []
"""


def test_replaced_layers_and_assembled_parameters(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(_SOURCE, tmp_path)
        assert not converted.conversion.gaps
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name
