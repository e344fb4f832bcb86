"""Model repositories: the ordinary loading code of huggingface_hub, which looks into the local cache first."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from maxcode.errors import MaxCodeError, is_no_space
from maxcode.progress import Progress

_METADATA = ["*.json", "*.txt", "*.model", "*.jinja", "LICENSE*", "NOTICE*"]


def fetch(
    name: str, revision: str | None, progress: Progress, *, weights: bool, code: bool, pickle: bool
) -> tuple[Path, str]:
    """The folder of a repository and its commit; downloads what the cache lacks.

    Args:
      weights: fetch the weights too (safetensors; with `pickle` also `.bin`).
      code: fetch the repository's own Python files.

    Raises:
      MaxCodeError: no such repository or revision, no access, or neither network nor a cached copy.
    """
    from huggingface_hub import errors, snapshot_download

    patterns = _METADATA + ["*.safetensors"] * weights + ["*.bin"] * (weights and pickle) + ["*.py"] * code
    progress.item(f"fetch {name}")
    try:
        with _without_chatter():
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    except errors.GatedRepoError:
        raise MaxCodeError(name, "access is not granted", do="ask for access, then run hf auth login") from None
    except errors.RevisionNotFoundError:
        raise MaxCodeError(f"{name} --revision {revision}", "no such revision", "a branch, tag or commit") from None
    except errors.RepositoryNotFoundError:
        raise _unknown(name, "the hub has no such model, or it is private") from None
    except errors.LocalEntryNotFoundError as error:
        raise _unknown(name, f"not in the local cache, and the hub was not reached ({_first_line(error)})") from None
    except errors.HFValidationError as error:
        raise _unknown(name, f"no valid hub id ({_first_line(error)})") from None
    except OSError as error:
        if is_no_space(error):
            raise
        raise _unknown(name, f"could not be fetched ({_first_line(error)})") from None
    return folder, folder.name  # a snapshot's folder is named by its commit


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """No bars and no warnings of the hub's own on stderr: progress is ours to show, failures come as exceptions."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    level, hidden = logging.get_verbosity(), are_progress_bars_disabled()
    logging.set_verbosity_error()
    disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if not hidden:
            enable_progress_bars()


def _unknown(name: str, found: str) -> MaxCodeError:
    do = "check the spelling and the network, or name a local folder"
    return MaxCodeError(name, found, "a model of the Hugging Face hub, or a file or folder here", do)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
