"""Samplers step by step against diffusers, in float64 with explicit float32 lifted on both sides."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxcode.converter.support import noise_schedulers, schedulers

STEPS = 10
FLOW, EULER, DDIM = "FlowMatchEulerDiscreteScheduler", "EulerDiscreteScheduler", "DDIMScheduler"
FLOW_CASES = [
    ({}, {}),
    ({"shift": 3.0}, {}),
    ({"use_dynamic_shifting": True}, {"mu": 0.7}),
    ({"use_dynamic_shifting": True, "shift_terminal": 0.02, "time_shift_type": "linear"}, {"mu": 0.7}),
    ({"shift": 2.0}, {"sigmas": np.linspace(1, 0.1, STEPS)}),
    ({"use_karras_sigmas": True}, {}),
    ({"use_exponential_sigmas": True, "shift": 2.0}, {}),
    ({"invert_sigmas": True}, {}),
]
SPACINGS, KINDS = ("linspace", "leading", "trailing"), ("epsilon", "v_prediction", "sample")
NOISE_CASES = [
    (name, {"prediction_type": kind, "timestep_spacing": spacing, "beta_schedule": "scaled_linear", "steps_offset": 1})
    for name in (EULER, DDIM)
    for kind in KINDS
    for spacing in SPACINGS
]
NOISE_CASES += [
    (EULER, {"use_karras_sigmas": True}),
    (EULER, {"use_exponential_sigmas": True}),
    (EULER, {"interpolation_type": "log_linear"}),
    (EULER, {"final_sigmas_type": "sigma_min"}),
    (EULER, {"trained_betas": [0.001 * (i + 1) for i in range(50)], "num_train_timesteps": 50}),
    (EULER, {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}),
    (DDIM, {"clip_sample": False, "set_alpha_to_one": False}),
    (DDIM, {"beta_schedule": "squaredcos_cap_v2", "clip_sample_range": 0.5}),
]


@pytest.fixture
def lifted(monkeypatch):
    """Both modules compute in float64 where the source says float32."""
    monkeypatch.setattr(schedulers, "float32", jnp.float64)
    monkeypatch.setattr(noise_schedulers, "float32", jnp.float64)
    with jax.enable_x64(True):
        yield


def _check(name, config, **arguments):
    torch, diffusers = pytest.importorskip("torch"), pytest.importorskip("diffusers")
    from maxcode.evaluator.oracle.lift import computing_in

    with computing_in("float64"):
        theirs = getattr(diffusers, name)(**config)
        theirs.set_timesteps(STEPS, **arguments)
        ours = getattr(schedulers, name, None) or getattr(noise_schedulers, name)
        ours = ours(**config).set_timesteps(STEPS, **arguments)
        np.testing.assert_allclose(ours.timesteps, np.asarray(theirs.timesteps), rtol=1e-12)
        assert ours.init_noise_sigma == pytest.approx(float(getattr(theirs, "init_noise_sigma", 1.0)), rel=1e-12)
        x = torch.tensor(np.random.default_rng(0).normal(size=(2, 3, 4)))
        y = jnp.asarray(x.numpy())
        state = ours.init_state(y)
        for i, t in enumerate(theirs.timesteps):
            output = np.random.default_rng(i).normal(size=x.shape)
            scaled = theirs.scale_model_input(x, t) if hasattr(theirs, "scale_model_input") else x
            np.testing.assert_allclose(ours.scale_model_input(y, i), scaled.numpy(), rtol=0, atol=1e-10)
            x = theirs.step(torch.tensor(output), t, x, return_dict=False)[0]
            y, state = ours.step(jnp.asarray(output), i, y, state)
            np.testing.assert_allclose(y, x.numpy(), rtol=0, atol=1e-10 * float(x.abs().max()))


@pytest.mark.parametrize(("config", "arguments"), FLOW_CASES)
def test_flow_steps_equal_the_source(lifted, config, arguments):
    _check(FLOW, config, **arguments)


@pytest.mark.parametrize(("name", "config"), NOISE_CASES)
def test_noise_steps_equal_the_source(lifted, name, config):
    _check(name, config)


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (schedulers.FlowMatchEulerDiscreteScheduler, {"stochastic_sampling": True}),
        (noise_schedulers.EulerDiscreteScheduler, {"timestep_type": "continuous"}),
        (noise_schedulers.EulerDiscreteScheduler, {"prediction_type": "unheard"}),
        (noise_schedulers.DDIMScheduler, {"thresholding": True}),
    ],
)
def test_what_is_not_converted_is_refused(cls, values):
    with pytest.raises(NotImplementedError, match=next(iter(values))):
        cls(**values)


def test_shifting_by_positions_needs_mu():
    with pytest.raises(ValueError, match="mu"):
        schedulers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True).set_timesteps(4)
