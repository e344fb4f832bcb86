"""Measure one op: every sample of every variant, in each of its spellings that has entries of its own."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax

from maxcode.converter import registry
from maxcode.converter.rule import NoRule
from maxcode.coverage.calls import Call, as_call, entries, samples, spellings
from maxcode.coverage.compare import Kind, compared, expected
from maxcode.coverage.denominator import is_sparse, left_out
from maxcode.coverage.running import convert

KEPT = 4  # differing reasons that a row keeps


@dataclass
class Tally:
    """Counts of one name's samples."""

    samples: int = 0
    agree: int = 0
    gradients: int = 0
    refused: int = 0
    random: int = 0
    limits: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    where: dict[str, str] = field(default_factory=dict)

    def miss(self, why: str, where: str) -> None:
        """Count a sample that does not agree."""
        why = " ".join(why.split())[:200]
        self.misses[why] += 1
        self.where.setdefault(why, where[:300])

    def row(self) -> dict[str, Any]:
        """The record of the counts."""
        kept = [[why, count, self.where[why]] for why, count in self.misses.most_common(KEPT)]
        return {
            "samples": self.samples,
            "agree": self.agree,
            "gradients": self.gradients,
            "limits": dict(sorted(self.limits.items())),
            "misses": kept,
        } | {k: v for k, v in (("refused", self.refused), ("random", self.random)) if v}


def names() -> list[str]:
    """Every name of torch's table."""
    return sorted(entries())


def measure(name: str, most: int | None = None) -> dict[str, Any]:
    """The row of one name of torch's table; with `most`, of that many of its samples, evenly spread.

    {"left_out": why it does not count or None, "samples", "agree", "gradients": how many were compared, "limits":
    {reason: samples}, "misses": [[what differs, samples, first call]]} beside "refused" (torch raises) and "random"
    (shape and dtype compared) where there are any.
    """
    infos = entries()[name]
    tally = Tally()
    reason = left_out(infos)
    if reason == "quantised":
        return {"left_out": reason} | tally.row()
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for info in infos:
            found = samples(info, requires_grad=True)
            step = 1 if most is None else max(1, -(-len(found) // most))
            for form in distinct(spellings(info)) or [f"torch.{name}"]:
                for sample in found[::step]:
                    reason = _sample(as_call(form, info, sample), tally) or reason
    if reason is None and tally.random * 2 >= max(tally.samples, 1):
        reason = "random"
    return {"left_out": reason} | tally.row()


def distinct(names: list[str]) -> Iterator[str] | list[str]:
    """The spellings whose entries are not those of an earlier one; a spelling without an entry always counts."""
    seen, found = set(), []
    for name in names:
        rules = tuple(map(id, _rules(name)))
        if not rules or rules not in seen:
            found.append(name)
        seen.add(rules)
    return found


def _rules(name: str) -> tuple[Any, ...]:
    return registry.entries(registry.ATTRIBUTES, name) or registry.entries(registry.OPS, name)


def _sample(call: Call, tally: Tally) -> str | None:
    """Count one call; "sparse" where it is."""
    if is_sparse(call):
        return "sparse"
    want = expected(call)
    if want is None:
        tally.refused += 1
        return None
    tally.samples += 1
    tally.random += want.kind is Kind.RANDOM
    try:
        converted = convert(call)
    except NoRule as missing:
        if missing.limit is not None:
            tally.limits[missing.limit] += 1
        else:
            tally.miss(missing.reason, str(call))
        return None
    except TypeError as error:
        tally.miss(f"not written as source: {error}", str(call))
        return None
    try:
        with_gradient, difference = compared(call, converted, want)
    except Exception as error:  # whatever JAX raises is a miss
        with_gradient, difference = False, f"{type(error).__name__}: {error}"
    tally.gradients += with_gradient
    if difference:
        tally.miss(difference, f"{call} -> {converted.text}")
    else:
        tally.agree += 1
    return None
