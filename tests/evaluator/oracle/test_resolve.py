"""Targets and bad input, through the command line's own entry point."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file

from maxcode.evaluator.oracle import fields
from maxcode.evaluator.oracle.__main__ import main
from maxcode.evaluator.oracle.build import build
from maxcode.evaluator.oracle.sizes import derive_small


def run(tmp_path, command, target, *options):
    path = tmp_path / "given.json"
    path.write_text(json.dumps(target))
    return main([command, "--target", str(path), "--out", str(tmp_path / "run"), *options])


def refusal(capfd):
    return json.loads(capfd.readouterr().err.strip().splitlines()[-1])


def transformers_target(text):
    return {"text": f"transformers:{text}", "kind": "transformers", "type": text}


def test_tiny_size(resolved):
    config = resolved("gemma3_text")["config"]
    assert config["num_hidden_layers"] == 13  # two periods of six and one more
    assert config["num_key_value_heads"] < config["num_attention_heads"]
    assert config["max_position_embeddings"] >= 600
    sizes = [config[n] for n in ("hidden_size", "intermediate_size", "vocab_size", "head_dim")]
    assert len(set(sizes)) == 4


def test_layer_periods():
    assert fields.period_of(["s", "s", "f"] * 4) == (0, 3)
    assert fields.period_of(["d", "m", "m", "m", "m"]) == (1, 1)
    assert fields.period_of(["f"] * 6) == (0, 1)


def test_set_and_class(tmp_path):
    assert run(tmp_path, "resolve", transformers_target("t5:T5EncoderModel"), "--set", "num_layers=2") == 0
    target = json.loads((tmp_path / "run/target.json").read_text())
    assert (target["class_name"], target["config"]["num_layers"]) == ("T5EncoderModel", 2)


def test_heads_that_need_a_padding_token_get_one(tmp_path):
    assert run(tmp_path, "resolve", transformers_target("llama:LlamaForSequenceClassification")) == 0
    assert json.loads((tmp_path / "run/target.json").read_text())["config"]["pad_token_id"] == 0


@pytest.mark.parametrize(("free", "status"), [(1 << 20, 2), (1 << 40, 0)])
def test_full_size_must_fit_into_memory(tmp_path, capfd, monkeypatch, free, status):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    sets = ["--set", "num_hidden_layers=1", "--set", "hidden_size=64", "--set", "vocab_size=128"]
    assert run(tmp_path, "resolve", transformers_target("llama"), "--full-size", *sets) == status
    if status:
        assert "GB free" in (error := refusal(capfd))["found"]
        assert "leave --full-size out" in error["do"]


def test_derived_small_keeps_branches(resolved):
    given = resolved("gemma3_text")
    given["config"] |= {"hidden_size": 96, "sliding_window": 7, "query_pre_attn_scalar": 33}
    small = derive_small(given)
    assert small["config"]["hidden_size"] == 48
    assert small["config"]["query_pre_attn_scalar"] == 33
    assert small["weights"] == "noise"


@pytest.mark.parametrize(
    ("text", "found", "options"),
    [
        ("lama", "unknown type", ()),
        ("llama:LlamaForNothing", "no such class", ()),
        ("llama", "no such field", ("--set", "hidden=3")),
    ],
)
def test_bad_architecture(tmp_path, capfd, text, found, options):
    assert run(tmp_path, "resolve", transformers_target(text), *options) == 2
    error = refusal(capfd)
    assert found in error["found"]
    assert error["do"]
    assert not (tmp_path / "run").exists()


def test_an_unknown_field_is_named_with_the_nearest(tmp_path, capfd):
    assert run(tmp_path, "resolve", transformers_target("llama"), "--set", "hiden_size=3") == 2
    error = refusal(capfd)
    assert error["where"] == "--set hiden_size: LlamaConfig"
    assert error["do"] == "did you mean 'hidden_size'?"


@pytest.fixture
def folder(tmp_path, resolved):
    """A Hugging Face folder as `save_pretrained` writes it, in two shards."""
    model, _ = build(resolved("llama"))
    model.save_pretrained(tmp_path / "hf", max_shard_size="200KB")
    return tmp_path / "hf"


def folder_target(folder, **more):
    return {"text": str(folder), "kind": "folder", "path": str(folder)} | more


def test_folder(tmp_path, folder):
    assert run(tmp_path, "resolve", folder_target(folder)) == 0
    target = json.loads((tmp_path / "run/target.json").read_text())
    assert target["class_name"] == "LlamaForCausalLM"
    assert run(tmp_path, "materialise", target) == 0
    about = json.loads((tmp_path / "run/source/tensors.json").read_text())
    assert about["linked"]
    assert not list((tmp_path / "run/source").glob("*.safetensors"))
    model, _ = build(target, "float64", tmp_path / "run/source")
    stored = {name: value for shard in folder.glob("*.safetensors") for name, value in load_file(shard).items()}
    for name, value in model.state_dict().items():
        assert torch.equal(value, stored[name].double()), name
    assert set(about["tensors"]) == set(stored)


def _truncate(folder):
    path = sorted(folder.glob("*.safetensors"))[0]
    path.write_bytes(path.read_bytes()[:-100])
    return "corrupt or truncated"


def _corrupt(folder):
    sorted(folder.glob("*.safetensors"))[1].write_bytes(b"\xff" * 64)
    return "corrupt or truncated"


def _missing_shard(folder):
    sorted(folder.glob("*.safetensors"))[0].unlink()
    return "missing"


def _no_weights(folder):
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    return "no weights"


def _no_config(folder):
    (folder / "config.json").unlink()
    return "no such file"


def _remote_code(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    return "code of its own"


def _pickle(folder):
    _no_weights(folder)
    torch.save({"lm_head.weight": torch.ones(2)}, folder / "pytorch_model.bin")
    return "pickled weights"


@pytest.mark.parametrize(
    "damage", [_truncate, _corrupt, _missing_shard, _no_weights, _no_config, _remote_code, _pickle]
)
def test_bad_folder(tmp_path, folder, capfd, damage):
    expected = damage(folder)
    assert run(tmp_path, "resolve", folder_target(folder)) == 2
    error = refusal(capfd)
    assert expected in error["found"]
    assert str(folder) in error["where"]


class Payload:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize(
    ("change", "found"),
    [({"num_attention_heads": 5}, "not a multiple"), ({"hidden_act": "nothing"}, "nothing")],
)
def test_a_configuration_that_its_class_refuses(tmp_path, folder, capfd, change, found):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert run(tmp_path, "resolve", folder_target(folder)) == 2
    error = refusal(capfd)
    assert error["where"] == str(path)
    assert found in error["found"]
    assert "correct config.json" in error["do"]


def test_a_value_of_set_that_the_class_refuses(tmp_path, capfd):
    assert run(tmp_path, "resolve", transformers_target("llama"), "--set", 'hidden_size="x"') == 2
    assert "hidden_size" in refusal(capfd)["found"]


def test_allowed_pickles_run_no_code(tmp_path, folder, capfd):
    state = {name: value for shard in folder.glob("*.safetensors") for name, value in load_file(shard).items()}
    _no_weights(folder)
    torch.save(state, folder / "pytorch_model.bin")
    assert run(tmp_path, "resolve", folder_target(folder, allow_pickle=True)) == 0
    target = json.loads((tmp_path / "run/target.json").read_text())
    assert run(tmp_path, "materialise", target) == 0
    written = load_file(tmp_path / "run/source/model.safetensors")
    assert all(torch.equal(written[name], value) for name, value in state.items())
    torch.save({"x": Payload(tmp_path / "mark")}, folder / "pytorch_model.bin")
    assert run(tmp_path, "resolve", folder_target(folder, allow_pickle=True)) == 2
    assert not (tmp_path / "mark").exists()
    found = refusal(capfd)["found"]
    assert "it holds code, getattr" in found
    assert "weights_only" not in found  # no advice to load it with code after all


def test_incomplete_weights(tmp_path, folder, capfd):
    index = folder / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    dropped = sorted(folder.glob("*.safetensors"))[-1].name
    table["weight_map"] = {n: f for n, f in table["weight_map"].items() if f != dropped}
    index.write_text(json.dumps(table))
    assert run(tmp_path, "resolve", folder_target(folder)) == 0
    target = json.loads((tmp_path / "run/target.json").read_text())
    assert run(tmp_path, "materialise", target) == 2
    assert "no value for" in refusal(capfd)["found"]


def test_bad_gguf(tmp_path, capfd):
    (tmp_path / "x.gguf").write_bytes(b"GGUX" + bytes(64))
    target = {"text": "x.gguf", "kind": "gguf", "path": str(tmp_path), "gguf_file": "x.gguf"}
    assert run(tmp_path, "resolve", target) == 2
    assert "GGUX" in refusal(capfd)["found"]


def test_hub_without_network(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert run(tmp_path, "resolve", {"text": "nobody/nothing", "kind": "hub"}) == 2
    error = refusal(capfd)
    assert error["where"] == "nobody/nothing"
    assert "network" in error["do"]


def test_module_file(tmp_path, net_file, capfd):
    target = {"text": "Net", "kind": "module", "path": str(net_file), "class_name": "Net"}
    assert run(tmp_path, "resolve", target) == 0
    assert run(tmp_path, "resolve", target | {"class_name": "Ned"}) == 2
    assert "Net" in refusal(capfd)["expected"]
    assert run(tmp_path, "resolve", target | {"init": {"depth": 3}}) == 2
    assert "--init" in refusal(capfd)["do"]
    assert run(tmp_path, "resolve", target | {"inputs": [{"shape": [2, 4, 5, 5]}]}) == 2
    assert "--inputs" in refusal(capfd)["do"]


def test_module_without_helpers(tmp_path, net_file, capfd):
    bare = tmp_path / "bare_net.py"
    bare.write_text(re.sub(r"def get_(init_)?inputs.*", "", net_file.read_text(), flags=re.DOTALL))
    target = {"text": "Net", "kind": "module", "path": str(bare), "class_name": "Net"}
    assert run(tmp_path, "resolve", target) == 2
    assert "--init" in refusal(capfd)["do"]
    assert run(tmp_path, "resolve", target | {"init": [6]}) == 2
    assert "--inputs" in refusal(capfd)["do"]
    inputs = {"x": {"shape": [2, 3, 8, 8], "dtype": "float32", "low": -1, "high": 1}}
    assert run(tmp_path, "resolve", target | {"init": [6], "inputs": inputs}) == 0


def test_tied_tensors_are_stored_once(tmp_path, resolved):
    target = resolved("t5")
    assert run(tmp_path, "materialise", target) == 0
    about = json.loads((tmp_path / "run/source/tensors.json").read_text())
    stored = load_file(tmp_path / "run/source/model.safetensors")
    tied = dict(about["tied"])
    assert tied["encoder.embed_tokens.weight"] == "shared.weight"
    assert set(stored) == set(about["tensors"]) - set(tied)
    assert about["tensors"]["shared.weight"]["module_class"].endswith("Embedding")
    model, _ = build(target, "float64", tmp_path / "run/source")
    assert torch.equal(model.state_dict()["encoder.embed_tokens.weight"], stored["shared.weight"].double())
    shutil.rmtree(tmp_path / "run")


@pytest.mark.parametrize(
    ("signature", "values", "found"),
    [("self, config", "[object()]", "'config' is a object"), ("self, *sizes", "[1, 2]", "stands for *args")],
)
def test_arguments_that_no_config_can_hold(tmp_path, capfd, signature, values, found):
    path = tmp_path / "odd.py"
    path.write_text(
        f"import torch\n\n\nclass Odd(torch.nn.Module):\n    def __init__({signature}):\n        super().__init__()\n\n"
        "    def forward(self, x):\n        return x\n\n\n"
        f"def get_init_inputs():\n    return {values}\n\n\ndef get_inputs():\n    return [torch.ones(2)]\n"
    )
    target = {"text": "odd.py:Odd", "kind": "module", "path": str(path), "class_name": "Odd"}
    assert run(tmp_path, "resolve", target) == 2
    assert found in refusal(capfd)["found"]
