"""The pipeline over records: Target -> source -> facts -> Conversion -> weights -> Verdict -> package.

Each function is one command of the command line; `commands.py` only parses and prints.
"""

import dataclasses
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxcode import packaging, planning, stages
from maxcode.broken import BrokenPackageError, as_gap
from maxcode.errors import MaxCodeError
from maxcode.excerpts import with_lines
from maxcode.output import check_output, find_package, is_ours, read_marker, recover, staged_output
from maxcode.progress import Progress
from maxcode.records import Record, counted, empty_record
from maxcode.stages import ConvertOptions, GateOptions, Run
from maxcode.targets import Target, package_name
from maxcode.weight_files import stored_bytes


@dataclass(frozen=True)
class ConvertRequest:
    """What `maxcode convert` was asked."""

    target: Target
    output: Path
    options: ConvertOptions
    gate_options: GateOptions
    force: bool = False
    weights: bool = True
    gate: bool = True
    keep_run: bool = False


def plan(target: Target, options: ConvertOptions, progress: Progress, *, unsandboxed: bool = False) -> Record:
    """Say what a conversion would do: convert in memory, write nothing. Status "gaps" when something has no rule."""
    progress.plan("resolve", "facts", "convert", "report")
    with tempfile.TemporaryDirectory(prefix="maxcode-plan-") as folder:
        with stages.serving(Run(Path(folder), unsandboxed), target) as run:
            _prepare(_without_weights(target), run, progress, with_weights=False)
            conversion = _convert(run, options, progress)
        progress.stage("report")
        record = empty_record(_status_of(conversion), target.text)
        record |= _places(conversion, run, options) | {"timings": dict(progress.timings)}
        facts = json.loads(run.facts.read_text())
        size = stored_bytes(run.read_target())
        plan = planning.describe(run.read_target(), conversion, facts, record, weights=size)
        return record | {"plan": plan}


def convert(request: ConvertRequest, progress: Progress) -> Record:
    """Convert, bring the weights over, gate, and put the package in place; the output appears whole or not at all."""
    _check_gap_choice(request.options)
    if request.target.kind == "pipeline":
        from maxcode.diffusion import convert_pipeline

        return convert_pipeline(request, progress, convert)
    kept = tuple(path for path in [request.target.local_path] if path is not None)
    recover(request.output)
    check_output(request.output, force=request.force, inputs=kept)
    names = ["resolve", *["source"] * request.weights, "facts", "convert", *["weights"] * request.weights]
    progress.plan(*names, *["gate"] * _gates(request), "report")
    progress.stage("resolve")
    target = request.target if request.weights else _without_weights(request.target)
    target = stages.locate(target, progress, with_weights=request.weights)
    with staged_output(request.output, force=request.force, inputs=kept) as folder:
        with stages.serving(Run(folder / "report" / "run", request.gate_options.no_sandbox), target) as run:
            record = _convert_into(dataclasses.replace(request, target=target), run, progress)
        progress.stage("report")
        record["timings"] = dict(progress.timings) | record["timings"]
        packaging.assemble(folder, run, record, options=request.options, keep_run=request.keep_run)
    return record


def _places(conversion: Any, run: Run, options: ConvertOptions) -> Record:
    """Gaps and assumptions as JSON, with the lines of both sides."""
    found = {name: as_json(getattr(conversion, name)) for name in ("gaps", "traced", "assumptions")}
    folder = run.read_target().get("path")
    for item in (item for items in found.values() for item in items if isinstance(item, dict)):
        copied = Path(str(item.get("file") or ""))
        if folder and copied.is_relative_to(run.modules):  # a copy that goes with the run
            item["file"] = str(Path(folder) / copied.name)
    return {name: with_lines(items, conversion.files, options.package_name) for name, items in found.items()}


