"""Progress as JSON lines on stderr; the parent process turns them into its own display."""

import json
import sys
import time

_START = time.monotonic()


def progress(stage: str, item: str = "", done: int | None = None, total: int | None = None) -> None:
    """Writes one line `{"progress": {...}}` to stderr, flushed at once."""
    record = {"stage": stage, "item": item, "elapsed": round(time.monotonic() - _START, 3)}
    if total is not None:
        record |= {"done": done, "total": total}
    sys.stderr.write(json.dumps({"progress": record}) + "\n")
    sys.stderr.flush()
