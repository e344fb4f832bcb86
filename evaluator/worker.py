"""Run checks on an emitted package in a JAX process without torch.

    python -m maxcode.evaluator.worker --package DIR --oracle DIR --source DIR --checks exact,float32 --out results.json

Checks are grouped; every group runs in a process of its own (x64 cannot be switched within one), and results.json is
rewritten after each check, so that a crash costs one check only.
"""

import argparse
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from maxcode.evaluator.forks import leave
from maxcode.evaluator.verdict import Check

# XLA's CPU runtime can wait for itself for ever when its pool has few threads: seen with two in the gradient of a loop
# within a scan, with four between eight simulated devices. Threads that wait cost no time.
THREADS, TIMED_THREADS = 16, 4
GROUP_ENVIRONMENT = {
    "x64": {"JAX_ENABLE_X64": "1"},
    "plain": {"JAX_ENABLE_X64": "0"},
    "timing": {"JAX_ENABLE_X64": "0", "NPROC": str(max(TIMED_THREADS, os.cpu_count() or 1))},
}
QUICK = "--xla_backend_optimization_level=0"
# Compilations are measured and counted, so none may come from an earlier process.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "NPROC": str(max(THREADS, os.cpu_count() or 1)),
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="maxcode.evaluator.worker", description=__doc__.splitlines()[0])
    parser.add_argument("--package", required=True, type=Path)
    parser.add_argument("--oracle", required=True, type=Path)
    parser.add_argument("--source", required=True, type=Path)
    parser.add_argument("--weights", type=Path, help="folder to load weights from; the source folder by default")
    parser.add_argument("--checks", required=True, help="names, separated by commas")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--scale", default="", help="what the weights are; written into every check")
    parser.add_argument("--options", default="{}", help="JSON object of options of the checks")
    parser.add_argument("--oracle-command", help="JSON list: the command that starts the oracle's `serve`")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for one group of checks")
    parser.add_argument("--stop-at-failure", action="store_true", help="leave out what follows a failed check")
    parser.add_argument("--quick-compile", action="store_true", help="XLA's back end does not optimise")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Exit 0 when all checks were decided (passed or not); their results stand in `--out`."""
    options = parse(arguments)
    return run_groups(options)


def run_groups(options: argparse.Namespace) -> int:
    """One process per group; a group that dies fails the checks that it had not finished."""
    from maxcode.evaluator.checks.registry import entry_of

    names = [name for name in options.checks.split(",") if name]
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(entry_of(name).group, []).append(name)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.unlink(missing_ok=True)
    for group, members in groups.items():
        while members and not stopped(options):
            ended = _start(options, group, members)
            done = {record["name"] for record in load_results(options.out)["checks"]}
            left = [name for name in members if name not in done]
            if left and not stopped(options):
                save_result(options.out, Check(left[0], "fail", scale=options.scale, detail=ended), 0.0)
            members = left[1:]
    return 0


def stopped(options: argparse.Namespace) -> bool:
    """Whether a failed check ends the run."""
    return options.stop_at_failure and any(c["status"] == "fail" for c in load_results(options.out)["checks"])


def _start(options: argparse.Namespace, group: str, members: list[str]) -> str:
    """Run one group in a fork of this process, which has imported JAX; what to say of a check during which it ended."""
    import flax.nnx  # noqa: F401 (imported once for all groups)

    child = os.fork()
    if child == 0:
        os.environ.update(ENVIRONMENT | GROUP_ENVIRONMENT[group])
        inside = argparse.Namespace(**vars(options) | {"checks": ",".join(members), "group": group})
        leave(lambda: run_group(inside), "maxcode.evaluator.worker")
    status = _wait(child, options.timeout)
    if status is None:
        return f"stopped after {options.timeout:.0f} s"
    return f"the {group} process ended with status {status} during this check (killed for memory, or a crash)"


def _wait(child: int, seconds: float) -> int | None:
    """A process's exit status; None, and the process killed, when it takes longer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def run_group(options: argparse.Namespace) -> int:
    """The inside of one group's process."""
    import jax

    # JAX read the environment when it was imported, before the groups parted.
    jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS", "cpu"))
    jax.config.update("jax_enable_x64", os.environ["JAX_ENABLE_X64"] == "1")
    jax.config.update("jax_enable_compilation_cache", False)
    if options.quick_compile:
        os.environ["XLA_FLAGS"] = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), QUICK]))
    context = error = None
    try:
        context = make_context(options)
    except Exception as raised:  # the package may do anything at import
        error = raised
    for name in options.checks.split(","):
        start = time.perf_counter()
        progress(name)
        result = run_check(name, context) if error is None else failure(name, error, options.package)
        result = Check(result.name, result.status, result.value, result.limit, options.scale, result.detail)
        save_result(options.out, result, time.perf_counter() - start)
        if stopped(options):
            break
    return 0


def progress(item: str) -> None:
    """One JSON line on stderr, for whoever started the worker."""
    sys.stderr.write(json.dumps({"progress": {"stage": "check", "item": item}}) + "\n")
    sys.stderr.flush()


def make_context(options: argparse.Namespace):
    from maxcode.evaluator.checks.registry import Context
    from maxcode.evaluator.package import Package
    from maxcode.evaluator.recording import Recordings

    command = json.loads(options.oracle_command) if options.oracle_command else None
    package = Package(options.package, options.weights or options.source)
    recordings = Recordings(options.oracle)
    return Context(package, recordings, options.source, options.out, command, json.loads(options.options))


def run_check(name: str, context: Any) -> Check:
    """One check, its exceptions turned into a result."""
    from maxcode.evaluator.checks.registry import NotApplicable, NotRun, entry_of
    from maxcode.evaluator.package import DoesNotFit

    try:
        variant = name.partition(":")[2]
        function = entry_of(name).function
        return function(context, variant) if variant else function(context)
    except NotApplicable as reason:
        return Check(name, "n/a", detail=str(reason))
    except (NotRun, DoesNotFit) as reason:
        return Check(name, "not_run", detail=str(reason))
    except Exception as error:  # isolation: one broken check must not hide the others
        return failure(name, error, context.package.path)


def failure(name: str, error: BaseException, package: Path) -> Check:
    """A failed check from an exception: what it was and the package line that raised it."""
    frame, where = error.__traceback__, ""
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if str(package) in file:
            where = (
                f"{Path(file).relative_to(package) if Path(file).is_relative_to(package) else file}:{frame.tb_lineno}: "
            )
        frame = frame.tb_next
    text = " ".join(str(error).split())
    return Check(name, "fail", detail=f"{where}{type(error).__name__}: {text[:1500]}")


def last_error(stderr: str) -> str:
    """The line of a traceback that names the exception, else the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt|Failure)\b", line)]
    return (named or lines or ["no message"])[-1][:500]


def load_results(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {"checks": [], "timings": {}}


def save_result(path: Path, result: Check, seconds: float) -> None:
    """Add one result; the file is replaced whole, so that a reader never sees half of it."""
    results = load_results(path)
    results["checks"].append(result.to_json())
    results["timings"][result.name] = round(seconds, 3)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1))
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