def _check_gap_choice(options: ConvertOptions) -> None:
    """Refuse what this release lacks before any work is done, rather than carry on as if `fail` had been asked for."""
    if options.on_gap != "agent":
        return
    do = "leave it out: gaps are then listed, each becomes a call that raises, and the exit status is 3"
    found = "language models are not built into this release"
    raise MaxCodeError(f"--on-gap {options.on_gap}", found, "--on-gap fail or trace", do)


def _without_weights(target: Target) -> Target:
    """The same with random weights, so that nobody looks for stored ones."""
    return dataclasses.replace(target, weights="noise")


def _source_version(target: Target) -> dict[str, str]:
    """The commit that a hub id stood for."""
    return {"source": f"{target.text}@{target.revision}"} if target.kind == "hub" and target.revision else {}


def _gates(request: ConvertRequest) -> bool:
    return request.gate and request.weights


def _convert_into(request: ConvertRequest, run: Run, progress: Progress) -> Record:
    _prepare(request.target, run, progress, located=True)
    if request.weights:
        progress.stage("source")
        stages.materialise(run, progress)
    conversion = _convert(run, request.options, progress)
    record = empty_record(_status_of(conversion), request.target.text, str(request.output.resolve()))
    record |= _places(conversion, run, request.options)
    record["versions"] |= _source_version(request.target)
    if request.weights:
        record |= _weights(conversion, run, request.options, record["gaps"], progress)
    if _gates(request) and not record["gaps"]:
        record |= _gate(run, run.package, request.gate_options, record, progress)
    return record


def _status_of(conversion: Any) -> str:
    """What a conversion is before any check has run."""
    return "gaps" if conversion.gaps else "traced" if conversion.traced else "not_shown"


def _weights(
    conversion: Any, run: Run, options: ConvertOptions, gaps: list[dict[str, Any]], progress: Progress
) -> Record:
    """The weight ledger; where gaps leave the weights without a place, a check that says so.

    A package that cannot be built for another reason has one more gap than `gaps`.
    """
    progress.stage("weights")
    try:
        return {"weights": stages.convert_weights(run, options, progress)}
    except BrokenPackageError as error:
        gap = as_gap(error, conversion, json.loads(run.facts.read_text()), options.package_name)
        return _without_weights_of(run, error) | {"gaps": [*gaps, gap], "status": "gaps"}
    except stages.WeightsError as error:
        if not conversion.gaps:
            raise
        return _without_weights_of(run, error)


def _without_weights_of(run: Run, error: MaxCodeError) -> Record:
    """Take half-made weights away, and say why there are none."""
    from maxcode.evaluator.verdict import Check

    shutil.rmtree(run.package / "weights", ignore_errors=True)
    (run.package / "weights.json").unlink(missing_ok=True)
    return {"checks": [Check("weights", "not_run", detail=f"gaps: {error.found}").to_json()]}


def _prepare(
    target: Target, run: Run, progress: Progress, *, located: bool = False, with_weights: bool = True
) -> dict[str, Any]:
    if not located:
        progress.stage("resolve")
        target = stages.locate(target, progress, with_weights=with_weights)
    return stages.resolve(target, run, progress)


def _convert(run: Run, options: ConvertOptions, progress: Progress) -> Any:
    progress.stage("facts")
    stages.probe(run, progress)
    progress.stage("convert")
    return stages.convert_source(run, options, progress)


def _gate(run: Run, package: Path, options: GateOptions, record: Record, progress: Progress) -> Record:
    from maxcode.evaluator.verdict import decide

    progress.stage("gate")
    verdict = stages.gate(run, package, options, progress)
    found = verdict.to_json()
    merged = {
        name: record[name] + [x for x in found[name] if x not in record[name]]
        for name in ("gaps", "traced", "assumptions")
    }
    status = decide(verdict.checks, merged["gaps"], merged["traced"])
    extra = {key: value for key, value in found.items() if key not in record}
    extra["versions"] = record["versions"] | found["versions"]
    timings = {f"gate/{name}": seconds for name, seconds in found["timings"].items()}  # parts of the stage "gate"
    return {"checks": found["checks"], "status": status, "timings": timings, **merged, **extra}


