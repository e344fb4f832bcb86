"""Stages in processes of their own: progress and errors come through, and disks that fill are named."""

import io
import json
import sys

import pytest

from maxcode.errors import Exit, InternalError, MaxCodeError, is_no_space
from maxcode.processes import python_module, run_stage
from maxcode.progress import SHARES, Progress, clock


def run(code, progress=None):
    return run_stage([sys.executable, "-c", code], progress or Progress(quiet=True), name="stage")


def test_stdout_is_returned_and_progress_passed_on():
    stream = io.StringIO()
    progress = Progress(stream=stream)
    progress.stage("weights")
    line = json.dumps({"progress": {"stage": "weights", "item": "layer", "done": 3, "total": 4}})
    assert run(f"import sys; print({line!r}, file=sys.stderr); print('answer')", progress) == "answer\n"
    assert progress.line().startswith("weights · layer 3/4 · ")


def test_error_record_with_status_2_is_bad_input():
    error = json.dumps({"error": "OracleError", "where": "a.py", "found": "1", "expected": "2", "do": "this"})
    with pytest.raises(MaxCodeError, match=r"a\.py: 1; expected 2\. This") as caught:
        run(f"import sys; print({error!r}, file=sys.stderr); sys.exit(2)")
    assert caught.value.exit_status == Exit.BAD_INPUT
    with pytest.raises(InternalError, match=r"a\.py: 1"):
        run(f"import sys; print({error!r}, file=sys.stderr); sys.exit(4)")


def test_any_other_failure_is_internal_and_quotes_the_last_lines():
    with pytest.raises(InternalError, match="(?s)exit status 1.*ValueError: broken"):
        run("raise ValueError('broken')")


def test_a_stage_over_its_time_is_ended(monkeypatch):
    monkeypatch.setattr("maxcode.processes._TIMEOUT_SECONDS", 0.5)
    with pytest.raises(InternalError, match="over the limit of timeout"):
        run("import time; time.sleep(60)")


def test_a_stage_writes_where_it_may_only(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    code = (
        f"from pathlib import Path; Path({str(mine)!r}, 'x').write_text('1'); Path({str(other)!r}, 'x').write_text('1')"
    )
    command = [sys.executable, "-c", code]
    with pytest.raises(InternalError, match="Read-only file system|Permission denied"):
        run_stage(command, Progress(quiet=True), name="stage", writable=[mine])
    assert (mine / "x").exists()
    assert not (other / "x").exists()


@pytest.mark.parametrize(
    "code",
    [
        "raise OSError(28, 'No space left on device')",
        "import resource, signal, tempfile; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); file = tempfile.TemporaryFile();"
        "file.write(bytes(10000)); file.flush()",
    ],
)
def test_full_disk_inside_a_stage(code, tmp_path):
    with pytest.raises(MaxCodeError, match="no space left") as caught:
        run_stage([sys.executable, "-c", code], Progress(quiet=True), name="stage", writable=[tmp_path])
    assert caught.value.exit_status == Exit.BAD_INPUT


def test_much_output_on_both_streams_does_not_block():
    code = "import sys\nfor i in range(20000):\n    print('x' * 40); print('y' * 40, file=sys.stderr)"
    assert len(run(code)) == 20000 * 41


def test_no_space_is_seen_through_causes():
    inner = OSError(28, "full")
    outer = RuntimeError("writing failed")
    outer.__cause__ = inner
    assert is_no_space(outer)
    assert is_no_space("IoError(Os { code: 28, kind: StorageFull })")
    assert not is_no_space(ValueError("other"))


def test_python_module_uses_this_interpreter():
    assert python_module("a.b", "--x", 1) == [sys.executable, "-m", "a.b", "--x", "1"]


def test_progress_lines_and_estimate(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("maxcode.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Progress(stream=stream)
    progress.plan("resolve", "gate")
    progress.stage("resolve")
    now[0] += 6
    assert progress.remaining() is None
    progress.stage("gate")
    now[0] += 4
    progress.item("exact", 5, 10)
    assert progress.remaining() == pytest.approx(4)  # the other half of the stage
    assert stream.getvalue().splitlines()[-1] == "[2/2] gate · exact 5/10 · 10.0 s · ETA 4.0 s"
    with progress:
        pass
    assert progress.timings == {"resolve": 6.0, "gate": 4.0}


def test_a_stage_without_counts_is_estimated_by_the_earlier_ones(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("maxcode.progress.time.monotonic", lambda: now[0])
    progress = Progress(stream=io.StringIO())
    progress.plan("resolve", "gate", "report")
    progress.stage("resolve")
    now[0] += SHARES["resolve"] * 2
    progress.stage("gate")
    now[0] += 20
    assert progress.remaining() == pytest.approx(2 * SHARES["gate"] - 20 + 2 * SHARES["report"])
    now[0] += 1000  # it takes longer than usual: nobody knows how long
    assert progress.remaining() is None


def test_plain_lines_are_few(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("maxcode.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    progress = Progress(stream=stream)
    progress.stage("weights")
    for i in range(1000):
        now[0] += 0.01
        progress.item("t", i, 1000)
    assert len(stream.getvalue().splitlines()) <= 12
    silent = Progress(stream=(quiet := io.StringIO()), quiet=True)
    silent.stage("weights")
    assert quiet.getvalue() == ""


@pytest.mark.parametrize(("seconds", "text"), [(4.21, "4.2 s"), (187, "3:07"), (3723, "1:02:03")])
def test_clock(seconds, text):
    assert clock(seconds) == text
