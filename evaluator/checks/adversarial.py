"""`adversarial`: edge inputs, and gradient ascent on the (embedded) inputs to maximise the difference."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.exact import lifted_runner
from maxcode.evaluator.checks.outputs import compare_outputs, worst
from maxcode.evaluator.checks.registry import Context, NotApplicable, NotRun, check
from maxcode.evaluator.package import Runner, cast_floats, named_outputs, split_static, to_jax
from maxcode.evaluator.peer import Peer
from maxcode.evaluator.verdict import Check

STEPS = 6
STRIDE = 0.3  # of the input's root mean square, per step


@check("adversarial", group="x64")
def adversarial(context: Context) -> Check:
    """Every edge case and every point of the ascent within the exact limit; exactly tied top-k never counts."""
    runner = lifted_runner(context)
    edges, tied = _edges(context, runner)
    climbed, skipped, said = _ascent(context, runner)
    outcomes = edges | climbed
    if not outcomes:
        raise NotApplicable(f"no edge input has a determined answer ({tied} are exactly tied); {said}")
    case, outcome = worst(outcomes)
    detail = f"{len(edges)} edge cases, {len(climbed)} points of ascent, worst {case}, {outcome}"
    detail += f"; {tied} tied and left out (the source leaves their order open)" if tied else ""
    detail += f"; {skipped} points with near-ties left out" if skipped else ""
    return Check.of("adversarial", outcome.worst.error, tolerance.EXACT, f"{detail}; {said}")


def _edges(context: Context, runner: Runner):
    if "edges" not in context.oracle and not context.oracle.reason("edges"):
        raise NotRun("the oracle recorded no 'edges' scenario; record it")
    cases = context.oracle.get("edges").cases if "edges" in context.oracle else ()
    logits = context.oracle.facts.get("logits")
    clear = [case for case in cases if not case.record.get("ties")]
    found = {
        f"edge {case.id!r}": compare_outputs(runner(cast_floats(case.inputs, np.float64)), case.outputs, logits=logits)
        for case in clear
    }
    return found, len(cases) - len(clear)


def _ascent(context: Context, runner: Runner):
    """Points on the way up the squared difference of both sides. Returns (outcomes, points left out, what to say)."""
    name = context.oracle.facts.get("embeds")
    if name is None:
        return {}, 0, "no continuous input to climb on"
    if context.oracle_command is None:
        raise NotRun("gradient ascent needs the live oracle; start the worker with --oracle-command")
    inputs = starting_point(context, runner.model, name)
    outcomes, skipped, gradient = {}, 0, pullback(runner, inputs, name)
    with Peer(context.oracle_command) as peer:
        for step in range(STEPS):
            expected, _, answer = peer.call("forward", inputs)
            actual = runner(inputs)
            if answer.get("ties") or answer.get("margin", 1.0) < tolerance.NEAR_TIE:
                skipped += 1
            else:
                outcomes[f"ascent step {step}"] = compare_outputs(actual, expected)
            if set(actual) != set(expected):
                break
            inputs = inputs | {name: _climb(peer, gradient, inputs, name, actual, expected)}
    return outcomes, skipped, f"{STEPS} steps on {name}"


def starting_point(context: Context, model: nnx.Module, name: str) -> dict[str, Any]:
    """The first recorded inputs; token ids are replaced by their rows of the model's own first embedding table."""
    inputs = cast_floats(context.scenario("exact").cases[0].inputs, np.float64)
    if name in inputs:
        return inputs
    integers = [
        n for n, v in inputs.items() if isinstance(v, np.ndarray) and v.dtype.kind == "i" and v.max(initial=0) > 1
    ]
    ids_name = name.replace("inputs_embeds", "input_ids")  # `decoder_inputs_embeds` stands for `decoder_input_ids`
    ids_name = ids_name if ids_name in inputs else next(iter(integers))
    ids = inputs[ids_name]
    size = context.oracle.facts.get("token_limit")
    tables = (np.asarray(v[...]) for _, v in nnx.iter_graph(model) if isinstance(v, nnx.Param) and v[...].ndim == 2)
    table = next((t for t in tables if t.shape[0] == size), None)
    if table is None:
        raise NotApplicable(f"found no embedding table of {size} rows to start from")
    rest = {n: v for n, v in inputs.items() if n != ids_name}
    return rest | {name: table[ids].astype(np.float64)}


def pullback(runner: Runner, inputs: dict[str, Any], name: str) -> Callable[..., jax.Array]:
    """The compiled `(x, cotangents) -> gradient` of our side with respect to the input `name`."""
    traced, static = split_static(runner.model, inputs)
    rest = to_jax({n: v for n, v in traced.items() if n != name})

    def gradient(x, cotangents):
        def forward(x):
            outputs = named_outputs(nnx.merge(runner.graph, runner.state)(**rest, **static, **{name: x}))
            return {n: outputs[n] for n in cotangents}

        return jax.vjp(forward, x)[1](cotangents)[0]

    return jax.jit(gradient)


def _climb(peer: Peer, gradient: Callable[..., jax.Array], inputs, name: str, actual, expected) -> np.ndarray:
    """One normalised step along the gradient of half the squared difference: both sides' vector-Jacobian products."""
    cotangents = {n: actual[n] - expected[n] for n in actual if actual[n].dtype.kind == "f"}
    scale = max((np.abs(c).max() for c in cotangents.values()), default=0.0) or 1.0
    cotangents = {n: np.where(np.isfinite(c), c / scale, 0.0) for n, c in cotangents.items()}
    ours = np.asarray(gradient(to_jax(inputs[name]), to_jax(cotangents)))
    _, theirs, _ = peer.call("vjp", inputs, cotangents, wrt=[name])
    direction = ours - theirs[name]
    if not np.abs(direction).max() > 0:
        direction = ours  # both sides move alike: leave the point anyway, along our own sensitivity
    norm = np.sqrt(np.square(direction).mean()) or 1.0
    return inputs[name] + STRIDE * np.sqrt(np.square(inputs[name]).mean()) * direction / norm
