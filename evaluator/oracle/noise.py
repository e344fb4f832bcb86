"""Seeded noise for every weight of a model with random weights, so that a wrong port shows.

Freshly built models hide faults: norm scales are 1, biases 0, batch statistics 0 and 1, routers undecided. How a tensor
is refilled follows from how the constructor filled it, never from its name:

- drawn at random, or never filled: noise of standard deviation 1 / sqrt(fan in);
- constant: the constant plus noise (very small constants, such as layer scales, become large enough to matter);
- structured (the same for two seeds, not constant: decay rates, position tables): perturbed by a few per cent.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from maxcode.evaluator.oracle.inputs import generator


def add_noise(model: nn.Module, twin: nn.Module, seed: int) -> None:
    """Refills `model` in place. `twin` is the same model, built under another seed; equal values are structure."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    twins = dict(twin.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point() and parameter.numel():
                parameter.copy_(_refill(name, parameter, twins[name], seed, id(parameter) in embeddings))
        done = _fill_statistics(model, seed)
        _fill_buffers(model, done, seed)


def _refill(name: str, value: Tensor, twin: Tensor, seed: int, embedding: bool) -> Tensor:
    noise = _noise(name, value, seed)
    if embedding:
        return 0.5 * noise
    sane = bool(torch.isfinite(value).all()) and float(value.abs().max()) < 1e3
    if not sane:  # uninitialised memory reads as NaN while building, see build.py
        return _spread(value) * noise if value.dim() > 1 else 0.1 * noise
    if value.dim() == 0:
        return value * (1 + 0.1 * noise) + 0.05 * noise
    if bool((value == value.flatten()[0]).all()):
        return _around_constant(value, noise)
    if value.dim() == 1:
        return value * (1 + 0.1 * noise) + 0.02 * noise
    if torch.equal(value, twin):
        return value * (1 + 0.05 * noise) + 0.02 * noise
    return _spread(value) * noise


def _around_constant(value: Tensor, noise: Tensor) -> Tensor:
    constant = float(value.flatten()[0])
    if constant == 0.0:
        return 0.1 * noise if value.dim() == 1 else _spread(value) * noise
    if abs(constant) < 0.5:
        return math.copysign(0.5, constant) + 0.1 * noise
    return constant * (1 + 0.1 * noise)


def _spread(value: Tensor) -> float:
    """1 / sqrt(fan in) within [0.02, 0.2]; with three dimensions, whose layout is unknown, of the larger candidate."""
    fan_in = value.shape[-1] if value.dim() == 2 else max(value.shape[1:])
    if value.dim() > 3:
        fan_in = value[0].numel()
    return min(0.2, max(0.02, 1.0 / math.sqrt(max(1, fan_in))))


def _fill_statistics(model: nn.Module, seed: int) -> set[str]:
    """Running means near 0 and variances in [0.5, 1.5]; returns the buffers that are settled."""
    done = set()
    for prefix, module in model.named_modules():
        mean, variance = getattr(module, "running_mean", None), getattr(module, "running_var", None)
        if not (torch.is_tensor(mean) and torch.is_tensor(variance)):
            continue
        for leaf, fill in (("running_mean", lambda z, u: 0.1 * z), ("running_var", lambda z, u: 0.5 + u)):
            name = f"{prefix}.{leaf}" if prefix else leaf
            _fill(name, getattr(module, leaf), seed, fill)
            done.add(name)
    return done


def _fill(name: str, buffer: Tensor, seed: int, rule: Callable[[Tensor, Tensor], Tensor]) -> None:
    uniform = torch.rand(buffer.shape, generator=generator("uniform:" + name, seed), dtype=torch.float32)
    buffer.copy_(rule(_noise(name, buffer, seed), uniform))


def _fill_buffers(model: nn.Module, done: set[str], seed: int) -> None:
    """Learned buffers (router biases, code books, frozen norms) start constant; tables from a constructor stay."""
    for name, buffer in persistent_buffers(model).items():
        if name in done or not buffer.is_floating_point() or buffer.numel() <= 1:
            continue
        if bool(torch.isfinite(buffer).all()) and bool((buffer == buffer.flatten()[0]).all()):
            noise = _noise(name, buffer, seed)
            buffer.copy_(buffer + (0.1 if buffer.dim() == 1 or float(buffer.flatten()[0]) else 1.0) * noise)


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that the state dict holds, by fqn."""
    names = model.state_dict(keep_vars=True).keys()
    return {name: buffer for name, buffer in model.named_buffers(remove_duplicate=False) if name in names}


def _noise(name: str, like: Tensor, seed: int) -> Tensor:
    draw = torch.randn(like.shape, generator=generator("weight:" + name, seed), dtype=torch.float32)
    return draw.to(like.dtype)
