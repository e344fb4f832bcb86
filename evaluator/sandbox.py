"""Running untrusted code: namespaces, no network, a read-only file system, and limits on time, memory and processes.

Isolation is bubblewrap where installed, else `unshare` (user, mount, PID, network and IPC namespaces; capabilities
dropped before the command starts). A watcher outside the sandbox adds up memory and processes of everything inside,
because resource limits count per process, or do not bind root.

This file is also the program that runs inside the namespaces first (`_inside`): it makes mounts read-only, sets
resource limits, gives up capabilities and becomes the command. It uses the standard library only.
"""

import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_PASSED = ("PATH", "LANG", "LC_ALL", "TZ")
POLL = 0.02  # seconds between two looks whether a process has ended
_LOOK = 0.2  # and between two at what it takes
_MAX_OUTPUT = 64 << 20


class IsolationError(RuntimeError):
    """No sandbox works on this machine and the caller did not allow running without one."""


@dataclasses.dataclass(frozen=True)
class Completed:
    """What a limited run did.

    Attributes:
      returncode: of the command; negative signal number if killed.
      stopped: why it was killed: "timeout", "memory", "processes", "output"; None if it ended by itself.
      isolation: "bubblewrap", "namespaces" or "none".
    """

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    stopped: str | None
    isolation: str


def run_limited(
    cmd: Sequence[str],
    *,
    timeout_s: float,
    memory_bytes: int,
    writable: Sequence[str | Path] = (),
    network: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    max_processes: int = 64,
    allow_unsandboxed: bool = False,
    on_stderr: Callable[[str], None] | None = None,
) -> Completed:
    """Runs `cmd` to its end or its limit; nothing that it started survives.

    Args:
      memory_bytes: resident memory of all its processes together.
      writable: existing folders it may write below; the first is also HOME and TMPDIR.
      env: added to a stripped environment (PATH and locale only).
      on_stderr: called with every line of stderr while it runs.

    Raises:
      IsolationError: no isolation works here and `allow_unsandboxed` is False.
    """
    kind = isolation()
    argv = wrap(cmd, memory_bytes=memory_bytes, writable=writable, network=network, allow_unsandboxed=allow_unsandboxed)
    start = time.monotonic()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=stripped_environment(writable, env),
        cwd=cwd or (writable[0] if writable else "/"),
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = Reader(process.stdout), Reader(process.stderr, on_stderr)
    watch, stopped = Watch(start + timeout_s, memory_bytes, max_processes), None
    try:
        while process.poll() is None:
            stopped = watch(process.pid, out.size + err.size)
            if stopped:
                break
            time.sleep(POLL)
    finally:
        end_tree(process)
    return Completed(process.returncode, out.text(), err.text(), time.monotonic() - start, stopped, kind)


def wrap(
    cmd: Sequence[str],
    *,
    memory_bytes: int,
    writable: Sequence[str | Path] = (),
    network: bool = False,
    allow_unsandboxed: bool = False,
) -> list[str]:
    """The command line that runs `cmd` isolated, for callers that keep a conversation with it.

    Such callers use `stripped_environment`, `start_new_session=True` and `end_tree` themselves.
    """
    kind = isolation()
    if kind == "none" and not allow_unsandboxed:
        raise IsolationError(
            "sandbox: neither bwrap nor unshare gives namespaces here; expected one of them; install bubblewrap, "
            "enable user namespaces, or allow running without a sandbox (--unsafe-no-sandbox for your own code)"
        )
    paths = [str(Path(path).resolve()) for path in writable]
    spec = {"memory": memory_bytes, "writable": paths, "mounts": kind == "namespaces", "drop": kind != "none"}
    inner = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), json.dumps(spec), *map(str, cmd)]
    if kind == "bubblewrap":
        return [*_bubblewrap(paths, network), *inner]
    return [*_unshare(network), *inner] if kind == "namespaces" else inner


def _bubblewrap(writable: Sequence[str], network: bool) -> list[str]:
    binds = [part for path in writable for part in ("--bind", path, path)]
    share = ["--share-net"] if network else []
    return ["bwrap", "--unshare-all", *share, "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev",
            "--proc", "/proc", *binds, "--"]  # fmt: skip


