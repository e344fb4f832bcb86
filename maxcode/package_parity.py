"""A package's own parity test: recorded inputs and outputs of the source, small enough to travel with it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

_CAP = 3_000_000  # bytes of tensors
_TEMPLATE = Path(__file__).with_name("templates") / "test_parity.py.j2"


def keep_oracle(folder: Path, oracle: Path, *, cap: int = _CAP) -> bool:
    """Write tests/test_parity.py and tests/oracle/ into a package from the float32 scenario of an oracle folder.

    Of an output that is too large a fixed sample of its values is kept. Cases that only replay can reproduce (numbers
    drawn in the call, choices that rounding decides) are left out. Returns False where no case is left.
    """
    about, tensors = oracle / "float32.json", oracle / "float32.safetensors"
    if not about.is_file() or not tensors.is_file():
        return False
    record, values = json.loads(about.read_text()), load_file(tensors)
    cases = [case for case in record.get("cases", ()) if not case.get("draws") and not case.get("flips")]
    kept: dict[str, np.ndarray] = {}
    written = []
    for case in cases:
        entry, found = _case(case, values, frozenset(record.get("complex", ())), cap // len(cases))
        if entry is not None:
            written.append(entry)
            kept |= found
    if not written:
        return False
    place = folder / "tests" / "oracle"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "recording.json").write_text(json.dumps({"format": 2, "cases": written}, indent=1) + "\n")
    (place / "recording.safetensors").write_bytes(save(kept))
    (folder / "tests" / "test_parity.py").write_text(_TEMPLATE.read_text())
    return True


def _case(
    case: dict[str, Any], values: dict[str, np.ndarray], complex_keys: frozenset[str], budget: int
) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    found = {key: values[key] for key in _keys(case["inputs"])}
    budget -= sum(value.nbytes for value in found.values())
    named = {name: key for name, key in case["outputs"].items() if key is not None and values[key].size}
    if budget <= 0 or not named or complex_keys & set(found):
        return None, {}
    outputs = {}
    for name, key in named.items():
        value = values[key]
        entry = {"values": key, "indices": None, "shape": list(value.shape), "complex": key in complex_keys}
        entry |= {"largest": _largest(value), "own_error": case.get("own_error", {}).get(name, 0.0)}
        indices = _sample(value, budget // len(named))
        if indices is not None:
            entry["indices"] = f"{key}.indices"
            found[entry["indices"]], value = indices, value.reshape(-1)[indices]
        outputs[name], found[key] = entry, np.ascontiguousarray(value)
    return {"id": case["id"], "inputs": case["inputs"], "outputs": outputs}, found


def _keys(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        return [tree["$tensor"]] if set(tree) == {"$tensor"} else [k for v in tree.values() for k in _keys(v)]
    return [key for value in tree for key in _keys(value)] if isinstance(tree, list) else []


def _largest(value: np.ndarray) -> float:
    finite = np.abs(value[np.isfinite(value)].astype(np.float64)) if value.dtype.kind == "f" else np.abs(value)
    return float(finite.max(initial=0))


def _sample(value: np.ndarray, budget: int) -> np.ndarray | None:
    """Flat positions of the values to keep; None keeps all."""
    if value.nbytes <= budget:
        return None
    count = max(1, budget // (value.itemsize + 4))
    return np.sort(np.random.default_rng(0).choice(value.size, count, replace=False)).astype(np.int32)
