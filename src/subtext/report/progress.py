"""Progress: a bar in a terminal, plain lines elsewhere, nothing with `quiet`.

Everything goes to standard error, so that results on standard output stay clean.
"""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from subtext.errors import ArgumentError
from subtext.report.text_table import duration, printable

if TYPE_CHECKING:
    from rich.progress import Progress

P = ParamSpec("P")
T = TypeVar("T")
TrainingReport = Any
"""A `training.setup.TrainingProgress`; training is a layer above this one."""

LINE_EVERY = 10.0
"""Seconds between two plain lines."""
WINDOW = 30.0
"""Seconds over which the rate of progress is measured."""
ENOUGH = 1.0
"""Seconds of progress before an estimate is shown; the start, which may load or compile, does not count."""


def say(message: str, *, quiet: bool = False) -> None:
    """Print a note on standard error.

    Args:
        message: The note.
        quiet: Whether nothing is printed.
    """
    if (turns := _SAID.get()) is not None:
        turns[1].add(message)
    if not quiet and (turns is None or message not in turns[0]):
        print(printable(message), file=sys.stderr, flush=True)


_SAID: ContextVar[tuple[frozenset[str], set[str]] | None] = ContextVar("notes of a repeated work", default=None)


@contextmanager
def each_once(before: Iterable[str]) -> Iterator[set[str]]:
    """Inside the block, notes of an earlier turn of the same work are not printed again.

    Args:
        before: The notes of the earlier turn.

    Yields:
        A set that receives the notes of this turn.
    """
    now = set[str]()
    token = _SAID.set((frozenset(before), now))
    try:
        yield now
    finally:
        _SAID.reset(token)


_CALLED: ContextVar[Callable[[int, int], None] | None] = ContextVar(
    "function that the caller wants called", default=None
)


