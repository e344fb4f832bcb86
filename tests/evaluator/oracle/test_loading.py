"""tensors.json of folders says how transformers loads them: merged experts, prefixes, buffers that it computes."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from maxcode.evaluator.oracle.loading import conversions_of, loading_facts, stored_names
from maxcode.evaluator.oracle.materialise import materialise
from maxcode.evaluator.oracle.resolve import resolve
from maxcode.evaluator.oracle.target import load_target

TINY = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_local_experts": 3, "max_position_embeddings": 64,
}  # fmt: skip


def saved(tmp_path, model_type, auto):
    known = transformers.AutoConfig.for_model(model_type).to_dict()
    config = transformers.AutoConfig.for_model(model_type, **{k: v for k, v in TINY.items() if k in known})
    config.pad_token_id = config.bos_token_id = config.eos_token_id = 0
    torch.manual_seed(0)
    model = getattr(transformers, auto).from_config(config)
    model.save_pretrained(tmp_path)
    return model


def materialised(folder, tmp_path):
    target = {"text": str(folder), "kind": "folder", "path": str(folder), "weights": "stored"}
    return materialise(resolve(load_target(target)), tmp_path / "source")


def test_experts_stored_one_by_one_are_stacked(tmp_path):
    folder = tmp_path / "model"
    saved(folder, "mixtral", "AutoModelForCausalLM")
    about = materialised(folder, tmp_path)
    assert about == json.loads((tmp_path / "source" / "tensors.json").read_text())
    used = {name for entry in about["conversions"] for names in entry["sources"] for name in names}
    assert {name for name in stored_names(folder) if "experts" in name} <= used
    merged = [entry for entry in about["conversions"] if entry["operations"]]
    assert all(len(names) == 3 for entry in merged for names in entry["sources"])
    assert {name for entry in merged for name in entry["targets"]} <= about["tensors"].keys()


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_buffers_that_the_model_computes_are_told_as_the_files_spell_them(tmp_path, prefix):
    model = saved(tmp_path, "bert", "AutoModel")
    path = tmp_path / "model.safetensors"
    tensors = {prefix + name: tensor for name, tensor in load_file(path).items()}
    save_file(tensors | {f"{prefix}embeddings.position_ids": torch.arange(64)[None]}, path, {"format": "pt"})
    facts = loading_facts(model, tmp_path)
    assert f"{prefix}embeddings.position_ids" in facts["non_persistent"]
    renamed = {entry["targets"][0]: entry["sources"][0][0] for entry in facts["conversions"]}
    assert renamed == ({name: prefix + name for name in model.state_dict()} if prefix else {})


def test_bases_lead_from_a_models_own_layer_to_torchs(tmp_path):
    saved(tmp_path / "model", "gemma3_text", "AutoModelForCausalLM")
    row = materialised(tmp_path / "model", tmp_path)["tensors"]["model.embed_tokens.weight"]
    assert not row["module_class"].startswith("torch.")
    assert row["module_bases"] == ["torch.nn.modules.sparse.Embedding"]


def test_plain_names_need_no_conversion(tmp_path):
    model = saved(tmp_path, "llama", "AutoModelForCausalLM")
    assert conversions_of(model, stored_names(tmp_path)) == []
