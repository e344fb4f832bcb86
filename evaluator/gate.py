"""The gate: record the oracle, run every check on the package, and decide.

Oracle and package run in processes of their own, in the sandbox, because both run code that is not ours.
"""

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import maxcode
from maxcode.evaluator import tolerance
from maxcode.evaluator.backends import backend_checks
from maxcode.evaluator.forks import Launch
from maxcode.evaluator.machine import cpus, process_limit
from maxcode.evaluator.package import find_package
from maxcode.evaluator.sandbox import isolation, run_limited
from maxcode.evaluator.verdict import Check, Verdict, decide
from maxcode.evaluator.worker import ENVIRONMENT, last_error, load_results

# Where a check runs when the weights are real: on them, or on a small configuration of the same code (design 4).
ON_REAL = ("standalone", "compile", "exact", "float32", "bfloat16", "dtypes", "long", "cache", "weights", "performance")
ON_SMALL = ("padding", "adversarial", "scan", "gradients", "training", "loop")
SCENARIOS = {
    "exact": ("exact",), "float32": ("float32",), "bfloat16": ("bfloat16",), "dtypes": ("dtypes",), "long": ("long",),
    "cache": ("cache",), "padding": ("padding",), "adversarial": ("edges",), "gradients": ("gradients",),
    "training": ("training",), "loop": ("loop",), "scan": ("exact", "long"), "backend": ("float32", "bfloat16"),
    "standalone": ("exact",), "compile": ("exact", "cache"), "performance": ("exact", "cache"),
}  # fmt: skip
NUMERIC = frozenset({"exact", "long", "padding", "cache", "scan", "adversarial", "gradients", "training"})
VERSIONS = ("jax", "jaxlib", "flax", "numpy", "optax", "safetensors")

OnProgress = Callable[[str], None]


class GateError(Exception):
    """The oracle or a worker could not be run; the text is what it said."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Choices of the gate; unknown keys of `from_dict` raise."""

    tpu: bool = False
    no_sandbox: bool = False
    seed: int = 0
    slowdown: float = tolerance.SLOWDOWN
    checks: tuple[str, ...] = (*ON_REAL, *ON_SMALL, "backend")
    second_checks: tuple[str, ...] = ()  # on the same package at a configuration derived from the class
    seeds: int = tolerance.MINIMUM_SEEDS
    faults: bool = False  # also run the seeded-fault self-test
    threads: int | None = None
    timeout_s: float = 3600.0  # for each process
    memory_bytes: int = 0  # 0: nine tenths of the machine's
    quick_compile: bool = False  # XLA's back end does not optimise: the same operations, compiled faster, run slower
    launch: Launch = run_limited

    @classmethod
    def from_dict(cls, given: dict[str, Any] | None) -> "Options":
        return cls(**{k: tuple(v) if k.endswith("checks") else v for k, v in (given or {}).items()})


@dataclasses.dataclass(frozen=True)
class Scale:
    """One set of weights: where its target, source and recordings are, and the checks that run on it."""

    name: str
    folder: Path
    checks: tuple[str, ...]
    source: Path

    @property
    def target(self) -> Path:
        return self.folder / "target.json"

    @property
    def oracle(self) -> Path:
        return self.folder / "oracle"

    @property
    def results(self) -> Path:
        return self.folder / "checks" / "results.json"


