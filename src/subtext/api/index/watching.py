"""`subtext index watch`: an index that follows its data set."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from subtext.api.index.growth import update
from subtext.api.load import Work
from subtext.errors import DataError, counted
from subtext.report.progress import say
from subtext.search.stores.opened import open_store


def watch(
    work: Work,
    index: Path | str,
    *,
    every: float = 30.0,
    rounds: int | None = None,
    keep_missing: bool = False,
    wait: Callable[[float], None] = time.sleep,
) -> str:
    """Update the index at once, and again whenever a file of its data has changed, until somebody stops it.

    every   seconds between two looks      rounds  how many looks; None for no end
    wait    sleeps for so many seconds

    Data that cannot be read in some round is told, and read again in a later one: a data set may be in the midst of
    being written. Raises RequirementError for an index that was made of no data set.
    """
    before: dict[str, tuple[int, int]] | None = None
    done = 0
    while rounds is None or done < rounds:
        if done:
            wait(every)
        now = state_of(watched(index))
        if now != before:
            try:
                say(update(work, index, keep_missing=keep_missing), quiet=work.quiet)
                before = now
            except DataError as problem:
                say(f"not updated: {problem}")
        done += 1
    return f"{index}: looked {counted(done, 'time')}"


def watched(index: Path | str) -> list[Path]:
    """The files and folders that an index was made of.

    Raises RequirementError through `update` where there is none; SubtextError when the index cannot be read.
    """
    folder = open_store(index)
    found: list[Path] = []
    with folder.reading() as view:
        for job in view.jobs():
            for name in ("data", "images", "features", "text_features"):
                place = (job.source or {}).get(name)
                if place and Path(place) not in found:
                    found.append(Path(place))
    folder.close()
    return found


def state_of(places: list[Path]) -> dict[str, tuple[int, int]]:
    """Size and time of each file: what changes when data changes."""
    found: dict[str, tuple[int, int]] = {}
    for place in places:
        for file in [place, *(place.rglob("*") if place.is_dir() else [])]:
            try:
                about = file.stat()
            except OSError:
                continue  # Gone since it was listed: the next look sees that.
            found[str(file)] = (about.st_size, about.st_mtime_ns)
    return found
