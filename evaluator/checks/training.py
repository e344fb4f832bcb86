"""`training`: AdamW steps from the same weights and batches; batch statistics; dropout's statistics."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.gradients import loss_function, parameter_values
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.compare import difference
from maxcode.evaluator.package import (
    Package,
    cast_floats,
    named_outputs,
    split_static,
    static_key,
    to_jax,
    value_of,
    variable,
)
from maxcode.evaluator.recording import Case
from maxcode.evaluator.verdict import Check

RATES = ("drop", "jitter")  # names of attributes that hold a rate of random omission or noise
DROPOUTS = ("dropout", "feature_dropout")


@check("training", group="x64")
def training(context: Context) -> Check:
    """Loss curves and running statistics agree in float64; dropout keeps the right share and scale."""
    case = context.scenario("training").cases[0]
    context.package.lift()
    model = context.package.fresh(**context.package.overrides("float64"))
    with without_dropout(context.package, model):
        losses, trained = train(model, case)
    found = difference(np.asarray(losses), case.array("losses"))
    buffers = _buffer_errors(context, case, trained)
    name, worst = max(buffers.items(), key=lambda item: item[1], default=("", 0.0))
    drop_ok, drop_text = dropout_statistics(context)
    value = max(found.error, worst)
    detail = f"{len(losses)} losses {losses[0]:.6g} .. {losses[-1]:.6g}: {found}"
    detail += f"; {len(buffers)} running statistics, worst {name} {worst:.1e}" if buffers else ""
    ok = drop_ok and len(losses) >= tolerance.TRAINING_STEPS
    return Check.of("training", value, tolerance.TRAINING, f"{detail}; {drop_text}", ok=ok)


def train(model: nnx.Module, case: Case) -> tuple[list[float], nnx.Module]:
    """The losses before each update, and the model after the last."""
    model.train()
    o = case.record["optimizer"]
    optimizer = optax.adamw(o["learning_rate"], o["b1"], o["b2"], o["eps"], weight_decay=o["weight_decay"])
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    output = case.record.get("loss_output")
    weights = {output: jnp.ones(())} if output else {n: jnp.asarray(w) for n, w in case.named("loss_weights").items()}
    batches = [split_static(model, cast_floats(case.tree(b), np.float64)) for b in case.record["batches"]]
    steps: dict[str, Any] = {}

    def step_for(static: dict[str, Any]) -> Any:
        loss = loss_function(graph, static, weights)

        @jax.jit
        def step(params, rest, moments, traced):
            (value, rest), grads = jax.value_and_grad(loss, has_aux=True)(params, rest, traced)
            updates, moments = optimizer.update(grads, moments, params)
            return value, optax.apply_updates(params, updates), rest, moments

        return step

    moments, losses = optimizer.init(params), []
    for traced, static in batches:
        key = static_key(static)
        step = steps.setdefault(key, steps.get(key) or step_for(static))
        value, params, rest, moments = step(params, rest, moments, to_jax(traced))
        losses.append(float(value))
    return losses, nnx.merge(graph, params, rest)


@contextlib.contextmanager
def without_dropout(package: Package, model: nnx.Module) -> Iterator[None]:
    """Every rate of dropout or jitter 0, and the package's dropout functions the identity."""
    for _, module in nnx.iter_graph(model):
        if isinstance(module, nnx.Module):
            rates = [n for n, v in vars(module).items() if isinstance(v, float) and any(part in n for part in RATES)]
            for name in rates:
                setattr(module, name, 0.0)
    replaced = [(m, n, getattr(m, n)) for m in package.modules() for n in DROPOUTS if callable(getattr(m, n, None))]
    for module, name, _ in replaced:
        setattr(module, name, lambda x, *args, **options: x)
    try:
        yield
    finally:
        for module, name, function in replaced:
            setattr(module, name, function)


def _buffer_errors(context: Context, case: Case, trained: nnx.Module) -> dict[str, float]:
    expected = case.named("buffers")
    errors: dict[str, float] = {}
    for row in context.package.rows(trained) if expected else ():
        leaf = np.asarray(value_of(variable(trained, row.target)), np.float64)
        for name, actual in parameter_values(row, leaf, list(expected)):
            errors[name] = difference(actual, expected[name].astype(np.float64)).error
    return errors | {name: float("inf") for name in expected if name not in errors}


def dropout_statistics(context: Context) -> tuple[bool, str]:
    """The package's own dropout on ones: kept share, scale, and that keys decide. Returns success and what to say."""
    random = context.package.submodule("random")
    if not context.oracle.facts.get("dropout"):
        return True, "the source has no dropout"
    if random is None or not hasattr(random, "dropout"):
        return False, "the source has dropout, the package has no random.dropout"
    rate, ones = 0.3, jnp.ones((400, 250))

    def drop(seed: int) -> np.ndarray:
        with random.key_scope(jax.random.key(seed)):
            return np.asarray(random.dropout(ones, rate, True))

    first, again, other = drop(0), drop(0), drop(1)
    kept = float((first != 0).mean())
    sigmas = abs(kept - (1 - rate)) / np.sqrt(rate * (1 - rate) / ones.size)
    scaled = np.allclose(first[first != 0], 1 / (1 - rate), rtol=1e-6)
    keyed = (first == again).all() and (first != other).any()
    quiet = np.array_equal(np.asarray(random.dropout(ones, rate, False)), np.asarray(ones))
    ok = bool(sigmas <= tolerance.DROPOUT_SIGMAS and scaled and keyed and quiet)
    active, said = _model_drops(context, random)
    return (
        ok and active,
        f"dropout keeps {kept:.4f} of 0.7 ({sigmas:.1f} sigma), scaled {scaled}, keyed {bool(keyed)}; {said}",
    )


def _model_drops(context: Context, random: Any) -> tuple[bool, str]:
    """In training mode one key gives one result and two keys give two."""
    case = context.scenario("exact").cases[0]
    model = context.package.fresh(**context.package.overrides("float64"))
    model.train()
    graph, state = nnx.split(model)
    traced, static = split_static(model, cast_floats(case.inputs, np.float64))

    @jax.jit
    def run(key, state, traced):
        with random.key_scope(key):
            return named_outputs(nnx.merge(graph, state)(**traced, **static))

    first, again, other = (run(jax.random.key(seed), state, to_jax(traced)) for seed in (0, 0, 1))
    same = all(np.array_equal(first[name], again[name]) for name in first)
    differs = any(not np.array_equal(first[name], other[name]) for name in first)
    return same and differs, f"the model repeats itself per key: {same}, differs between keys: {differs}"
