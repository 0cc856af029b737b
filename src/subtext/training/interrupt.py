"""Ctrl-C and SIGTERM ask a training to stop at the next step; a second Ctrl-C does not ask."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """What a signal calls: remember it, and give the next Ctrl-C its usual meaning."""
        self.asked = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def listening() -> Iterator[Stop]:
    """Hear SIGINT and SIGTERM inside the block; only the main thread can."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop.ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
