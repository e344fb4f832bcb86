"""Samplers for models that predict noise: the levels come from the betas of training."""

import itertools
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .schedulers import Schedule, Scheduler, respaced

float32 = jnp.float32  # the parity check lifts this to float64


def alphas_cumprod(config: dict[str, Any]) -> np.ndarray:
    """How much of the signal's variance is left at each time of training.

    Raises:
      NotImplementedError: a beta schedule that the source does not have either.
    """
    steps, start, end = config["num_train_timesteps"], config["beta_start"], config["beta_end"]
    if config["trained_betas"] is not None:
        betas = np.array(config["trained_betas"])
    elif config["beta_schedule"] == "linear":
        betas = np.linspace(start, end, steps)
    elif config["beta_schedule"] == "scaled_linear":
        betas = np.linspace(start**0.5, end**0.5, steps).astype(float32) ** 2
    elif config["beta_schedule"] == "squaredcos_cap_v2":
        bars = [math.cos((i / steps + 0.008) / 1.008 * math.pi / 2) ** 2 for i in range(steps + 1)]
        betas = np.array([min(1 - after / before, 0.999) for before, after in itertools.pairwise(bars)])
    else:
        raise NotImplementedError(f"beta_schedule {config['beta_schedule']!r} is not known")
    betas = betas.astype(float32)
    if config["rescale_betas_zero_snr"]:
        betas = _without_signal_at_the_end(betas)
    return np.cumprod(1.0 - betas)


def _without_signal_at_the_end(betas: np.ndarray) -> np.ndarray:
    """Betas after which nothing of the signal is left (Lin et al. 2023, algorithm 1)."""
    roots = np.sqrt(np.cumprod(1.0 - betas))
    first, last = roots[0], roots[-1]
    bars = ((roots - last) * (first / (first - last))) ** 2
    return 1 - np.concatenate([bars[:1], bars[1:] / bars[:-1]])


class _EulerSchedule(Schedule):
    def scale_model_input(self, sample: Array, i: Any) -> Array:
        """The sample at unit variance."""
        return sample / (self.sigma(i) ** 2 + 1) ** 0.5

    def step(self, model_output: Array, i: Any, sample: Array, state: Any = None) -> tuple[Array, Any]:
        """Euler's step along the derivative that the prediction gives, in float32."""
        sigma, kind = self.sigma(i), self.config["prediction_type"]
        sample = sample.astype(float32)
        if kind == "epsilon":
            denoised = sample - sigma * model_output
        elif kind == "v_prediction":
            denoised = model_output * (-sigma / (sigma**2 + 1) ** 0.5) + sample / (sigma**2 + 1)
        else:
            denoised = model_output
        derivative = (sample - denoised) / sigma
        return (sample + derivative * (self.sigma(i + 1) - sigma)).astype(model_output.dtype), state


class EulerDiscreteScheduler(Scheduler):
    """Euler's method on noise levels (Karras et al. 2022, algorithm 2 without churn)."""

    refused: ClassVar[dict[str, tuple[Any, str]]] = {
        "use_beta_sigmas": (False, "beta sigmas need scipy"),
        "timestep_type": ("discrete", "continuous times are not converted"),
    }

    @staticmethod
    def defaults(
        num_train_timesteps=1000, beta_start=0.0001, beta_end=0.02, beta_schedule="linear", trained_betas=None,
        prediction_type="epsilon", interpolation_type="linear", use_karras_sigmas=False, use_exponential_sigmas=False,
        use_beta_sigmas=False, sigma_min=None, sigma_max=None, timestep_spacing="linspace", timestep_type="discrete",
        steps_offset=0, rescale_betas_zero_snr=False, final_sigmas_type="zero",
    ) -> None:  # fmt: skip
        """The source's arguments."""

    def __init__(self, **values: Any):
        super().__init__(**values)
        require(self, "prediction_type", "epsilon", "v_prediction", "sample", "original_sample")
        require(self, "timestep_spacing", "linspace", "leading", "trailing")
        require(self, "interpolation_type", "linear", "log_linear")
        require(self, "final_sigmas_type", "zero", "sigma_min")

    def set_timesteps(self, num_inference_steps: int) -> Schedule:
        """The schedule of a run."""
        config, bars = self.config, alphas_cumprod(self.config)
        if config["rescale_betas_zero_snr"]:
            bars[-1] = 2**-24  # so that the first sigma is not infinite
        trained = ((1 - bars) / bars) ** 0.5
        timesteps = spaced(num_inference_steps, config).astype(np.float32)
        sigmas = np.interp(timesteps, np.arange(len(trained)), trained)
        if config["interpolation_type"] == "log_linear":
            ends = np.log(trained[-1]), np.log(trained[0])
            sigmas = np.exp(np.linspace(*ends, num_inference_steps + 1).astype(float32))
        if config["use_karras_sigmas"] or config["use_exponential_sigmas"]:
            sigmas = respaced(sigmas, num_inference_steps, config)
            timesteps = np.array([_time_of(sigma, np.log(trained)) for sigma in sigmas])
        last = trained[0] if config["final_sigmas_type"] == "sigma_min" else 0
        sigmas = np.concatenate([sigmas, [last]]).astype(np.float32).astype(float32)
        highest = float(sigmas.max())
        factor = highest if config["timestep_spacing"] in ("linspace", "trailing") else (highest**2 + 1) ** 0.5
        return _EulerSchedule(timesteps.astype(np.float32), sigmas, config, factor)


