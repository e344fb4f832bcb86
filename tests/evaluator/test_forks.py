"""Forks of a server behave as processes of their own: output, status, limits, isolation from each other."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxcode.evaluator.forks import ForkServer, Servers
from maxcode.evaluator.sandbox import Completed

MB = 1 << 20
HERE = Path(__file__).parent
MODULE = "forked_sample"
TEXT = """
import os, sys, time
COUNT = []
def main(arguments):
    what, *rest = arguments
    COUNT.append(what)
    print(what, len(COUNT), os.environ.get("MARK"), os.getcwd())
    print("note", file=sys.stderr)
    if what == "exit":
        sys.exit(int(rest[0]))
    if what == "raise":
        raise ValueError("broken")
    if what == "kill":
        os.kill(os.getpid(), 9)
    if what == "write":
        open(rest[0], "w").write("x")
    if what == "sleep":
        time.sleep(60)
    if what == "fill":
        _ = b"x" * int(rest[0])
        time.sleep(60)
    return 0
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forks")
    (folder / f"{MODULE}.py").write_text(TEXT)
    (folder / "inside").mkdir()
    return folder


@pytest.fixture(scope="module")
def servers(place: Path) -> Iterator[Servers]:
    root = str(Path(sys.modules["maxcode"].__file__ or "").parent.parent)
    env = {"PYTHONPATH": f"{place}:{root}"}
    with Servers(ForkServer((MODULE,), (MODULE,), (place / "inside",), env, allow_unsandboxed=True)) as found:
        yield found


def run(servers: Servers, place: Path, *arguments: str, **options: object) -> Completed:
    given = {"timeout_s": 20.0, "memory_bytes": 800 * MB, "env": {"MARK": "m"}} | options
    return servers([sys.executable, "-m", MODULE, *arguments], writable=[place / "inside"], **given)


def test_output_status_and_surroundings_are_the_commands_own(servers: Servers, place: Path) -> None:
    lines: list[str] = []
    done = run(servers, place, "exit", "3", on_stderr=lines.append)
    assert (done.returncode, done.stopped) == (3, None)
    assert done.stdout.split() == ["exit", "1", "m", str(place / "inside")]
    assert lines == ["note"] == done.stderr.split()


def test_a_command_leaves_nothing_to_the_next(servers: Servers, place: Path) -> None:
    assert [run(servers, place, "exit", "0").stdout.split()[1] for _ in range(2)] == ["1", "1"]


def test_exceptions_and_signals_become_statuses(servers: Servers, place: Path) -> None:
    raised = run(servers, place, "raise")
    assert raised.returncode == 1
    assert "ValueError: broken" in raised.stderr
    assert run(servers, place, "kill").returncode == -9
    assert run(servers, place, "exit", "0").returncode == 0


def test_only_its_folders_can_be_written(servers: Servers, place: Path) -> None:
    if run(servers, place, "exit", "0").isolation == "none":
        pytest.skip("no sandbox works here")
    assert run(servers, place, "write", str(place / "inside" / "a")).returncode == 0
    assert run(servers, place, "write", str(place / "a")).returncode == 1
    assert not (place / "a").exists()


@pytest.mark.parametrize(
    ("arguments", "limits", "stopped"),
    [(("sleep",), {"timeout_s": 1.0}, "timeout"), (("fill", str(900 * MB)), {}, "memory")],
)
def test_a_limit_ends_the_command_and_the_next_one_runs(
    servers: Servers, place: Path, arguments: tuple[str, ...], limits: dict[str, float], stopped: str
) -> None:
    assert run(servers, place, *arguments, **limits).stopped == stopped
    assert run(servers, place, "exit", "0").returncode == 0


def test_commands_that_need_more_run_by_themselves(servers: Servers, place: Path) -> None:
    server = servers._servers[0]
    command = [sys.executable, "-m", MODULE, "exit"]
    assert server.takes(command, [place / "inside"])
    assert not server.takes(command, [place])
    assert not server.takes([sys.executable, "-m", "json.tool"], [])
    assert not server.takes([sys.executable, "-c", "pass"], [])