def gate(folder: Path, options: GateOptions, progress: Progress) -> Record:
    """Run every check on a package again and renew its report."""
    package, marker = find_package(folder)
    if not (package / "weights").is_dir():
        gaps = packaging.read_report(package).get("gaps")
        do = (
            f"first see to {counted(len(gaps), 'gap')}, which the report lists"
            if gaps
            else "convert without --no-weights"
        )
        raise MaxCodeError(str(package), "no weights in it", "a package with weights", do)
    target = _source_of(package, Target(**marker["request"]))
    progress.plan("resolve", "source", "gate", "report")
    with (
        tempfile.TemporaryDirectory(prefix="maxcode-gate-") as place,
        stages.serving(Run(Path(place), options.no_sandbox), target) as run,
    ):
        _prepare(target, run, progress)
        progress.stage("source")
        stages.materialise(run, progress)
        before = packaging.read_report(package)
        record = empty_record("not_shown", target.text, str(package))
        record |= {name: before.get(name, record[name]) for name in ("gaps", "traced", "assumptions")}
        record["versions"] |= _source_version(target)
        record |= _gate(run, package, options, record, progress)
        progress.stage("report")
        packaging.renew_report(package, run, record)
    return record


def _source_of(package: Path, target: Target) -> Target:
    """The target that a package was converted from, where it is now."""
    if not target.path or Path(target.path).exists():
        return target
    if target.kind == "hub":
        return dataclasses.replace(target, path=None)  # fetched again by its commit: the cache is another one
    expected = f"the source that {package} was converted from"
    raise MaxCodeError(target.path, "is not there any more", expected, "put it back, or convert again")


def to_hf(folder: Path, destination: Path, *, force: bool, progress: Progress) -> Record:
    """Write a package's weights back as Hugging Face safetensors; "verified" when every byte is the source's."""
    from maxcode.evaluator.verdict import Check, decide

    package, _ = find_package(folder)
    _keep_packages(destination, force)
    progress.plan("weights")
    progress.stage("weights")
    with staged_output(destination, force=force, inputs=(package,)) as staging:
        report = as_json(stages.weights_to_hf(package, staging, progress))
        packaging.unset_run(staging / "config.json")
        packaging.mark(staging, {"kind": "hf", "package": str(package)})
    changed = report["changed"]
    detail = f"first tensor with other bytes: {changed[0]}" if changed else "every tensor has its source's bytes"
    check = Check.of("weights", len(changed), 0, detail)
    record = empty_record(decide([check]), str(package), str(destination.resolve()))
    return record | {"checks": [check.to_json()], "timings": dict(progress.timings), "weights": report}


def _keep_packages(destination: Path, force: bool) -> None:
    """Refuse to put a checkpoint where a converted package lies: one slip of the pen would cost it."""
    if not force and is_ours(destination) and read_marker(destination).get("kind") != "hf":
        expected = "a new, empty or earlier to-hf folder"
        do = "choose another -o, or give --force to replace it"
        raise MaxCodeError(f"-o {destination}", "holds a converted package", expected, do)


def generate(folder: Path, request: dict[str, Any], progress: Progress, *, unsandboxed: bool = False) -> Record:
    """Let a package write text."""
    package, marker = find_package(folder)
    progress.plan("generate")
    progress.stage("generate")
    answer = stages.generate(package, request, progress, unsandboxed=unsandboxed)
    record = empty_record("not_shown", str(marker.get("target", "")), str(package))
    return record | {"generation": answer, "timings": dict(progress.timings)}


def request_options(output: Path, **choices: Any) -> ConvertOptions:
    """Options with the package name that the output folder's name gives."""
    return ConvertOptions(package_name(output.resolve().name), **choices)


def as_json(value: Any) -> Any:
    """Records (dataclasses, tuples, paths) as plain JSON values."""
    if hasattr(value, "to_json") and not isinstance(value, type):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Path):
        return str(value)
    raise MaxCodeError("record", f"{type(value).__name__} has no JSON form", "a dataclass or plain value")
