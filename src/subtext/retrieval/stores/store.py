"""The interface of a store of an index: a folder, PostgreSQL, LanceDB, or a store of another package.

A store is a subclass of `Store` with a subclass of `View`, the index at one moment, and one of `Writer`. Fifteen
methods are abstract: a store implements these. Search, filters, the journal, calibration and verification are written
once, in the other methods and in the modules of `retrieval`.

A store of another package names its `Store` as an entry point of the group "subtext.stores". The entry point's
name is the scheme of its addresses: the entry point `tape` opens `tape://archive/library`. The location `library` is a
folder, `postgresql://user@host/database?index=library` an index in PostgreSQL, and `lance://folder` or
`s3://bucket/library` one in LanceDB.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import KnownImage
from subtext.data.output_cache import forget
from subtext.errors import RequirementError, SearchIndexError
from subtext.retrieval.manifest import Manifest, Revision
from subtext.retrieval.stores.documents import LISTS
from subtext.retrieval.stores.errors import IndexIssue, IndexLockedError, IndexMovedError
from subtext.retrieval.stores.facets import AnyOf, Condition, earliest
from subtext.retrieval.stores.item import (
    DERIVED,
    NO_HITS,
    SIDES,
    Applied,
    Change,
    DerivedSpace,
    FieldValues,
    Hits,
    Item,
    JobUpdate,
    Side,
    Space,
    StoredRow,
    machine_of,
    opposite,
    side_of,
)
from subtext.retrieval.stores.saved_lists import without_images
from subtext.retrieval.text_side import SENTENCE_SIDE
from subtext.retrieval.words import fold, query_words

_READ = 8192
"""Images that are read at a time."""
ATTEMPTS = 5
"""How often a change is made again where another writer was faster."""


class KeysInStore(ABC):
    """The keys of items that fulfil conditions, left in the store; of use as long as the view that gave them.

    `numpy.asarray` reads them: (N) int64, ascending.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Their number."""

    @abstractmethod
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.int64]:
        """All of them, as numpy asks for them."""

    @abstractmethod
    def hold(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some keys are among them.

        Args:
            keys: (N) int64 keys.

        Returns:
            (N) flags.
        """

    @abstractmethod
    def after(self, key: int, count: int) -> NDArray[np.int64]:
        """The first of them above a key.

        Args:
            key: Any key.
            count: Number of keys.

        Returns:
            At most so many keys, ascending.
        """


Keys = NDArray[np.int64] | KeysInStore
"""Keys of items, ascending."""


def are_among(keys: NDArray[np.int64], among: Keys) -> NDArray[np.bool_]:
    """Which of some keys are among others.

    Args:
        keys: (N) int64 keys.
        among: Keys, ascending.

    Returns:
        (N) flags.
    """
    return among.hold(keys) if isinstance(among, KeysInStore) else np.isin(keys, among)


def keys_after(keys: Keys, key: int, count: int) -> NDArray[np.int64]:
    """The first of some keys above another.

    Args:
        keys: Keys, ascending.
        key: Any key.
        count: Number of keys.

    Returns:
        At most so many keys, ascending.
    """
    if isinstance(keys, KeysInStore):
        return keys.after(key, count)
    start = int(np.searchsorted(keys, key, side="right"))
    return keys[start : start + count]


