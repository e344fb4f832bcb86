"""Averages of a model's parameters over training, with the names of torch.optim.swa_utils."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from .lr_schedulers import LRScheduler, per_group
from .optim import Optimizer
from .parameters import named_arrays

Average = Callable[[Any, Any, Any], Any]  # average, new value, how many were averaged -> average


def get_ema_multi_avg_fn(decay: float = 0.999) -> Average:
    """The exponential moving average."""
    return lambda average, new, count: decay * average + (1 - decay) * new


get_ema_avg_fn = get_ema_multi_avg_fn


def get_swa_multi_avg_fn() -> Average:
    """The mean of all values."""
    return lambda average, new, count: average + (new - average) / (count + 1)


get_swa_avg_fn = get_swa_multi_avg_fn


class AveragedModel:
    """A copy of a model whose parameters are an average of the model's over calls of `update_parameters`.

    The first call copies them. Without `use_buffers` batch statistics are the newest.
    """

    def __init__(
        self, model: nnx.Module, device: Any = None, avg_fn: Average | None = None, multi_avg_fn: Average | None = None,
        use_buffers: bool = False,
    ):  # fmt: skip
        self.module: Any = nnx.clone(model)
        self.average = multi_avg_fn or avg_fn or get_swa_multi_avg_fn()
        self.use_buffers, self.n_averaged = use_buffers, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def train(self, mode: bool = True) -> "AveragedModel":
        """Put the copy into training mode."""
        self.module.train(mode)
        return self

    def eval(self) -> "AveragedModel":
        """Put the copy into evaluation mode."""
        return self.train(False)

    def update_parameters(self, model: nnx.Module) -> None:
        """Take the model's present parameters into the average."""
        newest = dict(named_arrays(model))
        for name, variable in named_arrays(self.module):
            new, old = newest[name].get_raw_value(), variable.get_raw_value()
            averaged = isinstance(variable, nnx.Param) or self.use_buffers
            keeps = averaged and self.n_averaged > 0 and jnp.issubdtype(old.dtype, jnp.floating)
            # A copy: the model's own buffer is given away when training goes on.
            variable.set_value(self.average(old, new, self.n_averaged) if keeps else jnp.array(new, copy=True))
        self.n_averaged += 1


class SWALR(LRScheduler):
    """From the present rate to `swa_lr` in `anneal_epochs` steps."""

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):  # fmt: skip
        for group, rate in zip(optimizer.param_groups, per_group("swa_lr", optimizer, swa_lr), strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"SWALR: anneal_strategy {anneal_strategy!r}, expected 'cos' or 'linear'")
        self.strategy, self.anneal_epochs = anneal_strategy, anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        share = max(0, min(1, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * share)) / 2 if self.strategy == "cos" else share

    def get_lr(self) -> list[float]:
        """Between the rate that the share before came from and the last."""
        now, before = self._share(self.last_epoch), self._share(max(0, self.last_epoch - 1))
        rates = []
        for group in self.optimizer.param_groups:
            start = group["swa_lr"] if before == 1 else (group["lr"] - before * group["swa_lr"]) / (1 - before)
            rates.append(group["swa_lr"] * now + start * (1 - now))
        return rates


def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Batch statistics of a model as the plain mean over the batches of a loader; the first item of each is the input.

    Raises:
      ValueError: a layer keeps its statistics with another momentum than can be set here.
    """
    inner = getattr(model, "module", model)
    layers = [m for _, m in nnx.iter_graph(inner) if hasattr(m, "running_mean") and hasattr(m, "momentum")]
    if not layers:
        return
    momenta, was_training = [layer.momentum for layer in layers], inner.training
    inner.train()
    for layer in layers:
        layer.momentum = None
        layer.running_mean.set_value(jnp.zeros_like(layer.running_mean.get_raw_value()))
        layer.running_var.set_value(jnp.ones_like(layer.running_var.get_raw_value()))
        layer.num_batches_tracked.set_value(jnp.zeros_like(layer.num_batches_tracked.get_raw_value()))
    for batch in loader:
        inner(jax.numpy.asarray(batch[0] if isinstance(batch, list | tuple) else batch))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    inner.train(was_training)