def run_gate(
    run: str | Path,
    package: str | Path,
    *,
    options: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    write_map: Callable[[Path], None] | None = None,
    launch: Launch = run_limited,
) -> Verdict:
    """Every check of `package` against the oracle of the run folder (`target.json`, `source/`).

    Recordings go to `run/oracle`, results and evidence to `run/checks`; the small scale's to `run/small`. `write_map`
    puts a weights.json into the small source folder (without it, rows of the package's own are made to fit).

    `launch` runs commands, as `run_limited` does (see forks.py).

    Raises:
      GateError: the oracle cannot build or run the source.
      IsolationError: no sandbox works on this machine and `no_sandbox` is not set.
    """
    run, chosen = Path(run), dataclasses.replace(Options.from_dict(options), launch=launch)
    package, say = find_package(package), on_progress or (lambda item: None)
    target = json.loads((run / "target.json").read_text())
    checks: list[Check] = []
    timings: dict[str, float] = {}
    evidence: dict[str, Any] = {}
    for scale in scales(run, target, package, chosen, say):
        if write_map is not None and scale.folder != run and scale.checks:
            write_map(scale.source)
        found = check_scale(scale, package, chosen, say)
        checks += found.checks
        timings |= {name: timings.get(name, 0.0) + seconds for name, seconds in found.timings.items()}
        merge_evidence(evidence, found.evidence)
    checks.append(Check("tpu", "not_run", detail="ask for it with --tpu" if not chosen.tpu else "no TPU compiler here"))
    if chosen.faults:
        failed = any(check.status == "fail" for check in checks)  # a package that fails anyway would "catch" them all
        none: dict[str, Any] = {"caught": 0, "seeded": 0, "missed": []}
        evidence["faults"] = none if failed else fault_self_test(run, package, chosen, say)
    assumptions = ({"code": "sandbox", "text": "code ran without a sandbox"},) if chosen.no_sandbox else ()
    return Verdict(
        decide(checks), target.get("text", ""), str(package.parent), tuple(checks),
        assumptions=assumptions, timings=timings, versions=versions(run), evidence=evidence,
    )  # fmt: skip


def scales(run: Path, target: dict[str, Any], package: Path, options: Options, say: OnProgress) -> list[Scale]:
    """One scale where the weights are small and random; else the real ones and a derived small configuration."""
    wanted = [name for name in options.checks if name.partition(":")[0] != "backend"]
    if not target.get("training"):
        wanted = [name for name in wanted if name != "loop"]
    wanted += backend_checks(package) if "backend" in options.checks else []
    source = loadable_source(run, package.parent)
    second = [_derived(run, package, options.second_checks, SECOND, options, say)] if options.second_checks else []
    if target.get("weights") != "stored" and not target.get("full_size"):
        return [Scale("random weights", run, tuple(wanted), source), *second]
    if not target.get("config_class"):  # built from arguments: no smaller configuration can be derived
        return [Scale("real weights", run, tuple(wanted), source), *second]
    real = tuple(name for name in wanted if name in ON_REAL)
    small = tuple(name for name in wanted if name not in ON_REAL)
    name = "real weights" if target.get("weights") == "stored" else "random weights, full size"
    found = [Scale(name, run, real, source)] if real else []
    if small:
        found.append(_derived(run, package, small, SMALL, options, say))
    return found + second


SMALL, SECOND = ("small", "small configuration"), ("second", "second configuration")
BISECT = "bisect"  # no check of the verdict: it says where the two sides part, and feeds the report


def _derived(
    run: Path, package: Path, checks: tuple[str, ...], kind: tuple[str, str], options: Options, say: OnProgress
) -> Scale:
    """A scale at a configuration made from the target's own ("small") or from its class's defaults ("second")."""
    size, name = kind
    folder = run / size
    folder.mkdir(exist_ok=True)
    command = ["derive", "--size", size, "--target", str(run / "target.json"), "--out", str(folder)]
    oracle(command, folder, options, say)
    oracle(["materialise", "--target", str(folder / "target.json"), "--out", str(folder)], folder, options, say)
    return Scale(name, folder, checks, loadable_source(folder, package.parent))


def loadable_source(folder: Path, package_root: Path) -> Path:
    """`folder/source`, or a folder of links beside it where config.json or the tensors stand elsewhere.

    A linked source names the user's folder in tensors.json; a plain module's configuration is the package's.
    """
    source = folder / "source"
    table = source / "tensors.json"
    about = json.loads(table.read_text()) if table.exists() else {}
    if about.get("linked"):
        source = Path(about["path"])
    if (source / "config.json").exists():
        return source
    linked = folder / "loadable"
    shutil.rmtree(linked, ignore_errors=True)
    linked.mkdir()
    for entry in [*source.iterdir(), package_root / "config.json"]:
        (linked / entry.name).symlink_to(entry.resolve())
    return linked


