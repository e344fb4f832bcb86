"""Lay the stages out as the `maxcode` package, for tools that read folders and do not follow import hooks.

    python tools/typetree.py build/typecheck

Makes real folders with one link per file, and an empty `__init__.py` where the source folder has none: import-linter
and pyright then see `maxcode.converter` just as an installed wheel has it. Safe to run again; stale links go.
"""

import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIP = {"__pycache__"}


def package_folders() -> dict[str, Path]:
    """The top-level packages of pyproject.toml: import name -> source folder."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {name: ROOT / folder for name, folder in settings["tool"]["setuptools"]["package-dir"].items()}


def link_folder(source: Path, target: Path) -> None:
    """Mirror one source folder, recursively."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in sorted(source.iterdir()):
        if entry.name in SKIP:
            continue
        if entry.is_dir():
            link_folder(entry, target / entry.name)
        elif entry.suffix in {".py", ".pyi"}:
            (target / entry.name).symlink_to(entry)
    if not (target / "__init__.py").exists():
        (target / "__init__.py").write_text("")


def main(destination: str) -> None:
    """Build the tree anew."""
    base = Path(destination)
    shutil.rmtree(base, ignore_errors=True)
    for name, folder in package_folders().items():
        link_folder(folder, base.joinpath(*name.split(".")))


if __name__ == "__main__":
    main(sys.argv[1])
