"""The table of results, docs/third_party.md: written by the command, never by hand."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]

_HEAD = """# Third-party models

Models of packages on PyPI that neither we nor transformers wrote, with random weights and tiny sizes, converted by
`maxcode convert TARGET --init … --inputs …` with the whole gate. Made by `make third-party` from
`maxcode/third_party/models.jsonl`; CI does not run it. *not_shown* is a model that converted without a gap and that the
gate has not seen yet (`--no-gate`).

"""


def table(rows: Sequence[Row], site: Path) -> str:
    """Markdown text: the count of each status, a row a model, and the kinds of causes."""
    counts = Counter(row["status"] for row in rows)
    said = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    packages = len({row["package"] for row in rows})
    lines = [f"{len(rows)} models of {packages} packages: {said}.", "", *_models(rows, site), "", *_kinds(rows)]
    return _HEAD + "\n".join(lines) + "\n"


def _models(rows: Sequence[Row], site: Path) -> list[str]:
    lines = ["| package | version | model | status | exact | s | cause |", "|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda r: (r["package"], r["model"])):
        exact = next((c.get("value") for c in row["checks"] if c["name"] == "exact"), None)
        error = f"{exact:.0e}" if isinstance(exact, float) else ""
        cells = [row["package"], row["version"], f"`{row['model']}`", row["status"], error, str(row["seconds"])]
        lines.append(f"| {' | '.join([*cells, _cause(row, site)])} |")
    return lines


def _cause(row: Row, site: Path) -> str:
    cause = row.get("cause")
    if not cause or cause["code"] == "not_shown":
        return ""
    file = str(cause.get("file") or "").replace(f"{site}/", "")
    place = f"{file}:{cause.get('line')} " if file else ""
    text = str(cause["text"]).replace(f"{site}/", "").replace("|", "\\|").replace("\n", " ")
    return f"{cause['code']} {place}{text[:240]}"


def _kinds(rows: Sequence[Row]) -> list[str]:
    """Codes of first causes, by how many models they stop."""
    codes = Counter(row["cause"]["code"] for row in rows if _cause(row, Path()))
    if not codes:
        return []
    return ["| first cause | models |", "|---|---|", *(f"| {code} | {count} |" for code, count in codes.most_common())]
