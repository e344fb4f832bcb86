"""The stages of a conversion, one function each: the only places where api.py reaches the engine.

Model code runs in the oracle's and the package worker's processes alone; this process reads their records.
"""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxcode import hub
from maxcode.broken import BrokenPackageError
from maxcode.errors import InternalError, MaxCodeError
from maxcode.evaluator.forks import ForkServer, Launch, Servers
from maxcode.evaluator.sandbox import run_limited
from maxcode.evaluator.worker import ENVIRONMENT
from maxcode.processes import cache_folder, python_module, run_stage, stage_environment
from maxcode.progress import Progress
from maxcode.targets import Target, validate
from maxcode.training_facts import with_training

ORACLE = "maxcode.evaluator.oracle"


@dataclass(frozen=True)
class Run:
    """The run folder (docs/interfaces.md §2): every stage reads and writes its records here."""

    root: Path
    unsandboxed: bool = False  # the user gave --unsafe-no-sandbox
    launch: Launch = run_limited

    @property
    def target(self) -> Path:
        return self.root / "target.json"

    @property
    def facts(self) -> Path:
        return self.root / "facts.json"

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def package(self) -> Path:
        return self.root / "package"

    @property
    def package_config(self) -> Path:
        return self.package / "config.json"

    @property
    def modules(self) -> Path:
        """Where transformers puts copies of code that lies in a checkpoint's folder."""
        return self.root / "hf_modules"

    @property
    def oracle(self) -> Path:
        return self.root / "oracle"

    def read_target(self) -> dict[str, Any]:
        """The resolved target."""
        return json.loads(self.target.read_text())

    def weights_folder(self) -> Path:
        """The folder with config.json and the source's safetensors: written by the oracle, or the user's own."""
        table = self.source / "tensors.json"
        about = json.loads(table.read_text()) if table.is_file() else {}
        return Path(about["path"]) if about.get("linked") else self.source


@dataclass(frozen=True)
class ConvertOptions:
    """Choices of `maxcode convert` that shape the package."""

    package_name: str
    on_gap: str = "fail"  # fail | trace | agent
    dtype: str = "float32"
    last_batch: str = "keep"  # of training programs: keep | drop | pad | raise


@dataclass(frozen=True)
class GateOptions:
    """Choices of the gate."""

    tpu: bool = False
    no_sandbox: bool = False
    seed: int = 0
    faults: bool = False  # also seed faults into copies of the package, all of which must be caught
    checks: tuple[str, ...] = ()  # these alone; all of them by default
    second_checks: tuple[str, ...] = ()  # these at a second configuration, derived from the class, of the same package
    threads: int | None = None  # all CPUs by default
    quick_compile: bool = False  # for many models at small sizes: XLA's back end does not optimise

    def chosen(self) -> dict[str, Any]:
        """What differs from the evaluator's own defaults."""
        return {k: v for k, v in dataclasses.asdict(self).items() if v not in ((), None)}


class WeightsError(MaxCodeError):
    """The package has no place for the weights: it cannot be built, or tensors and arrays do not match."""


_FRAMEWORK = ("modeling_utils", "cache_utils", "masking_utils", "generation")


@contextmanager
def serving(run: Run, target: Target) -> Iterator[Run]:
    """The run, its stages forks of one process that has PyTorch imported and of one that has JAX.

    The second is for code that was converted; it may write results of checks only.
    """
    framework = [f"transformers.{part}" for part in _FRAMEWORK if target.kind != "module"]
    oracle = ForkServer(
        serves=(ORACLE, f"{ORACLE}.probe"),
        preload=("torch", *framework, f"{ORACLE}.__main__", f"{ORACLE}.probe"),
        writable=(run.root,),
        env=stage_environment(HF_MODULES_CACHE=str(run.modules), OMP_WAIT_POLICY="PASSIVE", TQDM_DISABLE="1"),
        allow_unsandboxed=run.unsandboxed,
    )
    package = ForkServer(
        serves=("maxcode.evaluator.worker", "maxcode.leaf_table"),
        preload=("flax.nnx", "maxcode.evaluator.worker", "maxcode.leaf_table"),
        writable=tuple(run.root / scale / "checks" for scale in ("", "small", "second")),
        env=stage_environment(**ENVIRONMENT),
        allow_unsandboxed=run.unsandboxed,
    )
    with Servers(oracle, package) as launch:
        yield dataclasses.replace(run, launch=launch)


