"""What a store of an index has to provide, and what is built on it: a folder, PostgreSQL, LanceDB, or one's own.

A store is a subclass of `Store` with a subclass of `View`, the index at one moment, and one of `Writer`. Fifteen
methods are abstract: all that a store has to implement. Search, filters, the journal, calibration and verification are
written once, in the other methods and in the modules above.

A store from outside the package names its `Store` as an entry point of the group "subtext.stores". The entry point's
name is the scheme of its addresses: the entry point `tape` opens `tape://archive/library`. The location `library` is a
folder, `postgresql://user@host/database?index=library` an index in PostgreSQL, and `lance://folder` or
`s3://bucket/library` one in LanceDB.
"""

from __future__ import annotations

import importlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError, SearchIndexError, install_hint
from subtext.retrieval.condition import Condition
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.stores.item import (
    SIDES,
    Applied,
    Change,
    FieldValues,
    Hits,
    Item,
    JobUpdate,
    Side,
    StoredRow,
    opposite,
)

GROUP = "subtext.stores"
"""Entry points of stores from outside the package."""
INSTALLED = {
    "postgres": (("postgresql", "postgres"), ("psycopg", "pgvector"), "postgres:Database"),
    "lance": (("lance", "s3", "gs"), ("lance",), "lance:LanceStore"),
}
"""Extra -> the schemes of its store's addresses, the packages that it needs, and its store."""


class IndexLockedError(SearchIndexError):
    """Another process is writing to the index: try again."""


class IndexMovedError(SearchIndexError):
    """The server of an index cannot be reached, or went away: try again."""


@dataclass(frozen=True)
class IndexIssue:
    """Damage of an index: the file, table or part, and what is wrong there."""

    where: str
    what: str


