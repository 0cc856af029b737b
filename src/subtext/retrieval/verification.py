"""All damage of an index, in whatever store it lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from subtext.errors import SearchIndexError
from subtext.retrieval.calibration import stored_calibration
from subtext.retrieval.journal import journal
from subtext.retrieval.lists import damaged_lists
from subtext.retrieval.ranker import stored_ranker
from subtext.retrieval.stores.documents import CALIBRATION, LISTS, RANKER
from subtext.retrieval.stores.errors import IndexIssue, IndexMovedError
from subtext.retrieval.stores.item import DERIVED, SIDES, SPACES, side_of
from subtext.retrieval.stores.registry import open_store, store_class
from subtext.retrieval.stores.store import Store, View
from subtext.text_helpers import counted, listed

ROWS = 2000
"""Rows that are read at a time."""
ATTEMPTS = 5
"""Number of attempts to verify an index while compactions remove the state that is read."""


def verify(index: Path | str) -> list[IndexIssue]:
    """All damage of an index; empty for an intact one.

    Args:
        index: Folder or address of the index.

    Returns:
        The damage, with its places.

    Raises:
        SearchIndexError: If there is no index.
        IndexMovedError: If its storage cannot be reached.
    """
    kind = store_class(index)
    try:
        store = open_store(index)
    except IndexMovedError:
        raise
    except SearchIndexError as problem:
        if not kind.exists(str(index)):
            raise
        return kind.damage(str(index), problem)
    with closing(store):
        return damage(store)


def damage(store: Store) -> list[IndexIssue]:
    """All damage of an opened index; empty for an intact one. Reads every item and every vector once.

    Args:
        store: The index.

    Returns:
        The damage, with its places.

    Raises:
        IndexMovedError: If the index is changed again and again while it is read.
    """
    problems: list[IndexIssue] = []
    for attempt in range(ATTEMPTS):
        try:
            with store.reading() as view:
                before = view.revision
                problems = [*_damaged_items(view, derived=store.keeps_spaces), *store.check()]
                # A view whose moment was removed went on at a later one: the two do not belong together.
                if view.revision == before:
                    break
        except IndexMovedError:
            if attempt == ATTEMPTS - 1:
                raise
        except (SearchIndexError, ValueError, TypeError, KeyError) as problem:
            # A damaged row may hold anything.
            return [IndexIssue("items", f"cannot be read: {problem}"), *store.check()]
    else:
        raise IndexMovedError(f"{store.path} is changed again and again while it is read; verify it at another time")
    return problems


def _damaged_items(view: View, *, derived: bool) -> Iterator[IndexIssue]:
    """Items that are not what was put in, or are missing, and a calibration that cannot be read.

    Args:
        view: The index.
        derived: Whether its store holds derived spaces; another one is not asked for them.

    Yields:
        The damage.
    """
    stored = view.space_counts
    for number, side in enumerate(SPACES if derived else SIDES):
        keys, damaged, present = view.select(side), list[str](), 0
        for start in range(0, len(keys), ROWS):
            rows = view.rows(side, keys=keys[start : start + ROWS].tolist())
            present += len(rows)
            damaged += [f"{side}/{row.id!r}" for row in rows if not row.is_intact(number)]
        if damaged:
            yield IndexIssue("items", f"{counted(len(damaged), 'item')} changed or damaged: {listed(damaged)}")
        if present != stored.get(side, 0):
            yield IndexIssue("items", f"has {present:,} of {stored.get(side, 0):,} {side}")
    for space in DERIVED if derived else ():
        strays = np.setdiff1d(view.owners(space)[0], view.select(side_of(space)))
        if len(strays):
            yield IndexIssue("items", f"{counted(len(strays), 'row')} of {space} belong to no item")
    if damaged_jobs := [str(job.number) for job in journal(view) if job.damaged]:
        yield IndexIssue("jobs", f"{counted(len(damaged_jobs), 'record')} changed or damaged: {listed(damaged_jobs)}")
    for document, stored_document in ((CALIBRATION, stored_calibration), (RANKER, stored_ranker)):
        try:
            stored_document(view)
        except SearchIndexError as problem:
            yield IndexIssue(document, str(problem))
    if problem := damaged_lists(view):
        yield IndexIssue(LISTS, problem)
