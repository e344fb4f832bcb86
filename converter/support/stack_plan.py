"""Which layers of a stack can share one traced body: prefix + repeated periods + suffix."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """`prefix` single items, `repeats` times a period of `period` items, then single items up to `length`."""

    prefix: int
    period: int
    repeats: int
    length: int

    @property
    def stop(self) -> int:
        """The first item after the periods."""
        return self.prefix + self.period * self.repeats

    @property
    def traced(self) -> int:
        """How many items are traced: each single one, and one period."""
        return self.length - self.period * max(self.repeats - 1, 0)


def find_plan(labels: Sequence[Hashable]) -> Plan:
    """Return the plan that traces the fewest items; among equals the one with the shortest period, then prefix.

    Items may share a body where their labels are equal. Without a repetition the plan has no periods: everything is
    prefix.
    """
    count = len(labels)
    best = Plan(count, 0, 0, count)
    for period in range(1, count // 2 + 1):
        matches = 0  # how many items from `first` on equal the one a period later
        for first in range(count - period - 1, -1, -1):
            matches = matches + 1 if labels[first] == labels[first + period] else 0
            plan = Plan(first, period, 1 + matches // period, count)
            if plan.repeats > 1 and (plan.traced, period, first) < (best.traced, best.period or count, best.prefix):
                best = plan
    return best
