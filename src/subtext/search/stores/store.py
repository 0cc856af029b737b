"""What every store of an index can do, wherever its items and vectors lie: a folder, or a database.

`folder.Folder` and `postgres.database.Database` are such stores. Search and the commands that change an index know
these verbs alone; what only one of the two can do (copies of a folder, say) is asked of that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Those of typing, before Python 3.12, read the value of each property to see whether it is there: they would ask a
# database, or start a cluster, whenever a test checks a type.
from typing_extensions import Protocol, runtime_checkable

from subtext.search.stores.calibration import Calibration
from subtext.search.stores.change import Change
from subtext.search.stores.condition import Condition
from subtext.search.stores.item import SIDES, Item, Side
from subtext.search.stores.journal import Job
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.rows import Known
from subtext.search.stores.shelf import Found
from subtext.search.stores.values import Values


@runtime_checkable
class StoreShelf(Protocol):
    """The vectors of one side at one moment."""

    @property
    def views(self) -> int:
        """K, vectors an item."""

    @property
    def rows(self) -> int:
        """Vectors that lie there."""

    @property
    def count(self) -> int:
        """Items that are there."""

    @property
    def loose(self) -> int:
        """Vectors that every search compares."""

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Found]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys.

        exact  compares all vectors, however many there are

        Never fewer than `top` while there are as many.
        """

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be there."""

    @property
    def live(self) -> NDArray[np.int64]:
        """The keys of all items that are there, ascending."""

    def up_to(self, key: int) -> int:
        """How many items have this key or a smaller one."""

    def drawn(self, count: int, *, seed: int = 0) -> NDArray[np.int64]:
        """At most `count` keys of items that are there, ascending; items that come or go change few of them."""


@runtime_checkable
class StoreView(Protocol):
    """Items and vectors at one moment; of use inside the `with` that gave it."""

    @property
    def generation(self) -> int:
        """How many changes had been made."""

    @property
    def shelves(self) -> Mapping[Side, StoreShelf]:
        """The vectors of each side."""

    @property
    def counts(self) -> dict[str, int]:
        """Items of each side."""

    def matching(self, side: Side, where: Sequence[Condition]) -> NDArray[np.int64]:
        """The keys of all items that fulfil every condition, ascending.

        Raises RequirementError when no item of that side has a field that is asked for.
        """

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of these keys, in their order. Raises KeyError for one that is not there."""

    def keys_of(self, side: Side, ids: Sequence[str]) -> dict[str, int]:
        """Key of each of these ids that is there."""

    def partners(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> dict[int, list[int]]:
        """Of items of a side the keys of those that they are joined with on the other, ascending; without, no entry."""

    def by_words(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that have some of the words, as (key, BM25 score); larger is better."""

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata that can be filtered by."""

    def values(self, side: Side, name: str, *, most: int, choice: int) -> Values:
        """What a field holds: the `most` commonest values where no more than `choice` are different."""

    def page(self, side: Side, *, offset: int, top: int) -> list[int]:
        """`top` keys of a side, after so many, in the order in which the items came in."""

    def content(self, side: Side, key: int) -> bytes:
        """The digest of what was embedded of an item. Raises KeyError where there is no such key."""

    def jobs(self) -> list[Job]:
        """The journal, the first job first."""


@runtime_checkable
class StoreWriter(Protocol):
    """Changes an index; every method that changes something returns when the change is kept for good."""

    @property
    def manifest(self) -> Manifest:
        """What the index says about itself."""

    def known(self, side: Side, ids: Sequence[str]) -> dict[str, Known]:
        """What is known of those ids that are there."""

    def forgotten(self, side: Side, ids: Sequence[str]) -> set[str]:
        """Those of these ids that were deleted once, and not put in again by the user's own wish."""

    def put(self, change: Change, *, job: int | None = None, done: int = 0) -> None:
        """Put items in, all or none; those of the same id are replaced.

        job, done  of the journal, whose progress is kept with the change
        """

    def ids(self, side: Side) -> list[str]:
        """The ids of a side, in the order that they came in."""

    def delete(
        self, side: Side, ids: Sequence[str], *, keep_texts: bool = False, remember: bool = True
    ) -> dict[str, int]:
        """Delete items, all or none; gives how many of each side."""

    def begin(self, verb: str, *, source: Mapping[str, Any] | None = None, total: int = 0) -> int:
        """Note a job in the journal; its number."""

    def finish(self, job: int) -> None:
        """Note that a job is done."""

    def shelf(self, side: Side) -> StoreShelf:
        """The vectors of a side as they are now."""


@runtime_checkable
class Store(Protocol):
    """An index, opened; of use by several threads, and while others write."""

    @property
    def path(self) -> Path | str:
        """Where it is, for messages; nothing secret is in it."""

    @property
    def manifest(self) -> Manifest:
        """What the index says about itself."""

    @property
    def counts(self) -> dict[str, int]:
        """Pictures and texts that are in it now."""

    @property
    def bytes(self) -> int:
        """Its size on disk."""

    def reading(self) -> AbstractContextManager[StoreView]:
        """The index at one moment: inside the block nothing changes, whatever is written meanwhile."""

    def writing(self, verb: str) -> AbstractContextManager[StoreWriter]:
        """Somebody who may change it."""

    def calibration(self) -> Calibration | None:
        """What its scores are worth; None where that was not measured."""

    def calibration_mark(self) -> float:
        """Changes when another calibration is kept; 0 where there is none."""

    def keep_calibration(self, calibration: Calibration, plot: str) -> str:
        """Keep a calibration and its plot, an SVG document; says where the plot is."""

    @property
    def moved(self) -> bool:
        """Whether an index of another model has taken the place of this one since it was opened: open it again."""

    def gone(self) -> list[str]:
        """Trace names of what was deleted and has not come again: what others keep of it has to go as well."""

    def close(self) -> None:
        """Let go of this thread's connection."""


def changed_since(calibration: Calibration, view: StoreView) -> float:
    """Share of the items that came or went since an index was calibrated, of the side where they are most."""
    found = []
    for side in SIDES:
        shelf, before = view.shelves[side], calibration.counts[side]
        old = shelf.up_to(calibration.last[side])
        found.append((before - old + shelf.count - old) / max(1, before))
    return max(found)
