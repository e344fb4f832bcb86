"""What transformers does to a checkpoint's tensors while loading it, for the weight map (docs/interfaces.md §4)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

from maxcode.evaluator.oracle.stored import safetensors_files

Conversion = dict[str, Any]


def loading_facts(model: nn.Module, folder: Path) -> dict[str, Any]:
    """`non_persistent`, `ignored` and `conversions` of tensors.json for a checkpoint folder of safetensors."""
    stored = stored_names(folder)
    ignored = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
    return {
        "non_persistent": non_persistent(model, stored),
        "ignored": sorted(ignored),
        "conversions": conversions_of(model, stored) if hasattr(model, "base_model_prefix") else [],
    }


def stored_names(folder: Path) -> list[str]:
    """Names of all tensors in the folder's safetensors files."""
    names: set[str] = set()
    for path in safetensors_files(folder):
        with safe_open(path, "pt") as file:
            names.update(file.keys())
    return sorted(names, key=dot_natural_key)


def non_persistent(model: nn.Module, stored: Iterable[str] = ()) -> list[str]:
    """Buffers that the constructor computes and no state dict holds; also as the checkpoint spells them, which may
    leave out or add the base model's prefix.
    """
    state = model.state_dict().keys()
    found = {name for name, _ in model.named_buffers(remove_duplicate=False) if name not in state}
    prefix = getattr(model, "base_model_prefix", "") + "."
    spelled = {n for n in stored if n not in state and {prefix + n, n.removeprefix(prefix)} & found}
    return sorted(found | spelled)


def conversions_of(model: nn.Module, stored: Iterable[str]) -> list[Conversion]:
    """How state dict tensors are made of stored ones, wherever they are not simply those of the same name."""
    state = model.state_dict()
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    by_pattern = {pattern: entry for entry in converters for pattern in entry.source_patterns}
    found: dict[str, dict[str | None, list[str]]] = {}
    for name in sorted(stored, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, model.base_model_prefix, state)
        if target not in state and name in state:
            target, pattern = rename_source_key(name, [], [], model.base_model_prefix, state)
        if target in state and (pattern is not None or target != name):
            found.setdefault(target, {}).setdefault(pattern, []).append(name)
    return [_conversion(target, groups, by_pattern, state) for target, groups in found.items()]


def _conversion(target: str, groups: dict[str | None, list[str]], by_pattern: dict[str, Any], state: Any) -> Conversion:
    converter = by_pattern.get(next(iter(groups)))
    if converter is None:
        return {"targets": [target], "sources": list(groups.values()), "operations": []}
    first = converter.target_patterns[0]
    targets = [target.replace(first, other) for other in converter.target_patterns]
    sources = [groups[pattern] for pattern in converter.source_patterns if pattern in groups]
    operations = [[type(op).__name__, dict(vars(op))] for op in converter.operations]
    return {"targets": [t for t in targets if t in state], "sources": sources, "operations": operations}