@dataclasses.dataclass(frozen=True)
class Found:
    checks: list[Check]
    timings: dict[str, float]
    evidence: dict[str, Any]


def check_scale(scale: Scale, package: Path, options: Options, say: OnProgress) -> Found:
    """Record what the checks of one scale need, and run them."""
    record(scale, options, say)
    results = worker(scale, package, (*scale.checks, BISECT), scale.results, options, say)
    found = [Check.from_json(check) for check in results["checks"]]
    checks, bisected = [c for c in found if c.name != BISECT], next(c for c in found if c.name == BISECT)
    evidence = read_evidence(scale.results.parent)
    if bisected.status == "fail":
        failed = [check for check in checks if check.status == "fail"]
        evidence["divergence"] = first_divergence(evidence) if failed else None
        checks = [_with_divergence(check, bisected.detail) for check in checks]
    timings = {name: seconds for name, seconds in results["timings"].items() if name != BISECT}
    return Found(checks, timings, report_evidence(evidence))


def _with_divergence(check: Check, text: str) -> Check:
    """Say in a failed check where the two sides part."""
    if check.status != "fail" or check.name.partition(":")[0] not in NUMERIC:
        return check
    return dataclasses.replace(check, detail=f"{check.detail}\n{text}")


def record(scale: Scale, options: Options, say: OnProgress) -> None:
    """Record the scenarios that are not there yet."""
    needed = {s for name in scale.checks for s in SCENARIOS.get(name.partition(":")[0], ())} | {"modules"}
    index = scale.oracle / "index.json"
    about = json.loads(index.read_text()) if index.exists() else {"scenarios": [], "facts": {"reasons": {}}}
    missing = sorted(needed - set(about["scenarios"]) - set(about["facts"]["reasons"]))
    if missing:
        scale.oracle.mkdir(parents=True, exist_ok=True)
        command = ["record", *oracle_arguments(scale), "--out", str(scale.oracle), "--scenarios", ",".join(missing)]
        oracle([*command, "--seeds", str(options.seeds)], scale.folder, options, say)


def oracle_arguments(scale: Scale) -> list[str]:
    return ["--target", str(scale.target), "--source", str(scale.folder / "source")]


def worker(
    scale: Scale, package: Path, checks: Iterable[str], out: Path, options: Options, say: OnProgress
) -> dict[str, Any]:
    """Results of some checks. Checks that the worker did not reach fail with what it said last."""
    out.parent.mkdir(parents=True, exist_ok=True)
    # XLA runs on every CPU it may use; PyTorch, which is timed beside it, must too.
    threads = options.threads or cpus()
    serve = [sys.executable, "-m", "maxcode.evaluator.oracle", "serve", *oracle_arguments(scale)]
    serve += ["--threads", str(threads)]
    command = [
        sys.executable,
        "-m",
        "maxcode.evaluator.worker",
        "--package",
        str(package),
        "--oracle",
        str(scale.oracle),
    ]
    command += ["--source", str(scale.source), "--checks", ",".join(checks), "--out", str(out), "--scale", scale.name]
    command += ["--oracle-command", json.dumps(serve), "--options", json.dumps({"slowdown": options.slowdown})]
    command += ["--quick-compile"] if options.quick_compile else []
    done = limited(command, out.parent, options, say)
    results = load_results(out)
    names = {check["name"] for check in results["checks"]}
    detail = f"the worker ended with status {done.returncode}: {done.stopped or last_error(done.stderr)}"
    left = [Check(name, "fail", scale=scale.name, detail=detail) for name in checks if name not in names]
    return results | {"checks": results["checks"] + [check.to_json() for check in left]}