def require(scheduler: Scheduler, name: str, *known: Any) -> None:
    """Refuse a value that the source does not know.

    Raises:
      NotImplementedError: it is none of `known`.
    """
    if scheduler.config[name] not in known:
        found = f"{type(scheduler).__name__}: {name}={scheduler.config[name]!r}"
        raise NotImplementedError(f"{found}: expected one of {', '.join(map(repr, known))}")


def spaced(steps: int, config: dict[str, Any]) -> np.ndarray:
    """Times of training to sample at, latest first (Lin et al. 2023, table 2); whole numbers unless "linspace"."""
    trained, kind = config["num_train_timesteps"], config["timestep_spacing"]
    if kind == "linspace":
        return np.linspace(0, trained - 1, steps, dtype=np.float32)[::-1]
    if kind == "leading":
        return (np.arange(steps) * (trained // steps))[::-1] + config["steps_offset"]
    return np.arange(trained, 0, -trained / steps).round() - 1


def _time_of(sigma: float, log_sigmas: np.ndarray) -> float:
    """The time of training at which a noise level stood, between two of them by the logarithm."""
    log_sigma = np.log(max(sigma, 1e-10))
    below = np.cumsum(log_sigma - log_sigmas >= 0).argmax().clip(max=len(log_sigmas) - 2)
    low, high = log_sigmas[below], log_sigmas[below + 1]
    weight = np.clip((low - log_sigma) / (low - high), 0, 1)
    return (1 - weight) * below + weight * (below + 1)


class _DDIMSchedule(Schedule):
    def step(self, model_output: Array, i: Any, sample: Array, state: Any = None) -> tuple[Array, Any]:
        """The deterministic step (Song et al. 2021, formula 12 with eta 0); `sigmas` hold the signal's variance."""
        now, after, kind = self.sigma(2 * i), self.sigma(2 * i + 1), self.config["prediction_type"]
        signal, noise = now**0.5, (1 - now) ** 0.5
        if kind == "epsilon":
            original, direction = (sample - noise * model_output) / signal, model_output
        elif kind == "sample":
            original, direction = model_output, (sample - signal * model_output) / noise
        else:
            original = signal * sample - noise * model_output
            direction = signal * model_output + noise * sample
        if self.config["clip_sample"]:
            limit = self.config["clip_sample_range"]
            original = jnp.clip(original, -limit, limit)
        return after**0.5 * original + (1 - after) ** 0.5 * direction, state


class DDIMScheduler(Scheduler):
    """Deterministic implicit sampling."""

    refused: ClassVar[dict[str, tuple[Any, str]]] = {
        "thresholding": (False, "dynamic thresholding takes a quantile of each sample")
    }

    @staticmethod
    def defaults(
        num_train_timesteps=1000, beta_start=0.0001, beta_end=0.02, beta_schedule="linear", trained_betas=None,
        clip_sample=True, set_alpha_to_one=True, steps_offset=0, prediction_type="epsilon", thresholding=False,
        dynamic_thresholding_ratio=0.995, clip_sample_range=1.0, sample_max_value=1.0, timestep_spacing="leading",
        rescale_betas_zero_snr=False,
    ) -> None:  # fmt: skip
        """The source's arguments."""

    def __init__(self, **values: Any):
        super().__init__(**values)
        require(self, "prediction_type", "epsilon", "v_prediction", "sample")
        require(self, "timestep_spacing", "linspace", "leading", "trailing")

    def set_timesteps(self, num_inference_steps: int) -> Schedule:
        """The schedule of a run."""
        config, bars = self.config, alphas_cumprod(self.config)
        trained = config["num_train_timesteps"]
        if config["timestep_spacing"] == "linspace":
            times = np.linspace(0, trained - 1, num_inference_steps).round()[::-1].astype(np.int64)
        else:
            times = spaced(num_inference_steps, config).astype(np.int64)
        before = times - trained // num_inference_steps
        final = np.ones((), bars.dtype) if config["set_alpha_to_one"] else bars[0]
        pairs = np.stack([bars[times], np.where(before >= 0, bars[before], final)], axis=1)
        return _DDIMSchedule(times, pairs.reshape(-1), config)
