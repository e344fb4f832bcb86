"""Record what the fast core tests need of each architecture: target, facts, tensor table, sampled outputs. Needs torch.

python tests/core/record_facts.py [type ...]
"""

import json
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from maxcode.evaluator.oracle.materialise import materialise
from maxcode.evaluator.oracle.record import record as record_scenarios
from maxcode.evaluator.oracle.resolve import resolve
from maxcode.evaluator.oracle.session import Session
from maxcode.evaluator.oracle.target import load_target
from maxcode.targets import parse_target

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.core import stored


def recorded(name: str) -> stored.Record:
    """The record of one architecture, from the installed source."""
    target = resolve(load_target(json.loads(parse_target(f"transformers:{name}").to_json())))
    with tempfile.TemporaryDirectory() as folder:
        source, oracle = Path(folder) / "source", Path(folder) / "oracle"
        facts = _facts(target, Path(folder))
        tensors = materialise(target, source)
        weights = {key: _described(value) for key, value in sorted(load_file(source / "model.safetensors").items())}
        save_file(stored.weights_of(weights), source / "model.safetensors", metadata={"format": "pt"})
        record_scenarios(Session(target, source), oracle, ["exact"])
        cases = [_case(row, oracle) for row in json.loads((oracle / "exact.json").read_text())["cases"]]
    target = {key: value for key, value in target.items() if value not in (None, False)} | {"init": None}
    return {
        "transformers": metadata.version("transformers"),
        "target": target,
        "facts": facts,
        "tensors": tensors,
        "weights": weights,
        "cases": cases,
    }


def _facts(target: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the probe sees, in a process of its own: it instruments the source while that is first imported."""
    (folder / "target.json").write_text(json.dumps(target))
    command = [sys.executable, "-m", "maxcode.evaluator.oracle.probe", "--target", str(folder / "target.json")]
    subprocess.run([*command, "--out", str(folder / "facts.json")], check=True)
    return json.loads((folder / "facts.json").read_text())


def _described(value: np.ndarray) -> dict[str, Any]:
    about: dict[str, Any] = {"shape": list(value.shape)}
    if value.dtype != np.float32:
        return about | {"dtype": str(value.dtype), "values": value.reshape(-1).tolist()}
    deviation = float(value.std()) or 0.1
    return about | {"mean": float(f"{value.mean():.3g}"), "deviation": float(f"{deviation:.3g}")}


def _case(row: dict[str, Any], oracle: Path) -> dict[str, Any]:
    tensors = load_file(oracle / "exact.safetensors")
    arrays, static = {}, {}
    for key, value in row["inputs"].items():
        if isinstance(value, dict) and "$tensor" in value:
            array = tensors[value["$tensor"]]
            arrays[key] = (array.tolist(), str(array.dtype))
        elif value not in (None, False):
            static[key] = value
    outputs = {}
    for key, tensor in row["outputs"].items():
        values = tensors[tensor]
        outputs[key] = {"shape": list(values.shape), "sample": stored.sample(values).tolist()}
    return {"id": row["id"], "inputs": arrays, "static": static, "outputs": outputs}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for type_name in sys.argv[1:] or stored.TYPES:
        stored.save(type_name, recorded(type_name))
        print(type_name, stored.path_of(type_name).stat().st_size)