@dataclass(frozen=True)
class Stats:
    """The size and state of a store.

    Attributes:
        bytes: Its size on disk, in bytes.
        unindexed: Number of vectors of each side that are in no list or graph: every search compares them.
        facts: Further facts, name -> plain data, for `subtext index info`.
    """

    bytes: int
    unindexed: Mapping[Side, int]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class View(ABC):
    """An index at one moment: later changes do not appear in it.

    Attributes:
        manifest: Describes the index.
        revision: Which index it is, and as of which change: equal revisions have equal answers.
        counts: Number of items of each side.
        cache: Values computed for this revision, shared by all views of it.
        exact_spaces: Whether `scores` compares all rows of a space; else `nearest_in` gives candidates.
    """

    exact_spaces: ClassVar[bool] = False

    manifest: Manifest
    revision: Revision
    counts: Mapping[Side, int]
    cache: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def stats(self) -> Stats:
        """The size and state of the store.

        Returns:
            Bytes on disk, unindexed vectors, and facts of the store.
        """

    @abstractmethod
    def select(self, side: Space, where: Sequence[Condition | AnyOf] = ()) -> NDArray[np.int64]:
        """The keys of the items that fulfil every condition; see `facets.fulfils`.

        A condition on an unknown field matches nothing (`!=` matches everything).

        Args:
            side: One of `SPACES`; a derived space has rows of its own, with keys of their own.
            where: Conditions on the metadata; all must be true. None selects all items.

        Returns:
            (N) int64 keys, ascending.
        """

    def choose(self, side: Side, where: Sequence[Condition | AnyOf]) -> Keys:
        """As `select`, but the keys may stay in the store until somebody asks for them.

        Args:
            side: "images" or "texts".
            where: Conditions on the metadata; all must be true.

        Returns:
            Their keys, ascending.
        """
        return self.select(side, where)

    def count(self, side: Side, where: Sequence[Condition | AnyOf]) -> int:
        """The number of items that fulfil every condition.

        Args:
            side: "images" or "texts".
            where: Conditions on the metadata; all must be true.

        Returns:
            Number of items.
        """
        return len(self.select(side, where)) if where else self.counts[side]

    @abstractmethod
    def rows(
        self, side: Space, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[StoredRow]:
        """The rows of some items, by their keys or by their ids.

        Args:
            side: One of `SPACES`; rows of a derived space have the ids of their items.
            keys: Keys of items; None where `ids` are given.
            ids: Ids of items; None where `keys` are given.
            links: Also reads the links of each row.

        Returns:
            The rows in any order; items that are not in the index are left out.
        """

    @abstractmethod
    def nearest(
        self,
        side: Space,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: Keys | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        """The best items for each of several query vectors.

        The score of an item is the largest inner product over its views and those of the query, as `ann.rescore_top_k`
        computes it: scores are the same in every store. Equal scores stand in the order of the keys. There are never
        fewer than `top` hits while there are as many items.

        Args:
            side: One of `SPACES`; of a derived space these are the keys of its rows, see `nearest_in`.
            queries: (Q L D) float32 vectors of Q queries with L views each.
            top: Number of hits per query, 1 or more.
            among: M keys to search, ascending; None for all items.
            exact: Compares all vectors, however many there are.

        Returns:
            Q hits, best first; items with equal scores are in the order of their keys. Fewer than `top` only where
            there are fewer items.
        """

    @abstractmethod
    def vectors(self, side: Space, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of some items.

        Args:
            side: One of `SPACES`; of a derived space by the keys of its rows, see `vectors_in`.
            keys: (N) int64 keys of items that are in the index.

        Returns:
            (N K D) float32 vectors in the order of the keys, with K views each.
        """

    @abstractmethod
    def search_words(self, side: Side, words: str, *, top: int | None) -> list[tuple[int, float]]:
        """The items of a side that contain some of the words of a query, ranked by BM25.

        The words of a text are its own; those of an image are its id, its file name and its metadata; see `item_words`.

        Args:
            side: "images" or "texts".
            words: Words of the query; see `retrieval.words` for what counts as a word.
            top: Number of items, 1 or more; None for all.

        Returns:
            (key of the item, BM25 score), best first.
        """

    def word_scores(self, side: Side, words: str) -> NDArray[np.float64]:
        """BM25 of all items of a side with the words of a query, each of which counts once.

        Args:
            side: "images" or "texts".
            words: Words of the query.

        Returns:
            (N) scores in the order of `keys`; 0 for an item that has none of the words.
        """
        asked = " ".join(dict.fromkeys(query_words(words)))
        found = self.search_words(side, asked, top=None) if asked else []
        scores = np.zeros(len(self.keys(side)))
        if found:
            keys, values = zip(*found, strict=True)
            scores[np.searchsorted(self.keys(side), np.array(keys, dtype=np.int64))] = values
        return scores

    def search_text(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The texts that contain some of the words of a query, ranked by BM25.

        Args:
            words: Words of the query.
            top: Number of texts, 1 or more.

        Returns:
            (key of the text, BM25 score), best first.
        """
        return self.search_words("texts", words, top=top)

    @abstractmethod
    def fields(self, side: Side) -> list[str]:
        """The names of the metadata fields of a side.

        Args:
            side: "images" or "texts".

        Returns:
            Names, sorted.
        """

    @abstractmethod
    def values(self, side: Side, name: str, *, limit: int = 0) -> FieldValues:
        """The values of a metadata field over all items of a side.

        Args:
            side: "images" or "texts".
            name: The field.
            limit: Number of most frequent values to return.

        Returns:
            Kinds, number and range of the values, and the most frequent ones.
        """

    @abstractmethod
    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index, by their kind.

        "jobs"       (number, verb, source as JSON, started, finished, done, total) of each job, the first job first
        "deleted"    (hash,) of each deleted item that has not been added again; see `deletion_hash`
        "documents"  (name, mark) of each document; the mark changes when the document does
        any other    (text,) of the document of that name; empty where there is none

        Args:
            kind: "jobs", "deleted", "documents" or the name of a document, as listed above.

        Returns:
            Rows of the record; their columns depend on the kind.
        """

    @property
    def whole(self) -> View:
        """The index with items that this view hides; most views hide none. See `retrieval.visible`."""
        return self

    @property
    def space_counts(self) -> dict[Space, int]:
        """Number of rows of each space."""
        return {
            space: len(self.derived(space)[0]) if space in DERIVED else self.counts[side_of(space)]
            for space in self.manifest.spaces
        }

    def derived(self, space: DerivedSpace) -> DerivedRows:
        """The rows of a derived space, those without neighbours among them.

        Args:
            space: One of `DERIVED`.

        Returns:
            (N) keys of items, ascending; (N) keys of their rows; and (N) what `DerivedRow` calls farthest.
        """
        name = f"derived {space}"
        if name not in self.cache:
            self.cache[name] = sorted_owners(space, self._contents(space))
        found: DerivedRows = self.cache[name]
        return found

    def _contents(self, space: DerivedSpace) -> list[tuple[int, bytes]]:
        """Key and content of the rows of a derived space, in any order."""
        return [(row.key, row.content) for row in self.rows(space, keys=self.select(space).tolist())]

    def owners(self, space: Space) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The items that a space has vectors of.

        Args:
            space: One of `SPACES`.

        Returns:
            (N) int64 keys of items, ascending, and (N) keys of their rows in the space; equal ones for a side.
        """
        if space not in DERIVED:
            keys = self.keys(side_of(space))
            return keys, keys
        owners, rows, farthest = self.derived(space)
        empty = np.isnan(farthest)
        return (owners[~empty], rows[~empty]) if empty.any() else (owners, rows)

    def scores(
        self, space: Space, vectors: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """The scores of all items of a space, nearly; only where `exact_spaces` is set.

        Args:
            space: One of `SPACES`.
            vectors: (L D) float32 of one query; D is the width of the space.

        Returns:
            (N) keys of items, ascending; (N) float32, the largest inner product of views of the item and of the query;
            and (N) float32, by how much each of these may be off.

        Raises:
            RequirementError: For a store that keeps its vectors elsewhere.
        """
        raise RequirementError(f"all scores need an index in a folder; {type(self).__name__} finds candidates alone")

    def nearest_in(
        self, space: Space, vectors: NDArray[np.float32], *, top: int, among: Keys | None = None
    ) -> list[Hits]:
        """The best items of a space for each of several queries; by lists or graphs where the store has some.

        Args:
            space: One of `SPACES`.
            vectors: (Q L D) float32; D is the width of the space.
            top: Number of hits per query, 1 or more.
            among: M keys of items to search, ascending; None for all.

        Returns:
            Q hits with keys of items, best first; items with equal scores are in the order of their keys.
        """
        if space not in DERIVED:
            return self.nearest(space, vectors, top=top, among=among)
        owners, rows = self.owners(space)
        if not len(owners):
            return [NO_HITS] * len(vectors)
        chosen = None if among is None else np.sort(rows[are_among(owners, among)])
        if among is None and len(owners) < len(self.derived(space)[0]):
            chosen = np.sort(rows)
        order = np.argsort(rows)
        results = []
        for hits in self.nearest(space, vectors, top=top, among=chosen):
            keys = owners[order][np.searchsorted(rows[order], hits.keys)]
            best = np.lexsort((keys, -hits.scores))
            results.append(Hits(keys[best], hits.scores[best]))
        return results

    def vectors_in(self, space: Space, keys: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The vectors of some items in a space.

        Args:
            space: One of `SPACES`.
            keys: (N) int64 keys of items.

        Returns:
            (N K D) float32, zeros for an item that has none; and (N) flags of those that have some.
        """
        owners, rows = self.owners(space)
        places = np.minimum(np.searchsorted(owners, keys), max(len(owners) - 1, 0))
        there = owners[places] == keys if len(owners) else np.zeros(len(keys), dtype=np.bool_)
        vectors = np.zeros((len(keys), self.manifest.views_of(space), self.manifest.width_of(space)), dtype=np.float32)
        if there.any():
            vectors[there] = self.vectors(space, rows[places[there]])
        return vectors, there

    def owner_links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All links of texts and images.

        Returns:
            (M) int64 keys of texts, ascending, and (M) keys of the images that they are linked with.
        """
        if "links" not in self.cache:
            partners = self.partners("texts", self.keys("texts"))
            links = [(text, image) for text in sorted(partners) for image in partners[text]]
            self.cache["links"] = tuple(np.array(links, dtype=np.int64).reshape(-1, 2).T)
        return self.cache["links"]

    def folded(self, side: Side, names: Sequence[str]) -> dict[str, list[str]]:
        """The ids that differ from some names in case, accents or spaces alone; see `words.fold`.

        Args:
            side: "images" or "texts".
            names: Any texts.

        Returns:
            Name -> ids, sorted; names that fit no item are left out.
        """
        ids: dict[str, list[str]] = {}
        for row in self.rows(side, keys=self.keys(side).tolist()):
            ids.setdefault(fold(row.id), []).append(row.id)
        return {name: sorted(ids[fold(name)]) for name in names if fold(name) in ids}

    def resolve(self, side: Side, names: Sequence[str]) -> dict[str, str]:
        """The ids that some names mean: an id as it is spelt, else the only one that is folded alike.

        Args:
            side: "images" or "texts".
            names: Any texts.

        Returns:
            Name -> id; names that fit no item are left out.

        Raises:
            RequirementError: For a name that is no id and fits two.
        """
        known = {row.id: row.id for row in self.rows(side, ids=names)}
        others = [name for name in names if name not in known]
        for name, ids in self.folded(side, others).items() if others else ():
            if len(ids) > 1:
                raise RequirementError(
                    f"an id needs to fit one item; '{name}' fits {' and '.join(repr(own) for own in ids[:3])}; write "
                    "it as one of these is spelt"
                )
            known[name] = ids[0]
        return known

    def types_of(self, side: Side, name: str) -> tuple[bool, bool]:
        """Whether a field has texts, and whether it has numbers; see `values`.

        Args:
            side: "images" or "texts".
            name: The field.

        Returns:
            Two flags.
        """
        values = self.values(side, name)
        return values.has_texts, values.has_numbers

    def dates(self, side: Side, name: str) -> dict[int, tuple[int, int]]:
        """First and last second of the dates of a field.

        Args:
            side: "images" or "texts".
            name: The field.

        Returns:
            Key -> seconds of its earliest date; items without a date are left out.
        """
        rows = self.rows(side, keys=self.keys(side).tolist())
        dates = {row.key: earliest(row.fields, name) for row in rows}
        return {key: date for key, date in dates.items() if date is not None}

    def keys(self, side: Side) -> NDArray[np.int64]:
        """The keys of all items of a side.

        Args:
            side: "images" or "texts".

        Returns:
            (N) int64 keys, ascending.
        """
        name = f"keys of {side}"
        if name not in self.cache:
            self.cache[name] = self.select(side)
        return self.cache[name]

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of some keys.

        Args:
            side: "images" or "texts".
            keys: Keys of items of that side.

        Returns:
            Items in the order of the keys.

        Raises:
            KeyError: For a key that is not in the index.
        """
        rows = {row.key: row for row in self.shown_rows(side, [int(key) for key in keys], links=True)}
        partner_keys = sorted({key for row in rows.values() for key in row.links})
        linked = {row.key: row for row in self.shown_rows(opposite(side), partner_keys)}
        items = []
        for key in keys:
            row = rows[int(key)]
            partners = [linked[partner] for partner in row.links if partner in linked]
            metadata = row.fields
            texts = sorted(partners, key=lambda text: bool(machine_of(text.metadata))) if side == "images" else [row]
            captions = [text.shown for text in texts if text.shown is not None]
            by_machines = sum(bool(machine_of(text.metadata)) for text in texts if text.text is not None)
            if side == "texts":
                metadata = {"images": [partner.id for partner in partners], **metadata}
            items.append(Item(row.key, row.id, row.path, captions, metadata, by_machines))
        return items

    def shown_rows(self, side: Side, keys: Sequence[int], *, links: bool = False) -> list[StoredRow]:
        """The rows of some keys as `items` shows them.

        Args:
            side: "images" or "texts".
            keys: Keys of items.
            links: Also reads the links of each row.

        Returns:
            The rows, in any order. A store may leave out content, stamp and digest.
        """
        return self.rows(side, keys=keys, links=links)

    def known_images(self) -> Iterator[KnownImage]:
        """What the index has of its images, by which a listing is compared with it; some are read at a time.

        Yields:
            The images, in any order.
        """
        yield from self._known_by_key(self.keys("images"))

    def _known_by_key(self, keys: NDArray[np.int64]) -> Iterator[KnownImage]:
        """What the index has of the images of some keys."""
        for start in range(0, len(keys), _READ):
            for row in self.rows("images", keys=keys[start : start + _READ].tolist(), links=True):
                yield KnownImage(row.key, row.id, row.path, row.stamp, row.content, row.links)

    def keys_of(self, side: Side, ids: Sequence[str]) -> dict[str, int]:
        """The keys of the items that have some ids.

        Args:
            side: "images" or "texts".
            ids: Ids of items of that side.

        Returns:
            Id -> key of each id that is in the index.
        """
        return {row.id: row.key for row in self.rows(side, ids=ids)}

    def vectors_of(self, side: Side, ids: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of the items that have some ids.

        Args:
            side: "images" or "texts".
            ids: Ids of N items that are in the index.

        Returns:
            (N K D) float32 vectors in the order of the ids.
        """
        keys = self.keys_of(side, ids)
        return self.vectors(side, np.array([keys[name] for name in ids], dtype=np.int64))

    def partners(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> dict[int, list[int]]:
        """The items of the other side that some items are linked with.

        Args:
            side: "images" or "texts".
            keys: Keys of items of that side.

        Returns:
            Key -> keys of the linked items, ascending; items without links have no entry.
        """
        rows = self.rows(side, keys=[int(key) for key in keys], links=True)
        return {row.key: list(row.links) for row in rows if row.links}

    def deleted_among(self, hashes: Sequence[bytes]) -> set[bytes]:
        """The hashes that stand for deleted items.

        Args:
            hashes: Hashes of items; see `deletion_hash`.

        Returns:
            Those of the hashes that stand for deleted items.
        """
        return {bytes(digest) for (digest,) in self.records("deleted")}.intersection(hashes)


DerivedRows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Keys of items, ascending, keys of their rows, and what `DerivedRow` calls farthest; 0 for sentences."""


def sorted_owners(space: DerivedSpace, contents: Sequence[tuple[int, bytes]]) -> DerivedRows:
    """The rows of a derived space, in the order of their items; see `View.derived`.

    Args:
        space: One of `DERIVED`.
        contents: Key and content of N rows.

    Returns:
        See `View.derived`.

    Raises:
        SearchIndexError: For a damaged row.
    """
    width = 8 if space == "sentences" else 16
    if any(len(content) != width for _, content in contents):
        raise SearchIndexError("a derived row of the index needs the key of its item, and has none; restore a backup")
    packed = np.frombuffer(b"".join(content for _, content in contents), dtype=">i8").reshape(-1, width // 8)
    owners, farthest = packed[:, 0].astype(np.int64), np.zeros(len(packed))
    if width > 8:
        farthest = packed[:, 1:].copy().view(">f8")[:, 0].astype(np.float64)
    order = np.argsort(owners)
    return owners[order], np.array([key for key, _ in contents], dtype=np.int64)[order], farthest[order]


WrittenPart = Mapping[str, Any]
"""What a worker wrote, as plain data: "mark", "fragments", their "last" key, and what they add to the "numbers" of the
index."""


@runtime_checkable
class IndexParts(Protocol):
    """Rows of a new index that several processes write, each a part of them, before one change makes them an index.

    It travels to the workers. What they wrote is noted beside the index, so that nothing is written twice.
    """

    def driving(self, size: int, note: Callable[[str], None] | None) -> AbstractContextManager[int]:
        """Keep others from building this index meanwhile.

        Args:
            size: Items of a part, if this build begins.
            note: Called with a sentence before it has to wait.

        Returns:
            A context manager; it gives the number of items of a part, which an interrupted build has chosen.

        Raises:
            IndexLockedError: If another process builds it.
        """

    def require_free(self, note: Callable[[str], None] | None) -> None:
        """Require that no other process builds this index.

        Args:
            note: Called with a sentence before it has to wait.

        Raises:
            IndexLockedError: If one does.
        """

    def require_driving(self) -> None:
        """Require that no other process has taken over.

        Raises:
            IndexLockedError: If one has.
        """

    def choose_columns(self, metadata: Iterable[tuple[Side, Mapping[str, Any]]]) -> Mapping[str, Any]:
        """Choose where the values of all items stand, before workers write any; it travels with this.

        Args:
            metadata: Side and metadata of every item, in their order.

        Returns:
            The fields of the index, for `Writer.add_parts`.
        """

    def finished(self, name: str, mark: str) -> WrittenPart | None:
        """A part that was written before.

        Args:
            name: Of the part.
            mark: Of all that it was made of.

        Returns:
            The part; None if there is none, if it was made of something else, or if its rows are gone.
        """

    def write(self, name: str, mark: str, change: Change, *, key: int, derived_key: int) -> WrittenPart:
        """Write the rows of items, and note them.

        Args:
            name: Of the part.
            mark: Of all that it is made of.
            change: Entries, vectors, links and derived rows.
            key: Of the first entry; the others count on.
            derived_key: Of what is derived of the first entry.

        Returns:
            The part.

        Raises:
            SearchIndexError: If the index cannot be reached from here, or is another.
            OutputError: If it cannot be written.
        """

    @property
    def begun(self) -> bool:
        """Whether a build has left parts, or goes on."""

    def remove(self) -> None:
        """Remove the notes on parts."""


class Writer(ABC):
    """Changes an index; `Store.writing` makes it.

    Every method returns when its change is stored durably. What fails leaves the state before it.

    Args:
        store: The index that it changes.
        manifest: Describes the index; replaced after each change.
    """

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest

    @property
    def text_side(self) -> Path | None:
        """See `Store.text_side`; a folder that stays the index's own while it is written."""
        return self.store.text_side

    @property
    def sentence_side(self) -> Path | None:
        """See `Store.sentence_side`; a folder that stays the index's own while it is written."""
        return None if self.text_side is None else self.text_side.with_name(SENTENCE_SIDE)

    @abstractmethod
    def apply(self, change: Change) -> Applied:
        """Make a change, completely or not at all.

        Args:
            change: Items to put in and to delete, links, documents, and an entry of the journal.

        Returns:
            Number of deleted items of each side, and the number of the job.

        Raises:
            SearchIndexError: For vectors that are not finite or of another shape, and for an id that occurs twice.
            OutputError: If there is no space.
        """

    @abstractmethod
    def compact(self, *, seed: int = 0) -> list[str]:
        """Remove deleted rows from the disk, and prepare large sides for approximate search.

        Args:
            seed: Of what is sampled; the same seed samples the same.

        Returns:
            Sentences that say what was done.
        """

    def change_manifest(self, manifest: Manifest) -> None:
        """Put another description in the place of the index's own, such as one with another recall.

        Args:
            manifest: That of the writer, with other settings.

        Raises:
            RequirementError: If the store has no settings.
        """
        raise RequirementError(f"{self.store.path} lies in a store without lists or graphs; it got {manifest.wanted}")

    @property
    def parts(self) -> IndexParts | None:
        """Where the workers of a cluster write rows themselves; None where the process of the command writes."""
        return None

    def add_parts(self, parts: Sequence[WrittenPart], *, fields: Mapping[str, Any], job: int, done: int) -> None:
        """Make what workers wrote into an empty index part of it, in one change.

        Args:
            parts: All of them, as `IndexParts.write` returned them.
            fields: As `IndexParts.choose_columns` returned them.
            job: Number of the job that they belong to.
            done: Number of items that the job has processed with them.

        Raises:
            RequirementError: If the store has no such parts.
        """
        raise RequirementError(f"{self.store.path} lies in a store that takes no parts of workers; it got {len(parts)}")

    def put(self, change: Change, *, job: int | None = None, done: int = 0) -> None:
        """Put items in; items with an id of the index replace those. An empty change is not made.

        Args:
            change: The items, their vectors and their links.
            job: Number of the job that the change belongs to; None for no job.
            done: Number of items that the job has processed after this change.
        """
        if change.entries or change.amended or change.derived or self._changes_links(change):
            self.apply(replace(change, job=None if job is None else JobUpdate(job, done=done)))

    def delete(
        self, side: Side, ids: Sequence[str], *, keep_texts: bool = False, remember: bool = True
    ) -> Mapping[Side, int]:
        """Delete items of one side. Ids that are not in the index are skipped.

        What frozen encoders gave for them leaves the user's cache, before they leave the index: a deletion that is cut
        off is asked for again.

        Args:
            side: "images" or "texts".
            ids: Ids of the items to delete.
            keep_texts: Keeps the texts that have no other image; by default they are deleted with their images.
            remember: Keeps a hash of each deleted item, so that a data set that still has the item does not bring it
                back.

        Returns:
            Number of deleted items of each side.

        Raises:
            OutputError: If the user's cache cannot be written; then nothing is deleted.
        """
        forget(self._contents(side, ids, keep_texts=keep_texts))
        change = Change(side, deleted=ids, keep_texts=keep_texts, remember=remember)
        for attempt in range(ATTEMPTS):
            unlisted = self._unlisted(change)
            try:
                return self.apply(unlisted).deleted
            except IndexLockedError:
                # Again only where another writer may have changed the lists meanwhile, and nothing was deleted.
                if unlisted.since is None or attempt == ATTEMPTS - 1 or not self.rows_of(side, ids):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _unlisted(self, change: Change) -> Change:
        """A deletion that also takes the images out of saved lists."""
        if change.side != "images":
            return change
        with self.store.reading() as view:
            for (text,) in view.records(LISTS):
                if (left := without_images(text, change.deleted)) is not None:
                    return replace(change, documents={LISTS: left}, since=view.revision.change)
        return change

    def _contents(self, side: Side, ids: Sequence[str], *, keep_texts: bool) -> set[bytes]:
        """The contents of items that are to be deleted, and of the texts that go with them."""
        with self.store.reading() as view:
            rows = view.rows(side, ids=ids, links=side == "images" and not keep_texts)
            keys = {row.key for row in rows}
            texts = view.rows("texts", keys=sorted({key for row in rows for key in row.links}), links=True)
        return {row.content for row in (*rows, *(text for text in texts if keys.issuperset(text.links)))}

    def begin(self, verb: str, *, source: Mapping[str, Any] | None = None, total: int = 0) -> int:
        """Begin a job, or resume an unfinished one of the same verb and source.

        Args:
            verb: Name of the command, such as "add".
            source: Where the items come from, as plain data; it identifies the job.
            total: Number of items to process.

        Returns:
            Number of the job in the journal.
        """
        number = self.apply(Change(job=JobUpdate(verb=verb, source=source, total=total))).job
        assert number is not None
        return number

    def finish(self, job: int) -> None:
        """Record in the journal that a job is finished.

        Args:
            job: Number of the job.
        """
        self.apply(Change(job=JobUpdate(job, finished=True)))

    def rows_of(self, side: Side, ids: Sequence[str]) -> dict[str, StoredRow]:
        """The rows of the items that have some ids.

        Args:
            side: "images" or "texts".
            ids: Ids of items of that side.

        Returns:
            Id -> row of each item that is in the index.
        """
        with self.store.reading() as view:
            return {row.id: row for row in view.rows(side, ids=ids)}

    def ids(self, side: Side) -> list[str]:
        """All ids of a side.

        Args:
            side: "images" or "texts".

        Returns:
            Ids in the order in which the items were added.
        """
        with self.store.reading() as view:
            rows = {row.key: row.id for row in view.rows(side, keys=view.keys(side).tolist())}
        return [rows[key] for key in sorted(rows)]

    def clean_move(self, moving: Writer) -> None:
        """Delete from what an unfinished move builds the items that this index no longer has, or has otherwise.

        A text that was replaced may be one that nobody must read any more. The move embeds the new one when it goes on.

        Args:
            moving: Writes the index that the move builds.
        """
        for side in SIDES:
            ids = moving.ids(side)
            now, old = self.rows_of(side, ids), moving.rows_of(side, ids)
            changed = [name for name in ids if name not in now or not now[name].says(old[name])]
            moving.delete(side, changed, keep_texts=True, remember=False)

    def compact_large(self) -> None:
        """Compact the index if a side has too many vectors to compare all of them."""
        with self.store.reading() as view:
            rows = max(view.counts[side_of(space)] * self.manifest.views_of(space) for space in self.manifest.spaces)
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


def lost_changes(actual: Revision, acknowledged: Revision) -> str:
    """Why tables do not have the changes that were acknowledged.

    Args:
        actual: What the tables have.
        acknowledged: What the manifest says that they have.

    Returns:
        The rest of a sentence; "" if they have all of them.
    """
    if actual.identity != acknowledged.identity:
        return "needs the items of its own; it has those of another index"
    if actual.generation < acknowledged.generation:
        return (
            f"has {actual.generation:,} changes, of {acknowledged.generation:,} acknowledged: the last ones were lost, "
            "and deleted items may be back"
        )
    if actual.generation == acknowledged.generation and actual.change != acknowledged.change:
        return f"has {actual.generation:,} changes, but others than were acknowledged: its files are of two copies"
    return ""


class Store(ABC):
    """An open index; several threads may use it while other processes write.

    The constructor takes a path or an address. It raises SearchIndexError when there is no index, or it cannot be read.

    Attributes:
        path: Folder or address of the index, for messages; contains no secret.
        manifest: Describes the index.
    """

    path: Path | str
    manifest: Manifest
    settable: ClassVar[Mapping[str, tuple[int, int]]] = {}
    """Numbers of its lists that may be set by hand, with their least and greatest value."""
    caches_lists: ClassVar[bool] = False
    """Whether a reader has a cache of lists, whose size is one of the index."""
    keeps_spaces: ClassVar[bool] = False
    """Whether it holds derived spaces beside the sides; an index in another store has no sentence encoder."""

    @classmethod
    @abstractmethod
    def create(cls, location: str, manifest: Manifest) -> Store:
        """Create an empty index.

        Args:
            location: Folder or address of the index.
            manifest: Describes the index: model, width and views of the vectors, root of the paths.

        Returns:
            The open index.

        Raises:
            SearchIndexError: If the name is taken.
            OutputError: If it cannot be written.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[View]:
        """The index at this moment, as a context manager.

        Returns:
            A view, valid inside the block.
        """

    @abstractmethod
    def writing(self, verb: str) -> AbstractContextManager[Writer]:
        """A writer of the index, as a context manager.

        Args:
            verb: Name of the command, shown to others who want to write.

        Returns:
            A writer, valid inside the block.

        Raises:
            IndexLockedError: If another process writes and the store takes one writer at a time.
        """

    @abstractmethod
    def check(self) -> list[IndexIssue]:
        """Check the index for damage that only the store can see, such as a changed byte of a file.

        Returns:
            The damage; empty for an intact index.
        """

    @classmethod
    def damage(cls, location: str, problem: SearchIndexError) -> list[IndexIssue]:
        """Describe the damage of an index that cannot be opened.

        Args:
            location: Folder or address of the index.
            problem: The error raised by opening it.

        Returns:
            The damage; at least one entry.
        """
        return [IndexIssue(location, str(problem))]

    @classmethod
    def exists(cls, location: str) -> bool:
        """Whether there is an index at a location.

        Args:
            location: Folder or address of the index.

        Returns:
            True if an index can be opened there.
        """
        try:
            cls(location)  # type: ignore[call-arg]  # Every store is opened by its location.
        except SearchIndexError:
            return False
        return True

    @classmethod
    def require_free(cls, location: str) -> None:
        """Require that an index can be created at a location.

        Args:
            location: Folder or address of the index.

        Raises:
            SearchIndexError: If there is an index already.
        """
        if cls.exists(location):
            raise SearchIndexError(f"{location} is an index already; name another")

    @classmethod
    def name_of(cls, location: str) -> str:
        """A short name of an index, without secrets.

        Args:
            location: Folder or address of the index.

        Returns:
            The last part of the location.
        """
        # Where nothing else follows the host, a user and a password may stand before it.
        return location.rstrip("/").rpartition("/")[2].rpartition("@")[2].partition("?")[0]

    def remove(self) -> None:
        """Remove the index with all its items.

        Raises:
            RequirementError: If the store cannot remove an index.
        """
        raise RequirementError(f"{self.path} lies in a store that cannot remove an index; remove it by its own tools")

    def create_replacement(self, manifest: Manifest) -> Store:
        """Create an index for another model that is to replace this one; this one continues to serve.

        Args:
            manifest: Describes the new index.

        Returns:
            The new index. An unfinished replacement for the same model is resumed.

        Raises:
            RequirementError: If the store cannot change models.
        """
        raise RequirementError(
            f"{self.path} lies in a store that cannot change models; build another index ({manifest.run})"
        )

    def replace_with(self, new: Store, *, since: Revision) -> Store:
        """Put a finished replacement in the place of this index; deletions are remembered there, too.

        Args:
            new: What `create_replacement` returned, with all items.
            since: Revision of this index when the replacement began.

        Returns:
            The open index in its new form.

        Raises:
            RequirementError: If the store cannot change models.
            SearchIndexError: If this index has changed since that revision, or another one has taken its place.
        """
        raise RequirementError(f"{self.path} lies in a store that cannot change models; it got {new.path}")

    @property
    def whole(self) -> Store:
        """The index with items that this store hides; most stores hide none. See `retrieval.visible`."""
        return self

    @property
    def text_side(self) -> Path | None:
        """The folder for the text side of the model as arrays, which may not exist; None if the store keeps none."""
        return None

    @property
    def sentence_side(self) -> Path | None:
        """As `text_side`, of the sentence encoder of the index."""
        return None if self.text_side is None else self.text_side.with_name(SENTENCE_SIDE)

    @property
    def was_replaced(self) -> bool:
        """Whether another index, or this one with another model, has taken its place; then open it again."""
        now = type(self)(str(self.path))  # type: ignore[call-arg]  # Every store is opened by its location.
        return now.manifest.identity != self.manifest.identity

    def require_revision(self, actual: Revision, acknowledged: Revision | None = None) -> None:
        """Require that what is about to be read or changed is the index that was opened, with all of its changes.

        Every store calls it whenever it begins to read or to write.

        Args:
            actual: What the tables of the store have.
            acknowledged: What the manifest says that they have; None where the tables hold the manifest.

        Raises:
            IndexMovedError: If another index, or this one with another model, has taken the place of this one.
            SearchIndexError: If acknowledged changes were lost, as in a copy that leaves some of its files behind.
        """
        opened, acknowledged = self.manifest.identity, acknowledged or actual
        if acknowledged.identity != opened:
            raise IndexMovedError(
                f"{self.path} was replaced by another index, or moved to another model; open it again"
            )
        if problem := lost_changes(actual, acknowledged):
            raise SearchIndexError(f"{self.path} {problem}; restore a backup")

    @property
    def counts(self) -> dict[Side, int]:
        """Images and texts in the index."""
        with self.reading() as view:
            return dict(view.counts)

    @property
    def is_bare(self) -> bool:
        """Whether it has no item, and an interrupted build has left none of its work."""
        return not sum(self.counts.values())

    @property
    def bytes(self) -> int:
        """Its size on disk."""
        with self.reading() as view:
            return view.stats().bytes

    def locate_document(self, name: str) -> str:
        """The place of a document of the index, for messages.

        Args:
            name: Name of the document.

        Returns:
            A path, or a description of the place.
        """
        return f"{self.path}, document {name}"

    def close(self) -> None:  # noqa: B027  (most stores hold nothing open)
        """Release connections that nobody uses at this moment."""
