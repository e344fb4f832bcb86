"""Recordings on disk: `<scenario>.safetensors` beside `<scenario>.json` (docs/interfaces.md §7.1)."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from maxcode.evaluator.oracle.flatten import flatten

Tree = Any


class Recording:
    """Tensors and facts of one scenario, collected case by case and written once.

    Args:
      kind: forward, decode, gradients, training or modules.
      dtype: of the recorded run; float64 means that it was lifted.
    """

    def __init__(self, name: str, kind: str, dtype: str, **about: Any) -> None:
        self.name = name
        self.cases: list[dict[str, Any]] = []
        self._about = {"format": 1, "name": name, "kind": kind, "dtype": dtype, "lifted": dtype == "float64", **about}
        self._tensors: dict[str, Tensor] = {}

    def case(self, case_id: str, inputs: dict[str, Any], output: Any = None, **facts: Any) -> dict[str, Any]:
        """Adds a case with its inputs and, where given, its outputs; returns the JSON record to add to."""
        record: dict[str, Any] = {"id": case_id, "inputs": self.tree(f"{case_id}/in", inputs)}
        if output is not None:
            record["outputs"] = self.named(f"{case_id}/out", flatten(output))
        self.cases.append(record | facts)
        return self.cases[-1]

    def note(self, **facts: Any) -> None:
        """Adds facts to the scenario's own record."""
        self._about |= facts

    def named(self, prefix: str, tensors: dict[str, Tensor]) -> dict[str, str]:
        """Stores tensors as `<prefix>.<name>`; returns {name: key}."""
        return {name: self.put(f"{prefix}.{name}", tensor) for name, tensor in tensors.items()}

    def put(self, key: str, tensor: Tensor) -> str:
        """Stores a copy of one tensor; complex ones as [..., 2] reals, with the key listed under `complex`."""
        tensor = tensor.detach()
        if tensor.is_complex():
            self._about.setdefault("complex", []).append(key)
            tensor = torch.view_as_real(tensor.resolve_conj())
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        if key in self._tensors:
            raise ValueError(f"{self.name}: two tensors called {key!r}")
        self._tensors[key] = tensor.clone(memory_format=torch.contiguous_format)
        return key

    def tensor(self, key: str) -> Tensor:
        """A stored tensor."""
        return self._tensors[key]

    def shapes(self, keys: dict[str, str]) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of stored tensors."""
        return [(name, tuple(self._tensors[key].shape)) for name, key in keys.items()]

    def tree(self, prefix: str, value: Any) -> Tree:
        """`value` as JSON, with {"$tensor": key} in place of each tensor."""
        if torch.is_tensor(value):
            return {"$tensor": self.put(prefix, value)}
        if isinstance(value, dict):
            return {key: self.tree(f"{prefix}.{key}", item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(f"{prefix}.{i}", item) for i, item in enumerate(value)]
        return value

    def write(self, out: Path, **about: Any) -> Path:
        """Writes both files, each atomically, the JSON last; returns the JSON's path."""
        out.mkdir(parents=True, exist_ok=True)
        tensors = out / f"{self.name}.safetensors"
        save_tensors(self._tensors, Path(f"{tensors}.part"))
        Path(f"{tensors}.part").replace(tensors)
        return write_json(out / f"{self.name}.json", self._about | about | {"cases": self.cases})


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """A safetensors file with ordinary permissions (the library makes it readable by the owner only)."""
    save_file(tensors, str(path), metadata={"format": "pt"})
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


def write_json(path: Path, content: Any) -> Path:
    """Writes JSON atomically."""
    part = Path(f"{path}.part")
    part.write_text(json.dumps(content, indent=1, default=_plain) + "\n")
    part.replace(path)
    return path


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
