"""The journal of an index: its jobs, and the items that were deleted from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subtext.retrieval.index_files import stored_object
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
    """

    number: int
    verb: str
    source: Mapping[str, Any] | None
    started: str
    finished: str | None
    done: int
    total: int


def journal(view: View) -> list[IndexJob]:
    """All jobs, the first one first.

    Args:
        view: The index at one moment.

    Returns:
        The jobs, oldest first.
    """
    return [
        IndexJob(number, verb, None if source is None else stored_object(source, f"job {number}"), *times)
        for number, verb, source, *times in view.records("jobs")
    ]


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
