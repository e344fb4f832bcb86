"""Output folders are whole or untouched, whatever happens."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from maxcode import output
from maxcode.errors import MaxCodeError
from maxcode.output import MARKER, check_output, is_ours, recover, staged_output, write_marker
from tests.maxcode.interrupts import hear_interrupts


def make(place, text="old"):
    place.mkdir()
    write_marker(place, {})
    (place / "file").write_text(text)
    return place


def leftovers(folder):
    return sorted(p.name for p in folder.iterdir() if ".maxcode-" in p.name)


def test_new_output_appears_whole(tmp_path):
    place = tmp_path / "deep" / "out"
    with staged_output(place) as staging:
        (staging / "file").write_text("new")
        assert not place.exists()
    assert (place / "file").read_text() == "new"
    assert leftovers(place.parent) == []


@pytest.mark.parametrize("exchange", [True, False])
def test_own_output_is_replaced(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(output, "_exchange", lambda *_: False)
    place = make(tmp_path / "out")
    with staged_output(place) as staging:
        (staging / "other").write_text("new")
        assert (place / "file").read_text() == "old"
    assert [p.name for p in place.iterdir()] == ["other"]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_old_output_survives_a_failed_run(tmp_path, error):
    place = make(tmp_path / "out")
    with pytest.raises(error), staged_output(place) as staging:
        (staging / "file").write_text("half")
        raise error
    assert (place / "file").read_text() == "old"
    assert leftovers(tmp_path) == []


def test_old_output_comes_back_when_the_swap_fails(tmp_path, monkeypatch):
    place = make(tmp_path / "out")
    monkeypatch.setattr(output, "_exchange", lambda *_: False)
    real = type(place).rename

    def rename(self, target):
        if ".maxcode-old-" not in str(target) and ".maxcode-old-" not in self.name:
            raise OSError(errno.EIO, "broken")
        return real(self, target)

    monkeypatch.setattr(type(place), "rename", rename)
    with pytest.raises(OSError, match="broken"), staged_output(place):
        pass
    assert (place / "file").read_text() == "old"


def test_foreign_folder_is_left_alone_unless_forced(tmp_path):
    place = tmp_path / "out"
    place.mkdir()
    (place / "mine").write_text("precious")
    with pytest.raises(MaxCodeError, match="--force"), staged_output(place):
        pytest.fail("the block must not run")
    assert (place / "mine").read_text() == "precious"
    with staged_output(place, force=True) as staging:
        (staging / "new").write_text("")
    assert [p.name for p in place.iterdir()] == ["new"]


def test_empty_folder_is_taken(tmp_path):
    (tmp_path / "out").mkdir()
    with staged_output(tmp_path / "out") as staging:
        (staging / "new").write_text("")
    assert (tmp_path / "out" / "new").exists()


def test_output_may_not_hold_its_input_even_forced(tmp_path, monkeypatch):
    source = tmp_path / "a" / "model"
    source.mkdir(parents=True)
    for place in (source, source.parent):
        with pytest.raises(MaxCodeError, match="would delete"):
            check_output(place, force=True, inputs=(source,))
    monkeypatch.chdir(source)
    with pytest.raises(MaxCodeError, match="would delete"):
        check_output(tmp_path / "a", force=True)


def test_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "out").write_text("precious")
    with pytest.raises(MaxCodeError, match="is not a folder"):
        check_output(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "precious"


def test_marker_must_be_ours(tmp_path):
    assert not is_ours(tmp_path)
    (tmp_path / MARKER).write_text("[1]")
    assert not is_ours(tmp_path)
    write_marker(tmp_path, {"target": "x"})
    assert is_ours(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_full_disk_is_a_clear_error(tmp_path, number):
    place = make(tmp_path / "out")
    with pytest.raises(MaxCodeError, match="no space left") as caught, staged_output(place) as staging:
        (staging / "half").write_text("x")
        raise RuntimeError("writing failed") from OSError(number, "disk")
    assert caught.value.exit_status == 2
    assert (place / "file").read_text() == "old"
    assert leftovers(tmp_path) == []


def test_really_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        with pytest.raises(MaxCodeError, match="no space left"), staged_output(disk / "out") as staging:
            (staging / "big").write_bytes(bytes(1_000_000))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


KILLED = """
import sys, time
from pathlib import Path
from maxcode import output
if sys.argv[2] == "swap":
    output._exchange = lambda *_: False
    real = Path.rename
    def rename(self, target):
        done = real(self, target)
        if ".maxcode-old-" in str(target):
            print("ready", flush=True)
            time.sleep(60)
        return done
    Path.rename = rename
with output.staged_output(Path(sys.argv[1])) as staging:
    (staging / "file").write_text("new")
    if sys.argv[2] == "build":
        print("ready", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("moment", "signal_"), [("build", signal.SIGKILL), ("swap", signal.SIGKILL), ("build", signal.SIGINT)]
)
def test_killed_run_loses_nothing_and_is_cleaned_up_by_the_next(tmp_path, moment, signal_):
    place = make(tmp_path / "out")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, place, moment], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=hear_interrupts,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal_)
        process.wait(30)
    if moment == "build":
        assert (place / "file").read_text() == "old"
    recover(place)
    assert (place / "file").read_text() == "old"
    assert leftovers(tmp_path) == []


def test_recover_leaves_a_living_run_alone(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        other = tmp_path / f".out.maxcode-{process.pid}-abc"
        other.mkdir()
        recover(tmp_path / "out")
        assert other.exists()
        process.communicate(b"\n")
    deadline = time.monotonic() + 10
    while other.exists() and time.monotonic() < deadline:
        recover(tmp_path / "out")
    assert not other.exists()


def test_permissions_are_those_of_a_new_folder(tmp_path):
    with staged_output(tmp_path / "out"):
        pass
    plain = tmp_path / "plain"
    plain.mkdir()
    assert os.stat(tmp_path / "out").st_mode == os.stat(plain).st_mode  # noqa: PTH116
