"""Real transformers models: state dicts, and checkpoints whose tensors are renamed, merged or split on loading."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from safetensors.torch import save_file

from maxcode.checkpoint_convert.convert import convert_weights, to_hf
from maxcode.checkpoint_convert.mapping import Leaf, build_map
from maxcode.checkpoint_convert.source_tensors import SourceTensors
from maxcode.converter.support.tensor_files import TensorFolder, TensorSpec
from maxcode.evaluator.oracle.loading import conversions_of

RULES = {
    "torch.nn.modules.linear.Linear": {"weight": ("kernel", "o i -> i o"), "bias": ("bias", "o -> o")},
    "torch.nn.modules.sparse.Embedding": {"weight": ("embedding", "v e -> v e")},
    "torch.nn.modules.normalization.LayerNorm": {"weight": ("scale", "c -> c"), "bias": ("bias", "c -> c")},
}
TINY = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "moe_intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "num_layers": 2,
    "d_model": 16,
    "d_kv": 4,
    "d_ff": 24,
    "num_heads": 4,
    "max_position_embeddings": 64,
    "layer_norm_eps": 1e-5,
}


def build_model(model_type, auto, **settings):
    known = transformers.AutoConfig.for_model(model_type).to_dict()
    config = transformers.AutoConfig.for_model(model_type, **{k: v for k, v in TINY.items() if k in known} | settings)
    config.pad_token_id = config.bos_token_id = config.eos_token_id = 0
    torch.manual_seed(0)
    return getattr(transformers, auto).from_config(config)


def tensors_json(model, stored_names):
    """tensors.json as the oracle process writes it."""
    first, rows = {}, {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        owner = type(model.get_submodule(name.rpartition(".")[0]))
        home = first.setdefault(tensor.data_ptr(), name)
        rows[name] = {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "tied_to": None if home == name else home,
            "module_class": f"{owner.__module__}.{owner.__qualname__}",
        }
    return {"tensors": rows, "conversions": conversions_of(model, stored_names)}


def leaves_of(about):
    """The leaves that a converted package would have, and each one's array as the state dict says."""
    leaves = {}
    for tensor in about.tensors:
        if tensor.same_as is None:
            leaf, layout = RULES.get(tensor.modules[0], {}).get(tensor.leaf, (tensor.leaf, ""))
            flipped = layout == "o i -> i o"
            shape = tensor.shape[::-1] if flipped else tensor.shape
            leaves[f"{tensor.owner}.{leaf}"] = (
                Leaf(f"{tensor.owner}.{leaf}", shape, tensor.dtype),
                tensor.name,
                flipped,
            )
    return leaves


CASES = [
    ("llama", "AutoModelForCausalLM", {"tie_word_embeddings": True}, torch.bfloat16),
    ("qwen2_moe", "AutoModelForCausalLM", {}, torch.bfloat16),
    ("mixtral", "AutoModelForCausalLM", {}, torch.float32),
    ("bert", "AutoModelForMaskedLM", {}, torch.float32),
    ("t5", "AutoModelForSeq2SeqLM", {}, torch.float16),
]


@pytest.mark.parametrize(("model_type", "auto", "settings", "dtype"), CASES, ids=[case[0] for case in CASES])
def test_checkpoint_to_package_and_back(tmp_path, model_type, auto, settings, dtype):
    model = build_model(model_type, auto, **settings).to(dtype)
    source = tmp_path / "source"
    model.save_pretrained(source, max_shard_size="20KB")  # the original, per-expert format, in shards
    files = TensorFolder(source)
    about = SourceTensors.from_json(json.loads(json.dumps(tensors_json(model, files.entries))))
    leaves = leaves_of(about)
    stored = {name: TensorSpec(entry.dtype, entry.shape) for name, entry in files.entries.items()}
    weight_map = build_map(about, RULES.get, [leaf for leaf, *_ in leaves.values()], stored)
    _, report = convert_weights(source, weight_map, tmp_path / "out")
    assert report.unused == report.unknown == ()

    written, state = TensorFolder(tmp_path / "out" / "weights"), model.state_dict()
    assert written.entries.keys() == leaves.keys()
    for fqn, (leaf, name, flipped) in leaves.items():
        array = written.read(fqn)
        assert array.shape == leaf.shape
        want = state[name].T if flipped else state[name]
        assert torch.equal(torch.from_numpy(array.astype(np.float64)), want.double()), fqn

    (tmp_path / "out" / "config.json").write_bytes((source / "config.json").read_bytes())
    assert to_hf(tmp_path / "out", tmp_path / "hf").changed == ()
    assert sorted(path.name for path in (tmp_path / "hf").glob("*.safetensors")) == sorted(
        f.path.name for f in files.files
    )
    back = TensorFolder(tmp_path / "hf")
    for name in files.entries:
        assert back.read(name).tobytes() == files.read(name).tobytes(), name
    reloaded = type(model).from_pretrained(tmp_path / "hf", dtype=dtype).state_dict()
    assert all(torch.equal(reloaded[name], tensor) for name, tensor in state.items())


def test_experts_really_were_merged(tmp_path):
    model = build_model("mixtral", "AutoModelForCausalLM")
    model.save_pretrained(tmp_path)
    conversions = conversions_of(model, load_file(tmp_path / "model.safetensors"))
    assert any(len(conversion["sources"]) == 2 for conversion in conversions)
    assert {name for c in conversions for name, _ in c["operations"]} == {"MergeModulelist", "Concatenate"}


def test_files_that_repeat_tied_weights_are_reproduced(tmp_path):
    model = build_model("llama", "AutoModelForCausalLM", tie_word_embeddings=True)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    (tmp_path / "source").mkdir()
    save_file(tensors, tmp_path / "source" / "model.safetensors", metadata={"format": "pt"})
    about = SourceTensors.from_json(tensors_json(model, tensors))
    stored = {name: TensorSpec(e.dtype, e.shape) for name, e in TensorFolder(tmp_path / "source").entries.items()}
    weight_map = build_map(about, RULES.get, [leaf for leaf, *_ in leaves_of(about).values()], stored)
    convert_weights(tmp_path / "source", weight_map, tmp_path / "out")
    to_hf(tmp_path / "out", tmp_path / "hf")
    back = load_file(tmp_path / "hf" / "model.safetensors")
    assert {name: array.tobytes() for name, array in back.items()} == {
        name: tensor.numpy().tobytes() for name, tensor in tensors.items()
    }
