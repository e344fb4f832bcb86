"""`maxcode convert` of a diffusion pipeline's folder: every part by itself, then the loop over the converted parts."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from maxcode import packaging
from maxcode.errors import MaxCodeError
from maxcode.excerpts import with_lines
from maxcode.output import check_output, recover, staged_output
from maxcode.processes import python_module
from maxcode.progress import Progress
from maxcode.records import Record, empty_record
from maxcode.stages import Run, run_in, run_oracle
from maxcode.targets import Target, package_name

PARTS = "components"
WORKER = "maxcode.evaluator.pipeline_worker"
_COPIED = ("scheduler", "tokenizer*", "feature_extractor")  # folders of a pipeline that travel as they are


def convert_pipeline(request: Any, progress: Progress, convert: Callable[..., Record]) -> Record:
    """Convert and gate the pipeline that `request` names; `convert` does one part.

    Raises:
      MaxCodeError: a part or the pipeline's class cannot be used; gaps are in the record.
    """
    source = Path(str(request.target.path))
    recover(request.output)
    check_output(request.output, force=request.force, inputs=(source,))
    if not request.weights:
        raise MaxCodeError("--no-weights", "does not apply to a pipeline", "a folder with weights", "convert its parts")
    with staged_output(request.output, force=request.force, inputs=(source,)) as folder:
        run = Run(folder / "report" / "run", request.gate_options.no_sandbox)
        run.root.mkdir(parents=True)
        progress.stage("pipeline")
        run_oracle(run, progress, "pipeline", "pipeline", "--folder", source, "--out", run.oracle)
        recording = json.loads((run.oracle / "pipeline.json").read_text())
        record = empty_record("not_shown", request.target.text, str(request.output.resolve()))
        for part in recording["parts"]:
            _add(record, part, convert(_part(request, source, folder, recording, part), progress))
        _emit(request, recording, folder, record)
        for pattern in _COPIED:
            for found in source.glob(pattern):
                shutil.copytree(found, folder / found.name)
        shutil.copyfile(source / "model_index.json", folder / "model_index.json")
        if request.gate and not record["gaps"]:
            progress.stage("gate")
            record["checks"] += _loop_checks(run, folder, request, progress)
        _decide(record)
        record["timings"] = dict(progress.timings) | record["timings"]
        _finish(folder, run, record, request)
    return record


def _part(request: Any, source: Path, folder: Path, recording: dict[str, Any], part: str) -> Any:
    """The request for one part: its folder, with the inputs that the pipeline gave it."""
    place = folder / PARTS / part
    inputs = recording["components"].get(part)
    is_registered = "_class_name" in json.loads((source / part / "config.json").read_text())
    target = Target(
        f"{request.target.text}/{part}", "folder", path=str((source / part).resolve()), weights="stored",
        inputs=inputs if is_registered else None, seed=request.target.seed,
    )  # fmt: skip
    options = dataclasses.replace(request.options, package_name=package_name(part))
    return dataclasses.replace(request, target=target, output=place, options=options, force=False)


def _add(record: Record, part: str, found: Record) -> None:
    """Put a part's checks, gaps and assumptions into the pipeline's record, checks under the part's name."""
    record["checks"] += [check | {"name": f"{part}/{check['name']}"} for check in found["checks"]]
    for key in ("gaps", "traced", "assumptions"):
        record[key] += found[key]
    record["timings"] |= {f"{part}/{name}": seconds for name, seconds in found["timings"].items() if "/" not in name}


def _emit(request: Any, recording: dict[str, Any], folder: Path, record: Record) -> None:
    """Write the pipeline's own package, with the parts that its loop and decoding use as subpackages."""
    from maxcode.converter.diffusion.convert import convert_pipeline as convert_loop

    conversion = convert_loop(recording, sorted(recording["components"]))
    from maxcode.api import as_json

    for key in ("gaps", "assumptions"):
        places = as_json(getattr(conversion, key))
        record[key] += with_lines(places, conversion.files, request.options.package_name)
    package = folder / request.options.package_name
    package.mkdir()
    for name, text in conversion.files.items():
        (package / name).write_text(text)
    for part in recording["components"]:
        name = package_name(part)
        shutil.copytree(folder / PARTS / part / name, package / part, ignore=shutil.ignore_patterns("__pycache__"))


def _loop_checks(run: Run, folder: Path, request: Any, progress: Progress) -> list[dict[str, Any]]:
    """The checks of the loop, made in a process without torch."""
    out = run.root / "checks.json"
    package = folder / request.options.package_name
    command = python_module(WORKER, "--package", package, "--recording", run.oracle, "--out", out)
    run_in(run, progress, "gate", command, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2", JAX_ENABLE_X64="1")
    return json.loads(out.read_text())


def _decide(record: Record) -> None:
    from maxcode.evaluator.verdict import Check, decide

    required = [c for c in record["checks"] if not c["name"].endswith("/tpu")]
    record["status"] = decide([Check.from_json(c) for c in required], record["gaps"], record["traced"])


def _finish(folder: Path, run: Run, record: Record, request: Any) -> None:
    packaging.write_report(folder / "report", record, None)
    packaging.mark(folder, {"kind": "pipeline", "target": record["target"], "status": record["status"]})
    (folder / "README.md").write_text(_readme(request.options.package_name, record))
    if not request.keep_run:
        shutil.rmtree(run.root)


def _readme(package: str, record: Record) -> str:
    return f"""# {package}

A diffusion pipeline in JAX, converted by MaxCode from {record["target"]}: **{record["status"]}**.

```python
import jax
from {package}.pipeline import Pipeline

pipeline = Pipeline.from_pretrained(".")
schedule = pipeline.scheduler.set_timesteps(10)          # its docstring says what else it takes
latents, steps = pipeline.denoise(schedule, noise, ...)  # one lax.scan; see the arguments in pipeline.py
image = pipeline.decode(latents)
```

`components/` holds every part as a package of its own, with its weights and its report; `report/` the verdict of all.
"""
