"""What the sandbox must hold: files, network, memory, time, processes, environment."""

import sys
from pathlib import Path

import pytest

from maxcode.evaluator import sandbox
from maxcode.evaluator.sandbox import IsolationError, run_limited

MB = 1 << 20
isolated = pytest.mark.skipif(sandbox.isolation() == "none", reason="no namespaces on this machine")


def python(code, folder, **options):
    options = {"timeout_s": 20, "memory_bytes": 400 * MB, "writable": [folder]} | options
    return run_limited([sys.executable, "-c", code], **options)


def test_result_and_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    lines = []
    code = "import os, sys; print(sorted(os.environ)); print('note', file=sys.stderr); sys.exit(3)"
    done = python(code, tmp_path, env={"GIVEN": "1"}, allow_unsandboxed=True, on_stderr=lines.append)
    assert (done.returncode, done.stopped, lines) == (3, None, ["note"])
    assert "GIVEN" in done.stdout
    assert "SECRET_TOKEN" not in done.stdout
    assert done.isolation == sandbox.isolation()


@isolated
def test_writes_stay_inside(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    done = python("open('kept', 'w').write('x')", inside)
    assert done.returncode == 0, done.stderr
    assert (inside / "kept").read_text() == "x"
    done = python(f"open({str(outside)!r}, 'w')", inside)
    assert "Read-only file system" in done.stderr
    assert not outside.exists()


@isolated
def test_the_way_out_is_locked(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    script = f"mount -o remount,rw,bind /; unshare -Urm mount -o remount,rw,bind /; touch {outside}"
    done = run_limited(["sh", "-c", script], timeout_s=20, memory_bytes=400 * MB, writable=[inside])
    assert done.returncode != 0
    assert not outside.exists()


@isolated
def test_no_network(tmp_path):
    code = "import socket; socket.create_connection(('127.0.0.1', {}), timeout=3)"
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert python(code.format(port), tmp_path).returncode != 0
        assert python(code.format(port), tmp_path, network=True).returncode == 0


def test_memory(tmp_path):
    done = python("x = bytearray(900 << 20); import time; time.sleep(20)", tmp_path, allow_unsandboxed=True)
    assert done.stopped == "memory" or "MemoryError" in done.stderr
    assert done.seconds < 15


def test_memory_of_many_processes(tmp_path):
    code = "import os, time\nfor _ in range(3): os.fork()\nx = bytearray(90 << 20); time.sleep(20)"
    assert python(code, tmp_path, allow_unsandboxed=True).stopped == "memory"


def test_time(tmp_path):
    done = python("import time; time.sleep(60)", tmp_path, timeout_s=0.8, allow_unsandboxed=True)
    assert done.stopped == "timeout"
    assert done.seconds < 5


@isolated
def test_fork_bomb(tmp_path):
    done = python("import os\nwhile True: os.fork()", tmp_path, max_processes=40)
    assert done.stopped == "processes"


@isolated
def test_nothing_survives(tmp_path):
    mark = "86399.25"
    code = f"import subprocess; subprocess.Popen(['setsid', 'sleep', '{mark}']); print('started')"
    assert "started" in python(code, tmp_path).stdout
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(path.read_bytes())
        except OSError:  # ended meanwhile
            continue
    assert not any(mark.encode() in command for command in commands)


def test_refuses_without_isolation(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "isolation", lambda: "none")
    with pytest.raises(IsolationError, match="--unsafe-no-sandbox"):
        python("print(1)", tmp_path)
    done = python("print(1)", tmp_path, allow_unsandboxed=True)
    assert (done.stdout, done.isolation) == ("1\n", "none")


def test_output_is_bounded(tmp_path):
    code = "import sys\nwhile True: sys.stdout.write('x' * 1000000 + '\\n')"
    assert python(code, tmp_path, allow_unsandboxed=True).stopped == "output"


def test_wrapped_command_keeps_a_conversation(tmp_path):
    import subprocess

    argv = sandbox.wrap(
        [sys.executable, "-c", "print(input()[::-1])"],
        memory_bytes=400 * MB,
        writable=[tmp_path],
        allow_unsandboxed=True,
    )
    done = subprocess.run(
        argv, input="abc\n", text=True, capture_output=True, env=sandbox.stripped_environment([tmp_path]), cwd=tmp_path,
        check=True,
    )  # fmt: skip
    assert done.stdout == "cba\n"
