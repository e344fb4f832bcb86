"""What a configuration field means, judged by its name and default, and the small value it gets.

The names are those that model authors give to the same few quantities; no rule knows a model. Values are small, odd
where the quantity allows, and different from each other, so that two swapped dimensions cannot go unseen.
"""

import dataclasses
import re
from typing import Any

POSITIONS, VOCABULARY, WINDOW = 640, 99, 20


@dataclasses.dataclass(frozen=True)
class Sizes:
    """One try at a tiny configuration; later tries give up some of the distinctness.

    Attributes:
      hidden, heads, kv_heads: width and heads.
      head_dim: of a field that is free to differ from hidden / heads; None keeps the default's ratio to it.
      scale_others: whether widths that no rule names are scaled with the hidden size, or left.
      only_layers: whether nothing but the number of layers changes.
    """

    hidden: int = 48
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = 16
    scale_others: bool = True
    only_layers: bool = False


TRIES = (
    Sizes(),
    Sizes(head_dim=None),
    Sizes(kv_heads=4),
    Sizes(kv_heads=4, head_dim=None),
    Sizes(hidden=64, head_dim=None),
    Sizes(hidden=64, kv_heads=4, head_dim=None),
    Sizes(hidden=96, kv_heads=4, head_dim=None, scale_others=False),
    Sizes(hidden=128, kv_heads=4, head_dim=None, scale_others=False),
    Sizes(only_layers=True),
)

LAYERS = re.compile(
    r"^(num_hidden_layers|n_layers?|num_layers|num_(encoder|decoder)_layers|(encoder|decoder)_layers|(encoder|decoder)_num_layers"
    r"|num_(encoder|decoder)_hidden_layers|(encoder|decoder)_num_hidden_layers|depth|num_blocks)$"
)
PERIODS = re.compile(r"(period|interval|_pattern|layer_freq|sparse_step|layer_step|every_n_layers)$")
_HIDDEN = re.compile(
    r"^(hidden_size|d_model|n_embd|dim|embed_dim|model_dim|hidden_dim|(encoder|decoder)_hidden_size|width)$"
)
_HEADS = re.compile(
    r"^((encoder|decoder)_)?(num_attention_heads|num_heads|n_heads?|attention_heads|[a-z]+_n_heads|n_[a-z]+_heads)$"
)
_HEAD_DIM = re.compile(r"^(?!qk_)(\w+_)?(head_dim|d_kv|head_size|d_head|kv_channels)$")
_INTERMEDIATE = re.compile(r"(intermediate|ffn_dim|ffn_hidden|d_ff$|n_inner$|mlp_dim|feed_forward_size|ff_dim)")
_FIXED: tuple[tuple[str, int], ...] = (
    (r"^(q_lora_rank|query_rank)$", 20),
    (r"^kv_lora_rank$", 24),
    (r"^qk_rope_head_dim$", 8),
    (r"^qk_nope_head_dim$", 12),
    (r"^v_head_dim$", 20),
    (r"^qk_head_dim$", 20),  # the two parts above together
    (r"(num_key_value_heads|num_kv_heads|n_head_kv|n_kv_heads|multi_query_group_num|num_key_heads)$", 2),
    (r"num_value_heads$", 4),
    (r"key_head_dim$", 8),
    (r"value_head_dim$", 12),
    (r"^(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts|num_moe_experts)$", 6),
    (
        r"(num_experts_per_tok(en)?|experts_per_token|moe_top_?k|num_selected_experts|^top_k_experts|^moe_k|^top_k|^topk)$",
        2,
    ),
    (r"^(([a-z]+_)?n_groups?|n_[a-z]+_groups)$", 2),
    (r"^topk_group$", 1),
    (r"^(rotary_dim|rope_dim|rotary_ndims)$", 8),
    (r"^first_k_dense_replace$", 1),
    (r"(state_size|d_state)$", 8),
    (r"(time_step_rank|dt_rank)$", 3),
    (r"(sliding_window|window_size|attention_window|chunk_size|local_attention|local_window)$", WINDOW),
    (
        r"(max_position_embeddings|n_positions|n_ctx|max_(seq|sequence)_(len|length)|max_(source|target)_positions)$",
        POSITIONS,
    ),
)
_POSITIONS = re.compile(
    r"(max_position_embeddings|n_positions|n_ctx|max_(seq|sequence)_(len|length)|max_(source|target)_positions)$"
    r"|^(context_length|seq_length|model_max_length)$"
)
_WIDTH = re.compile(r"(dim|size|width|rank|channels|features|units)s?(_per_\w+)?$")
_KEPT = re.compile(
    r"(patch_size|kernel|stride|num_channels|image_size|type_vocab_size|batch|in_channels|out_features|bucket)"
)


