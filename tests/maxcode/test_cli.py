"""The command line as users and scripts meet it: exit statuses, one JSON record, nothing lost."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from maxcode import __version__
from maxcode.output import write_marker
from tests.maxcode.interrupts import hear_interrupts

RECORD = {"status", "target", "output", "checks", "gaps", "traced", "assumptions", "timings", "versions"}


def test_version(run_cli):
    done = run_cli("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"maxcode {__version__}\n", "")


@pytest.mark.parametrize(
    "command", [[], ["plan"], ["convert"], ["gate"], ["generate"], ["checkpoint", "to-hf"], ["doctor"]]
)
def test_help(run_cli, command):
    done = run_cli(*command, "--help")
    assert done.returncode == 0
    assert "Usage: maxcode" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["convert", "transformers:bert", "--bogus"], "No such option"),
        (["convert", "transformers:bert", "--on-gap", "guess"], "guess"),
        (
            ["convert", "transformers:bert", "--on-gap", "agent"],
            "not built into this release; expected --on-gap fail or trace",
        ),
        (["convert", "transformers:bert", "--dtype", "int3"], "int3"),
        (["convert"], "TARGET"),
        (["frobnicate"], "No such command"),
        (["convert", "transformers:berd"], "did you mean"),
        (["convert", "transformers:bert", "--set", "a"], "NAME=JSON"),
        (["plan", "transformers:bert", "--inputs", "{"], "not JSON"),
        (["plan", "nobody/nothing"], "not in the local cache"),
        (["convert", "./missing"], "no such file or folder"),
        (["gate", "missing"], "no such folder"),
        (["generate", ".", "hello"], "MaxCode did not write it"),
        (["checkpoint", "to-hf", "missing", "-o", "x"], "no such folder"),
    ],
)
def test_bad_usage_and_bad_input_end_with_2(run_cli, tmp_path, arguments, words):
    done = run_cli(*arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["convert", "./missing"], ["convert", "./missing", "--bogus"], ["frobnicate"]])
def test_json_prints_one_record_even_for_errors(run_cli, arguments):
    done = run_cli(*arguments, "--json")
    record = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert set(record) == RECORD
    assert record["status"] == "error"
    assert [check["status"] for check in record["checks"]] == ["fail"]
    assert record["checks"][0]["name"] == "input"
    assert record["versions"]["maxcode"] == __version__


def test_quiet_leaves_only_the_error(run_cli):
    done = run_cli("plan", "./missing", "--quiet")
    assert done.stderr.count("\n") == 1


def test_foreign_output_folder_is_untouched(run_cli, hf_folder, tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    (place / "mine").write_text("precious")
    done = run_cli("convert", hf_folder, "-o", place)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert [(p.name, p.read_text()) for p in place.iterdir()] == [("mine", "precious")]


def test_damaged_weights_end_with_2_and_keep_earlier_output(run_cli, hf_folder, tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    write_marker(place, {})
    shard = hf_folder / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-4])
    done = run_cli("convert", hf_folder, "-o", place, "--json")
    assert done.returncode == 2
    assert "truncated" in json.loads(done.stdout)["checks"][0]["detail"]
    assert [p.name for p in place.iterdir()] == [".maxcode.json"]


def test_hub_id_from_the_local_cache(run_cli, hf_folder, tmp_path):
    """A snapshot in the cache is used without a network: its damaged weights show that it was found."""
    snapshot = tmp_path / "cache" / "models--org--tiny" / "snapshots" / ("c" * 40)
    snapshot.parent.mkdir(parents=True)
    hf_folder.rename(snapshot)
    refs = tmp_path / "cache" / "models--org--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text("c" * 40)
    (snapshot / "model.safetensors").write_bytes(b"short")
    done = run_cli("convert", "org/tiny", HF_HUB_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 2
    assert "c" * 40 in done.stderr
    assert "truncated" in done.stderr


INTERRUPTED = """
import sys, time
from maxcode import stages
def wait(*_, **__):
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)
setattr(stages, sys.argv[1], wait)
from maxcode.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["locate", "resolve"])
def test_interrupt_ends_with_130_and_leaves_nothing(tmp_path, hf_folder, stage, number):
    command = [sys.executable, "-c", INTERRUPTED, stage, "convert", str(hf_folder), "-o", "out", "--quiet", "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ,
        preexec_fn=hear_interrupts,
    ) as process:  # fmt: skip
        assert process.stderr.readline() == "ready\n"
        process.send_signal(number)
        stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(stdout)["status"] == "error"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


def processes_with(token: str) -> list[int]:
    """Running processes that have a word on their command line."""
    running = (p.info for p in psutil.process_iter(["pid", "cmdline", "status"]))
    return [p["pid"] for p in running if token in (p["cmdline"] or []) and p["status"] != psutil.STATUS_ZOMBIE]


def wait_for(condition) -> bool:
    deadline = time.monotonic() + 30
    while not (done := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done


def test_interrupt_takes_a_stage_process_along():
    """A stage that runs in a process of its own ends with us, children included."""
    token = f"token-{uuid.uuid4()}"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', {token!r}])"
    ours = (
        "import sys; from maxcode.processes import run_stage; from maxcode.progress import Progress;"
        f"run_stage([sys.executable, '-c', {script!r}], Progress(quiet=True), name='x')"
    )
    command = [sys.executable, "-c", ours]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=hear_interrupts) as process:
        assert wait_for(lambda: processes_with(token))
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert wait_for(lambda: not processes_with(token))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import sys; sys.exit(0)", "SystemExit"),
        ("import os; os._exit(0)", "wrote nothing"),
        ("print('hello'); import nothing_of_this_name", "No module named"),
    ],
)
def test_model_code_that_ends_its_process_is_bad_input(run_cli, tmp_path, net_file, line, words):
    net_file.write_text(f"{line}\n{net_file.read_text()}")
    done = run_cli("convert", f"{net_file}:Plain", "--inputs", '[{"shape": [2]}]', "-o", "out", "--json")
    assert done.returncode == 2, done.stderr
    assert words in json.loads(done.stdout)["checks"][0]["detail"]
    assert [p.name for p in tmp_path.iterdir()] == [net_file.name]


def test_internal_errors_end_with_4(tmp_path, hf_folder):
    code = (
        "import sys; from maxcode import stages; from maxcode.cli import main;"
        "stages.locate = lambda *a, **k: 1 / 0; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "convert", str(hf_folder), "-o", "out", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "ZeroDivisionError" in json.loads(done.stdout)["checks"][0]["detail"]
    assert not (tmp_path / "out").exists()


def test_doctor(run_cli):
    done = run_cli("doctor", "--json", "--quiet")
    record = json.loads(done.stdout)
    assert {"python", "dependencies", "torch", "jax", "disk", "sandbox", "hub cache", "compilation cache"} == {
        check["name"] for check in record["checks"]
    }
    failed = [check for check in record["checks"] if check["status"] == "fail"]
    assert done.returncode == (1 if failed else 0)
    assert all(check["detail"] for check in record["checks"])


def test_jaxbench_says_what_is_missing():
    def run(*arguments):
        command = [sys.executable, "-m", "maxcode.jaxbench.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("--version").stdout == f"jaxbench {__version__}\n"
    assert run().returncode == 2
    assert "later milestone" in run().stderr
