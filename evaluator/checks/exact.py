"""`exact`, `long`, `padding`: float64 on both sides, explicit float32 casts lifted."""

from typing import Any

import numpy as np

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.outputs import Outcome, compare_outputs, worst
from maxcode.evaluator.checks.registry import Context, check
from maxcode.evaluator.compare import error_histogram
from maxcode.evaluator.package import DoesNotFit, Runner, cast_floats
from maxcode.evaluator.recording import Scenario
from maxcode.evaluator.streamed import StreamedRunner
from maxcode.evaluator.verdict import Check


def lifted_runner(context: Context) -> Runner | StreamedRunner:
    """The model in float64 with every explicit float32 lifted; layer by layer where it is larger than memory."""
    context.package.lift()
    try:
        return Runner(context.package.build(**context.package.overrides("float64")))
    except DoesNotFit:
        if not hasattr(context.package.submodule("pretrained"), "Weights"):
            raise
        return StreamedRunner(context.package, "float64")


def run_cases(context: Context, scenario: Scenario, runner: Runner | StreamedRunner) -> dict[str, Outcome]:
    """Compare every case of a forward scenario; positions that the oracle says do not count are left out."""
    logits = context.oracle.facts.get("logits")
    outcomes = {}
    for case in scenario.cases:
        actual = runner(cast_floats(case.inputs, np.float64))
        if not outcomes and logits in case.outputs and np.shape(actual.get(logits)) == case.outputs[logits].shape:
            found = error_histogram(actual[logits], case.outputs[logits])
            context.save_evidence(f"logits.{scenario.name}", found | {"limit": tolerance.EXACT})
        outcomes[case.id] = compare_outputs(
            actual, case.outputs, case.get("counts"), case.record.get("counted"), logits
        )
    return outcomes


def judge(context: Context, name: str, outcomes: dict[str, Outcome], runner: Any) -> Check:
    """Hold the worst case to the exact limits: error, and KL and top-1 where there are logits."""
    case, outcome = worst(outcomes)
    reason = context.options.get("summation_order")  # why float64 itself differs by more, recorded with the target
    limit = tolerance.EXACT_WITH_REASON if reason else tolerance.EXACT
    logits_hold = outcome.kl is None or (outcome.kl <= tolerance.KL and outcome.top1 >= tolerance.TOP1)
    detail = f"{len(outcomes)} cases, worst {case}, {outcome}" + (f"; wider limit: {reason}" if reason else "")
    detail += "; streamed layer by layer" if isinstance(runner, StreamedRunner) else ""
    context.save_evidence(name, {c: {"error": o.worst.error, "kl": o.kl, "top1": o.top1} for c, o in outcomes.items()})
    return Check.of(name, outcome.worst.error, limit, detail, ok=logits_hold)


@check("exact", group="x64", cheap=True)
def exact(context: Context) -> Check:
    """max|a-b| / max|b| <= 1e-10 on every output of every case; KL <= 1e-8 and top-1 100 % where there are logits."""
    scenario = context.scenario("exact")
    runner = lifted_runner(context)
    return judge(context, "exact", run_cases(context, scenario, runner), runner)


@check("long", group="x64", cheap=True)
def long(context: Context) -> Check:
    """The same at >= 512 positions: short prompts hide faults of position embeddings."""
    scenario = context.scenario("long")
    sizes = [
        v.shape for case in scenario.cases for v in case.inputs.values() if isinstance(v, np.ndarray) and v.ndim > 1
    ]
    if not any(max(shape[1:]) >= tolerance.LONG_POSITIONS for shape in sizes):
        return Check(
            "long", "fail", detail=f"recorded with inputs {sizes}, expected >= {tolerance.LONG_POSITIONS} positions"
        )
    runner = lifted_runner(context)
    return judge(context, "long", run_cases(context, scenario, runner), runner)


@check("padding", group="x64", cheap=True)
def padding(context: Context) -> Check:
    """Left- and right-padded batches agree at every position that counts."""
    scenario = context.scenario("padding")
    runner = lifted_runner(context)
    return judge(context, "padding", run_cases(context, scenario, runner), runner)