def locate(target: Target, progress: Progress, *, with_weights: bool) -> Target:
    """Stage 1a: a hub id becomes the folder of its snapshot; then everything that files can tell is checked.

    Raises:
      MaxCodeError: what the target names cannot be used.
    """
    if target.kind == "hub" and target.path is None:
        folder, commit = hub.fetch(
            target.text,
            target.revision,
            progress,
            weights=with_weights,
            code=target.trust_remote_code,
            pickle=target.allow_pickle,
        )
        target = dataclasses.replace(target, path=str(folder), revision=commit)
    validate(target, with_weights=with_weights)
    return target


def resolve(target: Target, run: Run, progress: Progress) -> dict[str, Any]:
    """Stage 1b: the oracle names module, class, configuration and inputs; target.json is complete afterwards."""
    run.root.mkdir(parents=True, exist_ok=True)
    run.target.write_text(target.to_json())
    run_oracle(run, progress, "resolve", "resolve", "--target", run.target, "--out", run.root)
    return run.read_target()


def materialise(run: Run, progress: Progress) -> None:
    """Stage 2: the source's weights as safetensors and their table, source/tensors.json."""
    run_oracle(run, progress, "source", "materialise", "--target", run.target, "--out", run.root)


def probe(run: Run, progress: Progress) -> dict[str, Any]:
    """Stage 3: facts.json from one instrumented run of the source."""
    run_in(run, progress, "facts", python_module(f"{ORACLE}.probe", *_built_from(run), "--out", run.facts))
    if not run.facts.is_file():
        raise _silent("facts")
    facts = json.loads(run.facts.read_text())
    if (training := run.read_target().get("training")) is not None:
        seen = json.loads((run.root / "training_facts.json").read_text())
        facts = with_training(facts, training, seen)
        run.facts.write_text(json.dumps(facts))
    return facts


def _built_from(run: Run) -> list[str | Path]:
    """The oracle's options that say what to build: the target, and its weights where they have been written."""
    written = (run.source / "tensors.json").is_file()
    return ["--target", run.target, *(["--source", run.source] if written else [])]


def trace(run: Run, reasons: dict[str, str], progress: Progress) -> dict[str, dict[str, Any]]:
    """Lower the forward of classes from torch.export's graph; each with the reason, or why it cannot be done."""
    from maxcode.converter import registry

    registry.load()
    progress.item(f"trace {', '.join(name.rpartition('.')[2] for name in reasons)}")
    request, out = run.root / "trace_request.json", run.root / "traced.json"
    request.write_text(json.dumps({"classes": sorted(reasons), "known": sorted(registry.OPS)}))
    command = python_module(ORACLE, "trace", *_built_from(run), "--request", request, "--out", out)
    run_in(run, progress, "convert", command)
    found = json.loads(out.read_text())
    return {name: text | {"reason": reasons[name]} for name, text in found.items()}


def _with_refusals(conversion: Any, traced: dict[str, dict[str, Any]]) -> Any:
    """Say at the gaps that are left why tracing did not close them."""
    refused = {text["reason"]: text["refused"] for text in traced.values() if "refused" in text}
    gaps = [
        dataclasses.replace(gap, hint=f"not traced: {refused[reason]}")
        if (reason := f"{gap.torch_name}: {gap.reason}") in refused
        else gap
        for gap in conversion.gaps
    ]
    return dataclasses.replace(conversion, gaps=gaps)


