"""Learning rate schedulers with torch's names, arguments and arithmetic: Python numbers on the host.

They set `optimizer.param_groups[i]["lr"]`, which a compiled step is given as an argument; so they may step when the
source says (each batch, each epoch, on a metric), and a rate is computed in double precision whatever the model is.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from .optim import Optimizer


class LRScheduler:
    """Base: `get_lr()` says the rates of the groups for `last_epoch`, the number of `step()` calls.

    `initial` is True while the constructor takes the first step, which sets the rates of step 0.
    """

    initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if last_epoch != -1:
            raise ValueError(f"{type(self).__name__}: last_epoch is {last_epoch}; resuming is not offered, expected -1")
        self.optimizer, self.last_epoch = optimizer, last_epoch
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._first_step()

    def _first_step(self) -> None:
        self._step_count = 0
        self.initial = True
        self.step()
        self.initial = False

    def get_lr(self) -> list[float]:
        """The rate of each group at `last_epoch`."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: every number that the scheduler holds."""
        return {k: v for k, v in vars(self).items() if isinstance(v, int | float | bool | list)}

    def step(self, epoch: Any = None) -> None:
        """Go on by one, or to `epoch`."""
        self._step_count += 1
        self.go_to(epoch)

    def go_to(self, epoch: Any = None) -> None:
        """Set the rates of the next step, or of `epoch`, by its closed form where there is one."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        self._set(closed() if epoch is not None and closed is not None else self.get_lr())

    def _set(self, values: Iterable[float]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            group["lr"] = value
        self._last_lr = self._rates()

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _times(self, factor: float) -> list[float]:
        return [rate * factor for rate in self._rates()]


_LRScheduler = LRScheduler


class LambdaLR(LRScheduler):
    """The initial rate times `lr_lambda(step)`."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1):
        self.lr_lambdas = per_group("lr_lambda", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Each group's own function of the step."""
        return [base * factor(self.last_epoch) for factor, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(LRScheduler):
    """The rate before times `lr_lambda(step)`."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Any, last_epoch: int = -1):
        self.lr_lambdas = per_group("lr_lambda", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Nothing changes at step 0."""
        if self.initial:
            return self._rates()
        return [rate * factor(self.last_epoch) for rate, factor in zip(self._rates(), self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """From the rate before, so that several schedulers may act on one optimizer."""
        turns = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return self._times(self.gamma) if turns else self._rates()

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of the milestones, several times where one is listed several times."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """From the rate before."""
        count = self.milestones.count(self.last_epoch)
        return self._times(self.gamma**count) if count else self._rates()

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma ** bisect_right(self.milestones, self.last_epoch) for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1):
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Taken back when the time is over."""
        if self.last_epoch == 0:
            return self._times(self.factor)
        return self._times(1.0 / self.factor) if self.last_epoch == self.total_iters else self._rates()

    def _get_closed_form_lr(self) -> list[float]:
        over = self.last_epoch >= self.total_iters
        return [base * (self.factor + over * (1 - self.factor)) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """A factor that goes from `start_factor` to `end_factor` in a straight line over `total_iters` steps."""

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1.0 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ):  # fmt: skip
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate before times the quotient of two neighbours on the line."""
        if self.last_epoch == 0:
            return self._times(self.start_factor)
        if self.initial or self.last_epoch > self.total_iters:
            return self._rates()
        rise = self.end_factor - self.start_factor
        return self._times(1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise))

    def _get_closed_form_lr(self) -> list[float]:
        rise = (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + rise) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Times `gamma` every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """Nothing changes at step 0."""
        return self._rates() if self.initial else self._times(self.gamma)

    def _get_closed_form_lr(self) -> list[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The initial rate times (1 - step / total_iters) ** power, zero afterwards."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate before times the quotient of two neighbours on the curve."""
        if self.initial or self.last_epoch > self.total_iters:
            return self._rates()
        left, before = 1.0 - self.last_epoch / self.total_iters, 1.0 - (self.last_epoch - 1) / self.total_iters
        return self._times((left / before) ** self.power)

    def _get_closed_form_lr(self) -> list[float]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left**self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to `eta_min` and back along a cosine of period 2 * T_max (Loshchilov and Hutter 2017)."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rate before times the quotient of two neighbours on the cosine."""
        if self.initial:
            return self._rates()
        groups = zip(self.base_lrs, self._rates(), strict=True)
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            half = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - self.eta_min) * half for base, rate in groups]
        quotient = self._height(self.last_epoch) / self._height(self.last_epoch - 1)
        return [quotient * (rate - self.eta_min) + self.eta_min for _, rate in groups]

    def _height(self, step: int) -> float:
        return 1 + math.cos(math.pi * step / self.T_max)

    def _get_closed_form_lr(self) -> list[float]:
        return [self.eta_min + (base - self.eta_min) * self._height(self.last_epoch) / 2 for base in self.base_lrs]


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value per parameter group. Raises ValueError where a list has another length."""
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name}: {len(value)} values, expected one for each of {count} parameter groups")
    return list(value)
