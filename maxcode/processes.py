"""Run one stage in a process of its own: its progress becomes ours, its errors too, and it never outlives us."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from maxcode.errors import InternalError, MaxCodeError, is_no_space, no_space
from maxcode.progress import Progress

_ROOT = Path(__file__).resolve().parent.parent
_GRACE_SECONDS = 3.0


def python_module(module: str, *arguments: str | Path) -> list[str]:
    """The command line that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", module, *(str(argument) for argument in arguments)]


def stage_environment(**extra: str) -> dict[str, str]:
    """The environment of a stage: ours, unbuffered, able to import maxcode from a checkout that is not installed."""
    env = os.environ | {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"} | extra
    if not _is_installed():
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), env.get("PYTHONPATH", "")]))
    return env


def _is_installed() -> bool:
    try:
        metadata.distribution("maxcode")
    except metadata.PackageNotFoundError:
        return False
    return True


def run_stage(
    command: list[str], progress: Progress, *, name: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a stage to its end and return what it wrote to stdout.

    Lines `{"progress": …}` on its stderr go to `progress`; a line `{"error", "where", "found", "expected", "do"}`
    there, with exit status 2, becomes the error raised here.

    Raises:
      MaxCodeError: the stage refused its input, or the disk is full.
      InternalError: it failed in any other way; the message ends with the last lines it wrote.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=dict(env or stage_environment()),
        cwd=cwd,
        start_new_session=True,  # Ctrl-C reaches us alone, and the whole stage ends when we say so
    )
    stderr = _StderrReader(process, progress)
    try:
        stdout = process.stdout.read() if process.stdout else ""
        status = process.wait()
        stderr.join()
    finally:
        _end(process)
    if status != 0:
        raise _failure(name, status, stderr)
    return stdout


class _StderrReader(threading.Thread):
    def __init__(self, process: subprocess.Popen[str], progress: Progress) -> None:
        super().__init__(daemon=True)
        self._lines = process.stderr
        self._progress = progress
        self.tail: deque[str] = deque(maxlen=40)
        self.error: dict[str, Any] | None = None
        self.start()

    def run(self) -> None:
        for line in self._lines or ():
            record = _json_object(line)
            if record is None:
                self.tail.append(line.rstrip())
            elif isinstance(record.get("progress"), dict):
                self._progress.subprocess_line(record["progress"])
            elif "error" in record:
                self.error = record
            else:
                self.tail.append(line.rstrip())


def _json_object(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _failure(name: str, status: int, stderr: _StderrReader) -> MaxCodeError:
    error, text = stderr.error, "\n".join(stderr.tail)
    if is_no_space(text) or (error and is_no_space(json.dumps(error))):
        return no_space(f"stage {name!r}")
    if error is not None:
        fields = [str(error.get(key, "")) for key in ("where", "found", "expected", "do")]
        if not any(fields):
            fields[0], fields[1] = name, str(error["error"])
        return MaxCodeError(*fields) if status == 2 else InternalError(*fields)
    if -status in (signal.SIGINT, signal.SIGTERM):
        raise KeyboardInterrupt
    how = f"ended by signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    do = "more memory, or a smaller model" if status == -signal.SIGKILL else ""
    return InternalError(f"stage {name!r}", f"{how}\n{text}".rstrip(), do=do)


def _end(process: subprocess.Popen[str]) -> None:
    """End the stage if it still runs: ask, wait a moment, insist. Also takes what a finished one left in its group."""
    try:
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
    finally:
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[str], sign: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)
