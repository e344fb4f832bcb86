"""Run one stage in a limited process of its own: its progress and errors become ours, and it never outlives us."""

import json
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from maxcode.errors import InternalError, MaxCodeError, is_no_space, no_space
from maxcode.evaluator.forks import Launch
from maxcode.evaluator.machine import process_limit
from maxcode.evaluator.sandbox import Completed, IsolationError, run_limited
from maxcode.progress import Progress

_ROOT = Path(__file__).resolve().parent.parent
_PASSED = (
    "HF_",
    "HUGGINGFACE_",
    "JAX_",
    "MKL_",
    "OMP_",
    "OPENBLAS_",
    "TF_CPP_",
    "TOKENIZERS_",
    "TRANSFORMERS_",
    "XLA_",
)
_TIMEOUT_SECONDS = 6 * 3600.0  # a stage of a large model takes hours; a stuck one must end


def python_module(module: str, *arguments: object) -> list[str]:
    """The command line that runs one of our modules with this interpreter."""
    return [sys.executable, "-m", module, *(str(argument) for argument in arguments)]


def stage_environment(**extra: str) -> dict[str, str]:
    """What a stage may know of our environment; it can import maxcode from a checkout that is not installed."""
    env = {name: value for name, value in os.environ.items() if name.startswith(_PASSED)}
    # One hash seed: a source that walks over a set does so in one order, and what the run saw is the same every time.
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"} | extra
    paths = [os.environ.get("PYTHONPATH", ""), "" if _is_installed() else str(_ROOT)]
    if any(paths):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return env


def _is_installed() -> bool:
    try:
        metadata.distribution("maxcode")
    except metadata.PackageNotFoundError:
        return False
    return True


def cache_folder() -> Path:
    """Where compiled programs are kept between runs; made when missing."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "maxcode" / "jax"
    place = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR", default))
    place.mkdir(parents=True, exist_ok=True)
    return place


def run_stage(
    command: Sequence[str],
    progress: Progress,
    *,
    name: str,
    writable: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    unsandboxed: bool = False,
    launch: Launch = run_limited,
) -> str:
    """Run a stage to its end, without network and able to write below `writable` only; returns its stdout.

    Lines `{"progress": …}` on its stderr go to `progress`; a line `{"error", "where", "found", "expected", "do"}`
    there, with exit status 2, becomes the error raised here.

    Args:
      unsandboxed: run it even where no sandbox works.
      launch: what runs the command; see evaluator/forks.py.

    Raises:
      MaxCodeError: the stage refused its input, the disk is full, or no sandbox works here.
      InternalError: it failed in any other way; the message ends with the last lines it wrote.
    """
    stderr = _Stderr(progress)
    try:
        done = launch(
            command,
            timeout_s=_TIMEOUT_SECONDS,
            memory_bytes=process_limit(),
            writable=writable,
            env=stage_environment() if env is None else env,
            cwd=cwd or Path.cwd(),
            max_processes=512,
            allow_unsandboxed=unsandboxed,
            on_stderr=stderr.take,
        )
    except IsolationError as error:
        do = "install bubblewrap; for code that you trust, give --unsafe-no-sandbox (the verdict records it)"
        raise MaxCodeError("sandbox", str(error), "a way to isolate model code", do) from None
    if done.returncode != 0 or done.stopped:
        raise _failure(name, done, stderr)
    return done.stdout


class _Stderr:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.tail: deque[str] = deque(maxlen=40)
        self.error: dict[str, Any] | None = None

    def take(self, line: str) -> None:
        record = _json_object(line)
        if record is not None and isinstance(record.get("progress"), dict):
            self._progress.subprocess_line(record["progress"])
        elif record is not None and "error" in record:
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


def last_record(text: str) -> dict[str, Any] | None:
    """The JSON object on the last line of what a process printed; None where there is none."""
    return _json_object((text.strip().splitlines() or [""])[-1])


def _failure(name: str, done: Completed, stderr: _Stderr) -> MaxCodeError:
    error, text = stderr.error, "\n".join(stderr.tail)
    if is_no_space(text) or (error and is_no_space(json.dumps(error))):
        return no_space(f"stage {name!r}")
    if done.stopped:
        found = f"ended after {done.seconds:.0f} s: over the limit of {done.stopped}\n{text}".rstrip()
        return InternalError(f"stage {name!r}", found, do="use a larger machine, or a smaller model")
    if error is not None:
        fields = [str(error.get(key, "")) for key in ("where", "found", "expected", "do")]
        if not any(fields):
            fields[0], fields[1] = name, str(error["error"])
        return MaxCodeError(*fields) if done.returncode == 2 else InternalError(*fields)
    status = done.returncode
    how = f"ended by signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    return InternalError(f"stage {name!r}", f"{how}\n{text}".rstrip())
