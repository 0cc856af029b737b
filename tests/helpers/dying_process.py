"""Processes that kill themselves in the midst of writing: when they flush something to the disk for the n-th time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def die_at_flush(number: int) -> None:
    """From now on this process kills itself at its n-th flush."""
    plain, left = os.fsync, [number]

    def flush(descriptor: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        plain(descriptor)

    os.fsync = flush  # type: ignore[assignment]


def killed_at_flush(work: Callable[[], object], number: int) -> bool:
    """Do the work in a child that dies at its n-th flush; whether it came to that."""
    child = os.fork()
    if not child:
        die_at_flush(number)
        try:
            work()
        finally:
            # The child must not go on into the tests of its parent.
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
