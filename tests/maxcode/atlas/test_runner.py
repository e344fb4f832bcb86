"""Children under limits, and runs that go on where an earlier one stopped."""

import json
import signal
import subprocess
import sys
import time

import pytest

from maxcode.atlas import children, runner
from maxcode.atlas.children import Limits
from maxcode.atlas.entries import read_atlas
from maxcode.atlas.rows import passed, read_rows
from maxcode.progress import Progress

# What stands for `python -m maxcode.atlas.entry`: the entry's type says what its process does.
_CHILD = """
import json, sys, time
name = sys.argv[sys.argv.index("--id") + 1]
if name.startswith("crash"):
    sys.stderr.write("about to crash\\n"); sys.stderr.flush(); sys.exit(7)
if name.startswith("slow"):
    time.sleep(60)
if name.startswith("large"):
    held = bytearray(200 << 20); held[::4096] = b"x" * len(held[::4096]); time.sleep(60)
print("something else on stdout")
print(json.dumps({"id": name, "family": "encoder", "status": "verified", "checks": [], "cause": None, "traced": 0}))
"""


@pytest.fixture
def run(tmp_path, monkeypatch, atlas_file):
    """`run("a", "b", resume=True)`: run entries of these types with a child that is no conversion."""
    script = tmp_path / "child.py"
    script.write_text(_CHILD)
    monkeypatch.setattr(children, "python_module", lambda module, *rest: [sys.executable, str(script), *map(str, rest)])

    def start(*names, **options):
        path = atlas_file(*names)
        chosen = runner.RunOptions(path, tmp_path / "out", **{"limits": Limits(5, 150 << 20)} | options)
        return runner.run(read_atlas(path), chosen, Progress(quiet=True))

    return start


def test_every_entry_gets_a_row_whatever_happens_to_it(run, tmp_path):
    found = run("fine", "crash", "slow", "large", jobs=2, limits=Limits(3, 150 << 20))
    causes = {key.partition(":")[0]: (row["cause"] or {}).get("code") for key, row in found.items()}
    assert causes == {"fine": None, "crash": "crash", "slow": "time", "large": "memory"}
    crash = found["crash:CrashModel"]
    assert "status 7; last: about to crash" in crash["cause"]["text"]
    assert found["large:LargeModel"]["peak_rss_bytes"] > 150 << 20
    assert passed(found["fine:FineModel"])
    assert found["fine:FineModel"]["seconds"] > 0
    assert read_rows(tmp_path / "out") == found


def test_a_run_is_resumed_where_code_and_entries_are_the_same(run, tmp_path, monkeypatch):
    run("a", "b")
    results = tmp_path / "out" / "results.jsonl"
    results.write_text(results.read_text() + '{"id": "cut off by a cra')
    run("a", "b", "c", resume=True)
    assert [json.loads(line)["id"][0] for line in results.read_text().splitlines()] == ["a", "b", "c"]
    monkeypatch.setattr(runner, "_engine_files", list)  # as if the code had changed
    run("a", resume=True)
    assert [json.loads(line)["id"][0] for line in results.read_text().splitlines()] == ["a", "b", "c", "a"]


def test_without_resume_everything_is_run_again(run, tmp_path):
    run("a")
    run("a")
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_an_interrupt_ends_the_children_and_keeps_the_rows(tmp_path):
    command = [sys.executable, "-m", "maxcode.cli", "atlas", "run", "--out", tmp_path / "out", "--filter", "id=t5:*"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    time.sleep(8)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 130
    assert not (tmp_path / "out" / "packages").exists()


@pytest.mark.slow
def test_an_architecture_passes_as_given_and_at_a_second_configuration(run_cli, tmp_path):
    chosen = ["--filter", "id=albert:AlbertForMaskedLM", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-m", "maxcode.cli", "atlas", "run", *chosen, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["atlas"]["passed"] == record["atlas"]["entries"] == 1
    (row,) = read_rows(tmp_path / "out").values()
    scales = {check["scale"] for check in row["checks"] if check["status"] == "pass"}
    assert scales == {"random weights", "second configuration"}
    page = run_cli("atlas", "report", tmp_path / "out")
    assert page.returncode == 0
    assert (tmp_path / "out" / "index.html").is_file()
