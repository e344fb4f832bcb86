"""`maxcode atlas run | report | diff`: parse, call, print."""

from pathlib import Path
from typing import Annotated, Any

import typer

from maxcode.arguments import AsJson, GapChoice, NoSandbox, OnGap, Quiet
from maxcode.errors import Exit
from maxcode.progress import Progress
from maxcode.session import Result, execute

app = typer.Typer(
    help="Convert and gate many architectures, and compare runs.", no_args_is_help=True, rich_markup_mode=None
)
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="a folder that maxcode atlas run wrote")]


@app.command()
def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="results.jsonl, packages and logs go here")],
    atlas: Annotated[
        Path | None, typer.Option("--atlas", metavar="FILE", help="one entry a line", show_default="the packaged one")
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="FIELD=VALUE", help="entries to run, such as family=causal-lm or id=gemma*"),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, metavar="N", help="so many of them, spread over the families")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="entries at the same time, a thread each")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="keep rows of the same code, versions and entries, run the others")
    ] = False,
    scale: Annotated[str, typer.Option("--scale", help="given, or both: a second configuration as well")] = "both",
    on_gap: GapChoice = OnGap.fail,
    timeout: Annotated[float, typer.Option("--timeout", min=1, metavar="SECONDS", help="of one entry")] = 900,
    memory: Annotated[float, typer.Option("--memory", min=0.5, metavar="GIB", help="of one entry")] = 4,
    unsafe_no_sandbox: NoSandbox = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Convert and gate every entry, each in a process of its own.

    Exit status 0 once every entry has a row, whatever it says; atlas report shows what passed.
    """
    from maxcode.atlas import entries, render, runner
    from maxcode.atlas.children import Limits
    from maxcode.atlas.entry import SCALES, EntryOptions
    from maxcode.records import empty_record

    if scale not in SCALES:
        raise typer.BadParameter(f"--scale {scale}: expected {' or '.join(SCALES)}")

    def action(progress: Progress) -> Result:
        chosen = entries.select(entries.read_atlas(atlas), filter_ or ())
        chosen = chosen if sample is None else entries.sample(chosen, sample)
        options = runner.RunOptions(
            (atlas or entries.PACKAGED).resolve(),
            out.resolve(),
            jobs,
            resume,
            EntryOptions(scale, on_gap.value, unsandboxed=unsafe_no_sandbox),
            Limits(timeout, int(memory * 2**30)),
        )
        found = list(runner.run(chosen, options, progress).values())
        record = empty_record("not_shown", str(options.atlas), str(options.out)) | {"atlas": render.summary(found)}
        return Result(record, Exit.OK, lambda: render.show_run(found, options.out))

    return execute(action, as_json=as_json, quiet=quiet, output=str(out))


@app.command()
def report(
    folder: RunFolder,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", show_default="DIR/index.html")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Write one HTML page: pass rates by family, causes by rank, the first cause of every entry that failed."""
    from maxcode.atlas import page, render, rows
    from maxcode.records import empty_record

    def action(_: Progress) -> Result:
        place = output or folder / "index.html"
        found = list(rows.read_rows(folder).values())
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(page.render_page(found, folder, place.parent))
        record = empty_record("not_shown", str(folder), str(place)) | {"atlas": render.summary(found)}
        return Result(record, Exit.OK, lambda: render.show_run(found, folder, page=place))

    return execute(action, as_json=as_json, quiet=quiet, target=str(folder))


@app.command()
def diff(before: RunFolder, after: RunFolder, as_json: AsJson = False, quiet: Quiet = False) -> int:
    """Show which entries a change gained and lost.

    Exit status 1 when an entry that passed in the first folder does not pass in the second.
    """
    from maxcode.atlas import diff as comparison
    from maxcode.atlas import render, rows
    from maxcode.records import empty_record

    def action(_: Progress) -> Result:
        found: dict[str, Any] = comparison.compare(rows.read_rows(before), rows.read_rows(after))
        status = Exit.FAILED if found["lost"] else Exit.OK
        record = empty_record("failed" if found["lost"] else "not_shown", str(before), str(after)) | {"diff": found}
        return Result(record, status, lambda: render.show_diff(found))

    return execute(action, as_json=as_json, quiet=quiet, target=str(before), output=str(after))
