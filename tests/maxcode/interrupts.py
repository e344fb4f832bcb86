"""What tests that interrupt a process share."""

import signal


def hear_interrupts() -> None:
    """For `preexec_fn`: a suite that runs in the background of a shell hands down that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
