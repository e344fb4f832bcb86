"""One way to build a target's model and inputs, for every oracle command and for the instrumented run."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from maxcode.evaluator.machine import room_for_weights
from maxcode.evaluator.oracle import derive, importing, streaming, weights
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.flatten import bind
from maxcode.evaluator.oracle.inputs import cast, make_inputs, make_value
from maxcode.evaluator.oracle.lift import DTYPES, computing_in
from maxcode.evaluator.oracle.noise import add_noise
from maxcode.evaluator.oracle.target import Target, load_target
from maxcode.evaluator.tuples import untagged


def build(
    target: str | Path | Target,
    dtype: str = "float32",
    source_dir: str | Path | None = None,
    *,
    seed: int | None = None,
) -> tuple[nn.Module, dict[str, Any]]:
    """The model in eval mode with its weights, and keyword arguments for its `forward`.

    Args:
      target: `target.json` or its content.
      dtype: "float64" (built under the lift), "float32" or "bfloat16".
      source_dir: the run folder's `source/`; without it weights are made, or read from the target's path.
      seed: of the inputs; default the target's.

    Run the model inside `lift.computing_in(dtype)`, or with `call`. bfloat16 is what `from_pretrained(dtype=bfloat16)`
    gives for transformers models (constructor tables keep float32, modules marked so by the model too), else
    `.to(bfloat16)`.

    Raises:
      OracleError: class, arguments, weights or inputs do not fit.
    """
    target = load_target(target)
    model = build_model(target, dtype, source_dir)
    return model, build_inputs(target, model, dtype, seed)


def build_model(
    target: Target, dtype: str = "float32", source_dir: str | Path | None = None, *, room: int | None = None
) -> nn.Module:
    """The model alone; see `build`. With more than `room` bytes of weights (default: what fits) layers stream."""
    if source_dir is None and target["weights"] != "stored":
        model = construct(target)
        if target["weights"] == "noise":
            add_noise(model, construct(target, target["seed"] + 1), target["seed"])
        if dtype == "float32":
            return model
        state = model.state_dict()
    else:
        state = weights.read_state(target, source_dir)
    if size_in(state, dtype) > (room_for_weights() if room is None else room):
        with streaming.without_storage():
            model = construct(target, dtype=dtype, filled=False)
        weights.require_names(model, state, source_dir)
        return streaming.stream(model, state)
    model = construct(target, dtype=dtype, filled=False)
    weights.load_into(model, state, source_dir)
    return model


def size_in(state: dict[str, Any], dtype: str) -> int:
    """Bytes of the tensors of a state dict in a dtype; tied ones count once."""
    tensors = {(t.data_ptr(), t.shape): t for t in state.values() if torch.is_tensor(t)}
    return sum(t.numel() for t in tensors.values()) * DTYPES[dtype].itemsize


def construct(target: Target, seed: int | None = None, dtype: str = "float32", *, filled: bool = True) -> nn.Module:
    """The model as its constructor leaves it, in eval mode and in `dtype`; uninitialised memory reads as NaN.

    Args:
      filled: False leaves parameters undrawn, for a caller that loads all of them.
    """
    seed = target["seed"] if seed is None else seed
    cls, config = importing.model_class(target), importing.config_of(target)
    args, kwargs = ((config,), {}) if config is not None else init_arguments(target)
    torch.manual_seed(seed)
    try:
        with computing_in(dtype), _nan_for_uninitialised() if filled else _Undrawn():
            model = cls(*args, **kwargs)
    except OracleError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        do = (
            "correct the configuration"
            if config is not None
            else "give --init '<JSON>' with the constructor's arguments"
        )
        raise OracleError(f"{cls.__module__}:{cls.__name__}()", found, "a constructor that runs", do) from error
    if not isinstance(model, nn.Module):
        raise OracleError(f"{cls.__name__}", f"a {type(model).__name__}", "a torch.nn.Module", "name another class")
    return _in_dtype(model, dtype).eval()


class _Undrawn(TorchFunctionMode):
    """Skips random fills of parameters, which take most of the time of building a large model."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _FILLS and args and isinstance(args[0], nn.Parameter):
            return args[0]
        return func(*args, **(kwargs or {}))


