"""Layers and functions of einops convert: packages keep its functions, layers become support layers."""

from pathlib import Path

import jax

from tests.golden.harness import both_outputs, convert_text, error_of

SOURCE = """
import torch
from torch import nn
import einops
from einops import rearrange, repeat, reduce, pack, unpack, einsum
from einops.layers.torch import Rearrange, Reduce

class Net(nn.Module):
    def __init__(self, dim=8, heads=2):
        super().__init__()
        self.heads = heads
        patches = Rearrange('b c (h p) (w q) -> b (h w) (p q c)', p=2, q=2)
        self.embed = nn.Sequential(patches, nn.Linear(12, dim), nn.LayerNorm(dim))
        self.cls = nn.Parameter(torch.randn(dim))
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.split = Rearrange('b n (h d) -> b h n d', h=heads)
        self.pool = Reduce('b n d -> b d', 'mean')
    def forward(self, x):
        x = self.embed(x)
        b, n, _ = x.shape
        cls = repeat(self.cls, 'd -> b d', b=b)
        x, ps = pack([cls, x], 'b * d')
        q, k, v = map(self.split, self.qkv(x).chunk(3, dim=-1))
        a = einsum(q, k, 'b h i d, b h j d -> b h i j').softmax(dim=-1)
        o = torch.einsum('b h i j, b h j d -> b h i d', a, v)
        o = einops.rearrange(o, 'b h n d -> b n (h d)')
        c, o = unpack(o, ps, 'b * d')
        return self.pool(o) + c + reduce(x, 'b n d -> b d', 'max')

def get_inputs():
    return [torch.randn(2, 3, 4, 4)]
"""


def test_layers_and_functions_of_einops_agree(tmp_path: Path):
    converted = convert_text(SOURCE, tmp_path)
    assert converted.conversion.gaps == []
    assert "from .rearranging import Rearrange, Reduce" in converted.modeling
    with jax.enable_x64(True):
        pairs = both_outputs(converted)
    assert pairs
    assert all(error_of(theirs, ours) < 1e-12 for _, theirs, ours in pairs)


def test_an_einops_layer_without_a_counterpart_is_a_gap(tmp_path: Path):
    text = """
import torch
from einops.layers.torch import EinMix
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = EinMix("b i -> b o", weight_shape="i o", i=3, o=2)

    def forward(self, x):
        return self.mix(x)

def get_inputs():
    return [torch.randn(2, 3)]
"""
    assert any("EinMix" in g.torch_name for g in convert_text(text, tmp_path).conversion.gaps)