def oracle(arguments: list[str], folder: Path, options: Options, say: OnProgress) -> None:
    """Run one command of the oracle. Raises GateError with its own message."""
    command = [sys.executable, "-m", "maxcode.evaluator.oracle", *arguments]
    command += ["--threads", str(options.threads)] if options.threads else []
    done = limited(command, folder, options, say)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith('{"error"')]
        raise GateError(f"oracle {arguments[0]}: {done.stopped or (said or [last_error(done.stderr)])[-1]}")


def limited(command: list[str], folder: Path, options: Options, say: OnProgress):
    """Run a command under the sandbox's limits; it may write below `folder` only."""
    memory = options.memory_bytes or process_limit()
    root = str(Path(maxcode.__file__).resolve().parent.parent)
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))  # the source may lie on the user's
    return options.launch(
        command, timeout_s=options.timeout_s, memory_bytes=memory, writable=[folder],
        env={**ENVIRONMENT, "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false"},
        max_processes=512, allow_unsandboxed=options.no_sandbox, on_stderr=lambda line: _pass_on(line, say),
    )  # fmt: skip


def _pass_on(line: str, say: OnProgress) -> None:
    if line.startswith('{"progress"'):
        item = json.loads(line)["progress"]
        say(str(item.get("item") or item.get("stage") or ""))


def fault_self_test(run: Path, package: Path, options: Options, say: OnProgress) -> dict[str, Any]:
    """Counts of the seeded-fault self-test at the small scale, or at the only one."""
    folder = run / "small" if (run / "small" / "oracle").exists() else run
    out = folder / "faults.json"
    command = [sys.executable, "-m", "maxcode.evaluator.faults", "--package", str(package), "--out", str(out)]
    command += [
        "--passes",
        "--source",
        str(loadable_source(folder, package.parent)),
        "--oracle",
        str(folder / "oracle"),
    ]
    limited(command, folder, options, say)
    found = json.loads(out.read_text()) if out.exists() else {"caught": 0, "seeded": 0, "faults": []}
    missed = [fault["kind"] for fault in found["faults"] if not fault["caught_by"]]
    return {"caught": found["caught"], "seeded": found["seeded"], "missed": missed}


def read_evidence(folder: Path) -> dict[str, Any]:
    """What the checks left for the report, by name."""
    files = sorted(folder.glob("*.evidence.json"))
    return {path.name.removesuffix(".evidence.json"): json.loads(path.read_text()) for path in files}


def report_evidence(evidence: dict[str, Any]) -> dict[str, Any]:
    """The parts that report.py draws."""
    modules = [
        {"fqn": row["fqn"], "class": row["class_name"], **_place(row["where"]), "error": row["error"]}
        for row in evidence.get("modules", ())
    ]
    names = {"logits.exact": "float64", "logits.float32": "float32", "logits.bfloat16": "bfloat16"}
    logits = {label: evidence[name] for name, label in names.items() if name in evidence}
    layers = {"float64": {"limit": tolerance.EXACT, "modules": modules}} if modules else {}
    found = {"layers": layers, "logits": logits, "divergence": evidence.get("divergence")}
    return {name: value for name, value in found.items() if value}


def first_divergence(evidence: dict[str, Any]) -> dict[str, Any] | None:
    off = [row for row in evidence.get("modules", ()) if not float(row["error"]) <= tolerance.EXACT]
    if not off:
        return None
    return {"fqn": off[0]["fqn"], "class": off[0]["class_name"], **_place(off[0]["where"]), "error": off[0]["error"]}


def _place(where: str) -> dict[str, Any]:
    file, _, line = where.rpartition(":")
    return {"file": file or where, "line": int(line) if line.isdigit() else None}


def merge_evidence(into: dict[str, Any], found: dict[str, Any]) -> None:
    """Real weights come first; a later scale only adds what is missing."""
    for name, value in found.items():
        into.setdefault(name, value)


def versions(run: Path) -> dict[str, str]:
    """Versions of both sides, and the isolation that the code ran in."""
    ours = {name: metadata.version(name) for name in VERSIONS}
    index = run / "oracle" / "index.json"
    theirs = json.loads(index.read_text()).get("versions", {}) if index.exists() else {}
    return theirs | ours | {"isolation": isolation()}
