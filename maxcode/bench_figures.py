"""The single figures of `make bench`. Ratios are medians over interleaved runs; the spread is shown beside them."""

import dataclasses
import filecmp
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maxcode.errors import MaxCodeError
from maxcode.output import find_package
from maxcode.processes import python_module
from maxcode.two_sides import sides

POSITIONS, STEPS = 512, 64
LONGEST = "transformers:t5"  # the longest modeling file of the core list
PROMPT = "What is the capital of France?"


@dataclass(frozen=True)
class Setting:
    """What is measured, a folder to work in, and how much of the machine and of its time to use."""

    package: Path
    place: Path
    threads: int
    rounds: int


@dataclass(frozen=True)
class Figure:
    """A number with its limit and how it was measured."""

    name: str
    value: float
    limit: float
    how: str
    unit: str = "x"
    at_most: bool = True

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"holds": self.holds}


def speed(setting: Setting) -> list[Figure]:
    """Forward of 1x512 tokens and greedy decoding of 64 tokens, each beside PyTorch."""
    vocabulary = json.loads((setting.package / "config.json").read_text())["vocab_size"]
    ids = np.random.default_rng(0).integers(0, vocabulary, (1, POSITIONS))
    requests = {
        f"forward 1x{POSITIONS}": (1.0, {"what": "forward", "inputs": {"input_ids": ids.tolist()}}),
        f"decode {STEPS} tokens": (
            0.65,
            {"what": "decode", "inputs": {"input_ids": ids[:, :32].tolist()}, "steps": STEPS},
        ),
    }
    with (
        tempfile.TemporaryDirectory(dir=setting.place) as place,
        sides(setting.package, setting.threads, Path(place)) as both,
    ):

        def theirs(request: dict[str, Any]) -> float:
            fields = {name: value for name, value in request.items() if name not in ("what", "inputs")}
            inputs = {"input_ids": np.asarray(request["inputs"]["input_ids"])}
            return both.torch.seconds(request["what"], inputs, 1, warm_up=False, **fields)[0]

        def ours(request: dict[str, Any]) -> float:
            return both.package.ask("time", **request)["seconds"][0]

        return [
            beside(name, limit, [(theirs(request), ours(request)) for _ in range(setting.rounds + 2)][2:])
            for name, (limit, request) in requests.items()
        ]


def beside(name: str, limit: float, pairs: list[tuple[float, float]]) -> Figure:
    """The ratio of medians of (PyTorch's, ours) seconds; the spread is of the single pairs' ratios."""
    theirs, ours = (statistics.median(side) for side in zip(*pairs))
    ratios = sorted(b / a for a, b in pairs)
    spread = (
        f"{ratios[len(ratios) // 4]:.2f} to {ratios[-1 - len(ratios) // 4]:.2f} (middle half of {len(pairs)} pairs)"
    )
    return Figure(name, ours / theirs, limit, f"{ours * 1e3:.0f} ms, PyTorch {theirs * 1e3:.0f} ms; {spread}")


def compile_growth(setting: Setting) -> list[Figure]:
    """Compile time of the forward at 48 layers over that at 6."""
    with (
        tempfile.TemporaryDirectory(dir=setting.place) as place,
        sides(setting.package, setting.threads, Path(place)) as both,
    ):
        runs = [{layers: both.package.ask("compile", layers=layers)["seconds"] for layers in (6, 48)} for _ in range(6)]
    few, many = (statistics.median(run[layers] for run in runs[1:]) for layers in (6, 48))
    how = f"trace, lower and compile: {many:.2f} s, 6 layers {few:.2f} s; medians of {len(runs) - 1}"
    return [Figure("compile, 48 layers over 6", many / few, 1.3, how)]


def second_start(setting: Setting) -> list[Figure]:
    """Seconds until two tokens are there (programs ready, and run), in a first process over a second one."""
    first, second = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory(dir=setting.place) as cache:
            times = [_start_seconds(setting.package, cache) for _ in range(3)]
        first.append(times[0])
        second += times[1:]
    before, after = statistics.median(first), statistics.median(second)
    how = f"model loaded to two tokens there: {before:.2f} s, then {after:.2f} s; medians of 3 and 6 processes"
    return [Figure("second start, times faster", before / after, 5.0, how, at_most=False)]


def _start_seconds(package: Path, cache: str) -> float:
    """What the package's own command reports: a whole two-token run, compilation included."""
    name = next(path.parent.name for path in package.glob("*/generate.py"))
    command = python_module(f"{name}.generate", f"--prompt={PROMPT}", "--max-new-tokens=4", "--json")
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": cache}
    done = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MaxCodeError(str(package), f"generate failed: {done.stderr[-300:]}", "an answer")
    return json.loads(done.stdout.splitlines()[-1])["seconds"]["compile"]


def determinism(setting: Setting) -> list[Figure]:
    """Files that differ between two conversions of the package's own input."""
    _, marker = find_package(setting.package)
    target = marker["target"]
    folders = [setting.place / side / "again" for side in ("first", "second")]
    for folder in folders:
        _convert(target, "-o", str(folder), "--no-gate")
    different = differing(*folders)
    detail = f": {', '.join(different[:5])}" if different else ", weights included; report/ left out (it has timings)"
    return [Figure("files that differ in a second conversion", len(different), 0, f"{target}{detail}", unit="")]


def differing(one: Path, other: Path) -> list[str]:
    """Relative names of files that are not the same bytes in both folders, or in one only; `report/` left out."""

    def names(folder: Path) -> set[str]:
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        return {name for name in found if not name.startswith("report/")}

    both = names(one) & names(other)
    _, mismatch, errors = filecmp.cmpfiles(one, other, sorted(both), shallow=False)
    return sorted({*mismatch, *errors} | (names(one) ^ names(other)))


def longest_file(setting: Setting) -> list[Figure]:
    """Seconds of `maxcode convert --no-weights` on the longest modeling file of the core list."""
    start = time.monotonic()
    _convert(LONGEST, "-o", str(setting.place / "longest"), "--no-weights")
    return [Figure("convert without weights", time.monotonic() - start, 30, LONGEST, unit=" s")]


def _convert(*arguments: str) -> None:
    command = [sys.executable, "-m", "maxcode.cli", "convert", *arguments, "--quiet", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: not gated
        raise MaxCodeError(" ".join(arguments), (done.stdout or done.stderr)[-300:], "a conversion")
