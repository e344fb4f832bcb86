"""Run a list of entries and keep one row each; what is there already can be left out."""

import hashlib
import importlib
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from maxcode.atlas import rows
from maxcode.atlas.children import Children, Limits, run_child
from maxcode.atlas.entries import Entry
from maxcode.atlas.entry import EntryOptions
from maxcode.progress import Progress
from maxcode.versions import versions

_ENGINE = ("maxcode.converter", "maxcode.checkpoint_convert", "maxcode.evaluator")  # what a row depends on


@dataclass(frozen=True)
class RunOptions:
    """Choices of `maxcode atlas run`."""

    atlas: Path
    out: Path
    jobs: int = 1
    resume: bool = False
    entry: EntryOptions = field(default_factory=EntryOptions)
    limits: Limits = field(default_factory=Limits)


def run(entries: Sequence[Entry], options: RunOptions, progress: Progress) -> dict[str, rows.Row]:
    """Run `entries`, append a row of each to `out/results.jsonl` as it ends, and return the last row of each.

    With `resume` an entry is left out whose row was made by the same code, library versions and entry.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    _complete_last_line(results)
    stamps = {entry.id: stamp for entry, stamp in zip(entries, _stamps(entries, options.entry), strict=True)}
    found = rows.read_rows(options.out) if results.is_file() else {}
    fresh = {key for key, row in found.items() if options.resume and row.get("stamp") == stamps.get(key)}
    todo = [entry for entry in entries if entry.id not in fresh]
    progress.plan("atlas")
    progress.stage("atlas")
    good = sum(rows.passed(found[entry.id]) for entry in entries if entry.id in fresh)
    progress.item(f"{good} passed,", len(entries) - len(todo), len(entries))
    for done, row in enumerate(_rows(todo, options), len(entries) - len(todo) + 1):
        row["stamp"] = stamps[row["id"]]
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        found[row["id"]] = row
        good += rows.passed(row)
        progress.item(f"{row['id']} {row['status']}; {good} passed,", done, len(entries))
    return {entry.id: found[entry.id] for entry in entries}


def _rows(todo: Iterable[Entry], options: RunOptions) -> Iterator[rows.Row]:
    """Rows in the order in which entries end; an interrupt ends every child."""
    children, queue = Children(), iter(todo)
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:

        def start() -> list[Future[rows.Row]]:
            entry = next(queue, None)
            arguments = (options.atlas, options.out, options.entry, options.limits, children)
            return [] if entry is None else [pool.submit(run_child, entry, *arguments)]

        running = [future for _ in range(options.jobs) for future in start()]
        try:
            while running:
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    running.remove(future)
                    running += start()
                    yield future.result()
        finally:
            children.end()


def _complete_last_line(results: Path) -> None:
    """Take away what a crash left of a line, so that the next row begins on one of its own."""
    if results.is_file() and (text := results.read_bytes()) and not text.endswith(b"\n"):
        results.write_bytes(text[: text.rfind(b"\n") + 1])


def _stamps(entries: Iterable[Entry], options: EntryOptions) -> Iterator[str]:
    """What each row depends on, as a short hash: the engine's code, library versions, the entry, the options."""
    common = hashlib.sha256(json.dumps([sorted(versions().items()), options.scale, options.on_gap]).encode())
    for path in _engine_files():
        common.update(path.read_bytes())
    for entry in entries:
        own = common.copy()
        own.update(json.dumps(entry.fields, sort_keys=True).encode())
        yield own.hexdigest()[:16]


def _engine_files() -> list[Path]:
    folders = [Path(next(iter(importlib.import_module(name).__path__))) for name in _ENGINE]
    return sorted(path for folder in folders for path in folder.rglob("*.py"))
