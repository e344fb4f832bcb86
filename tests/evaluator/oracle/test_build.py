"""Weights, lift, dtypes and discrete choices: the parts that every recording stands on."""

import pytest
import torch
from torch import nn

from maxcode.evaluator.oracle.build import build, call, construct
from maxcode.evaluator.oracle.discrete import Discrete
from maxcode.evaluator.oracle.inputs import make_inputs
from maxcode.evaluator.oracle.lift import computing_in
from maxcode.evaluator.oracle.noise import add_noise


def test_lift_reaches_casts_factories_and_methods():
    x = torch.arange(3, dtype=torch.float64) / 3
    with computing_in("float64"):
        assert x.float().dtype == torch.float64
        assert x.to(torch.float32).dtype == torch.float64
        assert torch.ones(2, dtype=torch.float32).dtype == torch.float64
        assert torch.softmax(x, -1, dtype=torch.float32).dtype == torch.float64
        assert torch.ones(2).dtype == torch.float64
    assert x.float().dtype == torch.float32
    assert torch.get_default_dtype() == torch.float32


def test_float64_is_lifted_while_building(resolved):
    model, inputs = build(resolved("llama"), "float64")
    assert model.model.rotary_emb.inv_freq.dtype == torch.float64
    exact = 1.0 / model.config.rope_parameters["rope_theta"] ** (torch.arange(0, 16, 2, dtype=torch.float64) / 16)
    assert torch.equal(model.model.rotary_emb.inv_freq, exact)
    with torch.no_grad():
        low = call(build(resolved("llama"), "float32")[0], inputs, "float32").logits
        high = call(model, inputs, "float64").logits
    error = float((low - high).abs().max() / high.abs().max())
    assert 1e-9 < error < 1e-5


def test_bfloat16_keeps_constructor_tables_wide(resolved):
    model, _ = build(resolved("llama"), "bfloat16")
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32


def test_noise_leaves_nothing_trivial(resolved):
    model, _ = build(resolved("mixtral"))
    for name, parameter in model.named_parameters():
        assert bool(torch.isfinite(parameter).all()), name
        assert float(parameter.detach().std()) > 0.01, name


def test_noise_keeps_structure():
    class Decays(nn.Module):
        def __init__(self):
            super().__init__()
            self.rates = nn.Parameter(torch.log(torch.arange(1.0, 9.0)).expand(4, 8).clone())
            self.empty = nn.Parameter(torch.full((4, 8), float("nan")))

    model, twin = Decays(), Decays()
    before = model.rates.detach().clone()
    add_noise(model, twin, 0)
    assert 0 < float((model.rates.detach() - before).abs().max()) < 0.6
    assert bool(torch.isfinite(model.empty).all())


def test_builds_are_reproducible(resolved):
    first, second = build(resolved("mamba2"))[0], build(resolved("mamba2"))[0]
    for (name, a), (_, b) in zip(first.state_dict().items(), second.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_experts_and_attention_are_eager(resolved):
    model = construct(resolved("mixtral"))
    assert model.config._attn_implementation == "eager"
    assert model.config._experts_implementation == "eager"


def test_input_specs():
    specs = {
        "ids": {"shape": [2, 5], "dtype": "int64", "low": 3, "high": 7},
        "x": {"kind": "float", "dtype": "float32", "shape": [2, 3], "mean": 100.0},
        "mask": {"kind": "mask", "dtype": "int64", "shape": [2, 4], "pad_left": [0, 2]},
        "flag": True,
    }
    made = make_inputs(specs, 1)
    assert 3 <= int(made["ids"].min()) <= int(made["ids"].max()) < 7
    assert float(made["x"].mean()) > 90
    assert made["mask"].tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]
    assert made["flag"] is True
    assert torch.equal(made["ids"], make_inputs({"ids": specs["ids"]}, 1)["ids"])


class Router(nn.Module):
    def forward(self, x):
        values, indices = torch.topk(x, 2, dim=-1)
        return values, indices, x.argmax(-1)


def test_choices_are_replayed_and_flips_counted():
    scores = torch.tensor([[1.0, 3.0, 2.0, 0.0]])
    first, second = Discrete(Router()), None
    with first.watching():
        Router()(scores)
    second = Discrete(Router(), replay=first)
    with second.watching():
        values, indices, best = Router()(torch.tensor([[1.0, 2.0, 3.0, 0.0]]))
    assert indices.tolist() == [[1, 2]]
    assert values.tolist() == [[2.0, 3.0]]
    assert best.tolist() == [1]
    assert second.flips == [2, 1]


@pytest.mark.parametrize(("row", "tied"), [([1.0, 2.0, 2.0, 0.0], True), ([1.0, 3.0, 2.0, 0.0], False)])
def test_ties(row, tied):
    discrete = Discrete(Router())
    with discrete.watching():
        Router()(torch.tensor([row]))
    assert discrete.ties() is tied
