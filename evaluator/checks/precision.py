"""`float32`, `bfloat16`: x64 off, as users run, held to PyTorch's own error."""

import numpy as np

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.choices import Replay
from maxcode.evaluator.checks.registry import Context, NotRun, check
from maxcode.evaluator.compare import difference, error_histogram, kl_and_top1
from maxcode.evaluator.package import Runner, cast_floats
from maxcode.evaluator.recording import Case, Scenario
from maxcode.evaluator.verdict import Check

Named = dict[str, np.ndarray]


@check("float32", group="plain", cheap=True)
def float32(context: Context) -> Check:
    """Error against the float64 oracle <= 4x PyTorch's own in float32 (worst seed) + 4 ulp of max|b|."""
    return peer_rule(context, "float32", "float32")


@check("bfloat16", group="plain", cheap=True)
def bfloat16(context: Context) -> Check:
    """The same in bfloat16."""
    return peer_rule(context, "bfloat16", "bfloat16")


def peer_rule(context: Context, name: str, dtype: str, **overrides) -> Check:
    """Run all recorded seeds in `dtype`; the figure is the worst error over its own limit (<= 1 passes)."""
    scenario = context.scenario(dtype)
    if len(scenario.cases) < tolerance.MINIMUM_SEEDS:
        raise NotRun(
            f"PyTorch's own error was recorded on {len(scenario.cases)} seeds, expected {tolerance.MINIMUM_SEEDS}"
        )
    results, flips = _run(context, scenario, dtype, overrides)
    share, detail = _judge(scenario, results, dtype)
    logits = context.oracle.facts.get("logits") if np.isfinite(share) else None
    if logits is not None and not overrides:
        first = scenario.cases[0]
        histogram = error_histogram(results[first.id][logits], first.named("truth")[logits])
        context.save_evidence(f"logits.{dtype}", histogram | {"limit": None})
    printed = _logits(logits, scenario, results)
    return Check.of(name, share, 1.0, f"error/limit, worst of {len(results)} seeds: {detail}{flips}{printed}")


def _run(context: Context, scenario: Scenario, dtype: str, overrides: dict) -> tuple[dict[str, Named], str]:
    """Outputs by case, with the oracle's discrete choices replayed where it made any."""
    inputs = {case.id: (cast_floats(case.inputs, dtype), case) for case in scenario.cases}
    if not any(case.record.get("choices") for case in scenario.cases):
        runner = Runner(context.package.build(**context.package.overrides(dtype, **overrides)))
        return {name: runner(given) for name, (given, _) in inputs.items()}, ""
    unscanned = {**overrides, "scan_layers": False}  # in trace order, as the source made them
    replay = Replay(context.package.build(**context.package.overrides(dtype, **unscanned)))
    results = {name: replay(given, case) for name, (given, case) in inputs.items()}
    return results, f"; {replay.flipped} of {replay.made} discrete choices flipped, the oracle's replayed"


def _judge(scenario: Scenario, results: dict[str, Named], dtype: str) -> tuple[float, str]:
    worst, detail = -1.0, "no output to compare"
    own = _own_errors(scenario.cases)
    for case in scenario.cases:
        truth, actual = case.named("truth"), results[case.id]
        if missing := sorted(set(truth) ^ set(actual)):
            return float("inf"), f"outputs on one side only: {missing}"
        for name, expected in truth.items():
            found = difference(actual[name], expected)
            limit = tolerance.peer_limit(own[name], found.peak, dtype)
            share = found.error / limit if limit > 0 else 0.0 if found.error == 0 else float("inf")
            if share > worst:
                worst = share
                detail = f"{case.id} {name} {found}, PyTorch's own {own[name]:.2e}, limit {limit:.2e}"
    return (worst if worst >= 0 else float("inf")), detail


def _own_errors(cases: tuple[Case, ...]) -> dict[str, float]:
    """PyTorch's own error per output, the worst seed."""
    errors: dict[str, float] = {}
    for case in cases:
        outputs = case.outputs
        for name, expected in case.named("truth").items():
            errors[name] = max(errors.get(name, 0.0), difference(outputs[name], expected).error)
    return errors


def _logits(name: str | None, scenario: Scenario, results: dict[str, Named]) -> str:
    if name is None:
        return ""
    figures = [kl_and_top1(results[case.id][name], case.named("truth")[name]) for case in scenario.cases]
    published = f"{tolerance.PUBLISHED_KL:.1e} / {tolerance.PUBLISHED_TOP1:.2%}"
    kl, top1 = max(k for k, _ in figures), min(t for _, t in figures)
    return f"; KL {kl:.2e}, top-1 {top1:.2%} (published of a careful port in bfloat16: {published})"
