"""`make bench`: the figures of a converted chat model, measured here and printed with what they are measured against.

    python -m maxcode.bench [PACKAGE] [--only speed --only start …]

Without a package SmolLM2-135M-Instruct is converted first. PyTorch runs with its default attention (sdpa), eagerly.
"""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from maxcode import bench_figures
from maxcode.bench_figures import Figure, Setting
from maxcode.demo import convert
from maxcode.errors import Exit, MaxCodeError
from maxcode.evaluator.machine import cpus
from maxcode.two_sides import smollm

FIGURES: dict[str, Callable[[Setting], list[Figure]]] = {
    "speed": bench_figures.speed,
    "layers": bench_figures.compile_growth,
    "start": bench_figures.second_start,
    "repeat": bench_figures.determinism,
    "convert": bench_figures.longest_file,
}


def main(
    package: Annotated[Path | None, typer.Argument(help="output folder of maxcode convert")] = None,
    only: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(FIGURES)}")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of each side; 0: all")] = 0,
    rounds: Annotated[int, typer.Option(help="interleaved runs of each side")] = 11,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON list")] = False,
) -> None:
    """Measure and print; exit status 1 when a figure misses its limit."""
    console = Console(stderr=as_json)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    threads = threads or cpus()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # for both sides alike
    if unknown := set(only or ()) - FIGURES.keys():
        console.print(f"bench: {sorted(unknown)} unknown; expected of {', '.join(FIGURES)}")
        raise typer.Exit(Exit.BAD_INPUT)
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="maxcode-bench-") as place:
        try:
            folder = package or convert(smollm(), Path(place) / "smollm2", gate=False)[0]
            setting = Setting(folder.resolve(), Path(place), threads, rounds)
            for name in only or FIGURES:
                found += FIGURES[name](setting)
        except MaxCodeError as error:
            console.print(f"bench: {error}")
            raise typer.Exit(error.exit_status) from None
    console.print(table(found, threads))
    if as_json:
        sys.stdout.write(json.dumps([figure.to_json() for figure in found]) + "\n")
    raise typer.Exit(Exit.OK if all(figure.holds for figure in found) else Exit.FAILED)


def table(found: list[Figure], threads: int) -> Table:
    """All figures with limit, spread and what they compare."""
    made = Table(title=f"{machine()}, {threads} threads, load {os.getloadavg()[0]:.1f}")
    for name in ("", "figure", "measured", "limit", "how"):
        made.add_column(name)
    for figure in found:
        limit = f"{'≤' if figure.at_most else '≥'} {figure.limit:g}{figure.unit}"
        made.add_row("✓" if figure.holds else "✗", figure.name, f"{figure.value:.2f}{figure.unit}", limit, figure.how)
    return made


def machine() -> str:
    """The processor's name, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


if __name__ == "__main__":
    typer.run(main)
