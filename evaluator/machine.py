"""What of the machine this process may use."""

import os


def cpus() -> int:
    """CPUs that the process may run on; all of them where the system does not tell (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
