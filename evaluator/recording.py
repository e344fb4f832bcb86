"""What the oracle process recorded (docs/interfaces.md section 7), read as numpy arrays."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from maxcode.evaluator.tensors import TensorFile

_SEQUENCES = {"list": list, "tuple": tuple}


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of inputs and what PyTorch made of it; `scenario` is the JSON of the whole file."""

    id: str
    record: dict[str, Any]
    scenario: dict[str, Any]
    tensors: TensorFile

    @property
    def inputs(self) -> dict[str, Any]:
        """The call's arguments by name, arrays as numpy, containers as the source had them."""
        constants = self.record.get("constants", {})
        sketches = self.record.get("inputs", {})
        built = {name: self._tree(sketch, f"in.{name}") for name, sketch in sketches.items() if name not in constants}
        return built | constants

    def _tree(self, sketch: Any, key: str) -> Any:
        if not isinstance(sketch, dict):
            return sketch
        if "items" not in sketch:
            return self.array(key)
        items = {name: self._tree(item, f"{key}.{name}") for name, item in sketch["items"].items()}
        return _SEQUENCES[sketch["type"]](items.values()) if sketch["type"] in _SEQUENCES else items

    def section(self, name: str) -> dict[str, np.ndarray]:
        """The arrays `<name>.<x>` of this case by x."""
        start = self._key(f"{name}.")
        found = [key for key in self.tensors.names() if key.startswith(start)]
        return {key.removeprefix(start): self._read(key) for key in found}

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        return self.section("out")

    def array(self, key: str) -> np.ndarray:
        """One array of this case. Raises KeyError with the file's name when it is not recorded."""
        return self._read(self._key(key))

    def get(self, key: str) -> np.ndarray | None:
        return self.array(key) if self._key(key) in self.tensors else None

    def _key(self, key: str) -> str:
        return f"{self.id}/{key}" if self.id else key

    def _read(self, key: str) -> np.ndarray:
        value = self.tensors[key]
        if key in self.scenario.get("complex", ()):  # stored as [..., 2] reals
            return value[..., 0] + 1j * value[..., 1]
        return value


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    dtype: str
    record: dict[str, Any]
    cases: tuple[Case, ...]

    def case(self, name: str) -> Case | None:
        return next((case for case in self.cases if case.id == name), None)


class Recordings:
    """The oracle's folder of recorded scenarios."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if not any(self.folder.glob("*.json")):
            raise FileNotFoundError(f"{folder}: no recordings there; record the oracle first")

    def why_not(self, name: str, dtype: str = "float64") -> str | None:
        """Why there is nothing to compare with (None when there is)."""
        path = self.folder / f"{name}.{dtype}.json"
        if not path.exists():
            return f"the oracle recorded no {name!r} in {dtype}"
        record = json.loads(path.read_text())
        return None if record.get("applies", True) else record.get("reason") or "the oracle says so without a reason"

    def __contains__(self, name: str) -> bool:
        return self.why_not(*_split(name)) is None

    def get(self, name: str, dtype: str = "float64") -> Scenario:
        """Raises KeyError with the reason when it was not recorded or does not apply."""
        if reason := self.why_not(name, dtype):
            raise KeyError(f"{self.folder}: {reason}")
        record = json.loads((self.folder / f"{name}.{dtype}.json").read_text())
        if record.get("format", 1) != 1:
            raise ValueError(f"{self.folder}: {name}.{dtype} has format {record['format']!r}, expected 1; record again")
        tensors = TensorFile(self.folder / f"{name}.{dtype}.safetensors")
        cases = tuple(Case(case, about, record, tensors) for case, about in record["cases"].items())
        return Scenario(name, dtype, record, cases)


def _split(name: str) -> tuple[str, str]:
    scenario, _, dtype = name.partition(".")
    return scenario, dtype or "float64"