@dataclass(frozen=True)
class Stats:
    """What a store tells of itself.

    Attributes:
        bytes: Its size on disk.
        unindexed: Vectors of each side that every search compares, as they are in no list or graph.
        facts: What else it has to tell, name -> plain data, for `subtext index info`.
    """

    bytes: int
    unindexed: Mapping[Side, int]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class View(ABC):
    """An index at one moment: whatever is written meanwhile, nothing changes here.

    Attributes:
        manifest: What the index says about itself.
        generation: How many changes had been made.
        counts: Items of each side.
        cache: What was computed of this generation, for all views of it.
    """

    manifest: Manifest
    generation: int
    counts: Mapping[Side, int]
    cache: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def stats(self) -> Stats:
        """Size and state of the store."""

    @abstractmethod
    def select(self, side: Side, where: Sequence[Condition] = ()) -> NDArray[np.int64]:
        """The keys of the items that fulfil every condition, ascending.

        A condition on a field that no item has is fulfilled by none; "!=" by all.
        """

    @abstractmethod
    def rows(
        self, side: Side, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[StoredRow]:
        """The rows of these keys, or of these ids, in any order; those that are not in the index are left out.

        Args:
            links: Reads the links of each as well.
        """

    @abstractmethod
    def nearest(
        self,
        side: Side,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: NDArray[np.int64] | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these ascending keys.

        The score of an item is the largest inner product over its views and those of the query, as `ann.settle`
        computes it: scores are the same in every store. Equal scores stand in the order of the keys. There are never
        fewer than `top` hits while there are as many items.

        Args:
            exact: Compares all vectors, however many there are.
        """

    @abstractmethod
    def vectors(self, side: Side, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be in the index."""

    @abstractmethod
    def search_text(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that contain some of the words, as (key, BM25 score), best first."""

    @abstractmethod
    def fields(self, side: Side) -> list[str]:
        """Names of the metadata fields, sorted."""

    @abstractmethod
    def values(self, side: Side, name: str, *, most: int, choice: int) -> FieldValues:
        """The values of a field: the `most` frequent ones where no more than `choice` are different."""

    @abstractmethod
    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index.

        "jobs"       (number, verb, source as JSON, started, finished, done, total) of each job, the first job first
        "deleted"    (hash,) of each deleted item that has not been added again; see `deletion_hash`
        "documents"  (name, mark) of each document; the mark changes when the document does
        any other    (text,) of the document of that name; empty where there is none
        """

    def keys(self, side: Side) -> NDArray[np.int64]:
        """The keys of all items of a side, ascending."""
        name = f"keys of {side}"
        if name not in self.cache:
            self.cache[name] = self.select(side)
        return self.cache[name]

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of these keys, in their order.

        Raises:
            KeyError: For one that is not in the index.
        """
        rows = {row.key: row for row in self.rows(side, keys=[int(key) for key in keys], links=True)}
        partner_keys = sorted({key for row in rows.values() for key in row.links})
        linked = {row.key: row for row in self.rows(opposite(side), keys=partner_keys)}
        items = []
        for key in keys:
            row = rows[int(key)]
            partners = [linked[partner] for partner in row.links if partner in linked]
            metadata = row.fields
            if side == "images":
                captions = [partner.text for partner in partners if partner.text is not None]
            else:
                captions = [] if row.text is None else [row.text]
                metadata = {"images": [partner.id for partner in partners], **metadata}
            items.append(Item(row.key, row.id, row.path, captions, metadata))
        return items

    def keys_of(self, side: Side, ids: Sequence[str]) -> dict[str, int]:
        """The key of each of these ids that is in the index."""
        return {row.id: row.key for row in self.rows(side, ids=ids)}

    def vectors_of(self, side: Side, ids: Sequence[str]) -> NDArray[np.float32]:
        """(N K D) vectors of the items with these ids, in this order; each has to be in the index."""
        keys = self.keys_of(side, ids)
        return self.vectors(side, np.array([keys[name] for name in ids], dtype=np.int64))

    def partners(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> dict[int, list[int]]:
        """Key -> keys of the items of the other side that it is linked with, ascending; without links no entry."""
        rows = self.rows(side, keys=[int(key) for key in keys], links=True)
        return {row.key: list(row.links) for row in rows if row.links}

    def deleted_among(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Those of these hashes that stand for deleted items; see `deletion_hash`."""
        return {bytes(digest) for (digest,) in self.records("deleted")}.intersection(hashes)


class Writer(ABC):
    """Changes an index; made by `Store.writing`.

    Every method returns when its change is stored durably. What fails leaves the state before it.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest

    @abstractmethod
    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all.

        Raises:
            SearchIndexError: For vectors that are not finite or of another shape, and for an id that occurs twice.
            OutputError: If there is no space.
        """

    @abstractmethod
    def compact(self, *, seed: int = 0) -> list[str]:
        """Remove what was deleted, and prepare large sides for approximate search; sentences that say what was done.

        Args:
            seed: Of what is sampled.
        """

    def put(self, change: Change, *, job: int | None = None, done: int = 0) -> None:
        """Put items in; those of the same id are replaced. A change that changes nothing is not made.

        Args:
            job: Number of a job.
            done: The items that it has processed with this change.
        """
        if change.entries or change.amended or self._changes_links(change):
            self.apply(replace(change, job=None if job is None else JobUpdate(job, done=done)))

    def delete(
        self, side: Side, ids: Sequence[str], *, keep_texts: bool = False, remember: bool = True
    ) -> Mapping[Side, int]:
        """Delete items; returns how many of each side. Ids that are not in the index are passed over.

        Args:
            keep_texts: Keeps the texts that have no other image; by default they are deleted with their images.
            remember: Keeps a hash of each: a data set that still has the item does not bring it back.
        """
        return self.apply(Change(side, deleted=ids, keep_texts=keep_texts, remember=remember)).deleted

    def begin(self, verb: str, *, source: Mapping[str, Any] | None = None, total: int = 0) -> int:
        """Begin a job, or resume an unfinished one of the same verb and source; its number in the journal."""
        number = self.apply(Change(job=JobUpdate(verb=verb, source=source, total=total))).job
        assert number is not None
        return number

    def finish(self, job: int) -> None:
        """Note that a job is done."""
        self.apply(Change(job=JobUpdate(job, finished=True)))

    def rows_of(self, side: Side, ids: Sequence[str]) -> dict[str, StoredRow]:
        """Id -> the row of each of these items that is in the index."""
        with self.store.reading() as view:
            return {row.id: row for row in view.rows(side, ids=ids)}

    def ids(self, side: Side) -> list[str]:
        """The ids of a side, in the order in which they were added."""
        with self.store.reading() as view:
            rows = {row.key: row.id for row in view.rows(side, keys=view.keys(side).tolist())}
        return [rows[key] for key in sorted(rows)]

    def compact_large(self) -> None:
        """Compact an index that is too large to compare every vector."""
        with self.store.reading() as view:
            rows = max(view.counts[side] * self.manifest.views[side] for side in SIDES)
        if rows > self.manifest.exact_up_to:
            self.compact()

    def _changes_links(self, change: Change) -> bool:
        """Whether a change has other links than the index."""
        texts = sorted({*change.exact_texts, *(text for _, text in change.links)})
        if not texts:
            return False
        with self.store.reading() as view:
            rows = view.rows("texts", ids=texts, links=True)
            images = view.keys_of("images", sorted({image for image, _ in change.links}))
        links: dict[str, set[int]] = {text: set() for text in texts}
        for image, text in change.links:
            if image in images:
                links[text].add(images[image])
        return any(
            links[row.id] - set(row.links) or (row.id in change.exact_texts and set(row.links) - links[row.id])
            for row in rows
        )


class Store(ABC):
    """An index, opened; several threads may use it, and other processes may write meanwhile.

    The constructor takes a path or an address. It raises SearchIndexError when there is no index, or it cannot be read.

    Attributes:
        path: Where it is, for messages; nothing secret is in it.
        manifest: What the index says about itself.
    """

    path: Path | str
    manifest: Manifest

    @classmethod
    @abstractmethod
    def create(cls, location: str, manifest: Manifest) -> Store:
        """An empty index.

        Raises:
            SearchIndexError: If the name is taken.
            OutputError: If it cannot be written.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[View]:
        """The index at this moment; of use inside the block."""

    @abstractmethod
    def writing(self, verb: str) -> AbstractContextManager[Writer]:
        """A writer; `verb` tells others what is being done.

        Raises:
            IndexLockedError: If one has to wait for another.
        """

    @abstractmethod
    def check(self) -> list[IndexIssue]:
        """Damage that only the store can see, such as a changed byte of a file."""

    @classmethod
    def damage(cls, location: str, problem: SearchIndexError) -> list[IndexIssue]:
        """Damage of an index that cannot be opened because of a problem."""
        return [IndexIssue(location, str(problem))]

    @classmethod
    def exists(cls, location: str) -> bool:
        """Whether there is an index at this location."""
        try:
            cls(location)  # type: ignore[call-arg]  # Every store is opened by its location.
        except SearchIndexError:
            return False
        return True

    @classmethod
    def require_free(cls, location: str) -> None:
        """Raise SearchIndexError unless an index can be created at this location."""
        if cls.exists(location):
            raise SearchIndexError(f"{location} is an index already; name another")

    @classmethod
    def name_of(cls, location: str) -> str:
        """A short name of the index, without anything secret."""
        return location.rstrip("/").rpartition("/")[2].partition("?")[0]

    def remove(self) -> None:
        """Remove the index."""
        raise RequirementError(f"{self.path} lies in a store that cannot remove an index; remove it by its own tools")

    def beside(self, manifest: Manifest) -> Store:
        """An index for the vectors of another model beside this one, which goes on serving.

        One that was begun for the same model is resumed. `swap` puts it in use.
        """
        raise RequirementError(
            f"{self.path} lies in a store that cannot change models; build another index ({manifest.run})"
        )

    def swap(self, new: Store, *, generation: int) -> Store:
        """Put the index that was made beside this one in its place; deletions are remembered there, too.

        Args:
            generation: Of this index when the move began; raises SearchIndexError when it has changed since.
        """
        raise RequirementError(f"{self.path} lies in a store that cannot change models; it got {new.path}")

    @property
    def text_side(self) -> Path | None:
        """The folder of its model's text side as plain arrays, whether or not it is there; None for none ever."""
        return None

    @property
    def moved(self) -> bool:
        """Whether an index of another model has taken the place of this one since it was opened: open it again."""
        now = type(self)(str(self.path))  # type: ignore[call-arg]  # Every store is opened by its location.
        return now.manifest.fingerprint != self.manifest.fingerprint

    @property
    def counts(self) -> dict[Side, int]:
        """Images and texts in the index."""
        with self.reading() as view:
            return dict(view.counts)

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        with self.reading() as view:
            return view.stats().bytes

    def document(self, name: str) -> str:
        """Where a document of the index is, for messages."""
        return f"{self.path}, document {name}"

    def close(self) -> None:  # noqa: B027  (most stores hold nothing open)
        """Release connections that nobody uses at this moment."""


def is_address(index: Path | str) -> bool:
    """Whether an index is named by an address, and not by a folder.

    Example:
        >>> is_address("postgresql://localhost/archive?index=library"), is_address("library")
        (True, False)
    """
    return isinstance(index, str) and "://" in index


def store_class(index: Path | str) -> type[Store]:
    """The store that opens an index of this location.

    Raises:
        RequirementError: For a scheme that no installed store has, or an address in PostgreSQL without the extra
            "postgres".
    """
    if not is_address(index):
        return importlib.import_module("subtext.retrieval.stores.folder").Folder
    scheme = str(index).partition("://")[0]
    for extra, (schemes, packages, kind) in INSTALLED.items():
        if scheme in schemes:
            missing = [name for name in packages if importlib.util.find_spec(name) is None]
            if missing:
                raise RequirementError(
                    f"an index at {scheme}:// needs {' and '.join(missing)}; it is not installed; {install_hint(extra)}"
                )
            module, _, name = kind.partition(":")
            return getattr(importlib.import_module(f"subtext.retrieval.stores.{module}"), name)
    for point in entry_points(group=GROUP, name=scheme):
        loaded = point.load()
        if not (isinstance(loaded, type) and issubclass(loaded, Store)):
            raise RequirementError(f"the entry point '{scheme}' of {GROUP} needs to be a Store; it is {loaded!r}")
        return loaded
    built_in = chain(*(schemes for schemes, _, _ in INSTALLED.values()))
    installed = sorted({point.name for point in entry_points(group=GROUP)}.union(built_in))
    raise RequirementError(f"no store opens addresses of {scheme}://; installed are {', '.join(installed)}")


def open_store(index: Path | str) -> Store:
    """The index of that location.

    Raises:
        SearchIndexError: If there is none, or it cannot be read.
        RequirementError: Without the store's extra.
    """
    return store_class(index)(str(index))  # type: ignore[call-arg]


def create_store(index: Path | str, manifest: Manifest) -> Store:
    """An empty index.

    Raises:
        SearchIndexError: If the name is taken.
        OutputError: If it cannot be written there.
    """
    return store_class(index).create(str(index), manifest)
