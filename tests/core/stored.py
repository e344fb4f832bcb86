"""Stored facts of the core architectures, and what the fast tests do with them; nothing here imports torch.

A stored record holds the resolved target, the facts, the tensor table with each tensor's mean and deviation, and for
every case of inputs a sample of the float64 outputs that PyTorch gave. Weights are drawn again from the tensor's name,
so that none need storing: `weights_of` gives the same arrays here and where the record was made.
"""

import gzip
import hashlib
import importlib
import importlib.util
import json
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from maxcode.checkpoint_convert.convert import convert_weights
from maxcode.checkpoint_convert.mapping import Leaf, build_map
from maxcode.checkpoint_convert.source_tensors import SourceTensors
from maxcode.converter import registry
from maxcode.converter.pipeline import Conversion, convert
from maxcode.converter.support.tensor_files import TensorFolder, TensorSpec

DATA = Path(__file__).resolve().parent.parent / "data"
TYPES: list[str] = json.loads((DATA / "core_models.json").read_text())["types"]
SAMPLE = 1024  # values kept of each output
_SITE = "{site-packages}"  # stands for the folder that holds the installed source

Record = dict[str, Any]


def site_packages() -> str:
    """The folder that transformers is installed in (found, not imported)."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None, "transformers is not installed"
    return str(Path(spec.origin).parent.parent)


def path_of(name: str) -> Path:
    """The file of one stored record."""
    return DATA / "facts" / f"{name}.json.gz"


def save(name: str, record: Record) -> None:
    """Write a record: same content, same bytes, no path of this machine in it."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":")).replace(site_packages(), _SITE)
    path_of(name).parent.mkdir(exist_ok=True)
    path_of(name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def unpack(name: str) -> str:
    """The text of a stored record, as it stands in the file."""
    return gzip.decompress(path_of(name).read_bytes()).decode()


def load(name: str) -> Record:
    """A stored record; fails the test, with what to do, when another release of transformers is installed."""
    record = json.loads(unpack(name).replace(_SITE, site_packages()))
    installed = metadata.version("transformers")
    assert record["transformers"] == installed, (
        f"{path_of(name).name} was recorded from transformers {record['transformers']}, installed is {installed}; "
        f"run: python tests/core/record_facts.py {name}"
    )
    return record


def weights_of(table: dict[str, Record]) -> dict[str, np.ndarray]:
    """float32 noise for every tensor, from its name, with the stored mean and deviation; integer ones as stored."""
    found = {}
    for name, row in table.items():
        if "values" in row:
            found[name] = np.asarray(row["values"], row["dtype"]).reshape(row["shape"])
            continue
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        noise = np.random.default_rng(seed).standard_normal(row["shape"])
        found[name] = np.asarray(row["mean"] + row["deviation"] * noise, np.float32)
    return found


def sample(values: np.ndarray) -> np.ndarray:
    """At most `SAMPLE` values of an array at fixed places; an odd step, so that no axis is always hit at one index."""
    flat = np.asarray(values, np.float64).reshape(-1)
    return flat[:: max(1, flat.size // SAMPLE) | 1][: 2 * SAMPLE]


def conversion_of(name: str, package: str | None = None) -> Conversion:
    """The conversion of a stored record."""
    record = load(name)
    return convert(record["target"], record["facts"], package or name)


def digest(conversion: Conversion) -> str:
    """Of every emitted byte."""
    found = hashlib.sha256()
    for name in sorted(conversion.files):
        found.update(name.encode() + b"\0" + conversion.files[name].encode() + b"\0")
    return found.hexdigest()


def write_package(name: str, conversion: Conversion, folder: Path, package: str) -> None:
    """The emitted package, the source's tensors and configuration, and the converted weights below `folder`."""
    record, source, out = load(name), folder / "source", folder / "package"
    for file, text in conversion.files.items():
        path = out / package / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    source.mkdir()
    for place in (out, source):
        (place / "config.json").write_text(json.dumps(record["target"]["config"]))
    (source / "tensors.json").write_text(json.dumps(record["tensors"]))
    save_file(weights_of(record["weights"]), source / "model.safetensors", metadata={"format": "pt"})
    module = imported(out, package)
    config = module.Config.from_json(out / "config.json")
    leaves = sys.modules[f"{package}.pretrained"].leaves(module.Model.abstract(config))
    stored = {key: TensorSpec(entry.dtype, entry.shape) for key, entry in TensorFolder(source).entries.items()}
    table = [Leaf(key, tuple(leaf.shape), str(leaf.dtype)) for key, leaf in leaves.items()]
    bases = conversion.torch_bases

    def rules(module_class: str) -> Any:
        base = bases.get(module_class) or bases.get(registry.canonical(module_class))
        return registry.weights_of(base) if base else None

    weight_map = build_map(SourceTensors.load(source / "tensors.json"), rules, table, stored)
    convert_weights(source, weight_map, out)


def imported(root: Path, package: str, dtype: Any = jnp.float32) -> ModuleType:
    """The package below `root` with all its modules; what it means by float32 becomes `dtype`. It stays imported."""
    sys.path.insert(0, str(root))
    try:
        module = importlib.import_module(package)
        for path in (root / package).glob("*.py"):
            found = importlib.import_module(f"{package}.{path.stem}") if path.stem != "__init__" else module
            if hasattr(found, "float32"):
                found.float32 = dtype
    finally:
        sys.path.remove(str(root))
    return module


def errors(name: str, folder: Path, package: str) -> dict[str, float]:
    """max|a-b| / max|b| of every output of every stored case, jitted, in float64 with explicit float32 lifted."""
    found = {}
    module = imported(folder / "package", package, jnp.float64)
    with jax.enable_x64(True):
        model = module.Model.from_pretrained(folder / "package", dtype="float64", weight_dtype="float64")
        for case in load(name)["cases"]:
            inputs = {key: np.asarray(value, dtype) for key, (value, dtype) in case["inputs"].items()}
            outputs = jax.jit(lambda inputs, static=case["static"]: model(**inputs, **static))(inputs)
            for key, row in case["outputs"].items():
                actual = np.asarray(_output(outputs, key))
                assert list(actual.shape) == row["shape"], (
                    f"{case['id']} {key}: shape {actual.shape}, PyTorch's {row['shape']}"
                )
                theirs, ours = np.asarray(row["sample"]), sample(actual)
                found[f"{case['id']} {key}"] = float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))
    return found


def _output(outputs: Any, key: str) -> Any:
    for part in key.split("."):
        outputs = outputs[int(part)] if part.isdigit() else getattr(outputs, part)
    return outputs
