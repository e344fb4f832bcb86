"""`maxcode rules coverage`: measure what no longer holds, write the page, print the rates."""

from pathlib import Path
from typing import Annotated, Any

import typer

from maxcode.arguments import AsJson, Quiet
from maxcode.errors import Exit
from maxcode.progress import Progress
from maxcode.session import Result, execute

app = typer.Typer(help="What the conversion rules cover.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def rules() -> None:
    """What the conversion rules cover."""


@app.command()
def coverage(
    filter_: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="PATTERN", help="names to measure, such as linalg.* or module:LSTM"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="where the page goes; none without it")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="processes at the same time")] = 1,
    again: Annotated[bool, typer.Option("--again", help="measure rows too that still hold")] = False,
    stored: Annotated[bool, typer.Option("--stored", help="measure nothing, use the rows as stored")] = False,
    results: Annotated[
        Path | None, typer.Option("--results", metavar="FILE", show_default="the packaged one", help="stored rows")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Run every rule on torch's own samples of ops and layers; rows of the same code and versions are kept.

    A first run takes about half an hour of one core and can be ended and started again at any time.
    """
    from maxcode.converter import coverage as page
    from maxcode.converter.measured import RESULTS, rates, read, stale
    from maxcode.records import empty_record

    place = results or RESULTS

    def action(progress: Progress) -> Result:
        if not stored:
            _measure(filter_ or [], place, jobs, again, progress)
        found = read(place)["rows"]
        record = empty_record("not_shown", "rules", str(output or "")) | {
            "ops": rates(row for key, row in found.items() if key.startswith("op ")),
            "modules": rates(row for key, row in found.items() if key.startswith("module ")),
            "rows": found,
            "stale": stale(found),
        }
        if output is not None:
            output.write_text(page.page(place))
        return Result(record, Exit.OK, lambda: _show(record))

    return execute(action, as_json=as_json, quiet=quiet, target="rules", output=str(output or ""))


def _measure(patterns: list[str], results: Path, jobs: int, again: bool, progress: Progress) -> None:
    from maxcode.coverage import runner

    chosen = [key for key in runner.measurable() if _is_chosen(key, patterns)]
    progress.plan("coverage")
    progress.stage("coverage")
    options = runner.RunOptions(jobs=jobs, again=again, results=results)
    runner.run(chosen, options, lambda key, row, done, total: progress.item(f"{key}, measured", done, total))


def _is_chosen(key: str, patterns: list[str]) -> bool:
    from fnmatch import fnmatch

    kind, _, name = key.partition(" ")
    return not patterns or any(fnmatch(name, p) or fnmatch(f"{kind}:{name}", p) for p in patterns)


def _show(record: dict[str, Any]) -> None:
    for kind in ("ops", "modules"):
        found = record[kind]
        typer.echo(
            f"{kind}: {found['agree']} of {found['count']} agree on every sample ({found['rate']:.1%}; "
            f"{found['rate_with_limits']:.1%} with declared limits counted apart)"
        )
    if record["stale"]:
        typer.echo(f"{len(record['stale'])} rows were measured with other rules than these; run it again")
