"""Exit statuses, and the one exception that carries a message meant for the user."""

import errno
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit statuses of every command; a contract."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    INCOMPLETE = 3  # gaps, traced parts, or an applicable check that did not run
    INTERNAL = 4
    INTERRUPTED = 130


class MaxCodeError(Exception):
    """Something the user can act on: where it is, what was found, what was expected, what to do. Exit status 2.

    Args:
      where: the file, option or name at fault.
      found: what is there.
      expected: what would have been right; "" when `found` says it.
      do: what the user can do about it; "" when nothing.
    """

    exit_status: Exit = Exit.BAD_INPUT

    def __init__(self, where: str, found: str, expected: str = "", do: str = "") -> None:
        self.where, self.found, self.expected, self.do = where, found, expected, do
        tail = (f"; expected {expected}" if expected else "") + (f". {do[:1].upper()}{do[1:]}" if do else "")
        super().__init__(f"{where}: {found}{tail}")


class InternalError(MaxCodeError):
    """A stage broke in a way that is no fault of the input. Exit status 4."""

    exit_status = Exit.INTERNAL


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a quota, a limit on the size of files
_NO_SPACE_TEXTS = (
    "no space left on device",
    "storagefull",
    "disk quota exceeded",
    "file too large",
    *(f"os error {number})" for number in _NO_SPACE),
)


def is_no_space(error: BaseException | str) -> bool:
    """Whether an error, its causes, or the text of a subprocess says that the disk is full."""
    if isinstance(error, str):
        return any(text in error.lower() for text in _NO_SPACE_TEXTS)
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _NO_SPACE:
            return True
        if is_no_space(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def no_space(where: Path | str) -> MaxCodeError:
    """The error for a full disk."""
    found = "no space left on the device, or a limit on space or file sizes is reached (quota, ulimit -f)"
    return MaxCodeError(str(where), found, do="free some space or choose another place with -o")
