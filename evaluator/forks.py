"""Processes that have their imports behind them: one sandboxed server imports, and every command is a fork of it.

Importing PyTorch and a model library takes seconds, and a conversion asks the oracle for half a dozen things, each in a
process of its own. A `ForkServer` pays for the imports once. What a fork changes (modules, threads, x64, seeds) ends
with it, exactly as in a new process.

This file is also the server itself: `python -m maxcode.evaluator.forks DESCRIPTOR MODULE,…`. Requests and answers are
lines of JSON on a socket; the standard output and error of a command are pipes that come with its request.
"""

import contextlib
import dataclasses
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from maxcode.evaluator.sandbox import (
    POLL,
    Completed,
    Reader,
    Watch,
    end_tree,
    isolation,
    run_limited,
    stripped_environment,
    wrap,
)

Launch = Callable[..., Completed]  # `run_limited`, or a `Servers` in its place
_LINE = 1 << 20


@dataclasses.dataclass
class ForkServer:
    """Runs `python -m MODULE ARGUMENTS` for the modules that it `serves`, as `run_limited` would.

    Attributes:
      serves: modules whose `main(arguments)` a command may name.
      preload: modules imported before the first command.
      writable: folders that commands may write below; made when missing.
      env: environment of the imports; every command brings its own.
    """

    serves: tuple[str, ...]
    preload: tuple[str, ...]
    writable: tuple[Path, ...]
    env: Mapping[str, str]
    allow_unsandboxed: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _channel: socket.socket | None = None

    def takes(self, cmd: Sequence[str], writable: Sequence[str | Path]) -> bool:
        """Whether a command can run here: a module that is served, which needs no more than our folders."""
        allowed = [folder.resolve() for folder in self.writable]
        inside = (any(Path(place).resolve().is_relative_to(folder) for folder in allowed) for place in writable)
        return list(cmd[:2]) == [sys.executable, "-m"] and cmd[2] in self.serves and all(inside)

    def start(self, memory_bytes: int) -> None:
        """Begin to import; returns at once."""
        ours, theirs = socket.socketpair()
        for folder in self.writable:
            folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", __spec__.name, str(theirs.fileno()), ",".join(self.preload)]
        self._process = subprocess.Popen(
            wrap(command, memory_bytes=memory_bytes, writable=self.writable, allow_unsandboxed=self.allow_unsandboxed),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=stripped_environment(self.writable, self.env), cwd=self.writable[0], start_new_session=True,
            pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        self._channel = ours

    def run(
        self,
        cmd: Sequence[str],
        *,
        timeout_s: float,
        memory_bytes: int,
        writable: Sequence[str | Path] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        max_processes: int = 64,
        on_stderr: Callable[[str], None] | None = None,
    ) -> Completed:
        """Run a command to its end or its limit; a command that passes a limit takes the server with it."""
        if self._process is None or self._process.poll() is not None:
            self.start(memory_bytes)
        assert self._process is not None
        assert self._channel is not None
        start = time.monotonic()
        request = {
            "module": cmd[2], "arguments": [str(part) for part in cmd[3:]],
            "env": stripped_environment(writable, env),
            "cwd": str(cwd or (writable[0] if writable else self.writable[0])),
        }  # fmt: skip
        out, err = self._send(request, on_stderr)
        watch, answer, stopped = Watch(start + timeout_s, memory_bytes, max_processes), None, None
        try:
            while answer is None and stopped is None:
                answer = self._answer()
                stopped = watch(self._process.pid, out.size + err.size)
        finally:
            if answer is None or "status" not in answer:
                self.close()
        status = (answer or {}).get("status", -signal.SIGKILL)
        return Completed(status, out.text(), err.text(), time.monotonic() - start, stopped, isolation())

    def _send(self, request: dict[str, Any], on_stderr: Callable[[str], None] | None) -> tuple[Reader, Reader]:
        assert self._channel is not None
        (out_read, out_write), (err_read, err_write) = os.pipe(), os.pipe()
        with contextlib.suppress(OSError):  # a server that died is seen when its answer does not come
            socket.send_fds(self._channel, [json.dumps(request).encode() + b"\n"], [out_write, err_write])
        os.close(out_write), os.close(err_write)
        return Reader(os.fdopen(out_read, "rb")), Reader(os.fdopen(err_read, "rb"), on_stderr)

    def _answer(self) -> dict[str, Any] | None:
        """The server's answer; None when there is none yet, {} when it is gone."""
        assert self._channel is not None
        ready, _, _ = select.select([self._channel], [], [], POLL)
        if not ready:
            return None
        try:
            return json.loads(self._channel.recv(_LINE) or b"{}")
        except OSError:
            return {}

    def close(self) -> None:
        """End the server and all that runs in it."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            end_tree(self._process)
        self._process = self._channel = None


class Servers:
    """Stands for `run_limited`: commands that a server takes are forks of it, others are processes of their own."""

    def __init__(self, *servers: ForkServer) -> None:
        self._servers = servers

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    def __call__(self, cmd: Sequence[str], **options: Any) -> Completed:
        """See `run_limited`, whose arguments these are."""
        server = next((s for s in self._servers if s.takes(cmd, options.get("writable", ()))), None)
        if server is None or options.get("network"):
            return run_limited(cmd, **options)
        options.pop("allow_unsandboxed", None), options.pop("network", None)
        return server.run(cmd, **options)


# -- the server -----------------------------------------------------------------------------------------------------


def serve(channel: socket.socket, preload: Sequence[str]) -> None:
    """Import, then fork for every request until the channel closes."""
    for name in preload:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page that it looks at
    while received := _receive(channel):
        request, descriptors = received
        child = os.fork()
        if child == 0:
            channel.close()
            _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # what it left behind
        channel.sendall(json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


def _receive(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    text, descriptors = b"", []
    while not text.endswith(b"\n"):
        part, found, _, _ = socket.recv_fds(channel, _LINE, 2)
        if not part:
            return None
        text, descriptors = text + part, descriptors + list(found)
    return json.loads(text), descriptors


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """In the fork: turn into the command, and end."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for place, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    leave(lambda: main_of(request["module"])(request["arguments"]), request["module"])


def main_of(module: str) -> Callable[[list[str]], int | None]:
    """The function behind `python -m module`."""
    found = importlib.import_module(module)
    return (importlib.import_module(f"{module}.__main__") if hasattr(found, "__path__") else found).main


def leave(action: Callable[[], int | None], name: str) -> None:
    """Do something and end this process with its status, without what a parent process left to be done at exit."""
    sys.argv = [name]
    status = 1
    try:
        status = action() or 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xFF)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(socket.socket(fileno=int(sys.argv[1])), [name for name in sys.argv[2].split(",") if name])
