"""An index grows by a data set: what is new or has changed is embedded, piece by piece, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset, Items
from subtext.errors import IndexError_
from subtext.evaluation.embedding import embed_items
from subtext.models.model import Model
from subtext.search.making import entries_of, links_of, model_fingerprint, side_of
from subtext.search.stores.item import SIDES, Change, Entry, Row, Side
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.store import Writer

PIECE = 2048
"""Items that are embedded and acknowledged at a time: no more than these are lost when an add is killed."""


@dataclass(frozen=True)
class Growing:
    """How an index grows.

    verb         "build", "add" or "update", for the journal
    source       where the data came from, as plain data: what the journal knows the job by
    exact        the data says everything of its texts: their links are those of the data alone
    again        items that were deleted once come back; by default they are left out
    only         ids of each side that are taken; None for all
    batch_size, workers   items embedded together, threads that read ahead
    """

    verb: str = "add"
    source: Mapping[str, Any] | None = None
    exact: bool = False
    again: bool = False
    only: Mapping[Side, set[str]] | None = None
    batch_size: int = 128
    workers: int = 2


@dataclass(frozen=True)
class Grown:
    """What became of the items of a data set: numbers of pictures and texts together.

    embedded   new ones and changed ones            amended  only what is known about them had changed
    unchanged  were there already                   deleted  no longer in the data
    left_out   were deleted before, and stay away
    """

    embedded: int = 0
    amended: int = 0
    unchanged: int = 0
    deleted: int = 0
    left_out: int = 0

    def __add__(self, other: Grown) -> Grown:
        """Both together."""
        mine, theirs = vars(self), vars(other)
        return Grown(**{name: mine[name] + theirs[name] for name in mine})


def grow(
    writer: Writer, model: Model, pairs: Dataset, *, how: Growing, progress: Callable[[int], None] | None = None
) -> Grown:
    """Put a data set into an index. A killed one goes on when it is called again: what is there is not embedded again.

    progress  hears how many pictures and texts have been looked at

    Raises IndexError_ when another model made the index, DataError when an item cannot be read: the pieces before it
    are kept.
    """
    require_model(writer.manifest, model)
    was_training = model.training
    model.eval()
    try:
        job = writer.begin(how.verb, source=how.source, total=len(pairs.images) + len(pairs.texts))
        total, done = Grown(), 0
        for side in SIDES:
            items, _ = side_of(pairs, model, side)
            for start in range(0, len(items), PIECE):
                rows = np.arange(start, min(start + PIECE, len(items)), dtype=np.int64)
                done += len(rows)
                total += _piece(writer, model, pairs, (side, rows), how=how, noted=(job, done))
                if progress is not None:
                    progress(done)
        writer.finish(job)
    finally:
        model.train(was_training)
    return total


def prune(writer: Writer, keep: Mapping[Side, set[str]]) -> Grown:
    """Delete the items whose ids are not among these; a source that has them again brings them back."""
    deleted = 0
    for side in SIDES:
        gone = [name for name in writer.ids(side) if name not in keep[side]]
        if gone:
            deleted += sum(writer.delete(side, gone, keep_texts=True, remember=False).values())
    return Grown(deleted=deleted)


def require_model(manifest: Manifest, model: Model) -> None:
    """Raise IndexError_ unless this is the model that made the index."""
    mine = model_fingerprint(model)
    if mine != manifest.fingerprint:
        raise IndexError_(
            f"this index needs vectors of the model that made it, {manifest.run or manifest.host} "
            f"({manifest.fingerprint[:12]}); it got another ({mine[:12]}), or that run trained further; add with that "
            "model, or move the index to this one (subtext index move)"
        )


def _piece(
    writer: Writer,
    model: Model,
    pairs: Dataset,
    what: tuple[Side, NDArray[np.int64]],
    *,
    how: Growing,
    noted: tuple[int, int],
) -> Grown:
    """One piece of a side: looked at, embedded where it has to be, and put in."""
    side, rows = what
    items, branch = side_of(pairs, model, side)
    every = len(rows)
    rows = _wanted(writer, items, side, rows, how)
    known = writer.rows_of(side, [items.ids[row] for row in rows])
    roots = (pairs.root, Path(writer.manifest.root))
    entries = entries_of(items, rows, side, branch, roots=roots, known=known)
    fresh, amended = _sorted(entries, known, side)
    vectors = None
    if fresh:
        chosen = items.take(rows[fresh])
        found = embed_items(model, branch, chosen, pairs.root, reading=(how.batch_size, how.workers))
        vectors = found.vectors.float().numpy()
    links = links_of(pairs, rows) if side == "texts" else []
    change = Change(
        side,
        entries=[entries[place] for place in fresh],
        vectors=vectors,
        amended=[entries[place] for place in amended],
        links=links,
        exact_texts=frozenset(entry.id for entry in entries if how.exact and side == "texts"),
    )
    writer.put(change, job=noted[0], done=noted[1])
    return Grown(
        embedded=len(fresh),
        amended=len(amended),
        unchanged=len(rows) - len(fresh) - len(amended),
        left_out=every - len(rows),
    )


def _wanted(writer: Writer, items: Items, side: Side, rows: NDArray[np.int64], how: Growing) -> NDArray[np.int64]:
    """The rows that may be put in: not those that were deleted, nor those that were not asked for."""
    left: set[str] = set() if how.again else writer.deleted_before(side, [items.ids[row] for row in rows])
    keep = [
        items.ids[row] not in left and (how.only is None or items.ids[row] in how.only[side]) for row in rows.tolist()
    ]
    return rows[np.asarray(keep, dtype=np.bool_)]


def _sorted(entries: list[Entry], known: Mapping[str, Row], side: Side) -> tuple[list[int], list[int]]:
    """Places of the entries that have to be embedded, and of those of which only what is known has changed."""
    number = SIDES.index(side)
    fresh, amended = [], []
    for place, entry in enumerate(entries):
        before = known.get(entry.id)
        if before is None or before.content != entry.content:
            fresh.append(place)
        elif before.digest != entry.digest(number, before.key):
            amended.append(place)
    return fresh, amended
