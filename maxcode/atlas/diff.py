"""What a change gained and lost: two runs of an atlas side by side."""

from collections.abc import Mapping
from typing import Any

from maxcode.atlas.rows import Row, passed


def compare(before: Mapping[str, Row], after: Mapping[str, Row]) -> dict[str, Any]:
    """Entries by what became of them, each with both causes; seconds and passes over the entries of both runs.

    Keys: `gained`, `lost` (passed before, does not now), `changed` (fails for another reason), `only_before`,
    `only_after`, and `common`, `passed`, `seconds` with a figure of each run.
    """
    common = [key for key in before if key in after]
    pairs = {key: (before[key], after[key]) for key in common}
    return {
        "gained": [_both(key, pair) for key, pair in pairs.items() if passed(pair[1]) and not passed(pair[0])],
        "lost": [_both(key, pair) for key, pair in pairs.items() if passed(pair[0]) and not passed(pair[1])],
        "changed": [_both(key, pair) for key, pair in pairs.items() if _fails_otherwise(*pair)],
        "only_before": [key for key in before if key not in after],
        "only_after": [key for key in after if key not in before],
        "common": len(common),
        "passed": [sum(passed(pair[side]) for pair in pairs.values()) for side in (0, 1)],
        "seconds": [round(sum(pair[side]["seconds"] for pair in pairs.values()), 1) for side in (0, 1)],
    }


def _fails_otherwise(before: Row, after: Row) -> bool:
    if passed(before) or passed(after):
        return False
    return _essence(before["cause"]) != _essence(after["cause"])


def _essence(cause: Mapping[str, Any] | None) -> Any:
    """A cause without its line, which moves when a file is edited."""
    return cause and (cause["code"], cause["text"])


def _both(key: str, pair: tuple[Row, Row]) -> dict[str, Any]:
    before, after = pair
    return {"id": key, "family": after["family"], "before": _said(before), "after": _said(after)}


def _said(row: Row) -> dict[str, Any]:
    return {"status": row["status"], "cause": row["cause"]}
