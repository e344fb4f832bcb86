"""Results as people read them in a terminal."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from maxcode.progress import clock
from maxcode.records import Record

_STATUS_STYLE = {"verified": "bold green", "failed": "bold red", "error": "bold red"}
_CHECK = {"pass": ("✓", "green"), "fail": ("✗", "bold red"), "n/a": ("–", "dim"), "not_run": ("○", "yellow")}
_MEANING = {
    "verified": "every applicable check passes",
    "failed": "a check failed",
    "gaps": "some parts have no rule; calling them raises",
    "traced": "some parts were traced, not converted",
    "not_shown": "an applicable check was not run",
    "error": "the run did not complete",
}
_LISTED = 8


def show_record(record: Record) -> None:
    """The verdict table, then what is missing and where the result is."""
    console = Console(markup=False, highlight=False)
    if record["checks"]:
        console.print(_check_table(record["checks"]))
    for title in ("gaps", "traced", "assumptions"):
        _show_list(console, title, record[title])
    spent = sum(value for key, value in record["timings"].items() if isinstance(value, int | float))
    status = record["status"]
    headline = Text.assemble((status, _STATUS_STYLE.get(status, "bold yellow")), f" · {_MEANING[status]}")
    lines = [headline, Text(f"{record['target']} → {record['output']}") if record["output"] else Text(record["target"])]
    if record["output"] and (Path(record["output"]) / "report" / "index.html").is_file():
        lines.append(Text(f"report: {record['output']}/report/index.html", style="dim"))
    if spent:
        lines.append(Text(f"{clock(spent)}", style="dim"))
    console.print(Panel(Text("\n").join(lines), border_style=_STATUS_STYLE.get(status, "yellow"), expand=False))


def _check_table(checks: Iterable[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("check")
    table.add_column("value", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("scale", style="dim")
    table.add_column("detail", style="dim", overflow="fold")
    for check in checks:
        sign, style = _CHECK[check["status"]]
        table.add_row(
            Text(sign, style=style),
            Text(check["name"], style=style if check["status"] == "fail" else ""),
            figure(check["value"]),
            figure(check["limit"]),
            check["scale"] or "",
            check["detail"] or "",
        )
    return table


def figure(value: Any) -> str:
    """A figure in few characters: `3.1e-11`, `0.98`, `100`."""
    if value is None:
        return ""
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:.3g}"


def _show_list(console: Console, title: str, items: list[Any]) -> None:
    if not items:
        return
    console.print(Text(f"{title} ({len(items)})", style="bold"))
    for item in items[:_LISTED]:
        console.print(Text(f"  {describe(item)}"))
    if len(items) > _LISTED:
        console.print(Text(f"  … {len(items) - _LISTED} more in the report", style="dim"))


def describe(item: Any) -> str:
    """A gap, traced part or assumption as one line."""
    if not isinstance(item, dict):
        return str(item)
    where = ":".join(str(item[key]) for key in ("file", "line") if item.get(key) is not None)
    text = " ".join(str(item[key]) for key in ("code", "torch_name", "reason", "text", "hint") if item.get(key))
    return f"{where}  {text}".strip()


def show_plan(record: Record) -> None:
    """What a conversion would do."""
    console = Console(markup=False, highlight=False)
    plan = record["plan"]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("class", plan["class"])
    table.add_row("configuration", plan["config_class"] or "constructor arguments")
    for name, lines in plan["files"].items():
        table.add_row("file", f"{name} ({lines} lines)")
    console.print(table)
    for title in ("gaps", "assumptions"):
        _show_list(console, title, record[title])
    count = len(record["gaps"])
    console.print(Text("no gaps" if not count else f"{count} gaps", style="bold green" if not count else "bold yellow"))


def show_generation(record: Record) -> None:
    """The text on stdout, the speed on stderr."""
    answer = record["generation"]
    Console(markup=False, highlight=False).print(Text(answer["text"]))
    decode = (answer.get("seconds") or {}).get("decode")
    if decode:
        speed = f"{len(answer['tokens']) / decode:.1f} tokens/s"
        Console(stderr=True, markup=False, highlight=False).print(Text(speed, style="dim"))
