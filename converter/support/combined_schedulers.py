"""Schedulers made of others, and the one that looks at a metric."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from .lr_schedulers import LRScheduler, per_group
from .optim import Optimizer


class SequentialLR(LRScheduler):
    """One scheduler after the other; `milestones` say at which step the next takes over, and starts at its step 0."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[Any], milestones: Sequence[int], last_epoch: int = -1
    ):  # fmt: skip
        if len(milestones) != len(schedulers) - 1:
            found = f"{len(schedulers)} schedulers and {len(milestones)} milestones"
            raise ValueError(f"SequentialLR: {found}, expected one milestone between two schedulers")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        self.last_epoch, self.optimizer = last_epoch + 1, optimizer
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        for scheduler in self._schedulers:
            _take_back(scheduler)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first._first_step()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: Any = None) -> None:
        """Go on by one."""
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == self.last_epoch:
            scheduler.go_to(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _take_back(scheduler: Any) -> None:
    """Undo the count of the first step that constructors take."""
    for inner in getattr(scheduler, "_schedulers", ()):
        _take_back(inner)
    if not hasattr(scheduler, "_schedulers"):
        scheduler.last_epoch -= 1


class ChainedScheduler(LRScheduler):
    """All schedulers at each step, one on top of the other."""

    def __init__(self, schedulers: Sequence[Any], optimizer: Optimizer | None = None):
        self._schedulers = list(schedulers)
        self.optimizer = optimizer or self._schedulers[0].optimizer
        self._last_lr = self._rates()

    def step(self, epoch: Any = None) -> None:
        """Go on by one."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._rates()


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a metric has not become better for more than `patience` steps."""

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
        threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0, min_lr: Any = 0, eps: float = 1e-8,
    ):  # fmt: skip
        if factor >= 1.0 or mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            found = f"factor {factor}, mode {mode!r}, threshold_mode {threshold_mode!r}"
            raise ValueError(f"ReduceLROnPlateau: {found}, expected below 1, 'min' or 'max', 'rel' or 'abs'")
        self.optimizer, self.factor, self.patience, self.cooldown, self.eps = optimizer, factor, patience, cooldown, eps
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.min_lrs = per_group("min_lr", optimizer, min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.last_epoch = self.num_bad_epochs = self.cooldown_counter = 0
        self._last_lr = self._rates()

    def step(self, metrics: Any, epoch: Any = None) -> None:  # type: ignore[override]  # torch's own signature
        """Note the metric of one more epoch."""
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._rates()

    def _is_better(self, current: float) -> bool:
        sign = -1.0 if self.mode == "min" else 1.0
        if self.threshold_mode == "rel":
            wanted = self.best * (1.0 + sign * self.threshold)
        else:
            wanted = self.best + sign * self.threshold
        return current < wanted if self.mode == "min" else current > wanted

    def _reduce(self) -> None:
        for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
            rate = max(float(group["lr"]) * self.factor, lowest)
            if group["lr"] - rate > self.eps:
                group["lr"] = rate
