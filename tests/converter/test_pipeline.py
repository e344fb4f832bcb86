"""Conversion as a whole: a function of source and facts, byte for byte."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from maxcode.converter.pipeline import convert
from tests.golden.harness import Converted, convert_text

GOLDEN = Path(__file__).parent.parent / "golden"
_AGAIN = """
import json, sys
from maxcode.converter.pipeline import convert
target, facts = (json.load(open(p)) for p in sys.argv[1:3])
conversion = convert(target, facts, sys.argv[3])
print(json.dumps([conversion.files, [vars(g) for g in conversion.gaps]]))
"""


@pytest.fixture(scope="module", params=["experts", "layer_stack"])
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Converted:
    text = (GOLDEN / request.param / "torch_model.py").read_text()
    return convert_text(text, tmp_path_factory.mktemp(request.param))


def _elsewhere(converted: Converted, hash_seed: str) -> list:
    paths = [converted.folder / name for name in ("target.json", "facts.json")]
    for path, record in zip(paths, (converted.target, converted.facts)):
        path.write_text(json.dumps(record))
    command = [sys.executable, "-c", _AGAIN, *map(str, paths), converted.package]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return json.loads(done.stdout)


def test_conversion_is_byte_identical(converted: Converted):
    again = convert(converted.target, converted.facts, converted.package)
    assert again.files == converted.conversion.files
    for seed in ("1", "2"):
        files, gaps = _elsewhere(converted, seed)
        assert files == converted.conversion.files, f"PYTHONHASHSEED={seed}"
        assert gaps == []


def test_conversion_says_what_it_came_from(converted: Converted):
    record = json.loads(json.dumps(converted.conversion.to_json()))
    assert record["entry"] == "Net"
    assert record["classes"]["Net"] == f"{converted.target['module']}.Net"
    assert record["files"] == {name: len(text) for name, text in converted.conversion.files.items()}
    module, text = converted.target["module"], Path(converted.target["path"]).read_text()
    assert record["source_sha256"] == hashlib.sha256(module.encode() + b"\0" + text.encode()).hexdigest()


def test_emitted_files_need_neither_torch_nor_us(converted: Converted):
    for name, text in converted.conversion.files.items():
        words = [line for line in text.splitlines() if line.lstrip().startswith(("import ", "from "))]
        assert not [w for w in words if "torch" in w or "transformers" in w or "maxcode" in w], name


def test_an_entry_that_was_never_built_is_refused(converted: Converted):
    with pytest.raises(ValueError, match=r"no instance of '.*\.Other' was built; the run built"):
        convert({**converted.target, "class_name": "Other"}, converted.facts, "package")


def test_a_gap_is_reported_and_raises_where_it_stands(tmp_path: Path):
    source = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        return torch.unique_consecutive(x) if x.dim() > 5 else torch.linalg.ldl_factor(x)[0]

def get_inputs():
    return [torch.eye(3)]
"""
    converted = convert_text(source, tmp_path)
    gap = next(g for g in converted.conversion.gaps if g.torch_name == "torch.linalg.ldl_factor")
    assert (gap.code, gap.line, gap.file) == ("CV101", 7, converted.target["path"])
    assert "torch.linalg.ldl_factor: no rule" in converted.modeling
    assert '"CV101"' in converted.modeling
