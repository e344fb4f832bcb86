"""Convert one plain torch file and run both sides in float64: what the golden models and the aliasing tests share."""

import importlib
import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from maxcode.checkpoint_convert.convert import convert_weights
from maxcode.checkpoint_convert.mapping import Leaf, build_map
from maxcode.checkpoint_convert.source_tensors import SourceTensors
from maxcode.converter import registry
from maxcode.converter.pipeline import Conversion, convert
from maxcode.converter.support.tensor_files import TensorFolder, TensorSpec
from maxcode.evaluator.oracle import lift
from maxcode.evaluator.oracle.build import build
from maxcode.evaluator.oracle.materialise import materialise
from maxcode.evaluator.oracle.probe import probe
from maxcode.evaluator.oracle.target import load_target

_numbers = itertools.count()


@dataclass
class Converted:
    """A conversion on disk, with what is needed to run both sides."""

    target: dict
    facts: dict
    conversion: Conversion
    folder: Path
    package: str

    @property
    def modeling(self) -> str:
        """Text of the emitted modeling.py."""
        return self.conversion.files["modeling.py"]


def convert_text(text: str, folder: Path, class_name: str = "Net") -> Converted:
    """Convert the class of a source text. Its file has `get_inputs`, and `get_init_inputs` where arguments are needed.

    The file is named afresh on every call, since Python keeps modules by name.
    """
    name = f"plain_source_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text)
    target = load_target(
        {
            "text": f"{path.name}:{class_name}",
            "kind": "module",
            "module": name,
            "class_name": class_name,
            "path": str(path),
            "weights": "noise",
        }
    )
    facts = _probe(target)
    package = f"package_{name}"
    conversion = convert(target, facts, package)
    out = folder / "package"
    for file, content in conversion.files.items():
        written = out / package / file
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(content)
    (out / "config.json").write_text("{}")
    return Converted(target, facts, conversion, folder, package)


def _probe(target: dict) -> dict:
    """Facts as the probe's process writes them (through JSON), leaving the import system as it was."""
    finders = list(sys.meta_path)
    try:
        return json.loads(json.dumps(probe(target), default=str))
    finally:
        sys.meta_path[:] = finders
        del sys.modules[target["module"]]


def torch_output(converted: Converted) -> Any:
    """What the source computes in float64, explicit float32 lifted; on copies of the inputs."""
    model, inputs = build(converted.target, "float64", converted.folder / "source")
    with torch.no_grad(), lift.computing_in("float64"):
        return model(**{k: v.clone() if torch.is_tensor(v) else v for k, v in inputs.items()})


def jax_output(converted: Converted, *, jit: bool = False) -> Any:
    """What the emitted package computes in float64 from the converted weights. Needs `jax_enable_x64`."""
    _write_weights(converted)
    package = load_package(converted)
    model = package.Model.from_pretrained(converted.folder / "package", dtype="float64", weight_dtype="float64")
    _, inputs = build(converted.target, "float64", converted.folder / "source")
    arrays = {k: jnp.asarray(v.numpy()) if torch.is_tensor(v) else v for k, v in inputs.items()}
    return jax.jit(lambda arrays: model(**arrays))(arrays) if jit else model(**arrays)


def load_package(converted: Converted) -> ModuleType:
    """The emitted package, imported, its explicit float32 lifted to float64."""
    sys.path.insert(0, str(converted.folder / "package"))
    try:
        package = importlib.import_module(converted.package)
        for name in converted.conversion.files:
            if name != "__init__.py":
                importlib.import_module(f"{converted.package}.{name.removesuffix('.py')}")
    finally:
        sys.path.pop(0)
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{converted.package}.") and hasattr(module, "float32"):
            module.float32 = jnp.float64
    return package


def _write_weights(converted: Converted) -> None:
    source = converted.folder / "source"
    bases = converted.conversion.torch_bases

    def rules(module: str) -> Any:
        base = bases.get(module) or bases.get(registry.canonical(module))
        return registry.weights_of(base) if base else None

    package = load_package(converted)
    model = package.Model.abstract(package.Config.from_json(converted.folder / "package" / "config.json"))
    found = sys.modules[f"{converted.package}.pretrained"].leaves(model)
    leaves = [Leaf(name, tuple(leaf.shape), str(leaf.dtype)) for name, leaf in found.items()]
    stored = {name: TensorSpec(entry.dtype, entry.shape) for name, entry in TensorFolder(source).entries.items()}
    weight_map = build_map(SourceTensors.load(source / "tensors.json"), rules, leaves, stored)
    convert_weights(source, weight_map, converted.folder / "package")


def materialise_weights(converted: Converted) -> None:
    """Write the source's random weights, which both sides read."""
    materialise(converted.target, converted.folder / "source")


def both_outputs(converted: Converted, *, jit: bool = False) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, torch's, JAX's) of every output array."""
    materialise_weights(converted)
    theirs, ours = torch_output(converted), jax_output(converted, jit=jit)
    return _pairs("output", theirs, ours)


def _pairs(name: str, theirs: Any, ours: Any) -> list[tuple[str, np.ndarray, np.ndarray]]:
    if isinstance(theirs, tuple | list):
        assert len(theirs) == len(ours), f"{name}: {len(theirs)} outputs in torch, {len(ours)} in JAX"
        return [p for i, (a, b) in enumerate(zip(theirs, ours)) for p in _pairs(f"{name}.{i}", a, b)]
    if isinstance(theirs, dict):
        assert set(theirs) == set(ours), name  # jit gives dictionaries back in the order of their keys
        return [p for k in theirs for p in _pairs(f"{name}.{k}", theirs[k], ours[k])]
    return [(name, theirs.numpy() if torch.is_tensor(theirs) else np.asarray(theirs), np.asarray(ours))]


def error_of(theirs: np.ndarray, ours: np.ndarray) -> float:
    """max|a-b| / max|b|, infinite where shapes differ or a value is not a number on one side only."""
    if theirs.shape != ours.shape:
        return float("inf")
    if not np.array_equal(np.isnan(theirs), np.isnan(ours)):
        return float("inf")
    gap = np.abs(np.nan_to_num(theirs.astype(np.float64)) - np.nan_to_num(ours.astype(np.float64)))
    return float(gap.max(initial=0.0) / max(np.abs(np.nan_to_num(theirs.astype(np.float64))).max(initial=0.0), 1e-30))
