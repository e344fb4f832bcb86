"""Comparing all outputs of a call by name."""

import dataclasses

import numpy as np

from maxcode.evaluator.compare import Difference, difference, kl_and_top1

LOGITS = (
    "logits"  # the output that holds unnormalised log-probabilities over its last axis, in every source that has them
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The worst difference over outputs and, where there are logits, KL and top-1."""

    worst: Difference
    name: str
    kl: float | None = None
    top1: float | None = None

    def __str__(self) -> str:
        logits = "" if self.kl is None else f"; KL {self.kl:.2e}, top-1 {self.top1:.2%}"
        return f"{self.name}: {self.worst}{logits}"


def compare_outputs(
    actual: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    counts: np.ndarray | None = None,
    counted: list[str] | None = None,
    logits: str | None = None,
) -> Outcome:
    """The worst output. A name on one side only is an infinite error: the structures differ.

    `counts` [batch, positions] masks the outputs named in `counted`. KL and top-1 are of the output `logits`.
    """
    if missing := sorted(set(expected) ^ set(actual)):
        side = "the package does not give" if missing[0] in expected else "only the package gives"
        return Outcome(Difference(np.inf, reason=f"{side} the outputs {missing}"), missing[0])
    if not expected:
        return Outcome(Difference(np.inf, reason="neither side gives any output"), "")
    masks = dict.fromkeys(counted or (), counts)
    found = {n: difference(actual[n], expected[n], masks.get(n)) for n in expected}
    name = max(found, key=lambda n: (found[n].error, n))
    kl = top1 = None
    if logits in expected and np.isfinite(found[logits].error):
        kl, top1 = kl_and_top1(actual[logits], expected[logits], masks.get(logits))
    return Outcome(found[name], name, kl, top1)


def worst(outcomes: dict[str, Outcome]) -> tuple[str, Outcome]:
    """The case with the largest error, with the worst KL and top-1 of all cases."""
    case = max(outcomes, key=lambda c: (outcomes[c].worst.error, c))
    kls = [o.kl for o in outcomes.values() if o.kl is not None]
    tops = [o.top1 for o in outcomes.values() if o.top1 is not None]
    both = {"kl": max(kls), "top1": min(tops)} if kls else {}
    return case, dataclasses.replace(outcomes[case], **both)
