"""The HTML page of an atlas run: pass rates, ranked causes, and every entry with its first cause."""

import datetime
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from maxcode.atlas.entries import slug_of
from maxcode.atlas.rows import Row, by_family, passed
from maxcode.progress import clock

_QUOTED = re.compile(r"'[^']*'|`[^`]*`|\d[\d.,e+-]*")


@dataclass(frozen=True)
class Cause:
    """Entries that fail for the same reason; figures and names within the text do not tell reasons apart."""

    code: str
    text: str
    ids: tuple[str, ...]


def ranked_causes(rows: Iterable[Row]) -> list[Cause]:
    """Causes by how many entries they stop, the most frequent first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if not passed(row) and (cause := row["cause"]):
            groups.setdefault((cause["code"], _QUOTED.sub("…", cause["text"])[:120]), []).append(row)
    found = [
        Cause(code, members[0]["cause"]["text"], tuple(row["id"] for row in members))
        for (code, _), members in groups.items()
    ]
    return sorted(found, key=lambda cause: (-len(cause.ids), cause.text))


def render_page(rows: Sequence[Row], folder: Path, place: Path) -> str:
    """The page; links to packages and logs are relative to `place`, the folder that the page goes to."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent.parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clock"] = clock
    families = [
        {
            "name": name,
            "passed": good,
            "entries": count,
            "traced": sum(row["status"] == "traced" for row in rows if row["family"] == name),
            "seconds": median(row["seconds"] for row in rows if row["family"] == name),
        }
        for name, (good, count) in by_family(rows).items()
    ]
    return environment.get_template("atlas.html.j2").render(
        made=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        families=families,
        causes=ranked_causes(rows),
        rows=[_shown(row, folder, place) for row in sorted(rows, key=lambda row: (passed(row), row["id"]))],
        passed=sum(map(passed, rows)),
        traced=sum(row["status"] == "traced" for row in rows),
        median=median(row["seconds"] for row in rows) if rows else 0,
        peak=max((row["peak_rss_bytes"] for row in rows), default=0),
        versions=rows[-1].get("versions", {}) if rows else {},
    )


def _shown(row: Row, folder: Path, place: Path) -> dict[str, Any]:
    """A row with links to what is there: the emitted code, the report, the log."""
    links = {}
    package = Path(row["output"]) if row["output"] else None
    if package is not None and package.is_dir():
        links |= {"code": next(iter(sorted(package.glob("*/modeling.py"))), None)}
        links |= {"report": package / "report" / "index.html"}
    links["log"] = folder / "logs" / f"{slug_of(row['id'])}.log"
    found = {name: os.path.relpath(path, place) for name, path in links.items() if path is not None and path.is_file()}
    cause = row["cause"] or {"code": "", "file": "", "line": None, "text": ""}
    where = ":".join(str(part) for part in (Path(cause["file"] or "").name, cause["line"]) if part)
    checks = [_mark(check) for check in row["checks"] if check["status"] != "n/a"]
    return {**row, "passed": passed(row), "links": found, "cause": cause, "where": where, "marks": checks}


def _mark(check: dict[str, Any]) -> dict[str, str]:
    sign = {"pass": "✓", "fail": "✗", "not_run": "○"}[check["status"]]
    scale = f", {check['scale']}" if check["scale"] else ""
    return {"sign": sign, "kind": check["status"], "title": f"{check['name']}{scale}: {check['detail']}"}
