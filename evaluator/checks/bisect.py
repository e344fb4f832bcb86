"""`bisect`: compare activations module by module and name the first class, line and tensor that diverge.

It runs when another check fails, and its table feeds the report's heat map. It is no check of the verdict itself.
"""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.capture import watching
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.compare import Difference, difference
from maxcode.evaluator.package import cast_floats, named_outputs, split_static, to_jax
from maxcode.evaluator.recording import Case
from maxcode.evaluator.verdict import Check


@dataclasses.dataclass(frozen=True)
class Activation:
    """One output tensor of one module call on both sides."""

    fqn: str
    call: int
    class_name: str
    where: str  # file:line of the JAX class's __call__
    source: str  # file:line of the source's forward
    tensor: str
    shape: tuple[int, ...]
    difference: Difference
    caller: str = ""  # the enclosing module as "fqn (class, file:line)", where the call's own input is off already

    def __str__(self) -> str:
        text = (
            f"{self.fqn or 'the model'} ({self.class_name}, {self.where}; source {self.source}) first diverges in "
            f"{self.tensor!r} {list(self.shape)}: {self.difference}"
        )
        return f"{text}; its input differs already: look in {self.caller}" if self.caller else text


@check("bisect", group="x64")
def bisect(context: Context) -> Check:
    """The first module call, in the order in which calls end (innermost first), whose output is off."""
    case = context.scenario("modules").cases[0]
    context.package.lift()
    model = context.package.build(**context.package.overrides("float64", scan_layers=False))
    table = compare_activations(case, model, context.package.path)
    context.save_evidence("modules", [_row(entry) for entry in table])
    first = next((entry for entry in table if not entry.difference.error <= tolerance.EXACT), None)
    if first is None:
        return Check("bisect", "pass", 0.0, detail=f"{len(table)} activations agree")
    return Check.of("bisect", first.difference.error, tolerance.EXACT, str(first))


def _row(entry: Activation) -> dict[str, Any]:
    names = ("fqn", "call", "class_name", "where", "source", "tensor", "shape")
    return {name: getattr(entry, name) for name in names} | {"error": entry.difference.error}


def compare_activations(case: Case, model: nnx.Module, package: Path) -> list[Activation]:
    """Every output tensor that both sides have, in the source's order of calls."""
    seen, owners = activations(model, cast_floats(case.inputs, np.float64))
    values = {key: outputs for key, (_, outputs) in seen.items()}
    table = []
    for call in case.record["modules"]:
        key = (call["fqn"], call["call"])
        if key not in values:
            continue  # a module of the source that is a function here
        for name, tensor_key in call["outputs"].items():
            if name in values[key] and tensor_key is not None:
                expected = case.read(tensor_key)
                found = difference(values[key][name], expected)
                where, source = _where(owners[key], package), f"{Path(call['file'] or '?').name}:{call['line']}"
                cls = type(owners[key]).__name__
                caller = ""
                if not found.error <= tolerance.EXACT and _inputs_differ(case, call, seen[key][0]):
                    caller = _caller(key[0], owners, package)
                table.append(Activation(*key, cls, where, source, name, tuple(expected.shape), found, caller))
    return table


def _inputs_differ(case: Case, call: dict[str, Any], given: dict[str, np.ndarray]) -> bool:
    """Whether what a call was given is off: by name, or the only tensor of both sides (layers name it otherwise)."""
    recorded = {name: key for name, key in call.get("inputs", {}).items() if key is not None}
    pairs = [(given[name], key) for name, key in recorded.items() if name in given]
    if not pairs and len(recorded) == len(given) == 1:
        pairs = [(*given.values(), *recorded.values())]
    found = [(value, case.read(key)) for value, key in pairs]
    return any(not difference(a, b).error <= tolerance.EXACT for a, b in found if a.shape == b.shape)


def _caller(fqn: str, owners: dict[Any, Any], package: Path) -> str:
    """The nearest enclosing module that was called."""
    while fqn:
        fqn = fqn.rpartition(".")[0]
        module = owners.get((fqn, 0))
        if module is not None:
            return f"{fqn or 'the model'} ({type(module).__name__}, {_where(module, package)})"
    return ""


def activations(model: nnx.Module, inputs: dict[str, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """(inputs, outputs) of every module call by (fqn, call number), each {name: array}, and the modules."""
    graph, state = nnx.split(model)
    traced, static = split_static(model, inputs)
    owners: dict[tuple[str, int], nnx.Module] = {}

    def forward(state, traced):
        seen: dict[tuple[str, int], tuple[dict[str, Any], dict[str, Any]]] = {}
        given: dict[tuple[str, int], dict[str, Any]] = {}
        merged = nnx.merge(graph, state)

        def enter(fqn: str, call: int, module: nnx.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            given[fqn, call] = _named_inputs(module, args, kwargs)

        def observe(fqn: str, call: int, module: nnx.Module, output: Any) -> None:
            seen[fqn, call], owners[fqn, call] = (given.pop((fqn, call)), named_outputs(output)), module

        with watching(merged, observe, entered=enter):
            merged(**traced, **static)
        return seen

    try:
        seen = jax.jit(forward)(state, to_jax(traced))
    except jax.errors.UnexpectedTracerError:  # a module called inside a loop of its own: run op by op
        with jax.disable_jit():
            seen = forward(state, to_jax(traced))
    return jax.tree.map(np.asarray, seen), owners


def _named_inputs(module: nnx.Module, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arrays among a call's arguments, by the parameters' names."""
    try:
        bound = inspect.signature(type(module).__call__).bind(module, *args, **kwargs)
    except (TypeError, ValueError):
        return {}
    return {n: v for n, v in list(bound.arguments.items())[1:] if isinstance(v, jax.Array)}


def _where(module: nnx.Module, package: Path) -> str:
    try:
        file, line = inspect.getsourcefile(type(module)), inspect.getsourcelines(type(module))[1]
    except (OSError, TypeError):
        return "?"
    return f"{Path(file).relative_to(package) if Path(file).is_relative_to(package) else file}:{line}"