def convert_source(run: Run, options: ConvertOptions, progress: Progress) -> Any:
    """Stage 4: source files and facts become the package's files; returns the converter's Conversion."""
    from maxcode.converter import pipeline

    progress.item("read the source")
    target, facts = run.read_target(), json.loads(run.facts.read_text())
    if facts.get("training"):
        facts["training"]["last_batch"] = options.last_batch
    conversion = pipeline.convert(target, facts, options.package_name)
    if options.on_gap == "trace" and conversion.traceable:
        facts["traced"] = trace(run, conversion.traceable, progress)
        run.facts.write_text(json.dumps(facts))
        conversion = _with_refusals(pipeline.convert(target, facts, options.package_name), facts["traced"])
    folder = run.package / options.package_name
    for name, text in conversion.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if conversion.training is not None:
        (run.package / "training.json").write_text(json.dumps(conversion.training, indent=1) + "\n")
    if not run.package_config.exists():
        run.package_config.write_text(json.dumps(package_config(target), indent=2) + "\n")
    return conversion


def package_config(target: dict[str, Any]) -> dict[str, Any]:
    """The content of a package's config.json: the source's configuration, or a plain module's named arguments."""
    if target.get("config") is not None:
        return target["config"]
    return target.get("arguments") or {}


def convert_weights(run: Run, options: ConvertOptions, progress: Progress) -> dict[str, Any]:
    """Stage 5: weights.json and weights/ beside the package; returns the two-sided ledger as JSON.

    Raises:
      WeightsError: tensors that no rule places, leaves that nothing fills, or damaged files; all of them are listed.
    """
    from maxcode.checkpoint_convert import convert as checkpoint
    from maxcode.converter.support.tensor_files import CheckpointError

    progress.item("list the package's arrays")
    leaves = leaf_table(run, run.package, options.package_name, run.package_config, progress)
    folder = run.weights_folder()
    try:
        weight_map = _map_weights(run.source, folder, leaves)
        _, report = checkpoint.convert_weights(folder, weight_map, run.package, progress=progress.item)
    except CheckpointError as error:
        do = "add a module rule, or report this"
        raise WeightsError("weights", str(error), "every tensor placed once", do) from error
    rows = json.loads((run.package / "weights.json").read_text())["rows"]
    return report.to_json() | {"rows": rows}


def _map_weights(source: Path, stored_in: Path, leaves: list[dict[str, Any]]) -> Any:
    """How the tensors in `stored_in` make `leaves`, by the oracle's table in `source`."""
    from maxcode.checkpoint_convert.mapping import Leaf, build_map
    from maxcode.checkpoint_convert.source_tensors import SourceTensors
    from maxcode.converter.support.tensor_files import TensorFolder, TensorSpec

    stored = {name: TensorSpec(entry.dtype, entry.shape) for name, entry in TensorFolder(stored_in).entries.items()}
    table = SourceTensors.load(source / "tensors.json")
    return build_map(table, _weight_rules, [Leaf.from_json(entry) for entry in leaves], stored)


