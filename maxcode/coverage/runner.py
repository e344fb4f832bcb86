"""Measure many names in worker processes: rows are kept as they end, those that still hold are not measured again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from maxcode.converter.measured import RESULTS, Row, stamp
from maxcode.coverage import store, worker

BATCH = 60  # names a process measures before the next one starts, which bounds its memory
LIMIT_S = 900  # of one name


@dataclass(frozen=True)
class RunOptions:
    """Choices of `maxcode rules coverage`."""

    jobs: int = 1
    again: bool = False  # measure rows too that still hold
    results: Path = RESULTS
    cache: Path = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "maxcode" / "coverage"


def measurable() -> dict[str, list[str]]:
    """Every key ("op NAME", "module NAME") with the torch names whose entries decide its row."""
    from maxcode.coverage import modules, ops
    from maxcode.coverage.calls import entries, spellings

    found = {f"module {name}": modules.names_of(name) for name in modules.names()}
    for name in ops.names():
        forms = [form for info in entries()[name] for form in spellings(info)]
        found[f"op {name}"] = sorted(set(forms)) or [f"torch.{name}"]
    return found


def run(chosen: Sequence[str], options: RunOptions, report: Callable[[str, Row, int, int], None]) -> dict[str, Row]:
    """Measure `chosen` keys where their rows no longer hold, write the results after each batch, return all rows."""
    names, rows = measurable(), store.load(options.results)
    rows = {key: row for key, row in rows.items() if key in names}
    todo = [key for key in chosen if options.again or not store.is_fresh(rows.get(key), names[key])]
    overridable, lock, versions = store.overridable(), threading.Lock(), store.library_versions()
    options.cache.mkdir(parents=True, exist_ok=True)

    def one(batch: list[str]) -> None:
        for key, row in _measure(batch, options.cache):
            with lock:
                rows[key] = row | {"names": names[key], "stamp": stamp(names[key]), "versions": versions}
                done.append(key)
                store.write(rows, overridable, options.results)
                report(key, rows[key], len(done), len(todo))

    done: list[str] = []
    batches = [todo[i : i + BATCH] for i in range(0, len(todo), BATCH)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(one, batch) for batch in batches]):
            future.result()
    store.write(rows, overridable, options.results)
    return rows


def _measure(batch: list[str], cache: Path) -> Iterator[tuple[str, Row]]:
    """Rows of a batch; a name that ends or stalls its process has a row that says so, and a new process goes on."""
    left = list(batch)
    while left:
        process = subprocess.Popen(
            [sys.executable, "-m", "maxcode.coverage.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=worker.environment(cache),
        )
        try:
            yield from _served(process, left)
        finally:
            process.kill()
            process.wait()


def _served(process: subprocess.Popen[str], left: list[str]) -> Iterator[tuple[str, Row]]:
    asked, answers = _pipes(process)
    while left:
        key = left[0]
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        try:
            asked.write(f"{key}\n")
            asked.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        left.pop(0)
        if not line:
            yield key, worker.failed(f"the process ended, or took longer than {LIMIT_S} s")
            return
        answer = json.loads(line)
        yield answer["key"], answer["row"]


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the worker has no pipes; Popen was not asked for them")
    return process.stdin, process.stdout
