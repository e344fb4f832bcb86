"""The package's config.yml: how the model is built and run, under MaxText's key names."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# MaxText's key -> the names under which configuration files hold the value.
_SIZES: dict[str, tuple[str, ...]] = {
    "base_emb_dim": ("hidden_size", "n_embd", "d_model", "dim"),
    "base_num_query_heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "base_num_kv_heads": ("num_key_value_heads", "num_attention_heads", "n_head", "num_heads", "n_heads"),
    "base_mlp_dim": ("intermediate_size", "n_inner", "d_ff", "ffn_dim"),
    "base_num_decoder_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "head_dim": ("head_dim", "d_kv"),
    "vocab_size": ("vocab_size",),
    "max_position_embeddings": ("max_position_embeddings", "n_positions"),
    "normalization_layer_epsilon": ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"),
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "num_experts_per_tok": ("num_experts_per_tok",),
    "base_moe_mlp_dim": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "first_num_dense_layers": ("first_k_dense_replace",),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "sliding_window_size": ("sliding_window",),
    "attn_logits_soft_cap": ("attn_logit_softcapping",),
    "final_logits_soft_cap": ("final_logit_softcapping",),
    "logits_via_embedding": ("tie_word_embeddings",),
}
_ACTIVATION_KEYS = ("dense_act_fn", "hidden_act", "hidden_activation", "activation_function")
_FORMATS = json.loads((Path(__file__).parent / "target_formats.json").read_text())["maxtext"]
_ROPE_KEYS = {
    "factor": "rope_factor",
    "original_max_position_embeddings": "original_max_position_embeddings",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "attention_factor": "rope_attention_factor",
    "partial_rotary_factor": "partial_rotary_factor",
}
_RUN = {
    "dtype": "float32",
    "weight_dtype": "float32",
    "matmul_precision": "default",
    "scan_layers": True,
    "remat_policy": "none",
    "attention": "eager",
    "tokenizer_type": "huggingface",
}


def run_values(resolved: Mapping[str, Any], *, gated_mlp: bool = False, **structure: Any) -> dict[str, Any]:
    """MaxText's keys and values for a configuration.

    Args:
        resolved: the full dictionary of the configuration; a nested text configuration is taken where there is one.
        gated_mlp: whether the feed-forward layers multiply an activated and a linear branch.
        structure: keys that only the model's structure tells, such as `decoder_block` and `use_qk_norm`.
    """
    text = resolved.get("text_config") or resolved
    values = {key: found for key, names in _SIZES.items() if (found := _first(text, names)) is not None}
    emb, heads = values.get("base_emb_dim"), values.get("base_num_query_heads")
    if isinstance(emb, int) and isinstance(heads, int):
        values.setdefault("head_dim", emb // heads)
    if isinstance(emb, int) and "base_mlp_dim" not in values and "n_inner" in text:
        values["base_mlp_dim"] = 4 * emb  # what an absent n_inner stands for
    activation = _first(text, _ACTIVATION_KEYS)
    if activation is not None:
        values["mlp_activations"] = [activation, "linear"] if gated_mlp else [activation]
    return {**values, **_rope(text.get("rope_parameters") or {}), **_RUN, **structure}


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _rope(rope: Mapping[str, Any]) -> dict[str, Any]:
    """Rope keys; where layer types have entries of their own, the sliding one's base goes under its own key."""
    local = rope.get("sliding_attention")
    shared = rope.get("full_attention", rope)
    if not shared or "rope_theta" not in shared:
        return {}
    kind = shared.get("rope_type", "default")
    for row in _FORMATS["rope_type"]:
        if all(key in shared for key in row["has"]):
            kind = row["name"]
    values = {"rope_type": kind, "rope_max_timescale": shared["rope_theta"]}
    values |= {new: shared[old] for old, new in _ROPE_KEYS.items() if shared.get(old) is not None}
    if local:
        values["local_rope_max_timescale"] = local["rope_theta"]
    return values


def emit_run_yaml(resolved: Mapping[str, Any], *, gated_mlp: bool = False, **structure: Any) -> str:
    """Text of config.yml; see `run_values` for the arguments."""
    values = run_values(resolved, gated_mlp=gated_mlp, **structure)
    lines = [f"{key}: {_scalar(value)}" for key, value in values.items()]
    return "\n".join(["# Run configuration with MaxText's key names.", *lines]) + "\n"


def _scalar(value: Any) -> str:
    """One value in YAML's flow style, which JSON is part of; YAML 1.1 needs the point in 1.0e-06."""
    if isinstance(value, float) and "e" in (text := repr(value)) and "." not in text:
        return text.replace("e", ".0e")
    return json.dumps(value)
