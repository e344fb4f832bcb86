"""Models larger than memory: layers get their weights when they run."""

import pytest
import torch
from torch import nn

from maxcode.evaluator.oracle.build import build_inputs, build_model, call
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.materialise import materialise


@pytest.fixture(scope="module", params=["llama", "gpt2", "t5"])
def source(request, resolved, tmp_path_factory):
    run = tmp_path_factory.mktemp(request.param)
    target = resolved(request.param)
    materialise(target, run / "source")
    return target, run / "source"


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_streamed_equals_resident(source, dtype):
    target, folder = source
    resident = build_model(target, dtype, folder)
    streamed = build_model(target, dtype, folder, room=0)
    inputs = build_inputs(target, resident, dtype)
    with torch.no_grad():
        expected, found = (call(model, inputs, dtype, seed=0) for model in (resident, streamed))
    assert torch.equal(expected[0], found[0])


def test_one_layer_is_held_at_a_time(source):
    target, folder = source
    model = build_model(target, "float64", folder, room=0)
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList)]
    outer = [m for m in lists if not any(m is not other and m in list(other.modules()) for other in lists)]
    layers = [layer for stack in outer for layer in stack]
    assert len(layers) > 2
    most = 0

    def count(module, args):
        nonlocal most
        most = max(most, sum(held(layer) for layer in layers))

    for layer in layers:
        layer.register_forward_pre_hook(count)
    assert not any(map(held, layers))
    with torch.no_grad():
        call(model, build_inputs(target, model, "float64"), "float64", seed=0)
    assert most == 1
    assert not any(map(held, layers))


def held(layer):
    return any(not p.is_meta for p in layer.parameters())


def test_wrong_names_are_listed(source):
    target, folder = source
    with pytest.raises(OracleError, match=r"missing|unexpected|expected \["):
        config = dict(target["config"])
        key = next(k for k in ("num_hidden_layers", "n_layer", "num_layers") if k in config)
        build_model({**target, "config": config | {key: config[key] + 1}}, "float64", folder, room=0)
