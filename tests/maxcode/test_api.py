"""The pipeline's own work, with stand-ins for the engine: order, records, assembly, what a failure leaves behind."""

import dataclasses
import json
import tomllib
import types

import numpy as np
import pytest
from safetensors.numpy import save_file

from maxcode import api, stages
from maxcode.errors import Exit, MaxCodeError
from maxcode.evaluator.verdict import Check, Verdict
from maxcode.progress import Progress
from maxcode.targets import TargetOptions, parse_target

STAGES = ("resolve", "materialise", "probe", "convert_source", "convert_weights", "gate")
GAP = {"code": "CV101", "file": "m.py", "line": 3, "torch_name": "torch.x", "reason": "no rule", "hint": ""}


@pytest.fixture
def engine(monkeypatch):
    """Stand-ins for every stage; `engine.calls` is their order, `engine.gaps` and `engine.check` steer them."""
    state = types.SimpleNamespace(calls=[], gaps=[], check="pass", fail_in=None, error=ValueError("broken"))

    def stage(name, function):
        def run(*arguments):
            state.calls.append(name)
            if state.fail_in == name:
                raise state.error
            return function(*arguments)

        monkeypatch.setattr(stages, name, run)

    def resolve(target, run, progress):
        run.root.mkdir(parents=True, exist_ok=True)
        record = dataclasses.asdict(target) | {"class_name": "Net", "module": "m", "config": {"hidden_size": 8}}
        run.target.write_text(json.dumps(record))
        return record

    def convert_source(run, options, progress):
        folder = run.package / options.package_name
        folder.mkdir(parents=True)
        (folder / "modeling.py").write_text("x = 1\n")
        (folder / "__init__.py").write_text("")
        return types.SimpleNamespace(
            files={"modeling.py": "x = 1\n"}, gaps=state.gaps, traced=[], assumptions=[], classes={"Net": "m.Net"}
        )

    def convert_weights(run, options, progress):
        (run.package / "weights").mkdir()
        save_file({"a": np.zeros(2, np.float32)}, run.package / "weights" / "model.safetensors")
        return {"rows": [{"source": "a", "target": "a", "layout": "", "shape": [2], "dtype": "F32"}], "changed": []}

    def gate(run, package, options, progress):
        run.oracle.mkdir()
        case = {"id": "a", "inputs": {}, "outputs": {"y": "y"}}
        (run.oracle / "float32.json").write_text(json.dumps({"cases": [case]}))
        save_file({"y": np.zeros(2, np.float32)}, run.oracle / "float32.safetensors")
        return Verdict(
            "verified",
            checks=(Check("exact", state.check, 1e-15, 1e-10, "small"),),
            timings={"exact": 1.5, "weights": 0.25},
        )

    stage("resolve", resolve)
    stage("materialise", lambda run, progress: run.source.mkdir())
    stage("probe", lambda run, progress: run.facts.write_text("{}"))
    stage("convert_source", convert_source)
    stage("convert_weights", convert_weights)
    stage("gate", gate)
    return state


def request(output, hf_folder, **choices):
    options = api.request_options(output)
    return api.ConvertRequest(parse_target(str(hf_folder)), output, options, stages.GateOptions(), **choices)


def convert(output, hf_folder, **choices):
    return api.convert(request(output, hf_folder, **choices), Progress(quiet=True))


def test_stages_run_in_order_and_the_package_is_complete(engine, tmp_path, hf_folder):
    (hf_folder / "tokenizer.json").write_text("{}")
    (hf_folder / "LICENSE").write_text("licence")
    record = convert(tmp_path / "My-Net", hf_folder)
    assert engine.calls == list(STAGES)
    assert record["status"] == "verified"
    assert record["checks"][0]["name"] == "exact"
    assert {"gate/exact", "gate", "convert", "facts", "weights"} <= set(record["timings"])
    assert record["timings"]["weights"] != record["timings"]["gate/weights"] == 0.25
    folder = tmp_path / "My-Net"
    for name in ("my_net/modeling.py", "weights/model.safetensors", "config.json", "tokenizer.json", "LICENSE",
                 "README.md", "config.yml", "report/index.html", "report/report.json", "report/junit.xml",
                 "tests/test_parity.py", "tests/oracle/recording.json", ".maxcode.json"):  # fmt: skip
        assert (folder / name).is_file(), name
    assert not (folder / "report" / "run").exists()
    assert not (folder / "model.safetensors").exists()
    assert json.loads((folder / "report" / "report.json").read_text()) == record
    assert 'time="1.500"' in (folder / "report" / "junit.xml").read_text()


