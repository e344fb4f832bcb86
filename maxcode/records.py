"""The JSON record that every command ends with."""

from typing import Any

from maxcode.versions import versions

Record = dict[str, Any]


def empty_record(status: str, target: str = "", output: str = "") -> Record:
    """A record of the contract with nothing in it yet."""
    return {
        "status": status, "target": target, "output": output, "checks": [], "gaps": [], "traced": [], "assumptions": [],
        "timings": {}, "versions": versions(),
    }  # fmt: skip
