"""How far something is: a bar in a terminal, plain lines elsewhere, nothing when asked to be quiet.

Everything goes to standard error, so that results on standard output stay clean.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from subtext.app.table import duration

LINE_EVERY = 5.0
"""Seconds between two plain lines."""


def say(message: str, *, quiet: bool = False) -> None:
    """A remark on standard error."""
    if not quiet:
        print(message, file=sys.stderr, flush=True)


@contextmanager
def meter(label: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many of `total` are finished.

    total  above 0; what is told beyond it counts as finished
    """
    if quiet:
        yield lambda finished: None
    elif sys.stderr.isatty():
        yield from _bar(label, total)
    else:
        yield _plain(label, total)


def _bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=total)
        yield lambda finished: progress.update(task, completed=min(finished, total))


def _plain(label: str, total: int) -> Callable[[int], None]:
    started = time.monotonic()
    last = started

    def told(finished: int) -> None:
        nonlocal last
        now = time.monotonic()
        if finished >= total or now - last >= LINE_EVERY:
            last = now
            left = duration((now - started) / max(finished, 1) * max(total - finished, 0))
            say(f"{label}: {finished} of {total}, {left} left")

    return told
