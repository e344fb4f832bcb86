"""Rows of results.jsonl: what one entry came to, and whether that counts as passed."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from maxcode.atlas.entries import Entry
from maxcode.errors import MaxCodeError

Row = dict[str, Any]

# What an entry has to pass, where it applies; `scan` and `long` at the second configuration only.
CHECKS = ("standalone", "compile", "exact", "float32", "gradients", "cache", "padding")
SECOND_CHECKS = (*CHECKS, "scan", "long")


def row_of(entry: Entry, record: Mapping[str, Any], seconds: float, output: Path | None) -> Row:
    """The row of an entry whose conversion ended with `record` (design §1)."""
    return {
        "id": entry.id,
        "family": entry.family,
        "status": record["status"],
        "checks": record["checks"],
        "cause": cause_of(record),
        "seconds": round(seconds, 2),
        "peak_rss_bytes": 0,
        "output": str(output) if output is not None else "",
        "traced": len(record.get("traced", ())),
        "weak_signal": entry.weak_signal,
        "timings": record.get("timings", {}),
        "versions": record.get("versions", {}),
    }


def broken_row(entry: Entry, code: str, text: str, *, file: str = "", line: int | None = None) -> Row:
    """The row of an entry that gave no record: it was refused, stopped at a limit, or its process died."""
    record = {"status": "error", "checks": []}
    return row_of(entry, record, 0.0, None) | {"cause": {"code": code, "file": file, "line": line, "text": text}}


def cause_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first gap, else the first failed check, else the first traced part or check that was not run."""
    if record["status"] == "verified":
        return None
    if gaps := record.get("gaps"):
        return _cause_of_gap(gaps[0])
    divergence = (record.get("evidence") or {}).get("divergence") or {}
    for status in ("fail", "not_run"):
        for check in record["checks"]:
            if check["status"] == status and check["name"] != "tpu":
                text = f"{check['name']}: {(check['detail'] or status).splitlines()[0]}"
                place = {"file": divergence.get("file", ""), "line": divergence.get("line")}
                return {"code": check["name"], **place, "text": text}
    if traced := record.get("traced"):
        return _cause_of_gap(traced[0])
    return {"code": record["status"], "file": "", "line": None, "text": "no check was run"}


def _cause_of_gap(gap: Mapping[str, Any]) -> dict[str, Any]:
    text = ": ".join(str(gap[key]) for key in ("torch_name", "reason", "text") if gap.get(key))
    return {"code": gap.get("code", "traced"), "file": gap.get("file", ""), "line": gap.get("line"), "text": text}


def passed(row: Mapping[str, Any]) -> bool:
    """No gap, nothing traced, every applicable check passes, and the outputs say something about the inputs."""
    return row["status"] == "verified" and not row.get("traced")


def read_rows(folder: Path) -> dict[str, Row]:
    """The last row of every entry in `folder/results.jsonl`; a last line that was cut off by a crash is left out.

    Raises:
      MaxCodeError: no such file, or a line that is no row.
    """
    path = folder / "results.jsonl"
    if not path.is_file():
        raise MaxCodeError(str(folder), "no results.jsonl in it", "a folder of maxcode atlas run", "run it first")
    rows, lines = {}, path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows[row["id"]] = row
        except (ValueError, KeyError, TypeError):
            if number < len(lines):
                raise MaxCodeError(f"{path}:{number}", "no row of results", do="remove the line") from None
    return rows


def by_family(rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """(passed, all) per family, families in order of size."""
    rows = list(rows)
    count, good = Counter(row["family"] for row in rows), Counter(row["family"] for row in rows if passed(row))
    return {family: (good[family], number) for family, number in count.most_common()}
