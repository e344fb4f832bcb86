"""Configurations that run: the user's changes set, a tiny size chosen, other sizes derived from a resolved target."""

import contextlib
import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import torch

from maxcode.evaluator.oracle import derive, importing, sequences, tiny
from maxcode.evaluator.oracle.build import build_inputs, call, construct
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.flatten import flatten
from maxcode.evaluator.oracle.target import Target

MAX_TINY = 60_000_000  # parameters; a "tiny" model above this is one whose sizes no rule reached


def derive_small(target: Target) -> Target:
    """The small configuration of a resolved target, with noise for weights: same class and branches, small sizes.

    The sizes come from the target's own configuration, not from its class's defaults.

    Raises:
      OracleError: a plain module (it has no configuration to shrink), or no small size runs.
    """
    if target["config"] is None:
        do = "run every check on the target itself"
        raise OracleError(target["text"], "a module without a configuration", "a transformers configuration", do)
    config = importing.config_of(target)
    kept = {"kind": "transformers", "path": target["path"] if target["trust_remote_code"] else None, "gguf_file": None}
    small = target | kept | {"weights": "noise", "inputs": None, "overrides": None, "revision": None}
    return first_running(small, tiny.shrunk_like(config), {})


def derive_second(target: Target) -> Target:
    """A second configuration of a resolved target's class, with noise for weights: what design §1 derives for a type.

    Where inputs for that cannot be derived, the target's own configuration grows instead (more layers and positions,
    fewer key and value heads) and its inputs are kept, for a larger batch if they allow one.

    Raises:
      OracleError: a plain module (it has no configuration), or no size runs.
    """
    if target["config"] is None:
        raise OracleError(target["text"], "a module without a configuration", "a transformers configuration", "")
    kept = {"weights": "noise", "overrides": None, "revision": None}
    try:
        fresh = target | kept | {"inputs": None}
        return first_running(fresh, tiny.candidates(importing.config_class(target)), {})
    except OracleError:
        own, larger = target["inputs"], sequences.larger_batch(target["inputs"])
        grown = list(tiny.grown(importing.config_of(target)))
        for inputs in (larger, own) if larger else (own,):
            with contextlib.suppress(OracleError):
                return first_running(target | kept | {"inputs": inputs}, grown, {})
        raise


def room_for(target: Target) -> Target:
    """The target, where this machine can hold two copies: noise for random weights is told by a second construction."""
    count, free = parameter_count(target), psutil.virtual_memory().available
    if (needed := 2 * 4 * count) > free:
        found = f"{count:,} parameters, {needed / 1e9:.0f} GB to build twice in float32, with {free / 1e9:.0f} GB free"
        do = "leave --full-size out (the tiny size takes the same branches), or give smaller sizes with --set"
        raise OracleError(f"{target['text']} --full-size", found, "a size that fits into memory", do)
    return target


def first_running(target: Target, configs: Iterable[Any], changes: dict[str, Any]) -> Target:
    refused = []
    for config in configs:
        for name in changes:  # no size mends a name
            _check_field(config, name, name)
        try:
            attempt = settled(dict(target), config, changes)
            _run_once(attempt)
            return attempt
        except OracleError as error:
            refused.append(error)
        except Exception as error:
            refused.append(OracleError(target["text"], f"{type(error).__name__}: {error}", "a size that runs", ""))
    found = "; ".join(dict.fromkeys(error.found[:200] for error in refused)) or "no size fits the configuration"
    do = "give sizes with --set, inputs with --inputs, or use --full-size"
    raise OracleError(target["text"], found, "a tiny configuration that builds and runs", do)


def _run_once(target: Target) -> None:
    if (count := parameter_count(target)) > MAX_TINY:
        raise OracleError(target["text"], f"{count} parameters", f"at most {MAX_TINY}", "give sizes with --set")
    model = construct(target)
    with torch.no_grad():
        outputs = flatten(call(model, build_inputs(target, model, "float32"), "float32"))
    if not any(bool(torch.isfinite(v).any()) for v in outputs.values() if v.is_floating_point()):
        raise OracleError(target["text"], f"outputs {sorted(outputs)}", "a finite floating output", "give --inputs")


def parameter_count(target: Target) -> int:
    """Counted on a model without storage, because a size that is no tiny one might not fit the memory."""
    return sum(p.numel() for p in _without_storage(target).parameters())


def _without_storage(target: Target) -> torch.nn.Module:
    """The model on the meta device; what its constructor makes of the configuration shows here, before any weight."""
    try:
        with torch.device("meta"):
            return importing.model_class(target)(importing.config_of(target))
    except OracleError:
        raise
    except Exception as error:
        raise refused(target, error) from error


def refused(target: Target, error: Exception) -> OracleError:
    """The error for a configuration that its own classes do not take."""
    stored = target["kind"] in ("folder", "hub")
    where = str(Path(target["path"]) / "config.json") if stored else target["text"]
    found = " ".join(f"{type(error).__name__}: {error}".split())
    do = "correct config.json or the values of --set" if stored else "correct the values of --set"
    return OracleError(where, found, "a configuration that the model's constructor takes", do)


def settled(target: Target, config: Any, changes: dict[str, Any]) -> Target:
    """The configuration with the user's changes, written out in full."""
    try:
        for name, value in changes.items():
            _set(target, config, name, value, name)
        target["config"] = _plain(config.to_dict())
    except OracleError:
        raise
    except Exception as error:  # strict configurations check every assignment
        raise refused(target, error) from error
    if target["inputs"] is None:
        target["inputs"] = derive.input_specs(_without_storage(target))
    return target


def _check_field(config: Any, name: str, path: str) -> None:
    if name not in config.to_dict() and not hasattr(config, name):
        fields = sorted(k for k in config.to_dict() if not k.startswith("_"))
        near = difflib.get_close_matches(name, fields, 1)
        do = f"did you mean {near[0]!r}?" if near else "correct the name"
        where = f"--set {path}: {type(config).__name__}"
        raise OracleError(where, "no such field", f"one of {', '.join(fields)}", do)


def _set(target: Target, config: Any, name: str, value: Any, path: str) -> None:
    _check_field(config, name, path)
    inner = getattr(config, name, None)
    if isinstance(value, dict) and hasattr(inner, "to_dict"):
        for key, item in value.items():
            _set(target, inner, key, item, f"{path}.{key}")
    elif isinstance(value, dict) and isinstance(inner, dict):
        setattr(config, name, inner | value)
    else:
        setattr(config, name, value)


def nested(overrides: dict[str, Any]) -> dict[str, Any]:
    """{"a.b": 1, "a.c": 2} -> {"a": {"b": 1, "c": 2}}."""
    result: dict[str, Any] = {}
    for path, value in overrides.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return result


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(config, default=str))
