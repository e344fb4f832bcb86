"""One entry in a process of its own, under limits of time and memory, its peak memory measured."""

import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from maxcode.atlas import rows
from maxcode.atlas.entries import Entry
from maxcode.atlas.entry import EntryOptions
from maxcode.evaluator.sandbox import end_tree
from maxcode.processes import last_record, python_module

_POLL = 0.1  # seconds between two looks at a child


@dataclass(frozen=True)
class Limits:
    """What one entry may take; all its processes count together."""

    seconds: float = 900.0
    memory_bytes: int = 4 << 30


@dataclass
class Children:
    """The processes that run now, so that an interrupt can end them all."""

    running: list[subprocess.Popen[str]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        """Kill them; none is started afterwards."""
        self.stopped.set()
        for process in list(self.running):
            end_tree(process)


def run_child(
    entry: Entry, atlas: Path, out: Path, options: EntryOptions, limits: Limits, children: Children
) -> rows.Row:
    """The row of one entry. A child that crashes or passes a limit gives a row that says so, never an exception."""
    log = out / "logs" / f"{entry.slug}.log"
    folder = out / "packages" / entry.slug
    log.parent.mkdir(parents=True, exist_ok=True)
    command = python_module("maxcode.atlas.entry", "--atlas", atlas, "--id", entry.id, "--out", folder)
    start = time.monotonic()
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, *options.arguments()], stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
        children.running.append(process)
        try:
            watch = _Watch(process, start + limits.seconds, limits.memory_bytes, children)
            watch.start()
            said = process.stdout.read() if process.stdout else ""
            process.wait()
        finally:
            watch.done.set()
            end_tree(process)
            children.running.remove(process)
    row = last_record(said) or _broken(entry, process, watch, log, limits)
    return row | {"seconds": round(time.monotonic() - start, 2), "peak_rss_bytes": watch.peak}


class _Watch(threading.Thread):
    """Adds up a process tree's memory, and ends the tree at a limit."""

    def __init__(self, process: subprocess.Popen[str], deadline: float, memory: int, children: Children) -> None:
        super().__init__(daemon=True)
        self._process, self._deadline, self._memory, self._children = process, deadline, memory, children
        self.peak, self.over, self.done = 0, "", threading.Event()

    def run(self) -> None:
        while not self.done.wait(_POLL):
            used = _resident(self._process.pid)
            self.peak = max(self.peak, used)
            if time.monotonic() > self._deadline:
                self.over = "time"
            elif used > self._memory:
                self.over = "memory"
            if self.over or self._children.stopped.is_set():
                end_tree(self._process)
                return


def _resident(pid: int) -> int:
    """Resident bytes of a process and everything below it; pages that they share count once per process."""
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return 0
    total = 0
    for process in family:
        try:
            total += process.memory_info().rss
        except psutil.Error:  # it ended while we looked
            continue
    return total


def _broken(entry: Entry, process: Any, watch: _Watch, log: Path, limits: Limits) -> rows.Row:
    stage = (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
    if watch.over == "time":
        return rows.broken_row(entry, "time", f"over {limits.seconds:.0f} s; last: {stage}")
    if watch.over == "memory":
        found = f"{watch.peak / 2**30:.1f} GiB, over {limits.memory_bytes / 2**30:.1f} GiB"
        return rows.broken_row(entry, "memory", f"{found}; last: {stage}")
    return rows.broken_row(entry, "crash", f"ended with status {process.returncode}; last: {stage}")
