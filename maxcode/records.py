"""The JSON record that every command ends with."""

from typing import Any

from maxcode.versions import versions

Record = dict[str, Any]

# What `--json` prints, a contract. A record may hold more (the weight ledger, evidence): that is for report.json.
KEYS = ("status", "target", "output", "checks", "gaps", "traced", "assumptions", "timings", "versions")
# What some commands are asked for, beside the contract's keys.
ANSWERS = ("plan", "generation", "atlas", "diff", "ops", "modules", "rows", "stale")


def printed(record: Record) -> Record:
    """The part of a record that `--json` prints."""
    return {key: record[key] for key in (*KEYS, *ANSWERS) if key in record}


def error_record(target: str, output: str, kind: str, message: str) -> Record:
    """The record of a run that did not complete: one failed check, named by what went wrong, says why."""
    check = {"name": kind, "status": "fail", "value": None, "limit": None, "scale": "", "detail": message}
    return empty_record("error", target, output) | {"checks": [check]}


def empty_record(status: str, target: str = "", output: str = "") -> Record:
    """A record of the contract with nothing in it yet."""
    return {
        "status": status, "target": target, "output": output, "checks": [], "gaps": [], "traced": [], "assumptions": [],
        "timings": {}, "versions": versions(),
    }  # fmt: skip


def counted(number: int, noun: str) -> str:
    """`1 gap`, `2 gaps`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
