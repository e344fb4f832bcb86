"""`float32`, `bfloat16`: x64 off, as users run, held to PyTorch's own error."""

import numpy as np

from maxcode.evaluator import tolerance
from maxcode.evaluator.checks.choices import Replay
from maxcode.evaluator.checks.outputs import LOGITS
from maxcode.evaluator.checks.registry import Context, NotRun, check
from maxcode.evaluator.compare import difference, kl_and_top1
from maxcode.evaluator.package import Runner, cast_floats
from maxcode.evaluator.recording import Case
from maxcode.evaluator.verdict import Check


@check("float32", group="plain", cheap=True)
def float32(context: Context) -> Check:
    """Error against the float64 oracle <= 4x PyTorch's own in float32 (worst seed) + 4 ulp of max|b|."""
    return peer_rule(context, "float32", "float32")


@check("bfloat16", group="plain", cheap=True)
def bfloat16(context: Context) -> Check:
    """The same in bfloat16."""
    return peer_rule(context, "bfloat16", "bfloat16")


def peer_rule(context: Context, name: str, dtype: str, **overrides) -> Check:
    """Run the recorded inputs in `dtype`; the figure is the worst error over its own limit (<= 1 passes)."""
    scenario, exact = context.scenario("forward", dtype), context.scenario("forward")
    own = scenario.record.get("own_error") or {}
    if own.get("seeds", 0) < tolerance.MINIMUM_SEEDS:
        raise NotRun(
            f"PyTorch's own error was recorded on {own.get('seeds', 0)} seeds, needed are {tolerance.MINIMUM_SEEDS}"
        )
    case, truth = exact.cases[0], exact.cases[0].outputs
    inputs = cast_floats(case.inputs, dtype)
    actual, flips = _run(context, case, inputs, dtype, overrides)
    if missing := sorted(set(truth) ^ set(actual)):
        return Check(name, "fail", float("inf"), 1.0, detail=f"outputs on one side only: {missing}")
    share, detail = _judge(truth, actual, own["worst"], dtype)
    detail = f"error/limit against {own['seeds']} seeds of PyTorch's own error: {detail}{flips}{_logits(truth, actual)}"
    return Check.of(name, share, 1.0, detail)


def _run(context: Context, case: Case, inputs: dict, dtype: str, overrides: dict) -> tuple[dict[str, np.ndarray], str]:
    """Outputs, with the oracle's discrete choices replayed where it made any."""
    if not case.record.get("choices"):
        return Runner(context.package.build(**context.package.overrides(dtype, **overrides)))(inputs), ""
    unscanned = {**overrides, "scan_layers": False}
    replay = Replay(context.package.build(**context.package.overrides(dtype, **unscanned)))
    actual = replay(inputs, case)
    return actual, f"; {replay.flipped} of {replay.made} discrete choices flipped, the oracle's replayed"


def _judge(truth: dict, actual: dict, own: dict[str, float], dtype: str) -> tuple[float, str]:
    worst, detail = -1.0, "no output to compare"
    for name, expected in truth.items():
        found = difference(actual[name], expected)
        limit = tolerance.peer_limit(own.get(name, 0.0), found.peak, dtype)
        share = found.error / limit if limit > 0 else 0.0 if found.error == 0 else float("inf")
        if share > worst:
            worst = share
            detail = f"{name} {found}, PyTorch's own {own.get(name, 0.0):.2e}, limit {limit:.2e}"
    return (worst if worst >= 0 else float("inf")), detail


def _logits(truth: dict[str, np.ndarray], actual: dict[str, np.ndarray]) -> str:
    if LOGITS not in truth or truth[LOGITS].ndim < 2:
        return ""
    kl, top1 = kl_and_top1(actual[LOGITS], truth[LOGITS])
    published = f"{tolerance.PUBLISHED_KL:.1e} / {tolerance.PUBLISHED_TOP1:.2%}"
    return f"; KL {kl:.2e}, top-1 {top1:.2%} (published of a careful port in bfloat16: {published})"
