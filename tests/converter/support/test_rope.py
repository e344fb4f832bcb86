"""Rope frequencies agree with transformers.modeling_rope_utils, in float32 and lifted to float64."""

import copy
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import modeling_rope_utils
from transformers.modeling_rope_utils import RotaryEmbeddingConfigMixin, dynamic_rope_update

from maxcode.converter.support import rope
from maxcode.converter.support.rope import ROPE_INIT_FUNCTIONS, update_frequencies

HALF = 12  # of head_dim 24
SHORT, LONG = [1.0 + i / 50 for i in range(HALF)], [1.0 + i * i / 7 for i in range(HALF)]
ORIGINAL = {"original_max_position_embeddings": 64}
CASES = {
    "linear": [{"factor": 4.0}, {"factor": 2.5, "partial_rotary_factor": 0.5}],
    "dynamic": [{"factor": 4.0}, {"factor": 2.0, "partial_rotary_factor": 0.5}],
    "yarn": [
        {"factor": 4.0, **ORIGINAL},
        {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7, "beta_fast": 20, "beta_slow": 2, **ORIGINAL},
        {"factor": 8.0, "truncate": False, "attention_factor": 0.8, **ORIGINAL},
        {"factor": None, "partial_rotary_factor": 0.5, **ORIGINAL},
        {"factor": 2.0, "beta_fast": 1e-3, "beta_slow": 1e-3, **ORIGINAL},  # both ends of the ramp coincide
    ],
    "longrope": [
        {"short_factor": SHORT, "long_factor": LONG, **ORIGINAL},
        {"short_factor": SHORT, "long_factor": LONG, "factor": 0.5, **ORIGINAL},
        {"short_factor": SHORT, "long_factor": LONG, "attention_factor": 1.3, **ORIGINAL},
    ],
    "llama3": [{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL}],
    "proportional": [{"partial_rotary_factor": 0.25}, {"partial_rotary_factor": 1.0, "factor": 2.0}, {}],
}
FLAT = [(name, case) for name, cases in CASES.items() for case in cases]
THETAS = [10000.0, 5e6, 150000]


class LiftedFloat32(TorchFunctionMode):
    """Explicit float32 in torch code becomes float64."""

    def __torch_function__(self, func, kinds, args=(), kwargs=None):
        lift = {torch.float32: torch.float64}
        args = tuple(lift.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
        kwargs = {k: lift.get(v, v) if isinstance(v, torch.dtype) else v for k, v in (kwargs or {}).items()}
        return args[0].double() if func is torch.Tensor.float else func(*args, **kwargs)


class Settings(RotaryEmbeddingConfigMixin, types.SimpleNamespace):
    per_layer_config = property(lambda self: dict.fromkeys(self.rope_parameters, self))


def settings(rope_type, case, theta=10000.0, layer_type=None):
    parameters = {"rope_type": rope_type, "rope_theta": theta, **case}
    if layer_type is not None:
        parameters = {layer_type: parameters}
    return Settings(
        rope_parameters=copy.deepcopy(parameters), head_dim=24, hidden_size=96, num_attention_heads=4,
        max_position_embeddings=256, layer_types=[layer_type] if layer_type else None, rope_theta=theta,
    )  # fmt: skip


def test_every_rope_type_of_the_source_is_there():
    # CASES runs every type; those without an entry of their own are told by their parameters.
    assert set(modeling_rope_utils.ROPE_INIT_FUNCTIONS) | {"default"} <= set(ROPE_INIT_FUNCTIONS) | set(CASES)


def test_a_type_that_nothing_tells_is_refused():
    with pytest.raises(ValueError, match="rope_type is 'spiral'"):
        ROPE_INIT_FUNCTIONS["spiral"](settings("spiral", {"factor": 2.0}))


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize(("rope_type", "case"), FLAT)
def test_lifted_to_float64(monkeypatch, rope_type, case, theta):
    monkeypatch.setattr(rope, "float32", jnp.float64)
    config = settings(rope_type, case, theta)
    for seq_len in (None, 40, 300):
        with LiftedFloat32():
            expected, scaling = modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=seq_len)
        actual, actual_scaling = ROPE_INIT_FUNCTIONS[rope_type](config, seq_len)
        assert actual.dtype == np.float64
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-13, atol=1e-300)
        assert actual_scaling == pytest.approx(scaling, rel=1e-15)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize(("rope_type", "case"), FLAT)
def test_in_float32(rope_type, case, theta):
    config = settings(rope_type, case, theta)
    expected, scaling = modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=300)
    actual, actual_scaling = ROPE_INIT_FUNCTIONS[rope_type](config, 300)
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-6)
    assert actual_scaling == pytest.approx(scaling)


@pytest.mark.parametrize(("rope_type", "case"), FLAT)
def test_parameters_of_one_layer_type(rope_type, case):
    if rope_type == "yarn" and "truncate" in case:
        case = {key: value for key, value in case.items() if key != "truncate"}  # the source reads it outside
    config = settings(rope_type, case, layer_type="full_attention")
    expected, _ = modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope_type](config, layer_type="full_attention")
    actual, _ = ROPE_INIT_FUNCTIONS[rope_type](config, layer_type="full_attention")
    np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-6)


def test_default_is_the_plain_geometric_series():
    inv_freq, scaling = ROPE_INIT_FUNCTIONS["default"](settings("default", {"partial_rotary_factor": 0.5}))
    np.testing.assert_allclose(inv_freq, 10000.0 ** -(np.arange(6) / 6), rtol=1e-6)
    assert scaling == 1.0


def test_frequencies_are_concrete_under_a_trace():
    def trace():
        inv_freq, _ = ROPE_INIT_FUNCTIONS["yarn"](settings("yarn", CASES["yarn"][0]))
        assert isinstance(inv_freq, np.ndarray)
        return jnp.asarray(inv_freq)

    assert jax.eval_shape(trace).shape == (HALF,)


class SourceRope:
    """As much of a rotary module as `dynamic_rope_update` needs."""

    def __init__(self, config):
        self.config, self.rope_type = config, config.rope_parameters["rope_type"]
        init = modeling_rope_utils.ROPE_INIT_FUNCTIONS[self.rope_type]
        self.inv_freq, self.attention_scaling = init(config)
        self.original_inv_freq = self.inv_freq.clone()
        self.max_seq_len_cached = self.original_max_seq_len = config.max_position_embeddings

    def register_buffer(self, name, value, persistent):
        setattr(self, name, value)

    @dynamic_rope_update
    def forward(self, x, position_ids):
        return self.inv_freq


@pytest.mark.parametrize("length", [1, 63, 64, 65, 256, 257, 700])
@pytest.mark.parametrize("rope_type", ["dynamic", "longrope", "llama3"])
def test_frequencies_of_a_call(rope_type, length):
    config = settings(rope_type, CASES[rope_type][0])
    source = SourceRope(config)
    expected = source.forward(torch.zeros(1), torch.arange(length)[None])
    start, _ = ROPE_INIT_FUNCTIONS[rope_type](config)
    update = jax.jit(lambda positions: update_frequencies(start, config, positions, rope_type))
    np.testing.assert_allclose(update(jnp.arange(length)[None]), expected.numpy(), rtol=2e-6)