_FILLS = {torch.Tensor.normal_, torch.Tensor.uniform_, nn.init.trunc_normal_, nn.init.normal_, nn.init.kaiming_uniform_}


@contextlib.contextmanager
def _nan_for_uninitialised() -> Iterator[None]:
    """`torch.empty` gives NaN, so that a weight which no constructor fills is seen, and never depends on old memory."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _in_dtype(model: nn.Module, dtype: str) -> nn.Module:
    if dtype == "bfloat16" and hasattr(model, "config") and hasattr(model, "get_parameter_or_buffer"):
        keep = [re.compile(rf"(^|\.){re.escape(n)}($|\.)") for n in model._keep_in_fp32_modules_strict or ()]
        for name, tensor in model.state_dict(keep_vars=True).items():
            if tensor.is_floating_point():
                wide = any(pattern.search(name) for pattern in keep)
                tensor.data = tensor.data.to(torch.float32 if wide else torch.bfloat16)
        return model
    return model.to(DTYPES[dtype]) if not any(p.is_complex() for p in model.parameters()) else model


def init_arguments(target: Target) -> tuple[tuple, dict[str, Any]]:
    """Constructor arguments of a plain module: the target's, else the file's own `get_init_inputs()`, else none."""
    given = target["init"]
    if given is None:
        own = getattr(importing.source_module(target), "get_init_inputs", None)
        given = own() if own else []
    given = untagged(given)
    if isinstance(given, dict):
        return (), given
    given = list(given)
    if len(given) == 2 and isinstance(given[0], list) and isinstance(given[1], dict):
        return tuple(given[0]), given[1]
    return tuple(given), {}


def build_inputs(target: Target, model: nn.Module, dtype: str, seed: int | None = None) -> dict[str, Any]:
    """Keyword arguments for `model.forward`, floating tensors in `dtype`; the same numbers for every dtype."""
    seed = target["seed"] if seed is None else seed
    given = target["inputs"]
    if isinstance(given, dict):
        values = make_inputs(given, seed)
    elif isinstance(given, list):
        values = bind(model.forward, tuple(make_value(str(i), spec, seed) for i, spec in enumerate(given)), {})
    else:
        values = _own_inputs(target, model, seed)
    return cast(values, DTYPES[dtype])


def _own_inputs(target: Target, model: nn.Module, seed: int) -> dict[str, Any]:
    if getattr(model, "config", None) is not None and target["config_class"]:
        return make_inputs(derive.input_specs(model), seed)
    own = getattr(importing.source_module(target), "get_inputs", None)
    if own is None:
        do = """give --inputs '[{"shape": [2, 3], "dtype": "float32"}]', or define get_inputs() beside the class"""
        raise OracleError(target["text"] or target["class_name"], "no sample inputs", "arguments for forward", do)
    torch.manual_seed(seed)
    values = own()
    return dict(values) if isinstance(values, dict) else bind(model.forward, tuple(values), {})


def call(model: nn.Module, inputs: dict[str, Any], dtype: str, *, seed: int = 0) -> Any:
    """Runs `model(**inputs)` as users do, lifted for float64, with the RNG seeded (some models sample in forward)."""
    torch.manual_seed(seed)
    named = {name: value for name, value in inputs.items() if "." not in name}
    rest = [value for name, value in inputs.items() if "." in name]  # of a *args parameter, see flatten.bind
    # A model in bfloat16 runs with torch's default dtype as it was: `torch.zeros(n)` in its forward makes float32.
    with computing_in("float32" if dtype == "bfloat16" else dtype):
        return model(*rest, **named)
