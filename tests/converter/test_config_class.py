"""Emitted configurations have every attribute of the transformers configuration, with the same value."""

import copy
import json
import subprocess

import pytest
from ruff.__main__ import find_ruff_bin

from maxcode.converter.config_class import ConfigError, ConfigSource, emit_config, emit_module_config
from tests.converter.config_cases import atlas, differences, import_text, quietly, source_class, source_of

ATLAS = atlas()
CORE = [
    "llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "olmo2", "olmo3", "gpt2", "gpt_neox",
    "cohere2", "granite", "qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss", "qwen3_next", "mamba2", "bert", "t5",
]  # fmt: skip
# nested and per-layer configurations, aliases that are fields, rope per layer type, old names, backbones, properties
WIDER = [
    "gemma4", "gemma4_text", "llava", "clap", "clip", "janus", "modernbert", "falcon", "mistral3", "florence2",
    "zamba2", "deepseek_v2", "t5gemma2", "whisper", "bart", "swin", "resnet", "musicgen", "qwen2_vl", "glm4v_moe",
    "mllama", "blip", "vision-encoder-decoder", "dots3_note_text", "nemotron_h", "xlnet",
]  # fmt: skip
LEGACY = {
    "llama": {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}, "head_dim": None},
    "gpt_neox": {"rotary_pct": 0.5, "rotary_emb_base": 20000, "num_labels": 5},
    "gemma3_text": {"rope_theta": 2e6, "rope_local_base_freq": 5e3, "sliding_window_pattern": 3},
    "deepseek_v3": {"num_nextn_predict_layers": 2, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0}},
    "gpt2": {"hidden_size": 96, "torch_dtype": "bfloat16", "do_sample": True, "task_specific_params": {"a": {"b": 1}}},
    "t5": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "qwen3_next": {"full_attention_interval": 2, "num_hidden_layers": 5, "id2label": {"0": "a", "1": "b", "2": "c"}},
    "bert": {"num_labels": 1, "problem_type": "regression", "output_attentions": True},
}


def emitted_class(model_type, tmp_path, resolved=None):
    cls = source_class(ATLAS[model_type])
    text = emit_config(source_of(cls), ATLAS[model_type]["config"] if resolved is None else resolved)
    return cls, getattr(import_text(text, tmp_path), cls.__name__)


def check(model_type, tmp_path):
    cls, emitted = emitted_class(model_type, tmp_path)
    raw = cls._decode_special_floats(copy.deepcopy(ATLAS[model_type]["config"]))
    source = quietly(lambda: cls.from_dict(copy.deepcopy(raw)))
    assert differences(source, emitted.from_dict(raw)) == []
    assert differences(source, emitted.from_dict(source.to_dict())) == []
    config = emitted.from_dict(raw)
    assert emitted.from_dict(config.to_dict()) == config
    assert hash(config) == hash(emitted.from_dict(raw))
    reread = quietly(lambda: cls.from_dict(copy.deepcopy(config.to_dict())))
    assert differences(reread, config) == []  # the source reads what we write


@pytest.mark.parametrize("model_type", CORE)
def test_core_configurations(model_type, tmp_path):
    check(model_type, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", WIDER)
def test_wider_configurations(model_type, tmp_path):
    check(model_type, tmp_path)


@pytest.mark.parametrize("model_type", ["llama", "deepseek_v3", "gemma3_text", "t5", "mamba2", "gpt2", "qwen3_next"])
def test_defaults(model_type, tmp_path):
    cls, emitted = emitted_class(model_type, tmp_path)
    assert differences(quietly(cls), emitted()) == []


@pytest.mark.parametrize("model_type", LEGACY)
def test_keys_of_older_files(model_type, tmp_path):
    cls, emitted = emitted_class(model_type, tmp_path)
    values = LEGACY[model_type]
    source = quietly(lambda: cls.from_dict(copy.deepcopy(values)))
    assert differences(source, emitted.from_dict(values)) == []


def test_one_module_serves_other_sizes_and_the_file_form(tmp_path):
    cls, emitted = emitted_class("gemma3_text", tmp_path)
    source = cls(num_hidden_layers=13, hidden_size=80, num_attention_heads=5, use_bidirectional_attention=True)
    source.save_pretrained(tmp_path)
    assert differences(cls.from_pretrained(tmp_path), emitted.from_json(tmp_path / "config.json")) == []


def test_checks_of_the_source_still_refuse(tmp_path):
    _, emitted = emitted_class("llama", tmp_path)
    with pytest.raises(ValueError, match=r"hidden size \(10\)"):
        emitted(hidden_size=10, num_attention_heads=4)


def test_run_fields_reach_nested_configurations_and_names_of_rl_trainers(tmp_path):
    _, emitted = emitted_class("llava", tmp_path)
    config = emitted.from_dict(ATLAS["llava"]["config"], dtype="bfloat16", scan_layers=False)
    assert config.text_config.dtype == config.vision_config.dtype == "bfloat16"
    assert config.text_config.scan_layers is False
    assert config.replace(attention="dot_product").text_config.attention == "dot_product"
    assert config.get_text_config() is config.text_config
    _, flat = emitted_class("qwen3", tmp_path)
    small = flat(num_hidden_layers=3, num_key_value_heads=2)
    assert (small.num_layers, small.num_kv_heads) == (3, 2)


def test_nested_type_that_was_not_converted_is_refused(tmp_path):
    _, emitted = emitted_class("llava", tmp_path)
    with pytest.raises(ValueError, match=r"type 'bert'.*convert again"):
        emitted(text_config={"model_type": "bert"})


@pytest.mark.parametrize("model_type", ["llama", "llava", "t5", "gpt_oss"])
def test_text_is_formatted_lints_and_repeats(model_type):
    source = source_of(source_class(ATLAS[model_type]))
    text = emit_config(source, ATLAS[model_type]["config"])
    assert text == emit_config(source, ATLAS[model_type]["config"])
    for command in (["check", "--select", "E,F,I,W,B", "--ignore", "E501"], ["format", "--check"]):
        arguments = [
            find_ruff_bin(),
            *command,
            "--isolated",
            "--line-length",
            "120",
            "--stdin-filename",
            "config.py",
            "-",
        ]
        done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("#"))  # licences are kept as is
    assert "torch" not in text
    assert "import transformers" not in text


