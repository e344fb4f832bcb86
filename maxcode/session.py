"""One run of the command line: arguments in, exit status out, and every exception turned into both."""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from maxcode.errors import Exit, InternalError, MaxCodeError, is_no_space, no_space
from maxcode.progress import Progress
from maxcode.records import Record, error_record, printed


@dataclass
class Result:
    """What a command hands back: the JSON record, its exit status, and how to show it to a person."""

    record: Record
    exit_status: int
    show: Callable[[], None] = field(default=lambda: None)


@contextmanager
def signals() -> Iterator[None]:
    """SIGTERM interrupts as Ctrl-C does, so that stages are ended and staging folders removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: the caller owns the signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(arguments: list[str]) -> int:
    """Parse and run a command line; every exception becomes a message and an exit status."""
    as_json = "--json" in arguments[: arguments.index("--") if "--" in arguments else None]
    try:
        return _run_app(arguments)
    except (Exception, KeyboardInterrupt) as error:
        return _report(error, as_json)


class InterruptedRunError(MaxCodeError):
    """The user ended the run."""

    exit_status = Exit.INTERRUPTED

    def __init__(self) -> None:
        super().__init__("maxcode", "interrupted", do="run the command again; earlier output is untouched")


def _run_app(arguments: list[str]) -> int:
    import typer

    from maxcode.commands import app

    # typer does not name its base error publicly, and where it lives depends on the release.
    usage_error: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    try:
        status = typer.main.get_command(app).main(arguments, prog_name="maxcode", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.Exit as done:
        return done.exit_code
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(error.format_message() + "\n")
            return Exit.BAD_INPUT
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "maxcode"
        raise MaxCodeError(where, error.format_message().rstrip("."), do=f"see {where} --help") from None
    return int(status or 0)


def _report(error: BaseException, as_json: bool, target: str = "", output: str = "") -> int:
    """Say what went wrong, on stderr and with `--json` as a record; returns the exit status."""
    if isinstance(error, BrokenPipeError):  # nobody reads stdout any more: nothing left to say there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.INTERNAL
    known = _as_known(error)
    text = str(known)
    sys.stderr.write((text if text.startswith("maxcode") else f"maxcode: {text}") + "\n")
    if as_json:
        kind = {Exit.BAD_INPUT: "input", Exit.INTERRUPTED: "interrupted"}.get(known.exit_status, "internal")
        print_record(error_record(target, output, kind, text))
    return int(known.exit_status)


def _as_known(error: BaseException) -> MaxCodeError:
    if isinstance(error, MaxCodeError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return InterruptedRunError()
    if is_no_space(error):
        return no_space("output")
    text = "".join(traceback.format_exception(error)).rstrip()
    found = f"internal error: {type(error).__name__}: {error}\n{text}"
    return InternalError("maxcode", found, do="please report this")


def print_record(record: Record) -> None:
    """The one JSON record on stdout."""
    sys.stdout.write(json.dumps(printed(record), ensure_ascii=True, allow_nan=False) + "\n")
    sys.stdout.flush()


def execute(
    action: Callable[[Progress], Result], *, as_json: bool, quiet: bool, target: str = "", output: str = ""
) -> int:
    """Run a command's action under a progress display, print its result, return the exit status."""
    try:
        with _json_stdout(as_json), Progress(quiet=quiet) as progress:
            result = action(progress)
        result.record["timings"] = dict(progress.timings) | result.record["timings"]  # the last stage ended just now
        if as_json:
            print_record(result.record)
        else:
            result.show()
    except (Exception, KeyboardInterrupt) as error:
        return _report(error, as_json, target, output)
    return result.exit_status


@contextmanager
def _json_stdout(as_json: bool) -> Iterator[None]:
    """While a `--json` command works, whatever prints to stdout (libraries too) goes to stderr."""
    if not as_json:
        yield
        return
    before, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = before