def test_packages_pyproject_is_valid_and_names_no_torch(engine, tmp_path, hf_folder):
    convert(tmp_path / "net", hf_folder)
    text = (tmp_path / "net" / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    assert project["name"] == "net"
    assert any(item.startswith("jax>=") for item in project["dependencies"])
    assert {"text", "test"} == set(project["optional-dependencies"])
    assert "torch" not in " ".join(project["dependencies"])
    assert "maxcode" not in " ".join(project["dependencies"])


@pytest.mark.parametrize(
    ("choices", "gaps", "check", "status", "exit_status", "calls"),
    [
        ({}, [], "pass", "verified", Exit.OK, STAGES),
        ({}, [], "fail", "failed", Exit.FAILED, STAGES),
        ({}, [], "not_run", "not_shown", Exit.INCOMPLETE, STAGES),
        ({}, [GAP], "pass", "gaps", Exit.INCOMPLETE, STAGES[:-1]),
        ({"gate": False}, [], "pass", "not_shown", Exit.INCOMPLETE, STAGES[:-1]),
        ({"weights": False}, [], "pass", "not_shown", Exit.INCOMPLETE, ("resolve", "probe", "convert_source")),
    ],
)
def test_status_follows_from_what_was_shown(
    engine, tmp_path, hf_folder, choices, gaps, check, status, exit_status, calls
):
    from maxcode.commands import _finish

    engine.gaps, engine.check = gaps, check
    record = convert(tmp_path / "net", hf_folder, **choices)
    assert record["status"] == status
    assert _finish(record).exit_status == exit_status
    assert tuple(engine.calls) == calls
    assert (tmp_path / "net" / "net" / "modeling.py").exists()


def test_a_gap_that_keeps_the_model_from_being_built_is_no_error(engine, tmp_path, hf_folder):
    engine.fail_in, engine.error = "convert_weights", stages.WeightsError("weights", "CV103: no rule")
    with pytest.raises(MaxCodeError, match="CV103"):  # without gaps in the list it is one
        convert(tmp_path / "net", hf_folder)
    engine.gaps = [GAP]
    record = convert(tmp_path / "net", hf_folder)
    assert record["status"] == "gaps"
    assert [(check["name"], check["status"]) for check in record["checks"]] == [("weights", "not_run")]
    assert "CV103" in record["checks"][0]["detail"]
    assert not (tmp_path / "net" / "weights").exists()
    with pytest.raises(MaxCodeError, match="First see to 1 gap,"):
        api.gate(tmp_path / "net", stages.GateOptions(), Progress(quiet=True))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_failure_in_any_stage_keeps_the_earlier_output(engine, tmp_path, hf_folder, stage, error):
    convert(tmp_path / "net", hf_folder)
    (tmp_path / "net" / "README.md").write_text("earlier")
    engine.fail_in, engine.error = stage, error
    with pytest.raises(type(error)):
        convert(tmp_path / "net", hf_folder)
    assert (tmp_path / "net" / "README.md").read_text() == "earlier"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf", "net"]


@pytest.mark.parametrize("stage", STAGES)
def test_full_disk_in_any_stage(engine, tmp_path, hf_folder, stage):
    engine.fail_in, engine.error = stage, OSError(28, "No space left on device")
    with pytest.raises(MaxCodeError, match="no space left"):
        convert(tmp_path / "net", hf_folder)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


def test_output_over_the_source_is_refused_before_any_stage(engine, tmp_path, hf_folder):
    with pytest.raises(MaxCodeError, match="would delete"):
        convert(hf_folder, hf_folder, force=True)
    assert engine.calls == []
    assert (hf_folder / "model.safetensors").exists()


def test_gate_renews_the_report_and_nothing_else(engine, tmp_path, hf_folder):
    convert(tmp_path / "net", hf_folder)
    place = tmp_path / "net"
    before = {
        p: p.read_bytes() for p in place.rglob("*") if p.is_file() and "report" not in p.parts and p.name[0] != "."
    }
    engine.check = "fail"
    record = api.gate(place, stages.GateOptions(), Progress(quiet=True))
    assert record["status"] == "failed"
    report = json.loads((place / "report" / "report.json").read_text())
    assert report["status"] == "failed"
    assert report["weights"]["rows"]
    assert json.loads((place / ".maxcode.json").read_text())["status"] == "failed"
    readme = place / "README.md"
    assert before.pop(readme).replace(b"**verified**", b"**failed**") == readme.read_bytes()
    assert b"**failed**" in readme.read_bytes()
    assert {p: p.read_bytes() for p in before} == before


def test_gate_needs_the_source(engine, tmp_path, hf_folder):
    convert(tmp_path / "net", hf_folder)
    hf_folder.rename(tmp_path / "elsewhere")
    with pytest.raises(MaxCodeError, match="not there any more.*Put it back"):
        api.gate(tmp_path / "net", stages.GateOptions(), Progress(quiet=True))


def test_gate_finds_a_hub_target_again_by_its_commit(engine, tmp_path, hf_folder, monkeypatch):
    asked = []

    def fetch(name, revision, progress, **_):
        asked.append((name, revision))
        return hf_folder, "c" * 40

    monkeypatch.setattr(stages.hub, "fetch", fetch)
    target = parse_target("org/net", TargetOptions(revision="main"))
    place = tmp_path / "net"
    record = api.convert(dataclasses.replace(request(place, hf_folder), target=target), Progress(quiet=True))
    assert record["versions"]["source"] == f"org/net@{'c' * 40}"
    api.gate(place, stages.GateOptions(), Progress(quiet=True))
    assert asked == [("org/net", "main")]  # still where it was
    hf_folder = hf_folder.rename(tmp_path / "moved")
    api.gate(place, stages.GateOptions(), Progress(quiet=True))
    assert asked == [("org/net", "main"), ("org/net", "c" * 40)]


def test_plan_writes_nothing(engine, tmp_path, hf_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engine.gaps = [GAP]
    record = api.plan(parse_target(str(hf_folder)), api.request_options(tmp_path / "net"), Progress(quiet=True))
    assert record["status"] == "gaps"
    assert record["plan"]["lines"] == {"written": 1, "files": {"modeling.py": 1}}
    assert record["plan"]["risks"][0].startswith("1 gap: ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


def test_gaps_in_a_checkpoints_own_code_name_the_users_file(engine, tmp_path, hf_folder, monkeypatch):
    (hf_folder / "modeling_own.py").write_text("one\ntwo\nthree\n")
    place = tmp_path / "net"

    def convert_source(run, options, progress):
        copied = run.modules / "transformers_modules" / "hf" / "0f" / "modeling_own.py"
        (run.package / options.package_name).mkdir(parents=True)
        (run.package / options.package_name / "modeling.py").write_text("")
        return types.SimpleNamespace(
            files={}, gaps=[GAP | {"file": str(copied)}], traced=[], assumptions=[], classes={}
        )

    monkeypatch.setattr(stages, "convert_source", convert_source)
    gap = convert(place, hf_folder, weights=False)["gaps"][0]
    assert gap["file"] == str(hf_folder / "modeling_own.py")
    assert gap["source_lines"][1] == [2, "two"]


def test_to_hf_says_when_bytes_differ(engine, tmp_path, hf_folder, monkeypatch):
    convert(tmp_path / "net", hf_folder)
    for changed, status in (([], "verified"), (["a"], "failed")):

        def write(package, destination, progress, changed=changed):
            (destination / "model.safetensors").write_text("")
            return {"changed": changed}

        monkeypatch.setattr(stages, "weights_to_hf", write)
        record = api.to_hf(tmp_path / "net", tmp_path / "back", force=False, progress=Progress(quiet=True))
        assert record["status"] == status
        assert (tmp_path / "back" / "model.safetensors").exists()
    convert(tmp_path / "other", hf_folder)
    with pytest.raises(MaxCodeError, match="other: holds a converted package.*--force"):
        api.to_hf(tmp_path / "net", tmp_path / "other", force=False, progress=Progress(quiet=True))
    with pytest.raises(MaxCodeError, match="no package.*Name the package that it was written from, .*net"):
        api.gate(tmp_path / "back", stages.GateOptions(), Progress(quiet=True))