USER = '''
from dataclasses import dataclass, field
import math

SCALE = 4

@dataclass
class Inner:
    width: int = 3

@dataclass
class DataConfig:
    block_size: int = 1024
    n_layer: int = 12
    bias: bool = True  # as in the paper
    dims: list = field(default_factory=lambda: [1, 2])
    inner: Inner = field(default_factory=Inner)

    @property
    def wide(self):
        return SCALE * math.floor(self.block_size)

class InitConfig:
    """A plain class."""
    drop = 0.1

    def __init__(self, vocab_size, n_head=4, head_dim=None, ratio=4, **kwargs):
        self.vocab_size = vocab_size
        self.n_head = n_head
        if head_dim is None:
            head_dim = 64 // n_head
        self.head_dim = head_dim
        self.hidden = ratio * head_dim
        for key, value in kwargs.items():
            setattr(self, key, value)

class PlainConfig:
    n_layer = 2
    sizes = [1, 2]
'''


@pytest.fixture
def user(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(USER)

    def build(name):
        return getattr(import_text(emit_config(ConfigSource(str(path), name, "model")), tmp_path), name)

    return build


def test_dataclass_of_the_user(user):
    config = user("DataConfig").from_dict({"n_layer": 3, "inner": {"width": 5}})
    assert (config.block_size, config.n_layer, config.bias, config.dims, config.wide) == (1024, 3, True, [1, 2], 4096)
    assert config.inner.width == 5
    assert not hasattr(config, "num_labels")
    with pytest.raises(TypeError, match="n_layers"):
        user("DataConfig")(n_layers=3)


def test_plain_constructor_of_the_user(user):
    cls = user("InitConfig")
    config = cls(vocab_size=10, extra=7)
    assert (config.vocab_size, config.n_head, config.head_dim, config.hidden) == (10, 4, 16, 64)
    assert (config.extra, config.drop, hasattr(config, "ratio")) == (7, 0.1, False)
    assert cls(vocab_size=1, head_dim=5, ratio=2).hidden == 10
    with pytest.raises(TypeError, match="vocab_size"):
        cls()


def test_plain_class_attributes_are_fields(user):
    assert user("PlainConfig")(n_layer=5).to_dict() == {"n_layer": 5, "sizes": [1, 2]}


OLD_STYLE = """
from transformers.configuration_utils import PretrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)


class OldConfig(PretrainedConfig):
    model_type = "old"
    attribute_map = {"hidden_size": "width"}

    def __init__(self, width=8, heads=2, kv_heads=None, pad_token_id=0, tie_word_embeddings=False, **kwargs):
        self.width = width
        self.heads = heads
        # one group per head
        if kv_heads is None:
            kv_heads = heads
            logger.warning_once("no groups")
        self.kv_heads = kv_heads
        super().__init__(pad_token_id=pad_token_id, tie_word_embeddings=tie_word_embeddings, **kwargs)
"""


def test_configuration_with_a_constructor_of_its_own(tmp_path):
    path = tmp_path / "configuration_old.py"
    path.write_text(OLD_STYLE)
    text = emit_config(ConfigSource(str(path), "OldConfig", "configuration_old"))
    assert "# one group per head" in text
    cls = import_text(text, tmp_path).OldConfig
    config = cls.from_dict({"width": 16, "torch_dtype": "float16", "other": [1]})
    assert (config.hidden_size, config.kv_heads, config.pad_token_id, config.dtype) == (16, 2, 0, "float32")
    assert (config.other, config.num_labels, config.tie_word_embeddings) == ([1], 2, False)


def test_missing_class_and_unreachable_names_are_told(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("import torch\nclass A:\n    def __init__(self, a=1):\n        self.a = torch.ones(a)\n")
    with pytest.raises(ConfigError, match="no class 'B'"):
        emit_config(ConfigSource(str(path), "B", "model"))
    with pytest.raises(ConfigError, match="'torch'"):
        emit_config(ConfigSource(str(path), "A", "model"))


def test_module_arguments_become_fields(tmp_path):
    parameters = [
        ("width", "", 8),
        ("p", "0.5", 0.1),
        ("sizes", "()", [1, 2]),
        ("act", "None", None),
        ("f", "None", len),
    ]
    cls = import_text(emit_module_config("Net", parameters), tmp_path).NetConfig
    config = cls()
    assert (config.width, config.p, config.sizes, config.act, config.f) == (8, 0.1, [1, 2], None, None)
    assert cls.from_dict(json.loads(config.to_json()), dtype="bfloat16").dtype == "bfloat16"
    with pytest.raises(ConfigError, match=r"Net.__init__: 'f'"):
        emit_module_config("Net", [("f", "", len)])