def leaf_table(run: Run, package: Path, name: str, config: Path, progress: Progress) -> list[dict[str, Any]]:
    """Name, shape and dtype of every array of the package at `config`, listed in a process without torch.

    Raises:
      WeightsError: a gap in a constructor keeps the model from being built.
      BrokenPackageError: something else does.
    """
    command = python_module("maxcode.leaf_table", package, name, config)
    writable = run.root / "checks"  # it only reads; some folder has to be its home
    writable.mkdir(exist_ok=True)
    text = run_in(run, progress, "weights", command, writable, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2")
    answer = json.loads(text.strip().splitlines()[-1])
    if isinstance(answer, dict) and "broken" in answer:
        raise BrokenPackageError(answer["broken"], (answer["file"], answer["line"], answer["class"]))
    if isinstance(answer, dict):
        raise WeightsError("weights", f"the model cannot be built ({answer['gap']})", "a model without gaps")
    return answer


def _weight_rules(module: str) -> Any:
    """{torch leaf: (JAX leaf, layout)} of a module class, None where it has no rule (its bases are asked next)."""
    from maxcode.converter import registry

    return registry.weights_of(module) if registry.has_module(module) else None


def gate(run: Run, package: Path, options: GateOptions, progress: Progress) -> Any:
    """Stage 6: every check of the evaluator; returns its Verdict."""
    from maxcode.evaluator import gate as evaluator

    steps = evaluator.find_package(package).parent / "training.json"
    if steps.is_file():  # of a training program: the oracle has to know what each step is given
        shutil.copyfile(steps, run.root / "training.json")

    def write_map(source: Path) -> None:
        """weights.json for a source of another size, whose tensors are stored as the model itself names them."""
        name = evaluator.find_package(package).name
        leaves = leaf_table(run, evaluator.find_package(package).parent, name, source / "config.json", progress)
        _map_weights(source, source, leaves).save(source / "weights.json")

    return evaluator.run_gate(
        package=package,
        run=run.root,
        options=options.chosen(),
        on_progress=progress.item,
        write_map=write_map,
        launch=run.launch,
    )


def weights_to_hf(package: Path, destination: Path, progress: Progress) -> Any:
    """The package's weights as the source's own files, through weights.json backwards; returns a report per tensor."""
    from maxcode.checkpoint_convert import convert as checkpoint
    from maxcode.converter.support.tensor_files import CheckpointError

    progress.item(package.name)
    try:
        return checkpoint.to_hf(package, destination)
    except CheckpointError as error:
        raise MaxCodeError(str(package), str(error), do="convert the model again") from error


def generate(package: Path, request: dict[str, Any], progress: Progress, *, unsandboxed: bool) -> dict[str, Any]:
    """Text from a package by its own `python -m <pkg>.generate`: {"text", "tokens", "prompt_tokens", "seconds"}.

    Raises:
      MaxCodeError: the package has no generate.py (its model writes no text), or no tokenizer.
    """
    name = next((path.parent.name for path in sorted(package.glob("*/generate.py"))), None)
    if name is None:
        raise MaxCodeError(str(package), "no generate.py in the package", "a model with logits over a vocabulary")
    if not (package / "weights").is_dir():
        raise MaxCodeError(str(package), "no weights in it", "a package with weights", "convert without --no-weights")
    if not (package / "tokenizer.json").is_file():
        do = "convert a target with a tokenizer; token ids work without, see generate.py"
        raise MaxCodeError(str(package), "no tokenizer.json in it", "a package with a tokenizer", do)
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in request.items() if value is not None]
    command = python_module(f"{name}.generate", *arguments, "--json")
    cache = cache_folder()
    env = stage_environment(TF_CPP_MIN_LOG_LEVEL="2", JAX_COMPILATION_CACHE_DIR=str(cache))
    text = run_stage(
        command, progress, name="generate", writable=[cache], env=env, cwd=package, unsandboxed=unsandboxed
    )
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise InternalError("generate", f"answered {text[-200:]!r}", "one JSON record") from None


def run_oracle(run: Run, progress: Progress, stage: str, command: str, *arguments: str | Path) -> None:
    answer = run_in(run, progress, stage, python_module(ORACLE, command, *arguments))
    if not answer.strip():
        raise _silent(stage)


def _silent(stage: str) -> MaxCodeError:
    """The error for a process that model code ended before it had written anything."""
    found, expected = "the process ended well but wrote nothing", "its record"
    return MaxCodeError(f"stage {stage!r}", found, expected, "look for an exit in the model's own code")


def run_in(
    run: Run, progress: Progress, stage: str, command: list[str], writable: Path | None = None, **env: str
) -> str:
    """A stage that may write into the run folder (or one below it); modules that come with a model go there too."""
    env = {"HF_MODULES_CACHE": str(run.modules)} | env
    return run_stage(
        command,
        progress,
        name=stage,
        writable=[writable or run.root],
        env=stage_environment(**env),
        unsandboxed=run.unsandboxed,
        launch=run.launch,
    )
