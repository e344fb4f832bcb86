"""Output folders that are either whole or untouched.

A run builds in a hidden sibling (`.NAME.maxcode-PID-XXXX`), so that the last step is a rename on one file system. Linux
swaps old and new in one system call; elsewhere the old folder steps aside first and comes back if anything fails. What
a killed run left behind is put right by the next one.
"""

import ctypes
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maxcode.errors import MaxCodeError, is_no_space, no_space

MARKER = ".maxcode.json"
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def is_ours(folder: Path) -> bool:
    """Whether MaxCode wrote this folder."""
    try:
        record = json.loads((folder / MARKER).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("tool") == "maxcode"


def read_marker(folder: Path) -> dict[str, Any]:
    """What stands in the marker of a folder that MaxCode wrote."""
    return json.loads((folder / MARKER).read_text())


def write_marker(folder: Path, record: dict[str, Any]) -> None:
    """Mark a folder as MaxCode's, with what is needed to gate it again."""
    (folder / MARKER).write_text(json.dumps({"tool": "maxcode", "format": 1, **record}, indent=2) + "\n")


def check_output(output: Path, *, force: bool = False, inputs: tuple[Path, ...] = ()) -> None:
    """Refuse an output place that would lose something.

    Raises:
      MaxCodeError: the place is a file, cannot be written, is or holds an input or the working folder, or is a
        non-empty folder that MaxCode did not write (unless `force`).
    """
    place = output.resolve()
    for kept in (*(path.resolve() for path in inputs), Path.cwd(), Path.home().resolve()):
        if kept == place or place in kept.parents:
            raise MaxCodeError(
                f"-o {output}", f"replacing it would delete {kept}", "a folder of its own", "choose another -o"
            )
    if place.is_dir():
        if any(place.iterdir()) and not is_ours(place) and not force:
            raise MaxCodeError(
                f"-o {output}",
                f"is not empty and MaxCode did not write it (no {MARKER})",
                "a new, empty or MaxCode-written folder",
                "choose another -o, or give --force to replace it",
            )
    elif os.path.lexists(output) and not (place.exists() and force and place.is_file()):
        raise MaxCodeError(f"-o {output}", "is not a folder", "a folder", "choose another -o")
    parent = next(p for p in place.parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise MaxCodeError(f"-o {output}", f"{parent} cannot be written", "a writable folder", "choose another -o")


def recover(output: Path) -> None:
    """Put right what a killed run left beside `output`: bring back a folder set aside, delete unfinished ones."""
    place = output.resolve()
    if not place.parent.is_dir():
        return
    for leftover in sorted(place.parent.glob(f".{_escape(place.name)}.maxcode-*")):
        pid = re.search(r"\.maxcode-(?:old-)?(\d+)", leftover.name)
        if pid is None or _is_alive(int(pid[1])):
            continue
        if ".maxcode-old-" in leftover.name and not place.exists():
            leftover.rename(place)
        else:
            _remove(leftover)


@contextmanager
def staged_output(output: Path, *, force: bool = False, inputs: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Give a folder to build in; it becomes `output` when the block ends without an exception, else it goes.

    Raises:
      MaxCodeError: `check_output` refuses the place, or the disk is full.
    """
    recover(output)
    check_output(output, force=force, inputs=inputs)
    place = output.resolve()
    staging: Path | None = None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{place.name}.maxcode-{os.getpid()}-", dir=place.parent))
        staging.chmod(0o777 & ~_umask())
        yield staging
        _commit(staging, place)
    except BaseException as error:
        if staging is not None:
            _remove(staging)
        if is_no_space(error):
            raise no_space(place.parent) from error
        raise


def _commit(staging: Path, place: Path) -> None:
    _sync(staging)
    if not os.path.lexists(place):
        staging.rename(place)
        return
    if _exchange(staging, place):
        _remove(staging)  # now the old content
        return
    aside = place.with_name(f".{place.name}.maxcode-old-{os.getpid()}")
    try:
        place.rename(aside)
        staging.rename(place)
    except BaseException:
        if aside.exists() and not place.exists():
            aside.rename(place)
        raise
    _remove(aside)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two paths in one system call where the platform can; False where it cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    done = rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), ctypes.c_uint(_RENAME_EXCHANGE))
    return done == 0


def _sync(folder: Path) -> None:
    """Flush to disk, so that a full or failing disk shows before the old output goes."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # our own earlier attempt in this process; runs do not nest
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _escape(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def find_package(folder: Path) -> tuple[Path, dict[str, Any]]:
    """An output folder of MaxCode and its marker record.

    Raises:
      MaxCodeError: the folder does not exist or MaxCode did not write it.
    """
    if not is_ours(folder):
        found = "MaxCode did not write it" if folder.is_dir() else "no such folder"
        raise MaxCodeError(str(folder), found, "an output folder of maxcode convert", "run maxcode convert first")
    marker = read_marker(folder)
    if "request" not in marker:
        do = (
            f"name the package that it was written from, {marker['package']}"
            if "package" in marker
            else "convert again"
        )
        raise MaxCodeError(str(folder), "no package, though MaxCode wrote it", "an output of maxcode convert", do)
    return folder.resolve(), marker
