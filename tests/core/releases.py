"""Convert the core architectures from other releases of transformers, and compare with PyTorch in float64.

    python tests/core/releases.py [--releases 5.12.1,5.2.0] [--types a,b]

Each release is installed below `build/releases/` and shadows the environment's own in processes of its own. Prints a
line for each architecture; exit status 1 when one has a gap or differs by more than 1e-10.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASES = "5.12.1,5.2.0"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", default=RELEASES)
    parser.add_argument("--types", default="")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # the child process of one release
    options = parser.parse_args()
    if options.here:
        return convert_all([name for name in options.types.split(",") if name])
    status = 0
    for release in options.releases.split(","):
        environment = os.environ | {"PYTHONPATH": f"{installed(release)}{os.pathsep}{ROOT}", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, str(Path(__file__)), "--here", "--types", options.types]
        status |= subprocess.run(command, env=environment, check=False).returncode
    return status


def installed(release: str) -> Path:
    """The folder of one release with what it needs, installed on first use."""
    folder = ROOT / "build" / "releases" / release
    if not (folder / "transformers").is_dir():
        pins = [f"{name}=={metadata.version(name)}" for name in ("numpy", "safetensors")]  # one copy in a process
        command = [sys.executable, "-m", "pip", "install", "-qq", "--target", str(folder), f"transformers=={release}"]
        subprocess.run([*command, *pins], check=True)
    return folder


def convert_all(types: list[str]) -> int:
    """Convert and compare in this process, whose transformers is the release."""
    warnings.filterwarnings("ignore")
    from tests.core import stored

    failed = 0
    with tempfile.TemporaryDirectory() as place:
        stored.DATA = Path(place)  # records of this release, not those of the repository
        for name in types or stored.TYPES:
            text, good = convert_one(name, Path(place) / "packages" / name)
            failed += not good
            print(f"{metadata.version('transformers'):<8} {name:<14} {text}", flush=True)
    return int(failed > 0)


def convert_one(name: str, folder: Path) -> tuple[str, bool]:
    """What to say of one architecture, and whether it converts and agrees."""
    from maxcode.evaluator.tolerance import EXACT
    from tests.core import record_facts, stored

    folder.mkdir(parents=True)
    try:
        stored.save(name, record_facts.recorded(name))
        conversion = stored.conversion_of(name, f"release_{name}")
        if conversion.gaps:
            gap = conversion.gaps[0]
            where = f"{Path(gap.file).name}:{gap.line} {gap.torch_name}: {gap.reason}"
            return f"{len(conversion.gaps)} gaps, first {where}", False
        stored.write_package(name, conversion, folder, f"release_{name}")
        error = max(stored.errors(name, folder, f"release_{name}").values())
    except Exception as raised:  # one architecture must not hide the others
        return f"{type(raised).__name__}: {' '.join(str(raised).split())[:300]}", False
    return f"{error:.1e}", error <= EXACT


if __name__ == "__main__":
    sys.exit(main())
