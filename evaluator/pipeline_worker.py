"""Check a converted pipeline's loop and decoding against a recording, in a JAX process without torch.

    python -m maxcode.evaluator.pipeline_worker --package DIR/pkg --recording DIR --out checks.json

float64, explicit float32 lifted: the latents after every step, and the image, within `LIMIT` of the source's.
"""

import argparse
import importlib
import inspect
import json
import pkgutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from maxcode.evaluator.compare import difference
from maxcode.evaluator.tensors import TensorFile
from maxcode.evaluator.verdict import Check

LIMIT = 1e-9
_FOREIGN = ("torch", "transformers", "diffusers")
OVERRIDES = {"dtype": "float64", "weight_dtype": "float64", "matmul_precision": "highest"}


def main(arguments: list[str] | None = None) -> int:
    """Write one check per question to `--out`; exit 0 when all were decided."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, required=True)
    parser.add_argument("--recording", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    checks = check_pipeline(options.package, options.recording)
    options.out.write_text(json.dumps([check.to_json() for check in checks]))
    return 0


def check_pipeline(package: Path, recording: Path) -> list[Check]:
    """`loop/standalone`, `loop/latents`, `loop/image` and `loop/compile` of an emitted pipeline package."""
    about = json.loads((recording / "pipeline.json").read_text())
    case_of = Case.reader(recording, about)
    try:
        pipeline = load(package)
        results = [run_case(pipeline, case_of(record), about["steps"]) for record in about["cases"]]
    except Exception as error:  # generated code may raise anything
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return [Check(f"loop/{name}", "fail", detail=text) for name in ("standalone", "latents", "image", "compile")]
    loaded = [name for name in _FOREIGN if name in sys.modules]
    checks = [Check.of("loop/standalone", len(loaded), 0, f"loaded: {', '.join(loaded) or 'nothing of the source'}")]
    for key in ("latents", "image"):
        worst = max(results, key=lambda r: r[key])
        detail = f"{about['steps']} steps, scenarios {', '.join(r['id'] for r in results)}; worst {worst['id']}"
        checks.append(Check.of(f"loop/{key}", worst[key], LIMIT, detail))
    seconds = max(r["seconds"] for r in results)
    traces = sum(r["retraces"] for r in results)
    checks.append(Check.of("loop/compile", traces, 0, f"one scan, first run in {seconds:.1f} s, {traces} retraces"))
    return checks


def load(package: Path) -> Any:
    """The pipeline with its parts' weights in float64, the package lifted."""
    sys.path.insert(0, str(package.parent))
    root = importlib.import_module(package.name)
    for found in pkgutil.walk_packages([str(package)], f"{package.name}."):
        one = importlib.import_module(found.name)
        if hasattr(one, "float32"):
            one.float32 = jnp.float64
    return root.Pipeline.from_pretrained(package.parent, **OVERRIDES)


class Case:
    """One scenario of a recording: values by name, the latents of each step, the image."""

    def __init__(self, record: dict[str, Any], tensors: TensorFile, complexes: set[str]) -> None:
        self.record, self.tensors, self.complexes = record, tensors, complexes

    @classmethod
    def reader(cls, folder: Path, about: dict[str, Any]) -> Callable[[dict[str, Any]], "Case"]:
        """A function that opens the cases of the recording in `folder`."""
        tensors = TensorFile(folder / "pipeline.safetensors")
        return lambda record: cls(record, tensors, set(about.get("complex", ())))

    def tree(self, value: Any) -> Any:
        """A recorded value with its arrays."""
        if isinstance(value, dict) and "$tensor" in value:
            array = self.tensors[value["$tensor"]]
            return array[..., 0] + 1j * array[..., 1] if value["$tensor"] in self.complexes else array
        if isinstance(value, dict):
            return {key: self.tree(item) for key, item in value.items()}
        return [self.tree(item) for item in value] if isinstance(value, list) else value

    def named(self, moment: str, name: str) -> Any:
        """What a name or an attribute of the pipeline held; None where neither was seen."""
        values = self.record[moment]
        return self.tree(values.get(name, values.get(f"self.{name}")))


def run_case(pipeline: Any, case: Case, steps: int) -> dict[str, Any]:
    """Errors of the latents (worst step) and the image of one scenario, and how the loop compiled."""
    scheduled = inspect.signature(pipeline.scheduler.set_timesteps).parameters
    options = {name: case.named("inputs", name) for name in ("sigmas", "mu") if name in scheduled}
    schedule = pipeline.scheduler.set_timesteps(steps, **{k: v for k, v in options.items() if v is not None})
    loop = Jitted(pipeline, lambda p, latents, **given: p.denoise(schedule, latents, **given))
    given = _given(pipeline.denoise, case, "inputs", ("schedule", "latents"))
    started = time.perf_counter()
    latents, every = loop(case.named("inputs", "latents"), given)
    seconds = time.perf_counter() - started
    before = loop.traces
    loop(case.named("inputs", "latents"), given)
    wanted = case.tensors[case.record["steps"]]
    errors = [difference(np.asarray(a), b).error for a, b in zip(every, wanted, strict=True)]
    decode = Jitted(pipeline, lambda p, latents, **given: p.decode(latents, **given))
    image = decode(latents, _given(pipeline.decode, case, "image", ("latents",)))
    truth = np.asarray(case.named("image", "image"))
    return {
        "id": case.record["id"], "latents": max(errors), "image": difference(np.asarray(image), truth).error,
        "seconds": seconds, "retraces": loop.traces - before,
    }  # fmt: skip


def _given(method: Callable[..., Any], case: Case, moment: str, own: tuple[str, ...]) -> dict[str, Any]:
    names = [name for name in inspect.signature(method).parameters if name not in own]
    return {name: case.named(moment, name) for name in names}


class Jitted:
    """A jitted function of a pipeline whose models' arrays are arguments, as users run it."""

    def __init__(self, pipeline: Any, function: Callable[..., Any]) -> None:
        self.pipeline, self.function, self.traces = pipeline, function, 0
        self.models = {n: nnx.split(m) for n, m in vars(pipeline).items() if isinstance(m, nnx.Module)}

    def __call__(self, latents: Any, given: dict[str, Any]) -> Any:
        arrays = {k: v for k, v in given.items() if isinstance(v, np.ndarray)}
        static = {k: v for k, v in given.items() if k not in arrays}
        if not hasattr(self, "run"):
            self.run = jax.jit(lambda states, latents, arrays: self._traced(states, latents, arrays, static))
        return self.run({n: state for n, (_, state) in self.models.items()}, jnp.asarray(latents), arrays)

    def _traced(self, states: dict[str, Any], latents: Any, arrays: dict[str, Any], static: dict[str, Any]) -> Any:
        self.traces += 1
        merged = {n: nnx.merge(graph, states[n]) for n, (graph, _) in self.models.items()}
        pipeline = type(self.pipeline)(self.pipeline.scheduler, **merged)
        return self.function(pipeline, latents, **arrays, **static)


if __name__ == "__main__":
    sys.exit(main())
