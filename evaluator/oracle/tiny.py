"""The derived tiny size of an architecture (design §1): two periods of the layer pattern plus one layer."""

import copy
import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

from maxcode.evaluator.oracle.fields import (
    LAYERS,
    PERIODS,
    POSITIONS,
    TRIES,
    VOCABULARY,
    Sizes,
    is_position_limit,
    missing,
    period_of,
    small,
)

MAX_LAYERS = 17
_INNER_WIDTH = re.compile(r"(intermediate_size|ffn_dim|mlp_dim|d_ff|mlp_ratio)$")
_GENERIC = {"chunk_size_feed_forward", "transformers_version", "id2label", "label2id", "_name_or_path", "dtype"}


def candidates(config_class: type) -> Iterator[Any]:
    """Configurations from the most to the least distinct; the caller takes the first that builds and runs.

    The last ones name a padding token where the class has none: some heads do not run a batch without one.
    """
    default = config_class()
    padded = [False, True] if getattr(default, "pad_token_id", 0) is None else [False]
    for pad, sizes in itertools.product(padded, TRIES):
        try:
            config = _shrunk(config_class, default, sizes)
        except Exception:  # configurations check themselves; this size does not fit this one
            continue
        if pad:
            config.pad_token_id = 0
        yield config


def shrunk_like(default: Any) -> Iterator[Any]:
    """As `candidates`, but starting from a given configuration, whose every other field is kept."""
    for sizes in TRIES:
        try:
            fields = _merged(default.to_dict(), overrides(default, sizes))
            config = type(default).from_dict(_resized_lists(fields, default))
            _tokens_in_vocabulary(config)
            yield config
        except Exception:  # as above
            continue


def grown(default: Any) -> Iterator[Any]:
    """Configurations with more layers than `default`, then without the other changes, for inputs that stay.

    Last with as many layers, whose inner width is doubled: where other fields name layers by their number.
    """
    for change in (_growth(default, True), _growth(default, False), _wider(default)):
        if not change:
            continue  # nothing would be shown by the same sizes again
        try:
            fields = _merged(default.to_dict(), change)
            yield type(default).from_dict(_resized_lists(fields, default))
        except Exception:  # configurations check themselves
            continue


def _growth(default: Any, all_changes: bool) -> dict[str, Any]:
    """Two periods of the layer pattern plus one layer; with `all_changes` fewer kv heads and enough positions too."""
    fields = _own_fields(default)
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if LAYERS.search(name):
            changed[name] = layer_count(fields) if value > 1 else value
        elif all_changes and re.search(r"(key_value|kv)_heads$", name) and value % 2 == 0:
            changed[name] = value // 2
        elif all_changes and is_position_limit(name):
            changed[name] = max(value, POSITIONS)
    for name in getattr(default, "sub_configs", {}):
        if hasattr(inner := getattr(default, name, None), "to_dict"):
            changed[name] = {"model_type": inner.model_type, **_growth(inner, all_changes)}
    return changed


def _wider(default: Any) -> dict[str, Any]:
    """Twice the inner width of feed-forward blocks, in nested configurations too."""
    fields = _own_fields(default)
    changed: dict[str, Any] = {
        name: 2 * value for name, value in fields.items() if _INNER_WIDTH.search(name) and isinstance(value, int)
    }
    for name, inner in vars(default).items():
        if hasattr(inner, "to_dict") and (below := _wider(inner)):
            changed[name] = {"model_type": inner.model_type, **below}
    return changed


