"""Scenarios with a backward pass: `gradients` and `training`."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from maxcode.evaluator.oracle.build import call
from maxcode.evaluator.oracle.discrete import Discrete
from maxcode.evaluator.oracle.flatten import flatten
from maxcode.evaluator.oracle.inputs import generator
from maxcode.evaluator.oracle.lift import computing_in
from maxcode.evaluator.oracle.noise import persistent_buffers
from maxcode.evaluator.oracle.session import NotApplicableError, Session
from maxcode.evaluator.oracle.store import Recording

STEPS = 20
# At a rate of 1e-3 recurrent models are chaotic: weights one rounding apart lead PyTorch to losses 3e-5 apart after 20
# steps. At 1e-4 they stay within 1e-12, while a gradient that is missing or wrong still moves the loss by far more.
OPTIMIZER = {"learning_rate": 1e-4, "b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
_DROPOUTS = {
    getattr(owner, name)
    for owner in (nn.functional, torch)
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    if hasattr(owner, name)
}
_RATES = ("drop", "jitter")  # attributes that hold a rate of random omission or noise


class _NoDropout(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _DROPOUTS:
            return args[0] if args else (kwargs or {})["input"]
        return func(*args, **(kwargs or {}))


def gradients(session: Session) -> Recording:
    """Gradients of every parameter, model in eval mode. Loss: sum over outputs of mean(output * weight)."""
    model, inputs = session.fresh("float64"), session.inputs("float64")
    parameters = {n: p for n, p in model.named_parameters() if p.is_floating_point() or p.is_complex()}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    discrete = Discrete(model)
    with discrete.watching():
        output = call(model, inputs, "float64", seed=session.seed)
    weights = loss_weights(output, session.seed)
    loss = weighted_loss(output, weights)
    if not loss.requires_grad:
        raise NotApplicableError("no output depends on a parameter by a differentiable path")
    with computing_in("float64"):
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    recording = Recording("gradients", "gradients", "float64")
    case = recording.case("seed0", inputs, output)
    case["loss"] = recording.put("seed0/loss", loss)
    case["loss_weights"] = recording.named("seed0/loss_weights", weights)
    case["gradients"] = {
        name: None if value is None else recording.put(f"seed0/grad.{name}", value)
        for name, value in zip(parameters, found, strict=True)
    }
    discrete.record_into(recording, case)
    return recording


def loss_weights(output: Any, seed: int) -> dict[str, Tensor]:
    """Seeded normal weights for every floating output without infinities (some models mask with -inf on purpose)."""
    weights = {}
    for name, value in flatten(output).items():
        if value.is_floating_point() and value.numel() and bool(torch.isfinite(value).all()):
            draw = torch.randn(value.shape, generator=generator("loss:" + name, seed), dtype=torch.float32)
            weights[name] = draw.to(value.dtype)
    return weights


def weighted_loss(output: Any, weights: dict[str, Tensor]) -> Tensor:
    """sum over outputs of mean(output * weight), a float64 scalar."""
    flat = flatten(output)
    terms = [(flat[name] * weight).mean() for name, weight in weights.items()]
    return torch.stack(terms).sum() if terms else torch.zeros(())


def training(session: Session) -> Recording:
    """20 AdamW steps in training mode with dropout off. Loss: the model's own for `labels`, else as for gradients."""
    model = session.fresh("float64").train()
    silence(model)
    batches = [session.inputs("float64", 1000 + session.seed + step) for step in range(STEPS)]
    batches, own = with_labels(model, batches)
    recording = Recording("training", "training", "float64")
    case = recording.case("seed0", batches[0], optimizer=OPTIMIZER, dropout_off=True)
    case["batches"] = [recording.tree(f"seed0/batch{i}", batch) for i, batch in enumerate(batches)]
    weights: dict[str, Tensor] = {}
    if own:
        case["loss_output"] = "loss"
    else:
        with torch.no_grad():
            weights = loss_weights(_step(model, batches[0]), session.seed)
        case["loss_weights"] = recording.named("seed0/loss_weights", weights)
        model = silence(session.fresh("float64").train())  # that pass moved the batch statistics
    losses = train(model, batches, weights)
    case["losses"] = recording.put("seed0/losses", losses)
    floating = {n: b for n, b in persistent_buffers(model).items() if n.rpartition(".")[2] != "num_batches_tracked"}
    case["buffers"] = recording.named("seed0/buffer", floating)
    case["parameters"] = recording.named("seed0/parameter", dict(model.named_parameters()))
    return recording


def train(model: nn.Module, batches: list[dict[str, Any]], weights: dict[str, Tensor]) -> Tensor:
    """Losses [steps] in float64, taken before each update.

    Raises:
      NotApplicableError: the model draws random tensors although dropout is off, or nothing can be trained.
    """
    trained = [p.requires_grad_(True) for p in model.parameters() if p.is_floating_point()]
    if not trained:
        raise NotApplicableError("the model has no floating parameters")
    o = OPTIMIZER
    optimizer = torch.optim.AdamW(
        trained,
        lr=o["learning_rate"],
        betas=(o["b1"], o["b2"]),
        eps=o["eps"],
        weight_decay=o["weight_decay"],
        foreach=False,
    )
    losses = []
    for batch in batches:
        output = _step(model, batch)
        loss = weighted_loss(output, weights) if weights else output["loss"]
        if not loss.requires_grad:
            raise NotApplicableError("the loss does not depend on a parameter by a differentiable path")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().double())
    return torch.stack(losses)


def _step(model: nn.Module, batch: dict[str, Any], dtype: str = "float64") -> Any:
    discrete = Discrete(model)
    with discrete.watching(), _NoDropout():
        output = call(model, batch, dtype)
    if drawn := [d for d in discrete.draws if d["value"].dim()]:  # scalar draws are compared with rates that are now 0
        where = f"{drawn[0]['op']} in {drawn[0]['module'] or 'the model'}"
        raise NotApplicableError(f"training mode draws random numbers beside dropout ({where})")
    return output


def silence(model: nn.Module) -> nn.Module:
    """Sets every rate of dropout, layer drop and jitter held by a module to 0; returns the model."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and any(part in name for part in _RATES):
                setattr(module, name, 0.0)
    return model


def with_labels(
    model: nn.Module, batches: list[dict[str, Any]], dtype: str = "float64"
) -> tuple[list[dict[str, Any]], bool]:
    """Batches with `labels` (the token ids) where the model then returns a scalar loss of its own."""
    ids = "decoder_input_ids" if "decoder_input_ids" in batches[0] else "input_ids"
    if ids not in batches[0]:
        return batches, False
    labelled = [batch | {"labels": batch[ids].clone()} for batch in batches]
    with torch.no_grad(), _kept_buffers(model):
        try:
            output = _step(model, labelled[0], dtype)
            loss = output["loss"]
        except (TypeError, ValueError, RuntimeError, KeyError, IndexError):  # takes no labels, or others than token ids
            return batches, False
    return (labelled, True) if torch.is_tensor(loss) and loss.dim() == 0 else (batches, False)


@contextlib.contextmanager
def _kept_buffers(model: nn.Module) -> Iterator[None]:
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    yield
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
