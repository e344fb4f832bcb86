"""Results as people read them in a terminal."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from maxcode.progress import clock
from maxcode.records import Record, counted

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
_WIDTH = 160


def show_record(record: Record) -> None:
    """The verdict table, then what is missing and where the result is."""
    console = stdout_console()
    if record["checks"]:
        console.print(_check_table(record["checks"]))
    for title in ("gaps", "traced", "assumptions"):
        _show_list(console, title, record[title])
    spent = sum(value for stage, value in record["timings"].items() if "/" not in stage)
    status = record["status"]
    headline = Text.assemble((status, _STATUS_STYLE.get(status, "bold yellow")), f" · {_MEANING[status]}")
    lines = [headline, Text(f"{record['target']} → {record['output']}") if record["output"] else Text(record["target"])]
    if record["output"] and (Path(record["output"]) / "report" / "index.html").is_file():
        lines.append(Text(f"report: {record['output']}/report/index.html", style="dim"))
    if spent:
        lines.append(Text(f"{clock(spent)}", style="dim"))
    if record["output"] and (following := _next_step(status, Path(record["output"]))):
        lines.append(Text(f"next: {following}"))
    console.print(Panel(Text("\n").join(lines), border_style=_STATUS_STYLE.get(status, "yellow"), expand=False))


def _next_step(status: str, output: Path) -> str:
    """What a reader of this verdict can do now; "" where the output is no package."""
    if not (output / "config.yml").is_file():
        return ""
    if status == "verified":
        return f"how to use it stands in {output}/README.md"
    if status == "failed":
        return f"the report names the first tensor that differs; after a change: maxcode gate {output}"
    if status == "gaps":
        return "give each gap a rule (CONTRIBUTING.md says where) or change the source, then convert again"
    if status == "not_shown":
        return f"maxcode gate {output}" if (output / "weights").is_dir() else "convert with weights, to have it checked"
    return ""


def stdout_console() -> Console:
    """Stdout; wider than the usual 80 columns where it is no terminal."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(markup=False, highlight=False, width=width)


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
    """A gap, traced part or assumption as one line: where, what and why, and in brackets what to do."""
    if not isinstance(item, dict):
        return str(item)
    where = ":".join(str(item[key]) for key in ("file", "line") if item.get(key) is not None)
    text = " ".join(str(item[key]) for key in ("code", "torch_name", "reason", "text") if item.get(key))
    return f"{where}  {text}{' (' + item['hint'] + ')' if item.get('hint') else ''}".strip()


def show_plan(record: Record) -> None:
    """What a conversion would do: definitions in order, what comes along, what is left out, risks, and how long."""
    console, plan = stdout_console(), record["plan"]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("definition", "lines", "into", "how", "source"):
        table.add_column(
            name, justify="right" if name == "lines" else "left", style="" if name == "definition" else "dim"
        )
    for row in plan["definitions"]:
        how = Text(row["handling"], style="yellow" if "gap" in row["handling"] else "")
        table.add_row(row["name"], str(row["lines"]), row["file"], how, row["source"])
    console.print(Text(f"{plan['class']}, configured by {plan['config_class'] or 'its constructor arguments'}", "bold"))
    console.print(table)
    for title, texts in (("support files", list(plan["support"])), ("left out", plan["left_out"])):
        if texts:
            console.print(Text(f"{title} ({len(texts)}): ", "bold").append(", ".join(texts), "not bold dim"))
    for title in ("gaps", "assumptions"):
        _show_list(console, title, record[title])
    _show_list(console, "risks", plan["risks"])
    count, spent = len(record["gaps"]), plan["estimate"]
    verdict = "no gaps" if not count else counted(count, "gap")
    about = f"; {plan['lines']['written']} lines to write, about {clock(spent['seconds_without_gate'])}"
    about += f", {clock(spent['seconds'])} with the gate"
    console.print(Text(verdict, style="bold green" if not count else "bold yellow").append(about, "not bold"))


def show_generation(record: Record, *, quiet: bool = False) -> None:
    """The text on stdout, the speed on stderr."""
    answer = record["generation"]
    sys.stdout.write(answer["text"] + "\n")  # as it is: a console would break its lines
    decode = (answer.get("seconds") or {}).get("decode")
    if decode and not quiet:
        speed = f"{len(answer['tokens']) / decode:.1f} tokens/s"
        Console(stderr=True, markup=False, highlight=False).print(Text(speed, style="dim"))
