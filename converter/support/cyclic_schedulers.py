"""Schedulers that go round (Smith 2017; Loshchilov and Hutter 2017) and may move the momentum against the rate."""

import math
from collections.abc import Callable
from typing import Any

from .lr_schedulers import LRScheduler, per_group
from .optim import Optimizer


class Momentum:
    """What `cycle_momentum` changes: "momentum", or the first of "betas", of every group."""

    def __init__(self, optimizer: Optimizer, base: Any, largest: Any):
        if "betas" not in optimizer.defaults and "momentum" not in optimizer.defaults:
            raise ValueError(f"{type(optimizer).__name__} has neither momentum nor betas; give cycle_momentum=False")
        self.optimizer = optimizer
        self.base, self.largest = (
            per_group("base_momentum", optimizer, base),
            per_group("max_momentum", optimizer, largest),
        )
        self.set(self.largest)

    def set(self, values: list[float]) -> None:
        """Give each group its value."""
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            if "betas" in self.optimizer.defaults:
                group["betas"] = (value, *group["betas"][1:])
            else:
                group["momentum"] = value


class CyclicLR(LRScheduler):
    """Up from `base_lr` to `max_lr` and down again; `mode` or `scale_fn` says how high later cycles go."""

    def __init__(
        self, optimizer: Optimizer, base_lr: Any, max_lr: Any, step_size_up: int = 2000,
        step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: Any = 0.8, max_momentum: Any = 0.9, last_epoch: int = -1,
    ):  # fmt: skip
        lowest, self.max_lrs = per_group("base_lr", optimizer, base_lr), per_group("max_lr", optimizer, max_lr)
        for group, rate in zip(optimizer.param_groups, lowest, strict=True):
            group["lr"] = rate
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        modes: dict[str, tuple[Callable[[float], float], str]] = {
            "triangular": (lambda x: 1.0, "cycle"),
            "triangular2": (lambda x: 1 / 2.0 ** (x - 1), "cycle"),
            "exp_range": (lambda x: gamma**x, "iterations"),
        }
        if scale_fn is None and mode not in modes:
            raise ValueError(f"CyclicLR: mode {mode!r}, expected one of {sorted(modes)} or a scale_fn")
        self.scale_fn, self.scale_mode = modes[mode] if scale_fn is None else (scale_fn, scale_mode)
        self.momentum = Momentum(optimizer, base_momentum, max_momentum) if cycle_momentum else None
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lowest

    def get_lr(self) -> list[float]:
        """Rates of this point of the cycle; sets the momentum too."""
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.momentum is not None:
            pairs = zip(self.momentum.base, self.momentum.largest, strict=True)
            self.momentum.set([largest - (largest - base) * height * scale for base, largest in pairs])
        return [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]


class OneCycleLR(LRScheduler):
    """One cycle of the rate, with the momentum against it (Smith and Topin 2018)."""

    def __init__(
        self, optimizer: Optimizer, max_lr: Any, total_steps: int | None = None, epochs: int | None = None,
        steps_per_epoch: int | None = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: Any = 0.85, max_momentum: Any = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False, last_epoch: int = -1,
    ):  # fmt: skip
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("OneCycleLR: give total_steps, or epochs and steps_per_epoch")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy {anneal_strategy!r}, expected 'cos' or 'linear'")
        self.total_steps = total_steps if total_steps is not None else int(epochs or 0) * int(steps_per_epoch or 0)
        self.anneal = _along_cosine if anneal_strategy == "cos" else _along_line
        # Of each phase: its last step, the rates it goes between, and the momenta.
        start = float(pct_start * self.total_steps)
        up = (start - 1, "initial_lr", "max_lr", "largest", "base")
        down = (self.total_steps - 1, "max_lr", "min_lr", "base", "largest")
        back = (2 * start - 2, "max_lr", "initial_lr", "base", "largest")
        out = (self.total_steps - 1, "initial_lr", "min_lr", "largest", "largest")
        self.phases = [up, back, out] if three_phase else [up, down]
        for group, rate in zip(optimizer.param_groups, per_group("max_lr", optimizer, max_lr), strict=True):
            group["initial_lr"], group["max_lr"] = rate / div_factor, rate
            group["min_lr"] = group["initial_lr"] / final_div_factor
        self.momentum = Momentum(optimizer, base_momentum, max_momentum) if cycle_momentum else None
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Rates of this step; sets the momentum too. Raises ValueError beyond the last step."""
        if self.last_epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: step {self.last_epoch} of {self.total_steps}; give it more total_steps")
        start: float = 0.0
        for number, phase in enumerate(self.phases):
            if self.last_epoch <= phase[0] or number == len(self.phases) - 1:
                break
            start = phase[0]
        end, low, high, first, second = phase
        share = (self.last_epoch - start) / (end - start)
        if self.momentum is not None:
            pairs = zip(getattr(self.momentum, first), getattr(self.momentum, second), strict=True)
            self.momentum.set([self.anneal(a, b, share) for a, b in pairs])
        return [self.anneal(group[low], group[high], share) for group in self.optimizer.param_groups]


def _along_cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _along_line(start: float, end: float, share: float) -> float:
    return (end - start) * share + start


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the initial rate to `eta_min` in T_0 steps, then again, each time T_mult times as long."""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ):  # fmt: skip
        if T_0 <= 0 or T_mult < 1:
            raise ValueError(f"CosineAnnealingWarmRestarts: T_0 {T_0!r} and T_mult {T_mult!r}, expected at least 1")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Rates of this point of the period."""
        height = 1 + math.cos(math.pi * self.T_cur / self.T_i)
        return [self.eta_min + (base - self.eta_min) * height / 2 for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Go on by one, or to `epoch`, which may be a fraction."""
        self._step_count += 1
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        else:
            self._place(epoch)
        self.last_epoch = math.floor(epoch)
        self._set(self.get_lr())

    def _place(self, epoch: float) -> None:
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
