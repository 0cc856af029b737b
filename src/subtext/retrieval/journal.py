"""The journal of an index: its jobs, and the items that were deleted from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subtext.retrieval.index_files import json_object
from subtext.retrieval.stores.item import Side, deletion_hash
from subtext.retrieval.stores.store import Store, View


@dataclass(frozen=True)
class IndexJob:
    """One job of the journal.

    Attributes:
        number: Number of the job, from 1.
        verb: Name of the command, such as "add".
        source: Where its items came from, as plain data; None for a deletion or a compaction.
        started: UTC time, ISO 8601.
        finished: UTC time; None while the job runs, and after an interruption.
        done: Number of processed items.
        total: Number of items to process.
        damaged: Whether the record cannot be read: what it does not tell is None, "" or 0, and its source is unknown.
    """

    number: int
    verb: str
    source: Mapping[str, Any] | None
    started: str
    finished: str | None
    done: int
    total: int
    damaged: bool = False


def journal(view: View) -> list[IndexJob]:
    """All jobs, the first one first. A damaged record closes no index: a search hardly needs it.

    Args:
        view: The index at one moment.

    Returns:
        The jobs, oldest first.
    """
    return [_job(row) for row in view.records("jobs")]


def _job(row: tuple[Any, ...]) -> IndexJob:
    number, verb, source, started, finished, done, total = row
    parsed = json_object(source)
    intact = (
        all(type(value) is int and value >= 0 for value in (number, done, total))
        and isinstance(verb, str)
        and isinstance(started, str)
        and isinstance(finished, str | None)
        and (source is None or parsed is not None)
    )
    if intact:
        return IndexJob(number, verb, parsed, started, finished, done, total)
    verb, started = (value if isinstance(value, str) else "" for value in (verb, started))
    number, done, total = (value if type(value) is int else 0 for value in (number, done, total))
    # Not finished would mean that its command could be run again.
    return IndexJob(number, verb, None, started, started, done, total, damaged=True)


def unfinished(store: Store) -> list[IndexJob]:
    """The jobs that are running, or were interrupted.

    Args:
        store: The index.

    Returns:
        The jobs that run or were interrupted.
    """
    with store.reading() as view:
        return [job for job in journal(view) if job.finished is None]


def deleted_before(view: View, side: Side, ids: Sequence[str]) -> set[str]:
    """Those of these ids that were deleted, and have not been added again since.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        ids: Ids of items of that side.

    Returns:
        Those of the ids that were deleted and not added again.
    """
    hashes = {deletion_hash(side, name): name for name in ids}
    return {hashes[digest] for digest in view.deleted_among(list(hashes))}
