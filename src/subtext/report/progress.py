"""How far something is: a bar in a terminal, plain lines elsewhere, nothing when asked to be quiet.

Everything goes to standard error, so that results on standard output stay clean.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from subtext.report.text_table import duration

if TYPE_CHECKING:
    from rich.progress import Progress

    from subtext.training.setup import Report

T = TypeVar("T")

LINE_EVERY = 10.0
"""Seconds between two plain lines."""


def say(message: str, *, quiet: bool = False) -> None:
    """A remark on standard error."""
    if not quiet:
        print(message, file=sys.stderr, flush=True)


@contextmanager
def meter(label: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many of `total` are finished."""
    if quiet:
        yield _nothing
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(label, total=total)
            yield lambda finished: bar.update(task, completed=min(finished, total))
    else:
        yield _lines(label, total)


@contextmanager
def image_meter(*, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that is told how many pictures have been looked at, and of how many."""
    if quiet:
        yield lambda finished, total: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("looking at pictures", total=None)
            yield lambda finished, total: bar.update(task, completed=finished, total=total)
    else:
        write: Callable[[tuple[int, int]], None] = _spaced(lambda told: say("pictures: {:,} of {:,}".format(*told)))
        yield lambda finished, total: write((finished, total))


@contextmanager
def training_meter(*, quiet: bool = False) -> Iterator[Callable[[Report], None]]:
    """Gives a function for `fit` to report to: a line for each epoch and note; between them a bar, or plain lines."""
    if quiet:
        yield _nothing
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("starting", total=None)

            def tell(report: Report) -> None:
                if (line := _line(report)) is not None:
                    bar.console.print(line)
                bar.update(task, total=report.steps, completed=report.step, description=_where(report))

            yield tell
    else:
        write: Callable[[Report], None] = _spaced(_step)

        def tell_plainly(report: Report) -> None:
            if (line := _line(report)) is not None:
                say(line)
            else:
                write(report)

        yield tell_plainly


def _step(report: Report) -> None:
    say(f"{_where(report)}, step {report.step:,} of {report.steps:,}{_left(report)}")


def _line(report: Report) -> str | None:
    """What should stay: a note, or the end of an epoch."""
    if report.note is not None:
        return f"note: {report.note}"
    if report.ended is None:
        return None
    told = f"; recall@10 {_recall(report.figures)}" if report.figures else ""
    return f"epoch {report.ended} of {report.epochs}: loss {report.loss:.4g}{told}{_left(report)}"


def _where(report: Report) -> str:
    loss = "" if math.isnan(report.loss) else f", loss {report.loss:.4g}"
    recall = f", recall@10 {_recall(report.figures, short=True)}" if report.figures else ""
    return f"epoch {report.epoch} of {report.epochs}{loss}{recall}"


def _recall(figures: Mapping[str, float], *, short: bool = False) -> str:
    names = {"image to text": "image_to_text/recall@10", "text to image": "text_to_image/recall@10"}
    if short:
        return " and ".join(f"{figures[name]:.1f}" for name in names.values() if name in figures)
    told = [f"{label} {figures[name]:.1f}" for label, name in names.items() if name in figures]
    return ", ".join(told) + (f", rsum {figures['rsum']:.1f}" if "rsum" in figures else "")


def _left(report: Report) -> str:
    return f"; {duration(report.seconds_left)} left" if report.seconds_left else ""


def _nothing(told: object) -> None:
    """For those who asked to be left in peace."""


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True, highlight=False, markup=False))


def _lines(label: str, total: int) -> Callable[[int], None]:
    started = time.monotonic()

    def write(finished: int) -> None:
        left = duration((time.monotonic() - started) / max(finished, 1) * max(total - finished, 0))
        say(f"{label}: {finished:,} of {total:,}, {left} left")

    return _spaced(write)


def _spaced(write: Callable[[T], None]) -> Callable[[T], None]:
    """Write at most once in a while."""
    last = time.monotonic()

    def told(what: T) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_EVERY:
            last = now
            write(what)

    return told
