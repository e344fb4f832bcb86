"""Plain modules whose source hands an object of its own around as `config`: it is not what says how to run."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from tests.golden.harness import Converted, both_outputs, convert_text, error_of, load_package

SOURCE = """
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Sizes:
    width: int = 8
    layers: int = 3
    entries: int = 11
    bias: bool = True


class Norm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.norm = Norm(config.width, config.bias)
        self.up = nn.Linear(config.width, 2 * config.width, bias=config.bias)
        self.down = nn.Linear(2 * config.width, config.width, bias=config.bias)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x)))) / self.config.width


class Net(nn.Module):
    def __init__(self, SIGNATURE):
        super().__init__()
        SETUP
        self.config = config
        self.embed = nn.Embedding(config.entries, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.head = nn.Linear(config.width, config.entries, bias=False)
        self.embed.weight = self.head.weight

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)[..., : self.config.entries - 1]


def get_inputs():
    return [torch.arange(10).view(2, 5)]
"""
# How the object comes to be: a default argument, or made by the constructor from plain arguments.
FORMS = {
    "default": ("config=Sizes(layers=4)", "pass"),
    "made": ("layers=2, other=Sizes(width=2)", "config = Sizes(layers=layers)"),
}


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=FORMS)
def converted(request, tmp_path: Path) -> Converted:
    signature, setup = FORMS[request.param]
    return convert_text(SOURCE.replace("SIGNATURE", signature).replace("SETUP", setup), tmp_path)


def test_model_with_its_own_config_computes_as_torch(converted):
    assert converted.conversion.gaps == []
    for name, theirs, ours in both_outputs(converted):
        assert error_of(theirs, ours) <= 1e-12, name


def test_run_settings_reach_every_layer(converted):
    package = load_package(converted)
    config = package.Config(dtype="bfloat16", weight_dtype="bfloat16", scan_layers=True)
    model = package.Model.from_config(config, rngs=nnx.Rngs(0))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(nnx.state(model))} == {"bfloat16"}
    assert model.blocks.locate(1)[1] is not None, "equal layers are not scanned"
    assert nnx.jit(lambda m, ids: m(ids))(model, jnp.arange(10).reshape(2, 5)).dtype == jnp.bfloat16
    assert model.config.entries == 11, "the source's own object"
