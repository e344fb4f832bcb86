"""The whole gate: two architectures and two plain modules on every push, all at both scales in `make test-all`."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from maxcode import api, core_gate
from maxcode.progress import Progress
from maxcode.targets import parse_target
from tests.core import stored

# A decoder with grouped heads, a cache and text generation, and an encoder without any of them.
ON_EVERY_PUSH = ("qwen3", "bert")
PLAIN = {"conv_net.py": "Net", "mlp.py": "MLP"}
# Nothing to check there: no sequence, no cache, no logits over a vocabulary.
NOT_FOR_PLAIN = {"long", "cache", "padding"}


def _failures(checks: list[dict]) -> str:
    return "\n".join(f"{c['name']}: {c['status']} {c['detail']}" for c in checks if c["status"] in ("fail", "not_run"))


@pytest.mark.parametrize("name", ON_EVERY_PUSH)
def test_architecture_is_verified(name: str, tmp_path: Path):
    record = core_gate.gate_one(name, "atlas", tmp_path)
    assert record["status"] == "verified", _failures(record["checks"])
    assert record["exact"] <= 1e-10


@pytest.mark.parametrize("file", PLAIN)
def test_plain_module_is_verified(file: str, tmp_path: Path):
    source = Path(__file__).parent / "plain" / file
    output = tmp_path / "plain_net"
    request = api.ConvertRequest(
        parse_target(f"{source}:{PLAIN[file]}"), output, api.request_options(output), api.GateOptions()
    )
    with Progress() as progress:
        record = api.convert(request, progress)
    assert record["status"] == "verified", _failures(record["checks"])
    by_name = {check["name"]: check for check in record["checks"]}
    assert {name for name, check in by_name.items() if check["status"] == "n/a"} <= NOT_FOR_PLAIN | {"dtypes", "scan"}
    assert by_name["training"]["status"] == by_name["gradients"]["status"] == "pass"
    assert all(check["detail"] for check in by_name.values() if check["status"] == "n/a")


@pytest.mark.slow
@pytest.mark.parametrize("scale", core_gate.SCALES)
@pytest.mark.parametrize("name", stored.TYPES)
def test_every_architecture_is_verified_and_its_faults_are_caught(name: str, scale: str, tmp_path: Path):
    """In a process of its own, as the command does it; the table of the run is the message of a failure.

    Faults are seeded at the derived scale, whose checks see more than those of two layers and twelve tokens.
    """
    command = [sys.executable, "-m", "maxcode.core_gate", "--types", name, "--scale", scale]
    command += ["--faults"] * (scale == "derived")
    done = subprocess.run([*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    record = json.loads((tmp_path / "results.jsonl").read_text())
    by_name = {check["name"]: check["status"] for check in record["checks"]}
    if scale == "derived":
        assert by_name["scan"] == "pass"
        assert by_name["long"] == "pass"


def _check(name: str, status: str = "pass", value: float | None = None, limit: float | None = None) -> dict:
    return {"name": name, "status": status, "value": value, "limit": limit, "scale": "", "detail": f"about {name}"}


def _record(name: str = "one", status: str = "verified", **more) -> dict:
    return {"type": name, "scale": "atlas", "status": status, "seconds": 12.0, "checks": [], **more}


def test_worst_check_is_the_one_nearest_to_its_limit():
    checks = [_check("a", value=1.0, limit=4.0), _check("b", value=3.0, limit=4.0), _check("c", "n/a", 9.0, 1.0)]
    assert core_gate.worst(checks) == "b 0.75"


def test_worst_checks_are_those_that_failed():
    assert core_gate.worst([_check("a", value=1, limit=4), _check("b", "fail"), _check("c", "fail")]) == "b, c"


def test_table_counts_what_is_verified_and_says_what_failed():
    records = [_record("one", exact=1e-15), _record("two", "failed", checks=[_check("scan", "fail")])]
    lines = core_gate.table(records)
    assert "1 of 2 verified" in lines
    assert "two (atlas) scan: about scan" in lines


def test_a_fault_that_nothing_caught_is_no_success():
    assert core_gate.passed(_record(faults={"seeded": 3, "caught": 3, "missed": []}))
    assert not core_gate.passed(_record(faults={"seeded": 3, "caught": 2, "missed": ["bias"]}))
    assert not core_gate.passed(_record(faults={"seeded": 0, "caught": 0, "missed": []}))


def test_targets_of_both_scales():
    given = core_gate.target_of("qwen3", "atlas")
    assert given.config is not None
    assert given.inputs is not None
    assert given.config["num_hidden_layers"] == 2
    derived = core_gate.target_of("qwen3", "derived")
    assert dataclasses.replace(given, config=None, inputs=None, class_name=None, text=derived.text) == derived


def test_unknown_type_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert core_gate.main(["--types", "nonesuch", "--out", str(tmp_path / "out")]) == 2
    assert "nonesuch" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_resume_runs_only_what_is_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    types = core_gate.read_list(core_gate.MODELS)["types"][:2]
    (tmp_path / "results.jsonl").write_text(json.dumps(_record(types[0])) + "\n")
    ran = []

    def run(name: str, scale: str, options: object) -> dict:
        ran.append(name)
        return _record(name)

    monkeypatch.setattr(core_gate, "_in_process", run)
    arguments = ["--types", ",".join(types), "--scale", "atlas", "--out", str(tmp_path), "--resume"]
    assert core_gate.main(arguments) == 0
    assert ran == types[1:]
    assert len(core_gate.read_results(tmp_path / "results.jsonl")) == 2


def test_a_broken_child_is_a_record_and_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    models = tmp_path / "models.json"
    (tmp_path / "atlas.jsonl").write_text(
        json.dumps({"model_type": "qwen3", "class": "Qwen3ForCausalLM", "config": {"hidden_size": "x"}, "inputs": {}})
    )
    models.write_text(json.dumps({"types": ["qwen3"], "atlas": "atlas.jsonl"}))
    arguments = ["--models", str(models), "--scale", "atlas", "--out", str(tmp_path / "out")]
    assert core_gate.main(arguments) == 1
    record = core_gate.read_results(tmp_path / "out" / "results.jsonl")[0]
    assert record["status"] == "error"
    assert "hidden_size" in record["detail"] or "status" in record["detail"]
    assert "0 of 1 verified" in capsys.readouterr().out