def with_progress(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function call what its argument `progress` is with the numbers of finished items and of all items.

    Args:
        function: It need not look at `progress`: every meter does.

    Returns:
        The function.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        progress: Any = kwargs.get("progress")
        if progress is not None and not callable(progress):
            raise ArgumentError(f"progress needs a function of two numbers, done and total; it got {progress!r:.60}")
        if progress is not None:
            _require_two_numbers(progress)
        token = _CALLED.set(progress)
        try:
            return function(*args, **kwargs)
        finally:
            _CALLED.reset(token)

    return called


def _require_two_numbers(progress: Callable[..., Any]) -> None:
    """Raise ArgumentError for a function that cannot be called with two numbers."""
    try:
        signature = inspect.signature(progress)
    except ValueError:  # Some functions of C have none.
        return
    try:
        signature.bind(0, 1)
    except TypeError as error:
        raise ArgumentError(
            f"progress needs a function of two numbers, done and total; with two numbers, {progress!r:.60} has "
            f"{error}; wrap it: lambda done, total: ..."
        ) from None


@contextmanager
def counter(label: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show progress of items whose number becomes known on the way.

    Args:
        label: Name of the work.
        quiet: Whether nothing is shown.

    Yields:
        A function to call with the numbers of finished items and of all items.
    """
    called = _CALLED.get()
    with _shown(label, quiet=quiet) as show:
        if called is None:
            yield show
            return

        def both(finished: int, total: int) -> None:
            show(finished, total)
            called(finished, total)

        yield both


@contextmanager
def _shown(label: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    if quiet:
        yield lambda finished, total: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task(label, total=None)
            yield lambda finished, total: bar.update(task, completed=min(finished, total), total=total)
    else:
        estimate, say_sometimes = Estimate(), _throttled()

        def show(finished: int, total: int) -> None:
            seconds, rate = estimate(finished, total), estimate.rate
            left = ""
            if seconds is not None and rate:  # All may be done before a rate is known.
                left = f", {rate:,.{2 * (rate < 10)}f} a second, {duration(seconds)} left"
            say_sometimes(f"{label}: {finished:,} of {total:,}{left}")

        yield show


@contextmanager
def meter(label: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show progress of a known number of items.

    Args:
        label: Name of the work.
        total: Number of items.
        quiet: Whether nothing is shown.

    Yields:
        A function to call with the number of finished items.
    """
    with counter(label, quiet=quiet) as show:
        yield lambda finished: show(finished, total)


@contextmanager
def training_meter(*, quiet: bool = False) -> Iterator[Callable[[TrainingReport], None]]:
    """Show progress of a training: a line per epoch and note; between them a bar, or plain lines.

    Args:
        quiet: Whether nothing is shown.

    Yields:
        A function for `fit` to report to.
    """
    if quiet:
        yield lambda report: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("starting", total=None)

            def show(report: TrainingReport) -> None:
                if (line := _line(report)) is not None:
                    bar.console.print(printable(line), markup=False)
                bar.update(task, total=report.steps, completed=report.step, description=_where(report))

            yield show
    else:
        say_sometimes = _throttled()

        def print_line(report: TrainingReport) -> None:
            if (line := _line(report)) is not None:
                say(line)
            else:
                say_sometimes(f"{_where(report)}, step {report.step:,} of {report.steps:,}{_left(report)}")

        yield print_line


def _line(report: TrainingReport) -> str | None:
    """The line of a note or of the end of an epoch; None for a step."""
    if report.note is not None:
        return f"note: {report.note}"
    if report.ended is None:
        return None
    recall = f"; recall@10 {_recall(report.figures)}" if report.figures else ""
    loss = "before training" if math.isnan(report.loss) else f"loss {report.loss:.4g}"
    return f"epoch {report.ended} of {report.epochs}: {loss}{recall}{_left(report)}"


def _where(report: TrainingReport) -> str:
    loss = "" if math.isnan(report.loss) else f", loss {report.loss:.4g}"
    recall = f", recall@10 {_recall(report.figures, short=True)}" if report.figures else ""
    return f"epoch {report.epoch} of {report.epochs}{loss}{recall}"


def _recall(figures: Mapping[str, float], *, short: bool = False) -> str:
    names = {"image to text": "image_to_text/recall@10", "text to image": "text_to_image/recall@10"}
    if short:
        return " and ".join(f"{figures[name]:.1f}" for name in names.values() if name in figures)
    values = [f"{label} {figures[name]:.1f}" for label, name in names.items() if name in figures]
    return ", ".join(values) + (f", rsum {figures['rsum']:.1f}" if "rsum" in figures else "")


def _left(report: TrainingReport) -> str:
    return f"; {duration(report.seconds_left)} left" if report.seconds_left else ""


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Items a second."""

        def render(self, task: Task) -> Text:
            """Nothing before enough is known."""
            return Text("" if task.speed is None else f"{task.speed:,.{2 * (task.speed < 10)}f}/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True, highlight=False, markup=False))


class Estimate:
    """The time that is left, by the rate of the last `WINDOW` seconds.

    Args:
        rate: Items a second, as of the last call; 0 before enough is known.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self._samples: deque[tuple[float, int]] = deque()

    def __call__(self, finished: int, total: int) -> float | None:
        """Estimate the remaining time.

        Args:
            finished: Number of finished items.
            total: Number of all items.

        Returns:
            Seconds; None before enough is known.
        """
        now = time.monotonic()
        if not self._samples or (finished > self._samples[-1][1] and now - self._samples[-1][0] >= 0.1):
            self._samples.append((now, finished))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW:
            self._samples.popleft()
        (start, first), (_, last) = self._samples[0], self._samples[-1]
        if finished >= total:
            return 0.0
        if last == first or now - start < ENOUGH:
            return None
        self.rate = (last - first) / (now - start)
        return max(total - finished, 0) / self.rate


def _throttled() -> Callable[[str], None]:
    """`say`, at most every `LINE_EVERY` seconds."""
    last = time.monotonic()

    def call(message: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_EVERY:
            last = now
            say(message)

    return call