def small(name: str, default: int, sizes: Sizes, base: dict[str, Any]) -> int | None:
    """The tiny value of an integer field, or None to leave it to the configuration class.

    Args:
      base: all fields of the same configuration, for ratios to its hidden size.
    """
    if "vocab_size" in name and default > VOCABULARY:
        return VOCABULARY
    if _HIDDEN.search(name):
        return min(default, sizes.hidden) if default else None
    if "key_value_heads" in name or "kv_heads" in name:
        return sizes.kv_heads
    if _HEADS.search(name):
        return min(default, sizes.heads)
    if is_position_limit(name):
        return POSITIONS // 2 if name.startswith("original") else POSITIONS
    for pattern, value in _FIXED:
        if re.search(pattern, name):
            return min(default, value) if default > 0 else None
    hidden = next((base[n] for n in base if _HIDDEN.search(n) and isinstance(base[n], int)), None)
    if _HEAD_DIM.search(name):
        return _head_dim(default, sizes, base, hidden)
    if _INTERMEDIATE.search(name):
        return _intermediate(name, default, base)
    if sizes.scale_others and _WIDTH.search(name) and not _KEPT.search(name) and default > 64:
        return max(4, default * sizes.hidden // hidden // 4 * 4) if hidden and default <= 8 * hidden else 40
    return None


def is_position_limit(name: str) -> bool:
    """Whether a field limits the number of positions."""
    return bool(_POSITIONS.search(name))


def missing(name: str) -> int | None:
    """A value for a field whose default is None although models need a number there; None for all others."""
    return 2 if re.search(r"^num_experts_per_tok(en)?$", name) else None


def _head_dim(default: int, sizes: Sizes, base: dict[str, Any], hidden: int | None) -> int:
    if default == base.get("qk_rope_head_dim"):  # the rotary part under another name
        return small("qk_rope_head_dim", default, sizes, base) or default
    if sizes.head_dim is not None:
        return min(default, sizes.head_dim)
    heads = next((base[n] for n in base if _HEADS.search(n) and isinstance(base[n], int)), None)
    ratio = default * heads / hidden if heads and hidden else 1.0
    return max(2, round(ratio * sizes.hidden / sizes.heads) // 2 * 2)


def _intermediate(name: str, default: int, base: dict[str, Any]) -> int:
    """Distinct widths in the order of the field names: 72, 40, 56, 88, …"""
    named = sorted(n for n in base if _INTERMEDIATE.search(n) and isinstance(base[n], int))
    steps = (72, 40, 56, 88, 104, 120)
    return min(default, steps[named.index(name) % len(steps)]) if name in named else min(default, steps[0])


def period_of(values: list[Any]) -> tuple[int, int]:
    """(prefix, period) with the smallest sum such that `values` repeats with that period after the prefix."""
    keys = [repr(value) for value in values]
    best = (0, len(keys))
    for prefix in range(len(keys)):
        tail = keys[prefix:]
        for period in range(1, len(tail) // 2 + 1):
            if prefix + period >= sum(best):
                break
            if all(tail[i] == tail[i - period] for i in range(period, len(tail))):
                best = (prefix, period)
    return best
