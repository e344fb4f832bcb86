"""What the oracle process recorded (docs/interfaces.md section 7), read as numpy arrays."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from maxcode.evaluator.tensors import TensorFile


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of inputs and what PyTorch made of it."""

    record: dict[str, Any]
    tensors: TensorFile
    complex_keys: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        return self.record["id"]

    @property
    def inputs(self) -> dict[str, Any]:
        """The call's arguments by name, arrays as numpy."""
        return self.tree(self.record["inputs"])

    def tree(self, node: Any) -> Any:
        """`node` with every `{"$tensor": key}` replaced by the array."""
        if isinstance(node, dict):
            return (
                self.read(node["$tensor"]) if set(node) == {"$tensor"} else {k: self.tree(v) for k, v in node.items()}
            )
        return [self.tree(v) for v in node] if isinstance(node, list) else node

    def named(self, field: str) -> dict[str, np.ndarray]:
        """The arrays of a {name: key} field; names whose key is null are left out."""
        return {name: self.read(key) for name, key in self.record.get(field, {}).items() if key is not None}

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        return self.named("outputs")

    def get(self, field: str) -> np.ndarray | None:
        """The array of a field that holds a key, or None where the case has no such field."""
        key = self.record.get(field)
        return None if key is None else self.read(key)

    def array(self, field: str) -> np.ndarray:
        """The same where the field must be there. Raises KeyError."""
        return self.read(self.record[field])

    def read(self, key: str) -> np.ndarray:
        value = self.tensors[key]
        return value[..., 0] + 1j * value[..., 1] if key in self.complex_keys else value


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    record: dict[str, Any]
    cases: tuple[Case, ...]


class Recordings:
    """The oracle's folder: `facts` about the source model and the recorded scenarios."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        index = self.folder / "index.json"
        if not index.exists():
            raise FileNotFoundError(f"{index}: not there; record the oracle first")
        self.index = json.loads(index.read_text())
        if self.index.get("format") != 1:
            raise ValueError(f"{index}: format {self.index.get('format')!r}, expected 1; record again")
        self.facts: dict[str, Any] = self.index.get("facts", {})

    def __contains__(self, name: str) -> bool:
        return name in self.index["scenarios"]

    def reason(self, name: str) -> str | None:
        """Why the oracle says that a scenario does not apply; None when it said nothing."""
        return self.facts.get("reasons", {}).get(name)

    def failure(self, name: str) -> str | None:
        """The error with which the source ended in a scenario, if it did."""
        return self.facts.get("failures", {}).get(name)

    def get(self, name: str) -> Scenario:
        """Raises KeyError when the oracle did not record it."""
        if name not in self:
            raise KeyError(f"{self.folder}: no scenario {name!r}, recorded are {self.index['scenarios']}")
        record = json.loads((self.folder / f"{name}.json").read_text())
        tensors = TensorFile(self.folder / f"{name}.safetensors")
        keys = frozenset(record.get("complex", ()))
        return Scenario(name, record, tuple(Case(case, tensors, keys) for case in record["cases"]))
