"""Schedules with warm-up by the names and arguments that transformers has for them: each is a `LambdaLR`."""

import math
from collections.abc import Callable
from typing import Any

from .lr_schedulers import LambdaLR
from .optim import Optimizer


def _warmed(warmup: int, after: Callable[[int], float]) -> Callable[[int], float]:
    """From 0 to 1 in `warmup` steps, then `after(step)`."""
    return lambda step: step / max(1, warmup) if step < warmup else after(step)


def _share(step: int, warmup: int, total: int) -> float:
    """How much of the time after the warm-up is over."""
    return (step - warmup) / max(1, total - warmup)


def get_constant_schedule(optimizer: Optimizer, last_epoch: int = -1) -> LambdaLR:
    """Always the initial rate."""
    return LambdaLR(optimizer, lambda step: 1, last_epoch)


def get_constant_schedule_with_warmup(optimizer: Optimizer, num_warmup_steps: int, last_epoch: int = -1) -> LambdaLR:
    """The initial rate after a warm-up."""
    return LambdaLR(optimizer, _warmed(num_warmup_steps, lambda step: 1.0), last_epoch)


def get_linear_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """In a straight line to 0 at the last step."""
    left = max(1, num_training_steps - num_warmup_steps)
    factor = _warmed(num_warmup_steps, lambda step: max(0.0, (num_training_steps - step) / left))
    return LambdaLR(optimizer, factor, last_epoch)


def get_cosine_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, num_cycles: float = 0.5, last_epoch: int = -1
) -> LambdaLR:
    """Along a cosine, by default half a period of it, to 0."""

    def after(step: int) -> float:
        angle = math.pi * num_cycles * 2.0 * _share(step, num_warmup_steps, num_training_steps)
        return max(0.0, 0.5 * (1.0 + math.cos(angle)))

    return LambdaLR(optimizer, _warmed(num_warmup_steps, after), last_epoch)


def get_cosine_with_hard_restarts_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, num_cycles: int = 1, last_epoch: int = -1
) -> LambdaLR:
    """Half a cosine, `num_cycles` times from the top."""

    def after(step: int) -> float:
        share = _share(step, num_warmup_steps, num_training_steps)
        return 0.0 if share >= 1 else max(0.0, 0.5 * (1.0 + math.cos(math.pi * ((num_cycles * share) % 1.0))))

    return LambdaLR(optimizer, _warmed(num_warmup_steps, after), last_epoch)


def get_polynomial_decay_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, lr_end: float = 1e-7, power: float = 1.0,
    last_epoch: int = -1,
) -> LambdaLR:  # fmt: skip
    """Along a power of the time that is left to `lr_end`, which the initial rate has to exceed."""
    first = optimizer.defaults["lr"]
    if first <= lr_end:
        raise ValueError(f"lr_end ({lr_end}) must be smaller than the initial rate ({first})")

    def after(step: int) -> float:
        if step > num_training_steps:
            return lr_end / first
        left = 1 - (step - num_warmup_steps) / (num_training_steps - num_warmup_steps)
        return ((first - lr_end) * left**power + lr_end) / first

    return LambdaLR(optimizer, _warmed(num_warmup_steps, after), last_epoch)


def get_inverse_sqrt_schedule(
    optimizer: Optimizer, num_warmup_steps: int, timescale: Any = None, last_epoch: int = -1
) -> LambdaLR:
    """One over the root of the step, moved so that the warm-up ends at 1."""
    scale = timescale if timescale is not None else num_warmup_steps or 10_000
    shift = scale - num_warmup_steps
    return LambdaLR(
        optimizer, _warmed(num_warmup_steps, lambda step: 1.0 / math.sqrt((step + shift) / scale)), last_epoch
    )
