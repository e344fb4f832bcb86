"""The core architectures, from stored facts: no gaps, no longer than the source, same bytes, PyTorch's numbers."""

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ruff.__main__ import find_ruff_bin

from maxcode.converter.pipeline import Conversion
from tests.core import stored

EXACT = 1e-10  # the gate's limit; 1e-15 is usual
# The formatter's checks beside ruff's default rules. What it leaves longer than a line are comments and strings of the
# source, kept as they are (E501); jaxtyping's shape strings are no forward references (F722).
RULES = (("--quiet",), ("--select", "E,F,I,W", "--ignore", "E501,F722"))
# Methods that tensors have and arrays have not, or mean otherwise.
REMNANT = re.compile(
    r"\.(contiguous|unsqueeze|permute|masked_fill_?|new_(zeros|ones|full|empty|tensor)|float|long|numel|size|type_as|view)\("
)
LONGEST = {"qwen3": 450}  # lines of modeling.py: what the best hand port that we know has

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@cache
def _conversion(name: str) -> Conversion:
    return stored.conversion_of(name, f"core_{name}")


@pytest.mark.parametrize("name", stored.TYPES)
def test_converts_without_gaps(name: str):
    gaps = _conversion(name).gaps
    assert not gaps, "\n".join(f"{gap.file}:{gap.line} {gap.torch_name}: {gap.reason}" for gap in gaps)


@pytest.mark.parametrize("name", stored.TYPES)
def test_is_no_longer_than_its_source(name: str):
    record = stored.load(name)
    source = record["facts"]["classes"][f"{record['target']['module']}.{record['target']['class_name']}"]["file"]
    lines = len(_conversion(name).files["modeling.py"].splitlines())
    assert lines <= len(Path(source).read_text().splitlines())
    assert lines <= LONGEST.get(name, lines)


@pytest.mark.parametrize("name", stored.TYPES)
def test_passes_ruff(name: str, tmp_path: Path):
    for file, text in _conversion(name).files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    options = ["--isolated", "--no-cache", "--line-length", "120"]
    checks = [["check", *rules, "--output-format", "concise"] for rules in RULES]
    for command in (*checks, ["format", "--check"]):
        done = subprocess.run(
            [find_ruff_bin(), *command, *options, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", stored.TYPES)
def test_leaves_no_tensor_method_where_no_run_came_by(name: str):
    tree = ast.parse(_conversion(name).files["modeling.py"])
    left = [found for n in ast.walk(tree) if isinstance(n, ast.Call) and (found := REMNANT.findall(_called(n)))]
    assert not left


def _called(node: ast.Call) -> str:
    return f".{node.func.attr}(" if isinstance(node.func, ast.Attribute) else ""


def test_pass_the_type_checker(tmp_path: Path):
    """pyright without settings: no error in any modeling.py or outputs.py, nor in the support modules of one model."""
    for name in stored.TYPES:
        package = tmp_path / f"core_{name}"
        for file, text in _conversion(name).files.items():
            (package / file).parent.mkdir(parents=True, exist_ok=True)
            (package / file).write_text(text)
    checked = [*tmp_path.glob("*/modeling.py"), *tmp_path.glob("*/outputs.py"), tmp_path / f"core_{stored.TYPES[0]}"]
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, checked)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    found = json.loads(done.stdout)
    errors = [d for d in found["generalDiagnostics"] if d["severity"] == "error"]
    assert found["summary"]["filesAnalyzed"] > len(stored.TYPES)
    own = [
        f"{Path(d['file']).parent.name}/{Path(d['file']).name}:{d['range']['start']['line'] + 1}: {d['message']}"
        for d in errors
    ]
    assert not own, "\n".join(own)


@pytest.mark.parametrize("name", stored.TYPES)
def test_gives_the_same_bytes_in_another_process(name: str):
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    root = Path(stored.__file__).resolve().parents[2]
    code = "import sys; from tests.core import stored; print(stored.digest(stored.conversion_of(*sys.argv[1:])))"
    done = subprocess.run(
        [sys.executable, "-c", code, name, f"core_{name}"],
        capture_output=True, text=True, check=False, cwd=root, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == stored.digest(_conversion(name))


@pytest.mark.parametrize("name", stored.TYPES)
def test_computes_what_torch_computed(name: str, tmp_path: Path):
    stored.write_package(name, _conversion(name), tmp_path, f"core_{name}")
    found = stored.errors(name, tmp_path, f"core_{name}")
    assert found
    assert max(found.values()) <= EXACT, found


def test_a_wrong_weight_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The comparison can fail: one entry of one vector is off by a thousandth."""
    name, weights_of = stored.TYPES[0], stored.weights_of

    def wrong(table: dict) -> dict:
        weights = weights_of(table)
        vector = next(value for value in weights.values() if value.ndim == 1)
        vector[0] *= 1.001
        return weights

    monkeypatch.setattr(stored, "weights_of", wrong)
    package = f"core_{name}_wrong"
    stored.write_package(name, stored.conversion_of(name, package), tmp_path, package)
    assert max(stored.errors(name, tmp_path, package).values()) > EXACT


def test_stored_records_hold_no_path_of_a_machine():
    for name in stored.TYPES:
        text = json.dumps(json.loads(stored.unpack(name)))
        assert str(Path.home()) not in text
        assert "/lib/python" not in text


def _ordered(value: Any) -> Any:
    """Facts with the texts that a site held in one order: a source may walk over a set, whose order no run repeats."""
    if isinstance(value, dict):
        texts = {k: sorted(v) for k, v in value.items() if k in ("literals", "keys") and all(map(_is_text, v))}
        return {k: _ordered(v) for k, v in value.items()} | texts
    return [_ordered(v) for v in value] if isinstance(value, list) else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


@pytest.mark.slow
@pytest.mark.parametrize("name", stored.TYPES)
def test_stored_facts_are_what_the_installed_source_gives(name: str):
    from tests.core.record_facts import recorded

    was, now = _ordered(stored.load(name)), _ordered(json.loads(json.dumps(recorded(name))))
    for part in ("target", "facts", "tensors", "weights"):
        assert was[part] == now[part], f"{part} changed; run: python tests/core/record_facts.py {name}"
    for one, other in zip(was["cases"], now["cases"], strict=True):
        assert one["inputs"] == other["inputs"]
        for key, row in one["outputs"].items():
            assert row["sample"] == pytest.approx(other["outputs"][key]["sample"], rel=1e-9, abs=1e-12)
