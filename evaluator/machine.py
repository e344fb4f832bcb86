"""What of the machine this process may use."""

import contextlib
import os
import resource
from pathlib import Path

import psutil

# Memory in use and allowed, of the control group that a container runs in (versions 2 and 1).
_CONTROL_GROUPS = tuple(
    (f"/sys/fs/cgroup/{taken}", f"/sys/fs/cgroup/{allowed}")
    for taken, allowed in (
        ("memory.current", "memory.max"),
        ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"),
    )
)


def cpus() -> int:
    """CPUs that the process may run on; all of them where the system does not tell (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_limit() -> int:
    """Bytes that a limited process may hold: nine tenths of the machine's memory."""
    return int(psutil.virtual_memory().total * 0.9)


def room_for_weights() -> int:
    """Bytes of weights that this process can still hold and compute with.

    Four fifths of what is free: of the machine, of its control group and under the process's own limit.
    """
    free = [psutil.virtual_memory().available]
    limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if limit != resource.RLIM_INFINITY:
        free.append(limit - psutil.Process().memory_info().rss)
    for taken, allowed in _CONTROL_GROUPS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            free.append(int(Path(allowed).read_text()) - int(Path(taken).read_text()))
    return max(min(free) * 4 // 5, 0)
