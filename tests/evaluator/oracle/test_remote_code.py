"""Model code that lies in the checkpoint's own folder (`--trust-remote-code`)."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

CONFIG = """
from transformers import PretrainedConfig

class ToyConfig(PretrainedConfig):
    model_type = "toy_remote"

    def __init__(self, width=8, **kwargs):
        super().__init__(**kwargs)
        self.width = width
"""
MODEL = """
from torch import nn
from transformers import PreTrainedModel
from .configuration_toy import ToyConfig

class ToyModel(PreTrainedModel):
    config_class = ToyConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(64, config.width)
        self.post_init()

    def forward(self, input_ids):
        return self.embed(input_ids)
"""


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "configuration_toy.py").write_text(CONFIG)
    (folder / "modeling_toy.py").write_text(MODEL)
    remote = {"AutoConfig": "configuration_toy.ToyConfig", "AutoModel": "modeling_toy.ToyModel"}
    config = {"model_type": "toy_remote", "width": 8, "vocab_size": 64, "auto_map": remote}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"embed.weight": torch.rand(64, 8)}, folder / "model.safetensors", {"format": "pt"})
    request = {"text": "toy", "kind": "folder", "path": str(folder), "trust_remote_code": True, "weights": "stored"}
    (tmp_path / "target.json").write_text(json.dumps(request))
    return tmp_path / "target.json"


def oracle(module, *arguments, cache):
    command = [sys.executable, "-m", module, *map(str, arguments)]
    env = os.environ | {"HF_MODULES_CACHE": str(cache)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_stage_finds_the_folders_own_classes(tmp_path, target):
    """Under one name in every process, each of which copies the code anew, and instrumented."""
    name = "maxcode.evaluator.oracle"
    oracle(name, "resolve", "--target", target, "--out", tmp_path, cache=tmp_path / "a")
    resolved = json.loads(target.read_text())
    oracle(name, "materialise", "--target", target, "--out", tmp_path, cache=tmp_path / "b")
    facts_file = tmp_path / "facts.json"
    oracle(f"{name}.probe", "--target", target, "--out", facts_file, cache=tmp_path / "c")
    facts = json.loads(facts_file.read_text())
    row = facts["classes"][f"{resolved['module']}.{resolved['class_name']}"]
    assert row["file"].endswith("modeling_toy.py")
    assert row["file"] in facts["files"]
    assert facts["config_file"].endswith("configuration_toy.py")
    assert [scenario["error"] for scenario in facts["scenarios"]] == [None] * len(facts["scenarios"])
