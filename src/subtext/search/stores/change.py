"""What is to be changed in an index at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.errors import IndexError_
from subtext.search.stores.item import Entry, Side
from subtext.search.stores.manifest import Manifest


@dataclass(frozen=True)
class Change:
    """What is to be put into one side at once.

    entries, vectors  N items that are new or whose content has changed, and their (N K D) vectors
    amended           items that are there, of which only what is known about them has changed
    links             (picture id, text id) to be joined, where both are there
    exact_texts       ids of texts whose links are to be these alone
    """

    side: Side
    entries: Sequence[Entry] = ()
    vectors: NDArray[np.float32] | None = None
    amended: Sequence[Entry] = ()
    links: Sequence[tuple[str, str]] = ()
    exact_texts: frozenset[str] = frozenset()


def checked(change: Change, manifest: Manifest) -> NDArray[np.float32]:
    """The (N K D) vectors of a change, none where it brings none.

    Raises IndexError_ for vectors that are not finite or of another shape than the index has, or an id twice.
    """
    side, views, width = change.side, manifest.views[change.side], manifest.width
    vectors = change.vectors if change.vectors is not None else np.zeros((0, views, width), dtype=np.float32)
    if vectors.shape != (len(change.entries), views, width):
        raise IndexError_(
            f"this index needs {side} of {views} x {width}, and one an item; it got vectors of shape {vectors.shape} "
            f"for {len(change.entries)} items; embed them with the model that made it"
        )
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=(1, 2)))
    if len(bad):
        raise IndexError_(
            f"an index needs finite vectors; {len(bad)} are not, the first of item '{change.entries[bad[0]].id}'; "
            "look at the training log of the model"
        )
    ids = [entry.id for entry in change.entries]
    if len(set(ids)) < len(ids):
        twice = next(name for place, name in enumerate(ids) if name in ids[:place])
        raise IndexError_(f"an index needs an id once on each side; it got '{twice}' twice; name them apart")
    return vectors
