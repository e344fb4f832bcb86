"""Run the command line as users do, in a process of its own, and make small inputs for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file


@pytest.fixture
def run_cli(tmp_path):
    """`run_cli(*arguments)` -> CompletedProcess, run in an empty folder."""

    def run(*arguments: object, cwd: Path = tmp_path, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "maxcode.cli", *map(str, arguments)]
        return subprocess.run(
            command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
        )

    return run


@pytest.fixture
def hf_folder(tmp_path):
    """A folder in Hugging Face form with tiny weights; nothing that could really be converted."""
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 8}))
    save_file({"a": np.zeros((4, 4), np.float32), "b": np.ones(3, np.float32)}, folder / "model.safetensors")
    return folder


@pytest.fixture
def net_file(tmp_path):
    """A plain module file: one class with arguments, one without, no helper functions."""
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\n\n\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self, width, depth=2):\n"
        "        super().__init__()\n\n"
        "    def forward(self, x, mask=None):\n"
        "        return x\n\n\n"
        "class Plain(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x\n"
    )
    return path
