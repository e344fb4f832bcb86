"""config.yml has MaxText's keys and is YAML that reads back to the same values."""

import pytest
import yaml

from maxcode.converter.config_run import emit_run_yaml, run_values

GROUPED = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "hidden_act": "silu", "num_hidden_layers": 3, "vocab_size": 128, "rms_norm_eps": 1e-06, "head_dim": None,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0},
}  # fmt: skip


def test_sizes_and_rope_under_maxtext_names():
    values = run_values(GROUPED, gated_mlp=True, decoder_block="block")
    assert values["base_emb_dim"] == 64
    assert values["base_num_kv_heads"] == 2
    assert values["head_dim"] == 16
    assert values["mlp_activations"] == ["silu", "linear"]
    assert (values["rope_type"], values["rope_max_timescale"], values["rope_factor"]) == ("llama3.1", 500000.0, 8.0)
    assert values["decoder_block"] == "block"
    assert values["logits_via_embedding"] is False


def test_reads_back_as_yaml():
    values = run_values(GROUPED)
    assert yaml.safe_load(emit_run_yaml(GROUPED)) == values


def test_short_names_and_an_absent_inner_size():
    values = run_values({"n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": None, "activation_function": "gelu_new"})
    assert (values["base_emb_dim"], values["base_num_kv_heads"], values["base_mlp_dim"]) == (32, 4, 128)
    assert values["mlp_activations"] == ["gelu_new"]
    assert "rope_type" not in values


def test_layer_types_with_bases_of_their_own():
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    values = run_values({"text_config": {"hidden_size": 8, "rope_parameters": rope}})
    assert values["rope_max_timescale"] == 1e6
    assert values["local_rope_max_timescale"] == 1e4


@pytest.mark.parametrize("number", [1e-06, 1e-12, 1e22, 0.5])
def test_numbers_keep_their_value(number):
    assert yaml.safe_load(emit_run_yaml({"rms_norm_eps": number}))["normalization_layer_epsilon"] == number
