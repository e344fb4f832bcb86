"""Measure names that stdin lists, one a line, as "op NAME" or "module NAME"; one JSON row a line on stdout.

A process of its own: XLA keeps every program that it compiled, and a call may end the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until stdin ends."""
    from maxcode.coverage import modules, ops

    for line in sys.stdin:
        kind, _, name = line.strip().partition(" ")
        started = time.process_time()
        try:
            row = (ops if kind == "op" else modules).measure(name)
        except Exception:  # a row is owed whatever happens
            row = failed("the measurement itself failed", traceback.format_exc()[-300:])
        row["seconds"] = round(time.process_time() - started, 1)
        sys.stdout.write(json.dumps({"key": line.strip(), "row": row}) + "\n")
        sys.stdout.flush()


def failed(why: str, where: str = "") -> dict[str, Any]:
    """The row of a name that could not be measured: a miss."""
    return {"left_out": None, "samples": 1, "agree": 0, "gradients": 0, "limits": {}, "misses": [[why, 1, where]]}


def environment(cache: Path) -> dict[str, str]:
    """What a worker runs with: programs are small and run once, so they are compiled quickly, and kept between runs."""
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    return os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "OMP_NUM_THREADS": "1",
    }


if __name__ == "__main__":
    main()
