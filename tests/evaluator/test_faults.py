"""The self-test of the checks, on the fixture package."""

import json
import shutil

import pytest

from maxcode.evaluator import faults
from maxcode.evaluator.package import find_package


@pytest.fixture
def run(tiny_run):
    return faults.Run(find_package(tiny_run / "package"), tiny_run / "oracle", tiny_run / "source")


def test_only_lines_that_run_get_faults(run):
    found = faults.find_faults(run.package, {"modeling.py": [10**6]})
    assert found == {}


def test_a_copy_is_edited_and_the_original_stays(run, tmp_path):
    lines = {"modeling.py": list(range(1, 400)), "layers.py": list(range(1, 200))}
    fault = faults.find_faults(run.package, lines)["norm eps"][0]
    before = (run.package / "modeling.py").read_text()
    copy = faults.inject(fault, run, tmp_path)
    assert "self.eps * 10" in (copy.package / "modeling.py").read_text()
    assert (run.package / "modeling.py").read_text() == before
    assert (copy.package.parent / "weights.json").exists()


@pytest.mark.slow
def test_an_edit_that_changes_nothing_is_not_seeded(run):
    text = (run.package / "modeling.py").read_text()
    start = text.index("self.groups = config.num_attention_heads")
    same = faults.Fault("none", "modeling.py", 1, start, start, "", "(0); ")
    assert faults.try_fault(run, same, faults.Judge(run)) is None


@pytest.mark.slow
def test_an_edit_that_changes_the_program_but_no_value_is_not_seeded(run, tmp_path):
    text = (run.package / "modeling.py").read_text()
    code = "return hidden_states, cache"
    start = text.index(code)
    same = faults.Fault("none", "modeling.py", 1, start, start + len(code), "", "return hidden_states * 1.0, cache")
    judge = faults.Judge(run)
    faulty = faults.inject(same, run, tmp_path)
    assert faults.reach(faulty)["fingerprint"] != judge.fingerprint
    assert not judge.is_change(faulty)


@pytest.mark.slow
def test_seeded_faults_are_caught(tiny_run, tmp_path):
    out = tmp_path / "faults.json"
    folders = [(f"--{name}", str(tiny_run / name)) for name in ("package", "oracle", "source")]
    status = faults.main([*(part for pair in folders for part in pair), "--out", str(out)])
    found = json.loads(out.read_text())
    assert found["seeded"] >= 18
    assert [fault["kind"] for fault in found["faults"] if not fault["caught_by"]] == []
    assert status == 0


def test_a_package_that_fails_anyway_catches_nothing(tiny_run, tmp_path, capsys):
    shutil.copytree(tiny_run / "package", tmp_path / "package")
    model = find_package(tmp_path / "package") / "modeling.py"
    model.write_text("import absent_module\n" + model.read_text())
    out = tmp_path / "faults.json"
    folders = ["--package", str(tmp_path / "package")]
    folders += [part for name in ("oracle", "source") for part in (f"--{name}", str(tiny_run / name))]
    assert faults.main([*folders, "--out", str(out)]) == 2
    assert not out.exists()
    assert "fails without any fault" in capsys.readouterr().err
