"""Every torch layer class that may be handed about as a value is made by the same arguments on both sides."""

import ast
import inspect

import jax
import pytest
from torch import nn

from maxcode.converter import registry
from maxcode.converter.layer_values import DROPPED, is_layer_class, layer_value
from maxcode.converter.rule import NoRule
from tests.golden.harness import both_outputs, convert_text, error_of

registry.load()


def _values():
    for name in sorted(registry.MODULES):
        try:
            value = layer_value(name)
        except NoRule:
            continue
        if name.startswith("torch.nn.") and not value.is_function:
            yield name


@pytest.mark.parametrize("name", _values())
def test_a_value_takes_torchs_positional_arguments_in_torchs_order(name: str):
    torchs = inspect.signature(getattr(nn, name.rpartition(".")[2])).parameters.values()
    ours = registry.entries(registry.MODULES, name)[0].signature.parameters
    if any(p.kind is p.VAR_POSITIONAL for p in (*torchs, *ours.values())):
        return
    wanted = [p.name for p in torchs if p.name not in DROPPED and not p.name.startswith("_")]
    found = [n for n in ours if n not in DROPPED and not n.startswith("_")]
    assert found == wanted[: len(found)]  # what torch added since is refused by name


@pytest.mark.parametrize("name", ["LayerNorm", "Linear", "BatchNorm2d", "Dropout", "Identity", "Conv2d"])
def test_common_layers_are_values(name: str):
    assert ast.unparse(layer_value(f"torch.nn.{name}").applied.expr) == name
    assert is_layer_class(f"torch.nn.{name}")


def test_what_takes_no_arguments_here_is_a_function():
    value = layer_value("torch.nn.modules.activation.SiLU")
    assert value.is_function
    assert ast.unparse(value.applied.expr) == "lambda: activations.silu"


def test_what_is_made_otherwise_is_no_value():
    with pytest.raises(NoRule, match="CrossEntropyLoss"):
        layer_value("torch.nn.CrossEntropyLoss")


_HANDED_ABOUT = """
from functools import partial
import torch
from torch import nn

TABLE = {"relu": nn.ReLU, "leaky": partial(nn.LeakyReLU, 0.3)}

class Own(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.full((dim,), 1.5))
    def forward(self, x):
        return x * self.scale

class Block(nn.Module):
    norm_class, gate_class = nn.LayerNorm, nn.Sigmoid
    last_class = nn.Tanh
    def __init__(self, dim, norm=None, act=nn.GELU, inplace=True, **unused):
        super().__init__()
        norm = norm or partial(self.norm_class, eps=1e-2)
        self.norm, self.act = norm(dim), act()
        self.relu = TABLE["relu"](inplace=inplace)
        self.leaky = TABLE["leaky"]()
    def forward(self, x):
        return self.last_class()(self.leaky(self.norm(x)) - self.act(x) * self.relu(x))

class Net(nn.Module):
    def __init__(self, dim=6, layer=nn.Linear, drop=nn.Dropout):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim), Block(dim, norm=Own if dim > 4 else nn.LayerNorm)])
        self.out = layer(dim, 3, bias=False)
        self.drop = drop(0.25)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.drop(self.out(x))

def get_inputs():
    return [torch.randn(2, 5, 6)]
"""


def test_layers_handed_about_compute_what_torch_computes(tmp_path):
    with jax.enable_x64(True):
        converted = convert_text(_HANDED_ABOUT, tmp_path)
        assert not converted.conversion.gaps
        for name, theirs, ours in both_outputs(converted):
            assert error_of(theirs, ours) <= 1e-12, name
