"""Results of an atlas as people read them in a terminal, and their figures as JSON."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from maxcode.atlas.page import ranked_causes
from maxcode.atlas.rows import Row, by_family, passed
from maxcode.progress import clock
from maxcode.render import stdout_console

_LISTED = 12


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts and rates by family, the median time of an entry in seconds, the largest peak in bytes."""
    return {
        "entries": len(rows),
        "passed": sum(map(passed, rows)),
        "traced": sum(row["status"] == "traced" for row in rows),
        "families": {name: {"passed": good, "entries": count} for name, (good, count) in by_family(rows).items()},
        "median_seconds": median(row["seconds"] for row in rows) if rows else None,
        "peak_rss_bytes": max((row["peak_rss_bytes"] for row in rows), default=0),
    }


def show_run(rows: Sequence[Row], folder: Path, page: Path | None = None) -> None:
    """The pass rate of each family, then the most frequent causes."""
    out, figures = stdout_console(), summary(rows)
    table = Table("family", "passed", "entries", "rate", box=None, header_style="dim")
    for name, (good, count) in by_family(rows).items():
        table.add_row(name, str(good), str(count), f"{good / count:.1%}")
    out.print(table)
    causes = ranked_causes(rows)
    if causes:
        ranked = Table("entries", "cause", "for example", box=None, header_style="dim")
        for cause in causes[:_LISTED]:
            ranked.add_row(str(len(cause.ids)), cause.text, cause.ids[0])
        out.print(ranked)
    out.print(
        f"{figures['passed']} of {figures['entries']} passed, {figures['traced']} traced; "
        f"median {clock(figures['median_seconds'] or 0)}, peak {figures['peak_rss_bytes'] / 2**30:.1f} GiB"
    )
    if page:
        out.print(f"page: {page}")
    else:
        out.print(f"next: maxcode atlas report {folder}")


def show_diff(found: dict[str, Any]) -> None:
    """What was gained and lost, with the reason of each."""
    out = stdout_console()
    for name, side in (("lost", "after"), ("gained", "before"), ("changed", "after")):
        for item in found[name]:
            cause = item[side]["cause"] or {}
            out.print(f"{name:<8}{item['id']}: {cause.get('text', item[side]['status'])}", highlight=False)
    before, after = found["passed"]
    seconds = [clock(value) for value in found["seconds"]]
    out.print(
        f"{found['common']} entries in both: {before} passed before, {after} now; {seconds[0]} before, {seconds[1]} now"
    )
    for name in ("only_before", "only_after"):
        if found[name]:
            out.print(f"{len(found[name])} {name.replace('_', ' ')}: {', '.join(found[name][:_LISTED])}")