def _unshare(network: bool) -> list[str]:
    options = ["--user", "--map-root-user", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
    return ["unshare", *options, *([] if network else ["--net"]), "--"]


@functools.cache
def isolation() -> str:
    """What works on this machine, tried once: "bubblewrap", "namespaces" or "none"."""
    trials = (("bubblewrap", "bwrap", _bubblewrap([], False)), ("namespaces", "unshare", _unshare(False)))
    for kind, program, prefix in trials:
        if shutil.which(program) is None:
            continue
        spec = json.dumps({"memory": 1 << 32, "writable": [], "mounts": kind == "namespaces", "drop": True})
        command = [*prefix, sys.executable, "-I", "-S", str(Path(__file__).resolve()), spec, "true"]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0:
                return kind
    return "none"


def stripped_environment(writable: Sequence[str | Path] = (), env: Mapping[str, str] | None = None) -> dict[str, str]:
    """PATH and locale of this process, HOME and TMPDIR in the first writable folder, and `env` on top."""
    home = str(writable[0]) if writable else "/nonexistent"
    kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return kept | {"HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"} | dict(env or {})


# -- watching from outside ------------------------------------------------------------------------------------------


class Watch:
    """Looks at a tree of processes from outside, a few times a second: every look reads /proc of all of them.

    Args:
      deadline: of `time.monotonic`.
      memory: resident bytes of all processes together.
      processes: how many there may be.
    """

    def __init__(self, deadline: float, memory: int, processes: int) -> None:
        self._deadline, self._memory, self._processes = deadline, memory, processes
        self._next = 0.0

    def __call__(self, pid: int, output: int) -> str | None:
        """Which limit the tree below `pid` is over: "timeout", "output", "processes", "memory" or none.

        `output` is how many bytes it has written.
        """
        now = time.monotonic()
        if now > self._deadline:
            return "timeout"
        if output > _MAX_OUTPUT:
            return "output"
        if now < self._next:
            return None
        self._next = now + _LOOK
        inside = descendants(pid)
        if len(inside) > self._processes:
            return "processes"
        return "memory" if sum(map(_resident, inside)) > self._memory else None


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, itself first; orphans stay below the namespace's first process."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{current}/task"):  # noqa: PTH208 (pathlib takes five times as long)
                queue += map(int, _read(f"/proc/{current}/task/{task}/children").split())
    return found


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def _resident(pid: int) -> int:
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, IndexError):
        return 0


def end_tree(process: subprocess.Popen) -> None:
    """Kills the process group and, where there is no PID namespace to do it, every descendant; then waits."""
    for pid in reversed(descendants(process.pid)):
        if pid != process.pid or process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Reader(threading.Thread):
    """Drains a pipe, keeps at most `_MAX_OUTPUT` bytes, and hands on lines."""

    def __init__(self, pipe: IO[bytes], on_line: Callable[[str], None] | None = None) -> None:
        super().__init__(daemon=True)
        self._pipe, self._on_line, self._parts, self.size = pipe, on_line, [], 0
        self.start()

    def run(self) -> None:
        for line in iter(lambda: self._pipe.readline(1 << 20), b""):
            self.size += len(line)
            if self.size <= _MAX_OUTPUT:
                self._parts.append(line)
            if self._on_line:
                self._on_line(line.decode(errors="replace").rstrip("\n"))

    def text(self) -> str:
        self.join(timeout=5)
        return b"".join(self._parts).decode(errors="replace")


# -- inside, before the command -------------------------------------------------------------------------------------

_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_RDONLY, _AT_FDCWD, _AT_RECURSIVE, _SYS_MOUNT_SETATTR = 0x1, -100, 0x8000, 442
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE = 24, 38, 4


def _inside(spec: dict, cmd: list[str]) -> None:
    """Sets the sandbox up from within and becomes `cmd`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if spec["mounts"]:
        here = Path.cwd()
        _read_only_except(libc, spec["writable"])
        os.chdir(here)  # the old folder is the one below the mounts
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, spec["memory"] + (2 << 30))  # a backstop: the watcher counts resident memory exactly
    _limit(resource.RLIMIT_NPROC, 4096)
    if spec["drop"]:
        _drop_capabilities(libc)
    os.execvp(cmd[0], cmd)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _read_only_except(libc: ctypes.CDLL, writable: list[str]) -> None:
    """All mounts read-only but `writable`; a fresh /proc where the kernel allows one."""
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "make mounts private")
    for path in writable:
        _check(libc.mount(path.encode(), path.encode(), None, _MS_BIND | _MS_REC, None), f"bind {path}")
    libc.mount(b"proc", b"/proc", b"proc", 0, None)  # refused where the container masks parts of /proc; then it stays
    _set_attributes(libc, "/", _RDONLY, 0)
    for path in writable:
        _set_attributes(libc, path, 0, _RDONLY)


def _set_attributes(libc: ctypes.CDLL, path: str, add: int, clear: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(add, clear, 0, 0)
    done = libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, ctypes.byref(attributes), 32)
    _check(done, f"mount_setattr {path}")


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Empties bounding, permitted and effective sets: the user namespace's root cannot undo the mounts."""
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _check(libc.capset(header, data), "drop capabilities")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"sandbox: {what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    _inside(json.loads(sys.argv[1]), sys.argv[2:])
