"""Talking to a live oracle process: one JSON request a line, tensors through files."""

import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from maxcode.evaluator.tensors import TensorFile, write_tensors


class PeerError(Exception):
    """The oracle process refused a request, or ended."""


class Peer:
    """`with Peer(command) as peer: peer.forward(inputs)`; the process ends with the block."""

    def __init__(self, command: list[str]):
        self.command, self._count = command, 0

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="maxcode-peer-")
        self._log = (Path(self._folder.name) / "stderr").open("w+")
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            try:
                self.ask("stop")
                self._process.wait(10)
            except (PeerError, OSError, subprocess.TimeoutExpired):
                self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            pipe.close()
        self._folder.cleanup()

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """One request and its answer. Raises PeerError with the process's own words."""
        self._count += 1
        try:
            self._process.stdin.write(json.dumps({"id": self._count, "command": command, **fields}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self._log.seek(0)
            last = (self._log.read().strip().splitlines() or ["nothing on stderr"])[-1]
            raise PeerError(f"the oracle process ended at {command!r} (status {self._process.poll()}): {last}")
        record = json.loads(answer)
        if not record.get("ok"):
            raise PeerError(f"the oracle refused {command!r}: {record.get('error')}")
        return record

    def call(
        self, command: str, inputs: dict[str, Any], cotangents: dict[str, np.ndarray] | None = None, **fields: Any
    ):
        """`forward` or `vjp`. Returns (outputs, gradients by input name, the answer)."""
        tree, tensors = to_tree(inputs)
        named = {name: f"cotangent.{name}" for name in cotangents or {}}
        tensors |= {named[name]: value for name, value in (cotangents or {}).items()}
        stem = Path(self._folder.name) / str(self._count)
        given, out = stem.with_suffix(".in"), stem.with_suffix(".out")
        write_tensors(given, tensors)
        fields |= {"cotangents": named} if cotangents is not None else {}
        fields = {"dtype": "float64", "lifted": True, **fields}
        answer = self.ask(command, file=str(given), inputs=tree, out=str(out), **fields)
        found = TensorFile(out)
        outputs = {name: np.array(found[key]) for name, key in answer["outputs"].items()}
        gradients = {name: np.array(found[key]) for name, key in answer.get("gradients", {}).items()}
        given.unlink()
        out.unlink()
        return outputs, gradients, answer

    def seconds(
        self, what: str, inputs: dict[str, Any], repeat: int, dtype: str = "float32", **fields: Any
    ) -> list[float]:
        """Times of `forward`, `training_step` or `decode` in the oracle process."""
        tree, tensors = to_tree(inputs)
        given = Path(self._folder.name) / f"{what}.in"
        write_tensors(given, tensors)
        answer = self.ask("time", what=what, file=str(given), inputs=tree, dtype=dtype, repeat=repeat, **fields)
        return answer["seconds"]


def to_tree(inputs: Any, prefix: str = "in") -> tuple[Any, dict[str, np.ndarray]]:
    """An input tree with `{"$tensor": key}` in place of arrays, and the arrays by key."""
    if hasattr(inputs, "shape"):
        return {"$tensor": prefix}, {prefix: np.asarray(inputs)}
    if not isinstance(inputs, dict | list | tuple):
        return inputs, {}
    items = inputs.items() if isinstance(inputs, dict) else enumerate(inputs)
    parts = {name: to_tree(value, f"{prefix}.{name}") for name, value in items}
    tensors = {key: value for _, found in parts.values() for key, value in found.items()}
    trees = {name: tree for name, (tree, _) in parts.items()}
    return (trees if isinstance(inputs, dict) else list(trees.values())), tensors
