"""A package's own parity test: small, runs without torch, passes for the right package and fails for a wrong one."""

import json
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxcode.package_parity import keep_oracle

TWIN = """
import json
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file

class Model:
    @classmethod
    def from_pretrained(cls, folder, **overrides):
        self = cls()
        self.w = load_file(Path(folder) / "weights" / "model.safetensors")["w"]
        return self

    def __call__(self, x):
        return {"y": np.asarray(x) @ self.w}
"""


def record(folder, cases, tensors, **more):
    folder.mkdir(exist_ok=True)
    (folder / "float32.json").write_text(json.dumps({"cases": cases, **more}))
    save_file(tensors, folder / "float32.safetensors")


@pytest.mark.parametrize("cap", [3_000_000, 600], ids=["whole", "sampled"])
@pytest.mark.parametrize("right", [True, False])
def test_the_packages_own_test_can_pass_and_fail(tmp_path, right, cap):
    (tmp_path / "twin").mkdir()
    (tmp_path / "twin" / "__init__.py").write_text("from twin.modeling import Model\n")
    (tmp_path / "twin" / "modeling.py").write_text(TWIN)
    (tmp_path / "weights").mkdir()
    draw = np.random.default_rng(0)
    x, w = draw.normal(size=(2, 3)).astype(np.float32), draw.normal(size=(3, 400)).astype(np.float32)
    save_file({"w": w}, tmp_path / "weights" / "model.safetensors")
    case = {"id": "seed0", "inputs": {"x": {"$tensor": "in"}, "flag": None}, "outputs": {"y": "out", "cache": None}}
    record(tmp_path / "oracle", [case], {"in": x, "out": x @ w + np.float32(0 if right else 1e-2)})
    assert keep_oracle(tmp_path, tmp_path / "oracle", cap=cap)
    assert (tmp_path / "tests" / "oracle" / "recording.safetensors").stat().st_size < cap + 1000
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if right else 1), done.stdout
    assert "2 passed" in done.stdout or "2 failed" in done.stdout


def test_cases_that_need_a_replay_are_left_out(tmp_path):
    case = {"inputs": {"x": {"$tensor": "in"}}, "outputs": {"y": "out"}}
    tensors = {"in": np.ones(2, np.float32), "out": np.ones(2, np.float32)}
    cases = [case | {"id": "drawn", "draws": [{}]}, case | {"id": "flipped", "flips": 1}, case | {"id": "good"}]
    record(tmp_path / "oracle", cases, tensors)
    assert keep_oracle(tmp_path, tmp_path / "oracle")
    kept = json.loads((tmp_path / "tests" / "oracle" / "recording.json").read_text())
    assert [entry["id"] for entry in kept["cases"]] == ["good"]
    assert set(load_file(tmp_path / "tests" / "oracle" / "recording.safetensors")) == {"in", "out"}


@pytest.mark.parametrize("cases", [[], [{"id": "drawn", "inputs": {}, "outputs": {}, "draws": [1]}]])
def test_nothing_to_keep_writes_no_test(tmp_path, cases):
    record(tmp_path / "oracle", cases, {"x": np.ones(2, np.float32)})
    assert not keep_oracle(tmp_path, tmp_path / "oracle")
    assert not keep_oracle(tmp_path, tmp_path / "missing")
    assert not (tmp_path / "tests").exists()
