"""Measure one layer: every sample of torch's, in evaluation and training mode, forward and gradients."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from maxcode.converter.rule import NoRule
from maxcode.converter.support import random
from maxcode.converter.support.leaves import get_leaf
from maxcode.coverage import compare
from maxcode.coverage.calls import describe, flat_tensors
from maxcode.coverage.compare import Expected, Kind
from maxcode.coverage.layers import build, fill, move, noted_constructors, places, qualified
from maxcode.coverage.ops import Tally
from maxcode.coverage.running import leaves, to_jax


@dataclass(frozen=True)
class Gradients:
    """torch's gradients of the weighed outputs, and the weights."""

    by_params: dict[str, torch.Tensor]
    by_inputs: list[torch.Tensor]
    weights: list[Any]


@functools.cache
def infos() -> dict[str, Any]:
    """torch's ModuleInfo entries by class name."""
    from torch.testing._internal.common_modules import module_db

    return {info.module_cls.__name__: info for info in module_db}


def names() -> list[str]:
    """Every layer of torch's table."""
    return sorted(infos())


def names_of(name: str) -> list[str]:
    """The torch names whose entries decide a layer's row."""
    return [qualified(infos()[name].module_cls)]


def measure(name: str, most: int | None = None) -> dict[str, Any]:
    """The row of one layer, as `ops.measure` gives it; "left_out" is never set."""
    info, tally = infos()[name], Tally()
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for training in (False, True):
            found = samples(info, training)
            step = 1 if most is None else max(1, -(-len(found) // most))
            for sample in found[::step]:
                _measure_sample(info.module_cls, sample, training, tally)
    return {"left_out": None} | tally.row()


def samples(info: Any, training: bool) -> list[Any]:
    """torch's samples of a layer, seeded; layers among the arguments remember what they were made with."""
    torch.manual_seed(0)
    with noted_constructors([entry.module_cls for entry in infos().values()]):
        return list(info.module_inputs_func(info, "cpu", torch.float64, requires_grad=True, training=training))


def _measure_sample(cls: type[torch.nn.Module], sample: Any, training: bool, tally: Tally) -> None:
    made, call = sample.constructor_input, sample.forward_input
    text = ", ".join([*map(describe, made.args), *(f"{k}={describe(v)}" for k, v in made.kwargs.items())])
    where = f"{cls.__name__}({text}){' training' if training else ''}"
    torch.manual_seed(0)
    try:
        module = cls(*made.args, **made.kwargs).double().train(training)
        want = _expected(module, call)
    except compare.REFUSALS:
        tally.refused += 1
        return
    tally.samples += 1
    tally.random += want.kind is Kind.RANDOM
    try:
        layer = build(qualified(cls), made.args, made.kwargs)
    except NoRule as missing:
        if missing.limit is not None:
            tally.limits[missing.limit] += 1
        else:
            tally.miss(missing.reason, where)
        return
    except Exception as error:
        tally.miss(f"{type(error).__name__}: {error}", where)
        return
    try:
        difference = _compared(layer, module, call, want, training, tally)
    except Exception as error:  # whatever JAX raises is a miss
        difference = f"{type(error).__name__}: {error}"
    if difference:
        tally.miss(difference, where)
    else:
        tally.agree += 1


def _expected(module: torch.nn.Module, call: Any) -> Expected:
    """Outputs under two seeds; running statistics are put back."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(module(*call.args, **call.kwargs))
        module.load_state_dict(state)
    same = all(
        np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
        for a, b in zip(leaves(results[0]), leaves(results[1]), strict=True)
    )
    return Expected(results[0], Kind.FIXED if same else Kind.RANDOM)


def _compared(
    layer: Any, module: torch.nn.Module, call: Any, want: Expected, training: bool, tally: Tally
) -> str | None:
    """What differs: outputs, statistics after the call, gradients by parameters and inputs."""
    if isinstance(layer, nnx.Module):
        fill(layer, module)
        if hasattr(layer, "train"):
            layer.train(training)
    floats = [t for t in flat_tensors((call.args, call.kwargs)) if t.requires_grad]
    wanted = _gradients(module, call, floats) if want.kind is Kind.FIXED else None
    outputs, rest, by_params, by_inputs = jax.jit(_program(layer, (call.args, call.kwargs), floats, wanted))(
        nnx.state(layer, nnx.Param) if isinstance(layer, nnx.Module) else {}, [to_jax(t) for t in floats]
    )
    for got, value in zip(leaves(outputs), leaves(want.outputs), strict=True):
        different = compare.type_difference(got, value)
        if different is None and want.kind is Kind.FIXED:
            different = compare.difference(got, value, compare.RTOL, compare.ATOL)
        if different:
            return different
    if wanted is None:
        return None
    tally.gradients += 1
    return _gradient_difference(by_params, by_inputs, wanted, module) or _statistics(layer, rest, module)


def _program(layer: Any, arguments: Any, floats: list[torch.Tensor], wanted: Gradients | None) -> Callable[..., Any]:
    """(parameters, differentiated inputs) -> (outputs, other state after the call, gradients by either)."""
    places_of = {id(t): i for i, t in enumerate(floats)}
    split = nnx.split(layer, nnx.Param, ...) if isinstance(layer, nnx.Module) else None

    def run(params: Any, values: list[jax.Array]) -> Any:
        args, kwargs = _mapped(lambda t: values[places_of[id(t)]] if id(t) in places_of else to_jax(t), arguments)
        # Variables are written to in training: they have to be of this trace.
        called = layer if split is None else nnx.merge(split[0], params, jax.tree.map(jnp.asarray, split[2]))
        with random.key_scope(jax.random.key(0)):
            outputs = called(*args, **kwargs)
        scalar = 0.0
        if wanted is not None:
            scalar = compare.weighed(jax.tree.leaves(outputs), wanted.weights, jnp.real, jnp.imag)
        return scalar, (outputs, {} if split is None else nnx.state(called, nnx.Not(nnx.Param)))

    def program(params: Any, values: list[jax.Array]) -> Any:
        if wanted is None:
            return *run(params, values)[1], None, None
        found, (outputs, rest) = jax.grad(run, (0, 1), has_aux=True)(params, values)
        return outputs, rest, *found

    return program


def _gradients(module: torch.nn.Module, call: Any, floats: list[torch.Tensor]) -> Gradients | None:
    """Gradients by every parameter and differentiated input; None where no output has one."""
    parameters = dict(module.named_parameters())
    outputs = flat_tensors(module(*call.args, **call.kwargs))
    weights = [compare.weights(o, i) if o.requires_grad else None for i, o in enumerate(outputs)]
    if not any(weight is not None for weight in weights):
        return None
    wanted = [*parameters.values(), *floats]
    scalar = compare.weighed(outputs, weights, lambda o: o, lambda o: o)
    found = torch.autograd.grad(scalar, wanted, allow_unused=True)
    found = [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]
    count = len(parameters)
    return Gradients(dict(zip(parameters, found[:count], strict=True)), list(found[count:]), weights)


def _gradient_difference(by_params: Any, by_inputs: Any, wanted: Gradients, module: torch.nn.Module) -> str | None:
    where = places(module)
    pairs = [(f"input {i}", by_inputs[i], gradient, "") for i, gradient in enumerate(wanted.by_inputs)]
    pairs += [(name, _leaf(by_params, where[name][0]), g, where[name][1]) for name, g in wanted.by_params.items()]
    for name, got, gradient, layout in pairs:
        want = move(gradient, layout)
        if text := compare.difference(np.asarray(got), want, compare.GRADIENT_RTOL, compare.GRADIENT_ATOL):
            return f"gradient of {name}: {text}"
    return None


def _leaf(state: Any, path: str) -> Any:
    for part in path.split("."):
        state = state[int(part) if part.isdigit() and int(part) in state else part]
    return state[...]


def _statistics(layer: Any, rest: Any, module: torch.nn.Module) -> str | None:
    """What differs in running statistics after the one call that `_gradients` made."""
    if not isinstance(layer, nnx.Module):
        return None
    nnx.update(layer, rest)
    where = places(module)
    for name, tensor in module.named_buffers():
        leaf, layout = where[name]
        got, want = np.asarray(get_leaf(layer, leaf)), move(tensor, layout)
        if text := compare.difference(got, want, compare.RTOL, compare.ATOL):
            return f"{name} after the call: {text}"
    return None


def _mapped(change: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _mapped(change, value) for name, value in tree.items()}
    if isinstance(tree, tuple | list) and not isinstance(tree, torch.Size):
        return tuple(_mapped(change, value) for value in tree)
    return change(tree) if torch.is_tensor(tree) else tree
