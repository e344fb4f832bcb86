"""What transformers does to a checkpoint's tensors while loading, as the oracle process writes it into tensors.json."""

from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key


def conversions_of(model, stored_names):
    """`conversions` of tensors.json for `model` and the names in its checkpoint files."""
    state = model.state_dict()
    mapping = get_model_conversion_mapping(model)
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    by_pattern = {pattern: entry for entry in converters for pattern in entry.source_patterns}
    found = {}
    for name in sorted(stored_names, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, model.base_model_prefix, state)
        if target not in state and name in state:
            target, pattern = rename_source_key(name, [], [], model.base_model_prefix, state)
        if target in state and (pattern is not None or target != name):
            found.setdefault(target, {}).setdefault(pattern, []).append(name)
    return [_conversion(target, groups, by_pattern, state) for target, groups in found.items()]


def _conversion(target, groups, by_pattern, state):
    converter = by_pattern.get(next(iter(groups)))
    if converter is None:
        return {"targets": [target], "sources": list(groups.values()), "operations": []}
    first = converter.target_patterns[0]
    targets = [target.replace(first, other) for other in converter.target_patterns]
    sources = [groups[pattern] for pattern in converter.source_patterns if pattern in groups]
    operations = [[type(op).__name__, dict(vars(op))] for op in converter.operations]
    return {"targets": [t for t in targets if t in state], "sources": sources, "operations": operations}
