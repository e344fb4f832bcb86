"""Averages of parameters, checkpoints and compiled evaluation."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter.support import averaging, checkpoint, optim
from maxcode.converter.support.container import Sequential
from maxcode.converter.support.evaluation import eval_step
from maxcode.converter.support.layers import Dropout, Linear
from maxcode.converter.support.norm import BatchNorm1d
from maxcode.converter.support.parameters import named_parameters, parameters
from maxcode.converter.support.random import key_scope


class Config:
    dtype = weight_dtype = "float32"
    matmul_precision = "default"


def model(seed=0):
    rngs = nnx.Rngs(seed)
    layers = Linear(3, 4, config=Config, rngs=rngs), BatchNorm1d(4, config=Config, rngs=rngs), Dropout(0.5)
    return Sequential(*layers, Linear(4, 2, config=Config, rngs=rngs))


def moved(source, step):
    for number, parameter in enumerate(parameters(source)):
        parameter.value = parameter.value + 0.1 * (step + 1) * (number + 1)


@pytest.mark.parametrize("kind", ["swa", "ema"])
def test_averages_are_torchs(kind):
    theirs = torch.nn.Linear(3, 2)
    ours = Linear(3, 2, config=Config, rngs=nnx.Rngs(0))
    start = {"weight": theirs.weight.detach().numpy().T.copy(), "bias": theirs.bias.detach().numpy().copy()}
    for name, parameter in named_parameters(ours):
        parameter.value = start[name]
    functions = {
        "swa": (None, None),
        "ema": (torch.optim.swa_utils.get_ema_multi_avg_fn(0.8), averaging.get_ema_multi_avg_fn(0.8)),
    }
    torch_average = torch.optim.swa_utils.AveragedModel(theirs, multi_avg_fn=functions[kind][0])
    average = averaging.AveragedModel(ours, multi_avg_fn=functions[kind][1])
    for step in range(5):
        with torch.no_grad():
            theirs.weight += 0.1 * (step + 1)
            theirs.bias += 0.1 * (step + 1) * 2
        by_name = dict(named_parameters(ours))
        by_name["weight"].value = by_name["weight"].value + 0.1 * (step + 1)
        by_name["bias"].value = by_name["bias"].value + 0.1 * (step + 1) * 2
        torch_average.update_parameters(theirs)
        average.update_parameters(ours)
    found = {name: np.asarray(p.value) for name, p in named_parameters(average.module)}
    np.testing.assert_allclose(found["weight"].T, torch_average.module.weight.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found["bias"], torch_average.module.bias.detach().numpy(), rtol=1e-5)


def test_swa_rates_are_torchs():
    trails = []
    for side in (torch.optim.swa_utils, averaging):
        if side is averaging:
            optimizer = optim.SGD(parameters(model()), lr=0.3)
        else:
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.3)
        scheduler = side.SWALR(optimizer, 0.02, anneal_epochs=4)
        trail = []
        for _ in range(8):
            optimizer.step() if side is not averaging else None
            scheduler.step()
            trail.append(optimizer.param_groups[0]["lr"])
        trails.append(trail)
    assert trails[0] == pytest.approx(trails[1], rel=1e-12)


def test_batch_statistics_are_taken_anew():
    source = model()
    batches = [jax.random.normal(jax.random.key(i), (16, 3)) for i in range(3)]
    with key_scope(jax.random.key(0)):
        averaging.update_bn(batches, source)
    inner = [np.asarray(source[0](b)) for b in batches]
    np.testing.assert_allclose(
        source[1].running_mean[...], np.mean([b.mean(0) for b in inner], axis=0), rtol=1e-4, atol=1e-6
    )
    assert source[1].momentum == 0.1
    assert not source.training


def test_checkpoints_come_back(tmp_path):
    first, second = model(0), model(1)
    checkpoint.save({"model": checkpoint.state_dict(first), "epoch": 3}, tmp_path / "a.ckpt")
    state = checkpoint.load(tmp_path / "a.ckpt")
    assert state["epoch"] == 3
    checkpoint.load_state_dict(second, state["model"])
    x = jnp.ones((2, 3))
    np.testing.assert_array_equal(first(x), second(x))
    with pytest.raises(KeyError, match=r"missing \['0.bias'\]"):
        checkpoint.load_state_dict(second, {k: v for k, v in state["model"].items() if k != "0.bias"})


def test_evaluation_is_compiled_and_says_the_same():
    source = model()
    x = jax.random.normal(jax.random.key(0), (5, 3))
    np.testing.assert_allclose(eval_step(source, x), source(x), rtol=1e-5, atol=1e-6)
    before = np.asarray(source[1].running_mean[...])
    source.train()
    source[2].p = 0.0
    eval_step(source, x)
    assert not np.array_equal(before, source[1].running_mean[...])  # in training mode it is an ordinary call


def test_averages_survive_that_the_models_buffers_are_given_away():
    source = model()
    average = averaging.AveragedModel(source)
    average.update_parameters(source)
    for variable in nnx.state(source, nnx.Param).flat_state():
        variable[1].get_raw_value().delete()
    assert np.isfinite(np.asarray(average(jnp.ones((2, 3))))).all()


def test_a_copy_is_of_its_own():
    source = model()
    clone = copy.deepcopy(source)
    moved(source, 0)
    assert not np.array_equal(next(parameters(source)).value, next(parameters(clone)).value)
