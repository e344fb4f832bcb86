"""Progress on stderr: stage, item, elapsed time and an estimate of what is left.

A terminal gets one live line; anything else gets plain lines, at most one a second per stage. `quiet` silences both.
The estimate comes from how long each stage usually takes relative to the others, refined by the items done within it.
"""

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

# Usual shares of a whole conversion (measured on small models); only the estimate of the time left depends on them.
SHARES: Mapping[str, float] = {
    "resolve": 8, "source": 7, "facts": 8, "convert": 6, "weights": 4, "gate": 100, "report": 1,
}  # fmt: skip
_MIN_INTERVAL = 1.0  # seconds between plain lines of one stage


class Progress(AbstractContextManager["Progress"]):
    """What the stages report to. Use as a context manager; safe to use without one (plain lines only)."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._console = Console(file=self._stream)
        self._live: Live | None = None
        self._start = time.monotonic()
        self._stage, self._item, self._share = "", "", 0.0
        self._stages: tuple[str, ...] = ()
        self._stage_start, self._last_line = self._start, 0.0
        self.timings: dict[str, float] = {}

    def __enter__(self) -> "Progress":
        if not self._quiet and self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_stage()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def plan(self, *stages: str) -> None:
        """Name the stages to come, for the estimate."""
        self._stages = stages

    def stage(self, name: str, item: str = "") -> None:
        """Begin a stage; the one before it is finished."""
        self._close_stage()
        self._stage, self._item, self._share = name, item, 0.0
        self._stage_start, self._last_line = time.monotonic(), 0.0
        self._show()

    def item(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Name what the stage is working on; with `done` of `total` the estimate is refined."""
        self._item = f"{text} {done}/{total}".strip() if total else text
        if total and done is not None:
            self._share = min(done / total, 1.0)
        self._show()

    def subprocess_line(self, record: Mapping[str, Any]) -> None:
        """Take over a progress record that a stage's own process wrote."""
        self.item(str(record.get("item") or record.get("stage", "")), record.get("done"), record.get("total"))

    def _close_stage(self) -> None:
        if self._stage:
            spent = time.monotonic() - self._stage_start
            self.timings[self._stage] = round(self.timings.get(self._stage, 0.0) + spent, 3)
        self._stage = ""

    def remaining(self) -> float | None:
        """Estimated seconds left; None when too little is known, or the stage takes longer than such stages do."""
        if self._stage not in self._stages:
            return None
        index, now = self._stages.index(self._stage), time.monotonic()
        shares = [SHARES.get(name, 5) for name in self._stages]
        done, spent = sum(shares[:index]) + shares[index] * self._share, now - self._stage_start
        before = self._stage_start - self._start + (spent if self._share else 0.0)
        if not done or now - self._start <= 1:
            return None
        second_per_share = before / done
        if self._share:
            here = spent * (1 - self._share) / self._share
        else:
            here = second_per_share * shares[index] - spent
        return here + second_per_share * sum(shares[index + 1 :]) if here >= 0 else None

    def line(self) -> str:
        """The current state as one line of text."""
        where = f"[{self._stages.index(self._stage) + 1}/{len(self._stages)}] " if self._stage in self._stages else ""
        left = self.remaining()
        parts = [f"{where}{self._stage}", self._item, clock(time.monotonic() - self._start)]
        return " · ".join(p for p in [*parts, f"ETA {clock(left)}" if left is not None else ""] if p)

    def _render(self) -> Text:
        return Text(self.line(), no_wrap=True, overflow="ellipsis", style="cyan")

    def _show(self) -> None:
        if self._quiet or self._live is not None:
            return
        now = time.monotonic()
        if now - self._last_line >= _MIN_INTERVAL:
            self._last_line = now
            print(self.line(), file=self._stream, flush=True)


def clock(seconds: float) -> str:
    """Seconds as people read them: `4.2 s`, `3:07`, `1:02:03`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
