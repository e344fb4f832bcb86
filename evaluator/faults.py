"""The self-test of the checks: faults seeded into a copy of an emitted package must all be caught.

    python -m maxcode.evaluator.faults --package DIR --oracle DIR --source DIR --out faults.json

A fault is seeded where its code shape occurs on a line that runs and the edit changes the program. Exit status 0 when
every seeded fault is caught, 1 otherwise, 2 when the package fails a check without any fault.
"""

import argparse
import ast
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maxcode.evaluator.fault_data import DATA_KINDS
from maxcode.evaluator.fault_kinds import KINDS
from maxcode.evaluator.package import find_package
from maxcode.evaluator.worker import ENVIRONMENT, load_results

CHECKS = ("exact", "cache", "padding", "long", "gradients", "training", "dtypes", "weights", "float32", "bfloat16")
# Files whose code moves weights and tokens about; faults there are faults of loading, which `weights` covers.
PLUMBING = frozenset(
    {
        "pretrained.py",
        "weight_map.py",
        "axis_layout.py",
        "tensor_files.py",
        "source_writer.py",
        "generate.py",
        "sharding.py",
    }
)
# The check meant for a kind goes before `exact`: any failure catches the fault, and most then cost one check.
MEANT_FOR = {
    "dropped upcast": "dtypes",
    "added upcast": "dtypes",
    "cache off by one": "cache",
    "batch norm momentum": "training",
}
TRIES = 6  # sites tried per kind while they change nothing


@dataclasses.dataclass(frozen=True)
class Fault:
    """One edit: `code` at `file`:`line` becomes `replacement`; a fault of the weight map has no line."""

    kind: str
    file: str
    line: int = 0
    start: int = 0
    end: int = 0
    code: str = ""
    replacement: str = ""


@dataclasses.dataclass(frozen=True)
class Outcome:
    fault: Fault
    caught_by: str  # a check's name, "" when none failed
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """The folders of a gated package."""

    package: Path
    oracle: Path
    source: Path

    @property
    def arguments(self) -> list[str]:
        return ["--package", str(self.package), "--oracle", str(self.oracle), "--source", str(self.source)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="maxcode.evaluator.faults", description=__doc__.splitlines()[0])
    for name in ("--package", "--oracle", "--source", "--out"):
        parser.add_argument(name, required=True, type=Path)
    parser.add_argument("--kinds", help="names separated by commas; all by default")
    parser.add_argument("--passes", action="store_true", help="the package is known to pass; do not look again")
    parser.add_argument("--sites", type=int, default=1, help="faults seeded per kind")
    options = parser.parse_args(arguments)
    run = Run(find_package(options.package), options.oracle, options.source)
    kinds = options.kinds.split(",") if options.kinds else [*KINDS, *DATA_KINDS]
    if not options.passes and (found := failing(run, options.out.with_suffix(".clean.json"), checks_of(run))):
        sys.stderr.write(f"{run.package}: {found[0]['name']} fails without any fault: {found[0]['detail']}\n")
        return 2
    outcomes: list[Outcome] = []
    for outcome in self_test(run, kinds, options.sites):
        outcomes.append(outcome)
        progress(f"{outcome.fault.kind}: {outcome.caught_by or 'NOT CAUGHT'}")
        options.out.write_text(json.dumps(summary(outcomes, kinds), indent=1))
    result = summary(outcomes, kinds)
    options.out.write_text(json.dumps(result, indent=1))
    return int(result["caught"] < result["seeded"] or not result["seeded"])


def progress(item: str) -> None:
    sys.stderr.write(json.dumps({"progress": {"stage": "faults", "item": item}}) + "\n")
    sys.stderr.flush()


def summary(outcomes: list[Outcome], kinds: list[str]) -> dict[str, Any]:
    """Counts in all and by kind; kinds that do not apply have none seeded."""
    by_kind = {name: [o for o in outcomes if o.fault.kind == name] for name in kinds}
    return {
        "seeded": len(outcomes),
        "caught": sum(bool(o.caught_by) for o in outcomes),
        "kinds": {n: {"seeded": len(os_), "caught": sum(bool(o.caught_by) for o in os_)} for n, os_ in by_kind.items()},
        "faults": [dataclasses.asdict(o.fault) | {"caught_by": o.caught_by, "detail": o.detail} for o in outcomes],
    }


def self_test(run: Run, kinds: list[str], sites: int) -> Iterator[Outcome]:
    """Seed up to `sites` faults of each kind that change the program, one at a time."""
    reached, judge = reach(run, "--lines"), Judge(run)
    found = find_faults(run.package, reached["lines"])
    for name in kinds:
        seeded = 0
        faults = [Fault(name, "weights.json")] if name in DATA_KINDS else found.get(name, [])
        for fault in faults[: TRIES + sites]:
            outcome = try_fault(run, fault, judge)
            seeded += outcome is not None
            if outcome is not None:
                yield outcome
            if seeded == sites:
                break


