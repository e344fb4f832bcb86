"""Samplers of diffusion models: the source's names and arguments, tables on the host, one pure step for a scan.

    scheduler = FlowMatchEulerDiscreteScheduler.from_json("scheduler/scheduler_config.json")
    schedule = scheduler.set_timesteps(10, mu=0.6)
    state = schedule.init_state(latents)
    latents, state = schedule.step(model_output, i, latents, state)        # i may be traced

Tables are computed in numpy, in float32 where the source says so: `float32` is the source's explicit torch dtype, which
the exact check lifts, `np.float32` stays as it is there.
"""

import dataclasses
import inspect
import json
import math
from pathlib import Path
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

float32 = jnp.float32  # the parity check lifts this to float64


class Scheduler:
    """Constructor arguments as `config`, defaults included; subclasses say which values they cannot take."""

    order = 1
    refused: ClassVar[dict[str, tuple[Any, str]]] = {}  # argument -> the only value that is converted, and why

    def __init__(self, **values: Any):
        known = {n: p.default for n, p in inspect.signature(self.defaults).parameters.items()}
        if unknown := sorted(set(values) - set(known)):
            raise TypeError(f"{type(self).__name__} takes no {', '.join(unknown)}; it takes {', '.join(known)}")
        self.config: dict[str, Any] = {**known, **values}
        for name, (only, why) in self.refused.items():
            if self.config[name] != only:
                raise NotImplementedError(f"{type(self).__name__}: {name}={self.config[name]!r}: {why}")
        chosen = [n for n in ("use_karras_sigmas", "use_exponential_sigmas") if self.config.get(n)]
        if len(chosen) > 1:
            raise ValueError(f"{type(self).__name__}: only one of {', '.join(chosen)} can be used")

    @staticmethod
    def defaults() -> None:
        """The constructor's arguments, as a signature."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """Read the source's scheduler_config.json; entries of the source's own bookkeeping are passed over."""
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        known = inspect.signature(cls.defaults).parameters
        return cls(**{k: v for k, v in found.items() if k in known})


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The times of one run, and the step between them. Subclasses add `step`, those that need it `scale_model_input`.

    Args:
      timesteps: what the model is told at each step.
      sigmas: noise levels, one more than there are steps.
      config: the scheduler's arguments.
      init_noise_sigma: factor of the initial noise.
    """

    timesteps: np.ndarray
    sigmas: np.ndarray
    config: dict[str, Any]
    init_noise_sigma: float = 1.0

    def scale_model_input(self, sample: Array, i: Any) -> Array:
        """The sample as the model takes it at step `i`."""
        return sample

    def init_state(self, sample: Array) -> Any:
        """What steps hand on to each other beside the sample; None where they do not."""
        return None

    def sigma(self, i: Any) -> Array:
        """The noise level before step `i`."""
        return jnp.asarray(self.sigmas)[i]


class _FlowMatchSchedule(Schedule):
    def step(self, model_output: Array, i: Any, sample: Array, state: Any = None) -> tuple[Array, Any]:
        """Euler's step along the predicted velocity, in float32."""
        dt = self.sigma(i + 1) - self.sigma(i)
        return (sample.astype(float32) + dt * model_output).astype(model_output.dtype), state


class FlowMatchEulerDiscreteScheduler(Scheduler):
    """Straight paths between noise and data; the times may be shifted by the number of positions (`mu`)."""

    refused: ClassVar[dict[str, tuple[Any, str]]] = {
        "use_beta_sigmas": (False, "beta sigmas need scipy"),
        "stochastic_sampling": (False, "steps that draw noise are not converted"),
    }

    @staticmethod
    def defaults(
        num_train_timesteps=1000, shift=1.0, use_dynamic_shifting=False, base_shift=0.5, max_shift=1.15,
        base_image_seq_len=256, max_image_seq_len=4096, invert_sigmas=False, shift_terminal=None,
        use_karras_sigmas=False, use_exponential_sigmas=False, use_beta_sigmas=False, time_shift_type="exponential",
        stochastic_sampling=False,
    ) -> None:  # fmt: skip
        """The source's arguments."""

    def set_timesteps(
        self, num_inference_steps: int | None = None, *, sigmas: Any = None, mu: float | None = None
    ) -> Schedule:
        """The schedule of a run: `sigmas` before shifting, evenly spaced by default.

        Raises:
          ValueError: no `mu` though the configuration shifts by it, or another number of sigmas than of steps.
        """
        config, steps = self.config, self.config["num_train_timesteps"]
        if config["use_dynamic_shifting"] and mu is None:
            raise ValueError("mu has to be given where use_dynamic_shifting is set")
        if sigmas is None:
            first, last = self._ends()
            values = np.linspace(first * steps, last * steps, num_inference_steps) / steps
        else:
            values = np.array(sigmas).astype(np.float32)
            if num_inference_steps not in (None, len(values)):
                raise ValueError(f"{len(values)} sigmas for {num_inference_steps} steps")
        values = self._shifted(values, mu)
        if config["shift_terminal"]:
            values = 1 - (1 - values) / ((1 - values[-1]) / (1 - config["shift_terminal"]))
        values = respaced(values, len(values), config)
        values = np.asarray(values).astype(float32)
        if config["invert_sigmas"]:
            values = 1.0 - values
        timesteps = values * steps
        end = np.full(1, 1.0 if config["invert_sigmas"] else 0.0, values.dtype)
        return _FlowMatchSchedule(timesteps, np.concatenate([values, end]), config)

    def _ends(self) -> tuple[float, float]:
        """The largest and smallest sigma of training."""
        steps = self.config["num_train_timesteps"]
        sigmas = np.array([steps, 1]).astype(float32) / steps
        if not self.config["use_dynamic_shifting"]:
            shift = self.config["shift"]
            sigmas = shift * sigmas / (1 + (shift - 1) * sigmas)
        return float(sigmas[0]), float(sigmas[1])

    def _shifted(self, values: np.ndarray, mu: float | None) -> np.ndarray:
        if not self.config["use_dynamic_shifting"]:
            shift = self.config["shift"]
            return shift * values / (1 + (shift - 1) * values)
        assert mu is not None
        factor = math.exp(mu) if self.config["time_shift_type"] == "exponential" else mu
        return factor / (factor + (1 / values - 1) ** 1.0)


def respaced(sigmas: np.ndarray, steps: int, config: dict[str, Any]) -> np.ndarray:
    """Noise levels between the same ends, spaced as Karras et al. (2022, eq. 5) or evenly in the logarithm."""
    if not (config.get("use_karras_sigmas") or config.get("use_exponential_sigmas")):
        return sigmas
    low, high = config.get("sigma_min"), config.get("sigma_max")
    low, high = (float(sigmas[-1]) if low is None else low), (float(sigmas[0]) if high is None else high)
    if config.get("use_exponential_sigmas"):
        return np.exp(np.linspace(math.log(high), math.log(low), steps))
    rho, ramp = 7.0, np.linspace(0, 1, steps)
    return (high ** (1 / rho) + ramp * (low ** (1 / rho) - high ** (1 / rho))) ** rho
