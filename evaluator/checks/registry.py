"""What a check is: a function from a Context to a Check, registered under its name and process group."""

import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maxcode.evaluator.package import Package
from maxcode.evaluator.recording import Recordings, Scenario
from maxcode.evaluator.verdict import Check

Function = Callable[..., Check]
REGISTRY: dict[str, "Entry"] = {}


class NotApplicable(Exception):  # noqa: N818 (an answer, no error)
    """The check does not apply; the text says why."""


class NotRun(Exception):  # noqa: N818
    """The check applies and could not be run; the text says why."""


@dataclasses.dataclass
class Context:
    """What a check may use. `evidence` is what a report shows beside the figures (JSON values)."""

    package: Package
    oracle: Recordings
    source: Path
    out: Path
    oracle_command: list[str] | None = None  # starts `oracle serve` for the checks that need a live peer
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)

    def scenario(self, name: str) -> Scenario:
        """The recorded scenario; NotApplicable with the oracle's reason, NotRun when it was not asked for."""
        if name in self.oracle:
            return self.oracle.get(name)
        if reason := self.oracle.reason(name):
            raise NotApplicable(reason)
        if failure := self.oracle.failure(name):
            raise NotRun(f"PyTorch does not run the source in this scenario: {failure}")
        raise NotRun(f"the oracle recorded no {name!r} scenario; record it")

    def save_evidence(self, name: str, value: Any) -> None:
        self.evidence[name] = value
        (self.out.parent / f"{name}.evidence.json").write_text(json.dumps(value, default=float))


@dataclasses.dataclass(frozen=True)
class Entry:
    """`group` decides the process: "x64" (lifted to float64), "plain" (as users run), "timing" (alone)."""

    name: str
    function: Callable[[Context], Check]
    group: str
    cheap: bool  # worth running on every seeded fault


def check(name: str, *, group: str, cheap: bool = False) -> Callable[[Function], Function]:
    """Register a check function under `name`."""

    def register(function: Function) -> Function:
        if name in REGISTRY:
            raise ValueError(
                f"check {name!r}: {REGISTRY[name].function.__module__} and {function.__module__} define it"
            )
        REGISTRY[name] = Entry(name, function, group, cheap)
        return function

    return register


def load_checks() -> dict[str, Entry]:
    """Import every file of the folder and give the registered checks."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
    return dict(REGISTRY)


def entry_of(name: str) -> Entry:
    """The entry for a check's name; `backend:<x>` belongs to `backend`."""
    entries = load_checks()
    family = name.partition(":")[0]
    if family not in entries:
        raise KeyError(f"no check {name!r}; known are {sorted(entries)}")
    return entries[family]