class Judge:
    """Tells edits that change what a package computes from those that do not."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @functools.cached_property
    def fingerprint(self) -> str:
        return reach(self.run)["fingerprint"]

    @functools.cached_property
    def values(self) -> str:
        return reach(self.run, "--values")["values"]

    def is_change(self, faulty: Run) -> bool:
        """Whether a program differs, and with it a bit of some output, cached step or gradient."""
        return reach(faulty)["fingerprint"] != self.fingerprint and reach(faulty, "--values")["values"] != self.values


def reach(run: Run, *options: str) -> dict[str, Any]:
    """What `reach.py` says. Raises RuntimeError with the process's last line when it fails."""
    command = [sys.executable, "-m", "maxcode.evaluator.reach", *run.arguments, *options]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{run.package}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def find_faults(package: Path, lines: dict[str, list[int]]) -> dict[str, list[Fault]]:
    """Possible faults by kind on lines that run; the model's own file first."""
    found: dict[str, list[Fault]] = {}
    files = sorted(package.rglob("*.py"), key=lambda path: (path.name != "modeling.py", str(path)))
    for path in (path for path in files if path.name not in PLUMBING and not path.name.startswith("config")):
        name = str(path.relative_to(package))
        reached = set(lines.get(name, ()))
        for fault in faults_in(path.read_text(), name):
            if fault.line in reached:
                found.setdefault(fault.kind, []).append(fault)
    return found


def faults_in(source: str, file: str) -> Iterator[Fault]:
    """Every edit that some kind proposes for a module's source."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(ast.parse(source)):
        for name, function in KINDS.items():
            if hasattr(node, "lineno") and (replacement := function(node)) is not None:
                start = starts[node.lineno - 1] + node.col_offset
                end = starts[node.end_lineno - 1] + node.end_col_offset
                yield Fault(name, file, node.lineno, start, end, ast.unparse(node), replacement)


def inject(fault: Fault, run: Run, folder: Path) -> Run | None:
    """A copy of the package with the fault in it; None where a fault of the weight map does not apply."""
    target = folder / "package" / run.package.name
    shutil.copytree(run.package, target, ignore=shutil.ignore_patterns("__pycache__"))
    for entry in run.package.parent.iterdir():
        if entry != run.package:
            (target.parent / entry.name).symlink_to(entry)
    if fault.kind not in DATA_KINDS:
        data = (target / fault.file).read_bytes()
        edited = data[: fault.start] + fault.replacement.encode() + data[fault.end :]
        (target / fault.file).write_bytes(edited)
        return Run(target, run.oracle, run.source)
    source = folder / "source"
    source.mkdir()
    for entry in run.source.iterdir():
        (source / entry.name).symlink_to(entry.resolve())
    places = [run.source / "weights.json", run.package.parent / "weights.json", run.package / "weights.json"]
    changed = DATA_KINDS[fault.kind](json.loads(next(p for p in places if p.exists()).read_text()))
    if changed is None:
        return None
    for place in (source, target.parent):
        (place / "weights.json").unlink(missing_ok=True)
        (place / "weights.json").write_text(json.dumps(changed))
    return Run(target, run.oracle, source)


def try_fault(run: Run, fault: Fault, judge: Judge) -> Outcome | None:
    """Run the checks on the faulty copy; None when the fault changes nothing."""
    with tempfile.TemporaryDirectory(prefix="maxcode-fault-") as folder:
        faulty = inject(fault, run, Path(folder))
        if faulty is None:
            return None
        recorded = checks_of(run)
        first = [name for name in (MEANT_FOR.get(fault.kind), recorded[0]) if name in recorded]
        for check in failing(faulty, Path(folder) / "first.json", first):
            return Outcome(fault, check["name"], check["detail"])
        try:
            if not judge.is_change(faulty):  # far cheaper than all checks
                return None
        except RuntimeError as error:
            return Outcome(fault, "reach", str(error))
        for check in failing(faulty, Path(folder) / "rest.json", [n for n in recorded if n not in first]):
            return Outcome(fault, check["name"], check["detail"])
        return Outcome(fault, "")


def checks_of(run: Run) -> list[str]:
    """The checks that the recordings allow, in the order of `CHECKS`."""
    index = json.loads((run.oracle / "index.json").read_text())["scenarios"]
    return [name for name in CHECKS if name == "weights" or name in index]


def failing(run: Run, out: Path, checks: list[str]) -> list[dict[str, Any]]:
    """The first of some checks that fails on a package, in a list; empty when all pass."""
    command = [sys.executable, "-m", "maxcode.evaluator.worker", *run.arguments, "--checks", ",".join(checks)]
    command += ["--out", str(out), "--stop-at-failure"]
    subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=True)
    return [check for check in load_results(out)["checks"] if check["status"] == "fail"][:1]


if __name__ == "__main__":
    sys.exit(main())
