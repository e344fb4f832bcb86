"""`source/tensors.json`: what the oracle process says about the source model's tensors (it alone imports torch)."""

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxcode.checkpoint_convert.source_conversions import Conversion
from maxcode.converter.support.tensor_files import CheckpointError


@dataclasses.dataclass(frozen=True)
class SourceTensor:
    """One parameter or persistent buffer of the source model.

    `modules` are the qualified names of the owning module's class and its bases, nearest first; `same_as` names the
    tensor whose storage this one shares (tied weights).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str  # "float32", "bfloat16", "int64" …
    modules: tuple[str, ...] = ()
    same_as: str | None = None

    @property
    def owner(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]


@dataclasses.dataclass(frozen=True)
class SourceTensors:
    """All tensors of the source model, and the patterns of stored names that the source itself ignores on load."""

    tensors: tuple[SourceTensor, ...]
    ignored: tuple[str, ...] = ()
    computed: frozenset[str] = frozenset()  # non-persistent buffers
    conversions: tuple[Conversion, ...] = ()  # where stored tensors are not simply the state dict's

    def ignoring(self, name: str) -> str | None:
        """The first pattern that makes the source ignore a stored name, or None."""
        return next((pattern for pattern in self.ignored if re.search(pattern, name)), None)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "SourceTensors":
        """Read the JSON form (docs/interfaces.md, section 4)."""
        tensors = [
            SourceTensor(
                name=name,
                shape=tuple(facts["shape"]),
                dtype=facts["dtype"],
                modules=(facts["module_class"], *facts.get("module_bases", ())),
                same_as=facts["tied_to"],
            )
            for name, facts in raw["tensors"].items()
        ]
        conversions = tuple(Conversion.from_json(item) for item in raw.get("conversions", ()))
        computed = frozenset(raw.get("non_persistent", ()))
        return cls(tuple(tensors), tuple(raw.get("ignored", ())), computed, conversions)

    @classmethod
    def load(cls, path: Path) -> "SourceTensors":
        """Read `tensors.json`. Raises CheckpointError where it is not such a file."""
        try:
            return cls.from_json(json.loads(path.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: expected the oracle's list of tensors; found {error!r}") from error
