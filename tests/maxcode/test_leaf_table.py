"""What a package's process says about its arrays."""

import json
import subprocess
import sys

GAPPY = """
class Config:
    @staticmethod
    def from_json(path):
        return None

class Model:
    @staticmethod
    def abstract(config):
        raise NotImplementedError("CV103: torch.nn.Fold: no rule")
"""


def test_a_gap_in_a_constructor_is_told_apart_from_a_crash(tmp_path):
    (tmp_path / "net.py").write_text(GAPPY)
    command = [sys.executable, "-m", "maxcode.leaf_table", tmp_path, "net", tmp_path / "config.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"gap": "CV103: torch.nn.Fold: no rule"}
    (tmp_path / "net.py").write_text(GAPPY.replace("NotImplementedError", "ValueError"))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["broken"] == "ValueError: CV103: torch.nn.Fold: no rule"