def _merged(fields: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    result = dict(fields)
    for name, value in changed.items():
        both = isinstance(value, dict) and isinstance(result.get(name), dict)
        result[name] = _merged(result[name], value) if both else value
    return result


def _resized_lists(fields: dict[str, Any], default: Any) -> dict[str, Any]:
    """Per-layer lists follow the number of layers: cut, or continued by their own period."""
    before = _own_fields(default)
    for counter in (n for n in before if LAYERS.search(n) and isinstance(before[n], int)):
        for name, value in before.items():
            if per_layer(name, value, before[counter]):
                prefix, period = period_of(value)
                wanted = range(fields[counter])
                fields[name] = [value[i] if i < prefix else value[prefix + (i - prefix) % period] for i in wanted]
    for name in getattr(default, "sub_configs", {}):
        if hasattr(inner := getattr(default, name, None), "to_dict"):
            fields[name] = _resized_lists(fields[name], inner)
    return fields


def _shrunk(config_class: type, default: Any, sizes: Sizes) -> Any:
    config = config_class(**overrides(default, sizes))
    _slice_lists(config, default)
    _tokens_in_vocabulary(config)
    return config


def overrides(default: Any, sizes: Sizes) -> dict[str, Any]:
    """Constructor arguments that differ from the default configuration, sub-configurations as dictionaries."""
    fields = _own_fields(default)
    layers = layer_count(fields)
    changed: dict[str, Any] = {}
    for name, value in fields.items():
        if LAYERS.search(name) and isinstance(value, int):
            changed[name] = layers if value > 1 else value
        elif sizes.only_layers or isinstance(value, bool):
            continue
        elif isinstance(value, int):
            new = small(name, value, sizes, fields)
            if new is not None and new != value:
                changed[name] = new
        elif value is None and name == "num_key_value_heads":
            changed[name] = sizes.kv_heads
        elif value is None and (given := missing(name)) is not None:
            changed[name] = given
    if not sizes.only_layers:
        changed |= _vision(fields) | _sections(fields, changed)
    for name in getattr(default, "sub_configs", {}):
        inner = getattr(default, name, None)
        if inner is not None and hasattr(inner, "to_dict"):
            changed[name] = {"model_type": inner.model_type, **overrides(inner, sizes)}
    return changed


def _own_fields(config: Any) -> dict[str, Any]:
    subs = getattr(config, "sub_configs", {})
    return {n: v for n, v in config.to_dict().items() if n not in _GENERIC and n not in subs}


def layer_count(fields: dict[str, Any]) -> int:
    """prefix + 2 x period + 1, from lists with one entry per layer and from integer fields that name a period."""
    depth = max((v for n, v in fields.items() if LAYERS.search(n) and isinstance(v, int)), default=0)
    prefix, period = (1 if fields.get("first_k_dense_replace") else 0), 1
    for name, value in fields.items():
        if per_layer(name, value, depth):
            before, every = period_of(value)
            prefix, period = max(prefix, before), math.lcm(period, every)
        elif PERIODS.search(name) and isinstance(value, int) and not isinstance(value, bool) and 1 < value <= 8:
            period = math.lcm(period, value)
    return min(prefix + 2 * period + 1, MAX_LAYERS)


def per_layer(name: str, value: Any, depth: int) -> bool:
    """Whether a list has one entry per layer; short lists of numbers (limits, pairs) must say so by their name."""
    if not isinstance(value, list) or len(value) != depth or depth < 2:
        return False
    numbers = all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    return not numbers or depth > 4 or "layer" in name


def _vision(fields: dict[str, Any]) -> dict[str, Any]:
    """Three patches a side; without a patch size 48 pixels (divisible by the usual reductions)."""
    size, patch = fields.get("image_size"), fields.get("patch_size")
    if not isinstance(size, int):
        return {}
    return {"image_size": min(size, 3 * patch if isinstance(patch, int) and patch > 2 else 48)}


def _sections(fields: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Lists of rotary sections have to add up to half the head size."""
    rope = fields.get("rope_parameters")
    if not isinstance(rope, dict) or "mrope_section" not in rope:
        return {}
    old = rope["mrope_section"]
    head = changed.get("head_dim") or changed.get("hidden_size", 64) // changed.get("num_attention_heads", 4)
    new = [max(1, part * (head // 2) // sum(old)) for part in old]
    new[0] += head // 2 - sum(new)
    return {"rope_parameters": copy.deepcopy(rope) | {"mrope_section": new}}


def _slice_lists(config: Any, default: Any) -> None:
    """Per-layer lists that the class did not derive anew keep as many entries as there are layers now."""
    before, after = _own_fields(default), _own_fields(config)
    for counter in (n for n in before if LAYERS.search(n) and isinstance(before[n], int)):
        for name, value in after.items():
            if per_layer(name, value, before[counter]) and before[counter] > after[counter]:
                setattr(config, name, value[: after[counter]])
    for name in getattr(config, "sub_configs", {}):
        if hasattr(getattr(config, name, None), "to_dict") and hasattr(getattr(default, name, None), "to_dict"):
            _slice_lists(getattr(config, name), getattr(default, name))


def _tokens_in_vocabulary(config: Any) -> None:
    """Special ids beyond the small vocabulary move to its end, each to its own place."""
    queue, free = [config], VOCABULARY - 1
    while queue:
        current = queue.pop()
        for name, value in _own_fields(current).items():
            if name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= VOCABULARY:
                setattr(current, name, free)
                free -= 1
            elif name.endswith("_token_id") and isinstance(value, list) and any(v >= VOCABULARY for v in value):
                setattr(current, name, [VOCABULARY - 1])
        queue.extend(
            inner for n in getattr(current, "sub_configs", {}) if hasattr(inner := getattr(current, n, None), "to_dict")
        )
