"""Look at the machine that MaxCode runs on, and say what to do about what is missing."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from maxcode.evaluator import sandbox
from maxcode.evaluator.verdict import Check, decide
from maxcode.processes import cache_folder
from maxcode.progress import Progress
from maxcode.records import Record, empty_record

_NEEDED_BYTES = 5_000_000_000


def examine(progress: Progress) -> Record:
    """Run every examination; status "verified" when nothing stands in the way."""
    progress.plan("doctor")
    progress.stage("doctor")
    examinations: list[tuple[str, Callable[[Progress], Check]]] = [
        ("python", _python),
        ("dependencies", _dependencies),
        ("torch", _torch),
        ("jax", _jax),
        ("disk", _disk),
        ("sandbox", _sandbox),
        ("hub cache", _hub_cache),
        ("compilation cache", _compilation_cache),
    ]
    checks = []
    for done, (name, examination) in enumerate(examinations):
        progress.item(name, done, len(examinations))
        checks.append(examination(progress))
    record = empty_record(decide(checks), "this machine")
    return record | {"checks": [check.to_json() for check in checks], "timings": dict(progress.timings)}


def _check(name: str, ok: bool, detail: str) -> Check:
    return Check(name, "pass" if ok else "fail", detail=detail)


def _python(progress: Progress) -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info >= (3, 11)
    return _check("python", ok, f"{version} at {sys.prefix}" + ("" if ok else "; install Python 3.11 or later"))


def _dependencies(progress: Progress) -> Check:
    """The installed versions against the ranges that the suite runs on."""
    try:
        requirements = metadata.requires("maxcode") or []
    except metadata.PackageNotFoundError:
        return _check("dependencies", False, "maxcode runs from a folder; install it with pip install -e .")
    wrong = [text for text in map(_unmet, requirements) if text]
    return _check("dependencies", not wrong, "; ".join(wrong) or f"{len(requirements)} requirements looked at")


def _unmet(text: str) -> str | None:
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    try:
        found = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is missing: pip install '{requirement}'"
    if requirement.specifier.contains(found.split("+")[0], prereleases=True):
        return None
    return f"{requirement.name} {found} is outside {requirement.specifier}: pip install '{requirement}'"


def _ask(name: str, code: str) -> tuple[bool, str]:
    """Run a line of Python in a process of its own: a broken installation must not take the doctor with it."""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return False, f"{name} does not answer"
    lines = [line for line in (done.stdout if done.returncode == 0 else done.stderr).splitlines() if line.strip()]
    return done.returncode == 0, lines[-1] if lines else name


def _torch(progress: Progress) -> Check:
    ok, text = _ask("torch", "import torch; torch.ones(2) @ torch.ones(2); print(torch.__version__)")
    if not ok:
        return _check("torch", False, f"{text}; pip install torch (the CPU build is enough)")
    return _check("torch", True, f"{text}, {'CPU build' if '+cpu' in text else 'accelerator build; CPU is enough'}")


def _jax(progress: Progress) -> Check:
    devices = "', '.join(sorted({f'{d.platform} {d.device_kind}' for d in jax.devices()}))"
    code = f"import jax; print(jax.__version__, {devices})"
    ok, text = _ask("jax", code)
    return _check("jax", ok, text if ok else f"{text}; pip install jax, or set JAX_PLATFORMS=cpu")


def _disk(progress: Progress) -> Check:
    places = {"here": Path.cwd(), "temporary files": Path(tempfile.gettempdir())}
    free = {name: shutil.disk_usage(path).free for name, path in places.items()}
    detail = ", ".join(f"{name} {count / 1e9:.1f} GB free" for name, count in free.items())
    ok = min(free.values()) >= _NEEDED_BYTES
    return _check("disk", ok, detail + ("" if ok else "; about twice the weights' size is needed"))


def _sandbox(progress: Progress) -> Check:
    """Bubblewrap, else namespaces; without either, model-written code is refused."""
    kind = sandbox.isolation()
    if kind != "none":
        return _check("sandbox", True, kind)
    return _check("sandbox", False, "none works; install bubblewrap, or give --unsafe-no-sandbox (recorded)")


def _hub_cache(progress: Progress) -> Check:
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    models = len(list(cache.glob("models--*"))) if cache.is_dir() else 0
    offline = "; offline (HF_HUB_OFFLINE is set)" if constants.HF_HUB_OFFLINE else ""
    return _check("hub cache", True, f"{cache}, {models} models{offline}")


def _compilation_cache(progress: Progress) -> Check:
    try:
        place = cache_folder()
    except OSError as error:
        return _check("compilation cache", False, f"{error}; set JAX_COMPILATION_CACHE_DIR to a writable folder")
    ok = os.access(place, os.W_OK)
    return _check("compilation cache", ok, f"{place}" + ("" if ok else "; not writable, set JAX_COMPILATION_CACHE_DIR"))
