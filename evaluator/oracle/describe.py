"""`facts` of index.json: what the checks need to know about the source model to choose and judge."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from maxcode.evaluator.oracle.derive import text_config
from maxcode.evaluator.oracle.flatten import flatten
from maxcode.evaluator.oracle.sequences import sequence_limit, sequence_shape
from maxcode.evaluator.oracle.session import Session

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_DROPOUTS = (nn.modules.dropout._DropoutNd,)


def facts(session: Session) -> dict[str, Any]:
    """The entries that docs/interfaces.md §7.1 names, without `reasons`."""
    model = session.model("float64")
    inputs = session.inputs("float64")
    logits = logits_name(model, flatten(_output(session, inputs)))
    parameters = inspect.signature(model.forward).parameters
    specs = session.specs()
    shape = sequence_shape(specs)
    limit = sequence_limit(model)
    return {
        "logits": logits,
        "vocab_size": vocab_size(model) if logits else None,
        "cache": bool(logits) and _keeps_cache(session, inputs, parameters),
        "sequence": _sequence_inputs(inputs, shape),
        "padding": shape is not None and "attention_mask" in parameters,
        "dropout": _has_dropout(model),
        "batch_norm": any(isinstance(m, _BATCH_NORMS) for m in model.modules()),
        "trainable": any(p.requires_grad and p.is_floating_point() for p in model.parameters()),
        "embeds": _continuous_input(inputs, parameters),
        "max_positions": limit,
        "token_limit": vocab_size(model) if shape else None,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def _output(session: Session, inputs: dict[str, Any]) -> Any:
    """One output, in float32 where the source refuses float64."""
    try:
        return session.run("float64", inputs)[0]
    except (RuntimeError, TypeError, ValueError, AssertionError):
        return session.run("float32", session.inputs("float32"))[0]


def vocab_size(model: nn.Module) -> int | None:
    size = getattr(text_config(model.config), "vocab_size", None) if hasattr(model, "config") else None
    return size if isinstance(size, int) else None


def logits_name(model: nn.Module, outputs: dict[str, Tensor]) -> str | None:
    """The floating output whose last axis is the vocabulary, `logits` first."""
    size = vocab_size(model)
    fitting = [n for n, v in outputs.items() if v.is_floating_point() and v.dim() >= 2 and v.shape[-1] == size]
    return "logits" if "logits" in fitting else next(iter(fitting), None)


def _keeps_cache(session: Session, inputs: dict[str, Any], parameters: Any) -> bool:
    if "use_cache" not in parameters and not any("past_key" in n or "cache" in n for n in parameters):
        return False
    try:
        output, _ = session.run("float64", inputs | {"use_cache": True})
    except (TypeError, ValueError, RuntimeError):
        return False
    fields = output.items() if hasattr(output, "items") else ()
    return any(v is not None and ("past_key" in k or "cache" in k or hasattr(v, "get_seq_length")) for k, v in fields)


def _sequence_inputs(inputs: dict[str, Any], shape: tuple[int, int] | None) -> list[str]:
    if shape is None:
        return []
    return [n for n, v in inputs.items() if torch.is_tensor(v) and tuple(v.shape[:2]) == shape and v.dim() == 2]


def _has_dropout(model: nn.Module) -> bool:
    for module in model.modules():
        if isinstance(module, _DROPOUTS) and module.p > 0:
            return True
        rates = (value for name, value in vars(module).items() if "dropout" in name)
        if any(isinstance(rate, float) and rate > 0 for rate in rates):
            return True
    return False


def _continuous_input(inputs: dict[str, Any], parameters: Any) -> str | None:
    floating = [n for n, v in inputs.items() if torch.is_tensor(v) and v.is_floating_point()]
    return floating[0] if floating else ("inputs_embeds" if "inputs_embeds" in parameters else None)
