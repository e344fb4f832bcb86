"""The record of what was shown: checks, the status that follows from them, and the exit status of a command."""

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

CheckStatus = Literal["pass", "fail", "n/a", "not_run"]
Status = Literal["verified", "failed", "gaps", "traced", "not_shown", "error"]

EXIT = {"verified": 0, "failed": 1, "gaps": 3, "traced": 3, "not_shown": 3, "error": 4}
OPTIONAL = frozenset({"tpu"})  # the only check that may be left out of a verified verdict


@dataclasses.dataclass(frozen=True)
class Check:
    """One check: its figure, the limit it was held to, and the scale (which weights) it was measured at."""

    name: str
    status: CheckStatus
    value: float | None = None
    limit: float | None = None
    scale: str = ""
    detail: str = ""

    @classmethod
    def of(cls, name: str, value: float, limit: float, detail: str = "", *, ok: bool = True) -> "Check":
        """Pass when `value <= limit` (NaN fails) and `ok`."""
        return cls(name, "pass" if ok and value <= limit else "fail", value, limit, detail=detail)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Check":
        return cls(**{k: _from_number(v) if k in ("value", "limit") else v for k, v in record.items()})

    def to_json(self) -> dict[str, Any]:
        record = dataclasses.asdict(self)
        return record | {"value": _to_number(self.value), "limit": _to_number(self.limit)}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a conversion is worth; `status` follows from the rest by `decide`."""

    status: Status
    target: str = ""
    output: str = ""
    checks: tuple[Check, ...] = ()
    gaps: tuple[Any, ...] = ()
    traced: tuple[Any, ...] = ()
    assumptions: tuple[Any, ...] = ()
    timings: dict[str, float] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    evidence: dict[str, Any] = dataclasses.field(default_factory=dict)  # what the report draws, see report.py

    @property
    def exit_status(self) -> int:
        return EXIT[self.status]

    def to_json(self) -> dict[str, Any]:
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        lists = {name: list(record[name]) for name in ("gaps", "traced", "assumptions")}
        return record | lists | {"checks": [check.to_json() for check in self.checks]}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Verdict":
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := set(record) - known:
            raise ValueError(f"verdict: unknown fields {sorted(unknown)!r}, expected a subset of {sorted(known)!r}")
        lists = {name: tuple(record.get(name, ())) for name in ("gaps", "traced", "assumptions")}
        checks = tuple(Check.from_json(check) for check in record.get("checks", ()))
        return cls(**{**record, **lists, "checks": checks})

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Verdict":
        return cls.from_json(json.loads(Path(path).read_text()))


def decide(checks: Iterable[Check], gaps: Iterable[Any] = (), traced: Iterable[Any] = ()) -> Status:
    """Verified only when every applicable check passes and at least one applies; a failure outweighs a gap."""
    checks = list(checks)
    if any(check.status == "fail" for check in checks):
        return "failed"
    if list(gaps):
        return "gaps"
    if list(traced):
        return "traced"
    required = [check for check in checks if check.name not in OPTIONAL]
    if any(check.status == "not_run" for check in required) or not any(c.status == "pass" for c in required):
        return "not_shown"
    return "verified"


def _to_number(value: float | None) -> float | str | None:
    # JSON has no infinity; a failed check's figure may be one.
    return value if value is None or math.isfinite(value) else str(value)


def _from_number(value: float | str | None) -> float | None:
    return float(value) if isinstance(value, str) else value
