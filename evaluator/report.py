"""One self-contained HTML page from a record (report.json): inline styles and SVG, no request to anywhere.

report.json is the record of the command line (design §1: status, target, output, checks, gaps, traced, assumptions,
timings, versions) and may hold more; every part below is optional and shown when it is there:

    gaps[], traced[], assumptions[]   {"code", "file", "line", "torch_name", "reason" | "text", "hint", "source_lines":
                  [[number, text], …], "jax_file", "jax_line", "jax_lines": [[number, text], …]}
    weights      {"rows": [{"source" | "sources", "target", "layout", "shape", "dtype"}] or a count,
                  "tied": [{"source", "same_as"} or pairs], "waived": [{"source", "reason"} or pairs],
                  "source_tensors", "source_bytes", "written_bytes", and lists of names "changed", "unknown", "unused"}
    evidence     {"layers": {dtype: {"limit": float | null, "modules": [{"fqn", "class", "file", "line", "error"}]}},
                  "logits": {dtype: {"edges": [n + 1 errors], "counts": [n], "limit": float | null}},
                  "divergence": {"fqn", "class", "file", "line", "error"} | null,
                  "faults": {"caught": int, "seeded": int, "missed": [names]}}
"""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from maxcode.evaluator import report_charts as charts

STATUS_TEXT = {
    "verified": "Every applicable check passes.",
    "failed": "A check failed.",
    "gaps": "Some parts have no rule yet; calling them raises.",
    "traced": "Some parts were traced from the graph, not converted.",
    "not_shown": "An applicable check was not run.",
    "error": "The run did not complete.",
}
_LEDGER_ROWS = 2000


def render(record: Mapping[str, Any]) -> str:
    """The page of a record. Parts that the record does not hold are left out."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(figure=figure, bytes=size_text, clock=charts.clock)
    return environment.get_template("report_template.html.j2").render(page(record))


def page(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the template shows, from a record."""
    evidence = record.get("evidence") or {}
    checks = [_check(check) for check in record.get("checks", [])]
    return {
        "record": record,
        "status": record["status"],
        "status_text": STATUS_TEXT[record["status"]],
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "checks": checks,
        "counts": {name: sum(c["status"] == name for c in checks) for name in ("pass", "fail", "n/a", "not_run")},
        "heat_maps": [charts.heat_map(name, data) for name, data in (evidence.get("layers") or {}).items()],
        "histograms": [charts.histogram(name, data) for name, data in (evidence.get("logits") or {}).items()],
        "divergence": evidence.get("divergence"),
        "faults": evidence.get("faults"),
        "places": {name: [_place(item) for item in record.get(name, [])] for name in ("gaps", "traced", "assumptions")},
        "ledger": ledger(record.get("weights")),
        "timings": charts.bars(record.get("timings") or {}),
        "raw": json.dumps(record, indent=1, default=str),
    }


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    value, limit = check.get("value"), check.get("limit")
    return {"value": None, "limit": None, "scale": "", "detail": "", **check, "headroom": charts.headroom(value, limit)}


def _place(item: Any) -> dict[str, Any]:
    fields = dict(item) if isinstance(item, Mapping) else {"text": str(item)}
    where = ":".join(str(fields[key]) for key in ("file", "line") if fields.get(key) is not None)
    return {
        "code": fields.get("code", ""),
        "title": fields.get("torch_name", ""),
        "text": fields.get("reason") or fields.get("text") or "",
        "hint": fields.get("hint", ""),
        "where": where,
        "line": fields.get("line"),
        "source_lines": fields.get("source_lines") or [],
        "jax_file": fields.get("jax_file", ""),
        "jax_lines": fields.get("jax_lines") or [],
        "jax_line": fields.get("jax_line"),
    }


def ledger(weights: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The weight ledger as rows of text, problems first; None when no weights were converted."""
    if not weights:
        return None
    rows = weights.get("rows") or []
    listed = [_ledger_row(row) for row in rows] if isinstance(rows, list) else []
    problems = [(kind, name) for kind in ("changed", "unknown", "unused") for name in weights.get(kind) or []]
    return {
        "count": len(rows) if isinstance(rows, list) else rows,
        "rows": listed[:_LEDGER_ROWS],
        "hidden": max(0, len(listed) - _LEDGER_ROWS),
        "tied": [_pair(entry, "source", "same_as") for entry in weights.get("tied") or []],
        "waived": [_pair(entry, "source", "reason") for entry in weights.get("waived") or []],
        "problems": problems,
        "source_tensors": weights.get("source_tensors"),
        "source_bytes": weights.get("source_bytes"),
        "written_bytes": weights.get("written_bytes"),
    }


def _ledger_row(row: Mapping[str, Any]) -> dict[str, str]:
    sources = _sources(row)
    shown = sources[0] if len(sources) == 1 else f"{sources[0]} … {sources[-1]} ({len(sources)})" if sources else ""
    layout = str(row.get("layout") or "")
    return {
        "source": shown,
        "target": str(row.get("target", "")),
        "layout": layout.replace("->", "→") or "as is",
        "shape": " × ".join(str(n) for n in row.get("shape") or []),
        "dtype": str(row.get("dtype") or ""),
    }


def _sources(expression: Mapping[str, Any]) -> list[str]:
    if "sources" in expression:
        return [name for item in expression["sources"] for name in _sources(item)]
    return [str(expression["source"])] if "source" in expression else []


def _pair(entry: Any, first: str, second: str) -> tuple[str, str]:
    return (str(entry[first]), str(entry[second])) if isinstance(entry, Mapping) else (str(entry[0]), str(entry[1]))


def figure(value: Any) -> str:
    """A figure in few characters; nothing for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def size_text(count: Any) -> str:
    """Bytes as people read them."""
    if not isinstance(count, int | float):
        return ""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
