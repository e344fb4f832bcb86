"""Optimizers beside torch's own: 40 steps in float64 from the same parameters and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from maxcode.converter.support import optim, optim_more, train_state
from maxcode.converter.support.conv import Conv2d
from maxcode.converter.support.layers import Linear
from maxcode.converter.support.parameters import parameters

STEPS = 40
SHAPES = {"a": (5, 3), "b": (7,), "c": (2, 3, 4)}

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.2, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.01}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.05, "betas": (0.7, 0.9), "eps": 1e-2, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.02, "momentum_decay": 0.1, "weight_decay": 0.1, "eps": 1e-4}),
    ("NAdam", {"lr": 0.02, "betas": (0.6, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {"lr": 0.03, "betas": (0.8, 0.9), "weight_decay": 0.2}),
    ("RAdam", {"lr": 0.03, "weight_decay": 0.2, "decoupled_weight_decay": True, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.8, "momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.003, "centered": True, "eps": 1e-2, "momentum": 0.5}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-3}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.5), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.1, "lambd": 0.01, "alpha": 0.6, "t0": 5, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.03, "betas": (0.5, 0.9), "weight_decay": 0.3, "amsgrad": True}),
]


class Holder(nnx.Module):
    """Three parameters."""

    def __init__(self, values):
        for name, value in values.items():
            setattr(self, name, nnx.Param(jnp.asarray(value)))


def values(seed=0):
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape) for name, shape in SHAPES.items()}


def gradient(step, name, scale=1.0):
    """Gradients that change size and sign, with some exact zeros."""
    random = np.random.default_rng([step, len(name), ord(name[0])])
    drawn = random.standard_normal(SHAPES[name]) * 10.0 ** random.uniform(-3, 1)
    return scale * np.where(random.random(SHAPES[name]) < 0.1, 0.0, drawn)


def in_torch(cls, options, groups=None, rate=None):
    given = {n: torch.nn.Parameter(torch.tensor(v)) for n, v in values().items()}
    members = [{**g, "params": [given[n] for n in g["params"]]} for g in groups] if groups else list(given.values())
    optimizer = getattr(torch.optim, cls)(members, **options)
    trail = []
    for step in range(STEPS):
        for name, parameter in given.items():
            parameter.grad = torch.tensor(gradient(step, name))
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
        optimizer.step()
        trail.append({n: p.detach().numpy().copy() for n, p in given.items()})
    return trail


def in_jax(cls, options, groups=None, rate=None):
    model = Holder(values())
    known = {p.name: p for p in parameters(model)}
    members = [{**g, "params": [known[n] for n in g["params"]]} for g in groups] if groups else list(known.values())
    optimizer = getattr(optim if hasattr(optim, cls) else optim_more, cls)(members, **options)
    _graph, state = train_state.start(model, optimizer)
    step_once = jax.jit(lambda state, grads, hyper: state.updated(optimizer, grads, hyper))
    trail = []
    for step in range(STEPS):
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
        grads = jax.tree.unflatten(jax.tree.structure(state.params), [jnp.asarray(gradient(step, n)) for n in SHAPES])
        state = step_once(state, grads, optimizer.hyperparameters())
        trail.append({n: np.asarray(state.params[n]) for n in SHAPES})
    return trail


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)  # of the numbers that NAdam and ASGD keep as tensors
    with jax.enable_x64(True):
        yield
    torch.set_default_dtype(torch.float32)


def assert_same(ours, theirs, limit=1e-12):
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for name in SHAPES:
            error = np.abs(a[name] - b[name]).max() / np.abs(b[name]).max()
            assert error <= limit, f"step {step}, {name}: {error:.1e}"


@pytest.mark.parametrize(("cls", "options"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_takes_torchs_steps(cls, options):
    assert_same(in_jax(cls, options), in_torch(cls, options))


def test_groups_have_their_own_numbers():
    groups = [{"params": ["a"], "lr": 0.05}, {"params": ["c", "b"], "weight_decay": 0.5}]
    assert_same(in_jax("AdamW", {"lr": 0.01}, groups), in_torch("AdamW", {"lr": 0.01}, groups))


def test_rates_may_change_without_a_new_trace():
    def rate(step):
        return 0.1 / (1 + step)

    assert_same(
        in_jax("SGD", {"lr": 1.0, "momentum": 0.9}, rate=rate), in_torch("SGD", {"lr": 1.0, "momentum": 0.9}, rate=rate)
    )


def test_a_changed_number_that_was_compiled_in_is_not_overlooked():
    model = Holder(values())
    optimizer = optim.AdamW(parameters(model), lr=0.1, weight_decay=0.0)
    before = optimizer.hyperparameters()
    optimizer.param_groups[0]["weight_decay"] = 0.5
    after = optimizer.hyperparameters()
    assert "weight_decay" in after.traced[0]
    assert jax.tree.structure(before) != jax.tree.structure(after)


def test_parameters_outside_all_groups_stay():
    model = Holder(values())
    optimizer = optim.SGD([p for p in parameters(model) if p.name != "b"], lr=0.1)
    _, state = train_state.start(model, optimizer)
    after = state.updated(optimizer, jax.tree.map(jnp.ones_like, state.params), optimizer.hyperparameters())
    assert np.array_equal(after.params["b"], values()["b"])
    assert not np.array_equal(after.params["a"], values()["a"])


def test_frozen_parameters_have_no_gradient():
    model = Holder(values())
    for parameter in parameters(model):
        if parameter.ndim == 1:
            parameter.requires_grad_(False)
    _, state = train_state.start(model, optim.SGD(parameters(model), lr=0.1))
    assert "b" not in state.params
    assert "b" in state.rest


MATRICES = [
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-5, 1e-2), "d": 1.5, "weight_decay": 0.1}),
    ("Muon", {"lr": 0.1}),
    ("Muon", {"lr": 0.1, "nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}),
]


@pytest.mark.parametrize(("cls", "options"), MATRICES, ids=str)
@pytest.mark.parametrize(("inner", "outer"), [(6, 3), (3, 6)])
def test_optimizers_of_matrices_see_the_sources_matrices(cls, options, inner, outer):
    random = np.random.default_rng(0)
    start, grads = random.standard_normal((outer, inner)), random.standard_normal((STEPS, outer, inner))
    theirs = torch.nn.Parameter(torch.tensor(start))
    torch_optimizer = getattr(torch.optim, cls)([theirs], **options)
    model = Linear(inner, outer, bias=False, config=Float64, rngs=nnx.Rngs(0))
    model.kernel.set_value(jnp.asarray(start.T))
    optimizer = getattr(optim_more, cls)(parameters(model), **options)
    _, state = train_state.start(model, optimizer)
    for grad in grads:
        theirs.grad = torch.tensor(grad)
        torch_optimizer.step()
        state = state.updated(optimizer, {"kernel": jnp.asarray(grad.T)}, optimizer.hyperparameters())
    error = np.abs(np.asarray(state.params["kernel"]).T - theirs.detach().numpy()).max()
    assert error <= (1e-12 if cls == "Adafactor" else 0.02 * 0.1 * STEPS)  # Muon works in bfloat16


def test_matrices_in_other_layouts_are_refused():
    model = Conv2d(2, 3, 3, config=Float64, rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="another layout"):
        optim_more.Adafactor(parameters(model))
    with pytest.raises(ValueError, match="not the matrix of a linear layer"):
        optim_more.Muon(parameters(Holder({"a": np.ones((3, 2))})))


class Float64:
    dtype = weight_dtype = "float64"
    matmul_precision = "default"
