"""An index of which some items are hidden: what is left answers as if the others were not there.

An image is visible that fulfils all conditions. A text is visible that one of its images shows, or that has none and
fulfils them itself; where its own metadata says otherwise, it is hidden whatever its images are. A hidden item is in no
result, no count, no field and no suggestion, its words score nothing, and it lends nothing to its neighbours.

What was learnt from all items stays: the weights of the ranker, and the calibration.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.retrieval.condition import matching
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.neighbours import near_of, without_lenders
from subtext.retrieval.stores.errors import IndexIssue
from subtext.retrieval.stores.facets import DATE, NUMBER, TEXT, AnyOf, Condition, facets, interval_at, item_words
from subtext.retrieval.stores.item import (
    DERIVED,
    NO_HITS,
    SIDES,
    FieldValues,
    Hits,
    Side,
    Space,
    StoredRow,
    opposite,
    side_of,
)
from subtext.retrieval.stores.store import Keys, Stats, Store, View, Writer, are_among
from subtext.retrieval.word_index import WordIndex
from subtext.retrieval.words import fold, spaced

COUNTED = 300_000
"""Items of a side whose words are counted among the visible alone; of more, all items say how rare a word is."""
ROUNDING = 1e-4
"""More than rounding changes in a product with a vector of length 1, by what its vectors are multiplied with."""
_ROWS = 4096
"""Rows that are read at a time."""

Lent = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]
"""(N) keys of images whose neighbours are partly hidden, (N E) what the others lend, and keys that nothing is lent."""


class VisibleView(View):
    """The visible items of an index at one moment; see the module.

    Args:
        whole: The index at that moment.
        conditions: What every image fulfils.
    """

    def __init__(self, whole: View, conditions: tuple[Condition, ...]) -> None:
        self._base = whole
        self.conditions = conditions
        cache = whole.cache.setdefault(f"visible {conditions!r}", {})
        super().__init__(whole.manifest, whole.revision, {}, cache=cache)
        self.counts = {side: len(self.keys(side)) for side in SIDES}

    @property
    def whole(self) -> View:
        """The index with the hidden items."""
        return self._base.whole

    @property
    def exact_spaces(self) -> bool:  # type: ignore[override]  # A class variable of every other view.
        """Whether `scores` compares all rows of a space."""
        return self._base.exact_spaces

    def stats(self) -> Stats:
        """The size and state of the store, which holds the hidden items, too.

        Returns:
            As the whole index.
        """
        return self._base.stats()

    def keys(self, side: Side) -> NDArray[np.int64]:
        """The keys of the visible items of a side.

        Args:
            side: "images" or "texts".

        Returns:
            (N) int64 keys, ascending.
        """
        name = f"keys of {side}"
        if name not in self.cache:
            images = np.asarray(matching(self._base, "images", self.conditions, strict=False))
            self.cache["keys of images"] = images
            self.cache["keys of texts"] = self._texts_of(images)
        return self.cache[name]

    def _texts_of(self, images: NDArray[np.int64]) -> NDArray[np.int64]:
        """The visible texts, by the visible images."""
        base, every = self._base, self._base.keys("texts")
        texts, owners = base.owner_links()
        shown = np.unique(texts[np.isin(owners, images)])
        alone = np.setdiff1d(every, texts, assume_unique=False)
        known = {fold(name) for name in base.fields("texts")}
        for condition in self.conditions:
            fulfilling = np.asarray(matching(base, "texts", [condition], strict=False))
            alone = np.intersect1d(alone, fulfilling)
            if fold(condition.field) in known:
                # Those that say nothing of the field are what their images are.
                doubtful, wanted = np.setdiff1d(shown, fulfilling).tolist(), fold(condition.field)
                failing = [
                    row.key
                    for start in range(0, len(doubtful), _ROWS)
                    for row in base.rows("texts", keys=doubtful[start : start + _ROWS])
                    if any(fold(name) == wanted for name, _ in facets(row.fields))
                ]
                shown = np.setdiff1d(shown, np.array(failing, dtype=np.int64))
        return np.union1d(shown, alone)

    def select(self, side: Space, where: Sequence[Condition | AnyOf] = ()) -> NDArray[np.int64]:
        """The keys of the visible items that fulfil every condition; see `View.select`.

        Args:
            side: One of `SPACES`.
            where: Conditions on the metadata; all must be true.

        Returns:
            (N) int64 keys, ascending.
        """
        if side in DERIVED:
            own = self._base.select(side, where)
            return np.intersect1d(own, self.owners(side)[1])
        keys = self.keys(side_of(side))
        for condition in where:
            if side == "images" and isinstance(condition, Condition) and condition.field == TEXT:
                texts, images = self.owner_links()
                found = images[np.isin(texts, self.select("texts", [condition]))]
            else:
                found = self._base.select(side, [condition])
            keys = np.intersect1d(keys, found)
        return keys

    def rows(
        self, side: Space, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[StoredRow]:
        """The rows of some visible items, linked with visible ones; see `View.rows`.

        Args:
            side: One of `SPACES`.
            keys: Keys of items; None where `ids` are given.
            ids: Ids of items; None where `keys` are given.
            links: Also reads the links of each row.

        Returns:
            The rows in any order.
        """
        found = self._base.rows(side, keys=keys, ids=ids, links=links)
        if side in DERIVED:
            there = set(self.owners(side)[1].tolist())
            found = [row for row in found if row.key in there]
            return [self._lent_row(row) for row in found] if side == "neighbours" else found
        there = self._among(side_of(side), [row.key for row in found])
        found = [row for row in found if row.key in there]
        if not links:
            return found
        partners = self._among(opposite(side_of(side)), [key for row in found for key in row.links])
        return [row._replace(links=tuple(key for key in row.links if key in partners)) for row in found]

    def _among(self, side: Side, keys: Sequence[int]) -> set[int]:
        """Those of some keys that are of visible items."""
        some = np.unique(np.array(keys, dtype=np.int64))
        return set(some[_places(self.keys(side), some)[1]].tolist())

    def _lent_row(self, row: StoredRow) -> StoredRow:
        """A row of neighbours without the hidden ones."""
        fields = row.fields
        near, (cosines,) = fields.get("near", []), fields.get("cosines") or [[]]
        there = self._among("images", near)
        kept = [(other, cosine) for other, cosine in zip(near, cosines, strict=True) if other in there]
        own = {"near": [other for other, _ in kept], "cosines": [[cosine for _, cosine in kept]]}
        return row._replace(metadata=json.dumps(own))

    def nearest(
        self,
        side: Space,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: Keys | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        """The best visible items for each of several queries; see `View.nearest`.

        Args:
            side: One of `SPACES`.
            queries: (Q L D) float32.
            top: Number of hits per query, 1 or more.
            among: M keys to search, ascending; None for all visible items.
            exact: Compares all vectors, however many there are.

        Returns:
            Q hits, best first.
        """
        keys = np.sort(self.owners(side)[1]) if side in DERIVED else self.keys(side_of(side))
        keys = keys if among is None else keys[are_among(keys, among)]
        if not len(keys):
            return [NO_HITS] * len(queries)
        return self._base.nearest(side, queries, top=top, among=keys, exact=exact)

    def nearest_in(
        self, space: Space, vectors: NDArray[np.float32], *, top: int, among: Keys | None = None
    ) -> list[Hits]:
        """The best visible items of a space; see `View.nearest_in`.

        Args:
            space: One of `SPACES`.
            vectors: (Q L D) float32.
            top: Number of hits per query, 1 or more.
            among: M keys of items to search, ascending; None for all visible items.

        Returns:
            Q hits with keys of items, best first.
        """
        if space != "neighbours":
            return super().nearest_in(space, vectors, top=top, among=among)
        owners = self.owners(space)[0]
        owners = owners if among is None else owners[are_among(owners, among)]
        changed, lent, _ = self._lent
        others = np.setdiff1d(owners, changed)
        own = np.isin(changed, owners)
        results = [NO_HITS] * len(vectors)
        if len(others):
            results = self._base.nearest_in(space, vectors, top=top, among=others)
        merged = []
        for query, hits in zip(vectors, results, strict=True):
            keys = np.concatenate([hits.keys, changed[own]])
            scores = np.concatenate([hits.scores, (lent[own] @ query.T).max(axis=1)]) if own.any() else hits.scores
            order = np.lexsort((keys, -scores))[:top]
            merged.append(Hits(keys[order], scores[order]))
        return merged

    def vectors(self, side: Space, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of some visible items; see `View.vectors`.

        Args:
            side: One of `SPACES`.
            keys: (N) int64 keys of items, of a derived space of its rows.

        Returns:
            (N K D) float32.
        """
        if side != "neighbours":
            return self._base.vectors(side, keys)
        owners, rows = self.owners(side)
        order = np.argsort(rows)
        return self.vectors_in(side, owners[order][np.searchsorted(rows[order], keys)])[0]

    def vectors_in(self, space: Space, keys: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The vectors of some visible items in a space; see `View.vectors_in`.

        Args:
            space: One of `SPACES`.
            keys: (N) int64 keys of items.

        Returns:
            (N K D) float32, zeros for an item that has none; and (N) flags of those that have some.
        """
        vectors, there = self._base.vectors_in(space, keys)
        if space == "neighbours":
            changed, lent, nothing = self._lent
            places, own = _places(changed, keys)
            vectors[own] = lent[places[own]][:, None]
            gone = np.isin(keys, nothing)
            vectors[gone], there[gone] = 0, False
        return vectors, there

    @property
    def _lent(self) -> Lent:
        """What visible neighbours lend to the images of which some neighbours are hidden, or some of their texts."""
        if "lent by the visible" not in self.cache:
            base, images, texts = self._base, self.keys("images"), self.keys("texts")
            every, owners = base.owner_links()
            hidden = np.setdiff1d(base.keys("images"), images)
            barred = np.setdiff1d(base.keys("texts"), texts)
            partly = np.union1d(hidden, owners[np.isin(every, barred)])
            held = np.intersect1d(base.owners("neighbours")[0], images)
            changed = list[int]()
            for start in range(0, len(held) if len(partly) else 0, _ROWS):
                near = near_of(base, held[start : start + _ROWS])
                met = {other for own in near.values() for _, other in own}
                doubtful = set(np.intersect1d(np.array(sorted(met), dtype=np.int64), partly).tolist())
                changed += [key for key, own in near.items() if any(other in doubtful for _, other in own)]
            keys = np.array(sorted(changed), dtype=np.int64)
            vectors, there = without_lenders(base, keys, hidden, barred)
            self.cache["lent by the visible"] = keys[there], vectors[there], keys[~there]
        lent: Lent = self.cache["lent by the visible"]
        return lent

    def search_words(self, side: Side, words: str, *, top: int | None) -> list[tuple[int, float]]:
        """The visible items that contain some of the words of a query; see `View.search_words`.

        Args:
            side: "images" or "texts".
            words: Words of the query.
            top: Number of items, 1 or more; None for all.

        Returns:
            (key of the item, BM25 score), best first.
        """
        scores = self.word_scores(side, words)
        found = np.flatnonzero(scores)
        keys, scores = self.keys(side)[found], scores[found]
        order = np.lexsort((keys, -scores))[:top]
        return list(zip(keys[order].tolist(), scores[order].tolist(), strict=True))

    def word_scores(self, side: Side, words: str) -> NDArray[np.float64]:
        """BM25 of the visible items with the words of a query; see `View.word_scores`.

        How rare a word is is counted among the visible items, up to `COUNTED` of them.

        Args:
            side: "images" or "texts".
            words: Words of the query.

        Returns:
            (N) scores in the order of `keys`.
        """
        keys, name = self.keys(side), f"words of {side}"
        if len(keys) > COUNTED:
            return self._base.word_scores(side, words)[np.searchsorted(self._base.keys(side), keys)]
        if name not in self.cache:
            said = dict[int, str]()
            for start in range(0, len(keys), _ROWS):
                for row in self._base.rows(side, keys=keys[start : start + _ROWS].tolist()):
                    own = row.text if side == "texts" else item_words(row.id, row.path, row.fields)
                    said[row.key] = spaced(own or "")
            self.cache[name] = WordIndex([said[key] for key in keys.tolist()])
        index: WordIndex = self.cache[name]
        return index.scores(words)

    def fields(self, side: Side) -> list[str]:
        """The names of the metadata fields of the visible items of a side.

        Args:
            side: "images" or "texts".

        Returns:
            Names, sorted.
        """
        return sorted(name for name in self._facets(side) if not name.endswith((DATE, NUMBER)))

    def _facets(self, side: Side) -> dict[str, Counter[str | int | float]]:
        """Field -> how many visible items have each of its values."""
        name = f"facets of {side}"
        if name not in self.cache:
            counts = dict[str, Counter[str | int | float]]()
            keys = self.keys(side).tolist()
            for start in range(0, len(keys), _ROWS):
                for row in self._base.rows(side, keys=keys[start : start + _ROWS]):
                    for field, value in facets(row.fields):
                        counts.setdefault(field, Counter())[value] += 1
            self.cache[name] = counts
        return self.cache[name]

    def values(self, side: Side, name: str, *, limit: int = 0) -> FieldValues:
        """The values of a metadata field over the visible items of a side; see `View.values`.

        Args:
            side: "images" or "texts".
            name: The field.
            limit: Number of most frequent values to return.

        Returns:
            Kinds, number and range of the values, and the most frequent ones.
        """
        every = self._facets(side)
        counts = every.get(name, Counter())
        # Of several spellings the most common one is shown.
        alike = dict[str | int | float, Counter[str | int | float]]()
        for value, number in counts.items():
            alike.setdefault(fold(value) if isinstance(value, str) else value, Counter())[value] += number
        totals = sorted(alike, key=lambda value: (-alike[value].total(), isinstance(value, str), value))
        common = [(alike[value].most_common(1)[0][0], alike[value].total()) for value in totals[:limit]]
        numbers = [value for value in counts if not isinstance(value, str)]
        dates = [interval_at(str(value)) for value in every.get(name + DATE, ())]
        return FieldValues(
            has_texts=len(numbers) < len(counts),
            has_numbers=bool(numbers),
            distinct=len(alike),
            common=tuple(common),
            range=(min(numbers), max(numbers)) if numbers else None,
            date_range=(min(first for first, _ in dates), max(last for _, last in dates)) if dates else None,
        )

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        """Other records of the index, which name no item; see `View.records`.

        Args:
            kind: "jobs", "deleted", "documents" or the name of a document.

        Returns:
            Rows of the record.
        """
        return self._base.records(kind)

    def owners(self, space: Space) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The visible items that a space has rows of; see `View.owners`.

        Args:
            space: One of `SPACES`.

        Returns:
            (N) int64 keys of items, ascending, and (N) keys of their rows in the space.
        """
        name = f"owners of {space}"
        if name not in self.cache:
            owners, rows = self._base.owners(space)
            there = np.isin(owners, self.keys(side_of(space)))
            if space == "neighbours":
                there &= ~np.isin(owners, self._lent[2])
            self.cache[name] = owners[there], rows[there]
        return self.cache[name]

    def scores(
        self, space: Space, vectors: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]:
        """The scores of all visible items of a space; see `View.scores`.

        Args:
            space: One of `SPACES`.
            vectors: (L D) float32 of one query.

        Returns:
            (N) keys of items, ascending, (N) float32 scores, and (N) float32 by how much each may be off.
        """
        known, scores, errors = self._base.scores(space, vectors)
        there = np.isin(known, self.owners(space)[0])
        keys, scores, errors = known[there], scores[there], errors[there]
        if space == "neighbours":
            changed, lent, _ = self._lent
            places, own = _places(changed, keys)
            scores[own] = (lent[places[own]] @ vectors.T).max(axis=1)
            errors[own] = ROUNDING * np.linalg.norm(vectors, axis=1).max()
        return keys, scores, errors

    def owner_links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All links of visible texts with visible images.

        Returns:
            (M) int64 keys of texts, ascending, and (M) keys of the images that they are linked with.
        """
        if "links" not in self.cache:
            texts, images = self._base.owner_links()
            there = np.isin(texts, self.keys("texts")) & np.isin(images, self.keys("images"))
            self.cache["links"] = texts[there], images[there]
        return self.cache["links"]

    def folded(self, side: Side, names: Sequence[str]) -> dict[str, list[str]]:
        """The ids of visible items that differ from some names in case, accents or spaces alone.

        Args:
            side: "images" or "texts".
            names: Any texts.

        Returns:
            Name -> ids, sorted.
        """
        found = self._base.folded(side, names)
        there = self.keys_of(side, [own for ids in found.values() for own in ids])
        visible = {name: [own for own in ids if own in there] for name, ids in found.items()}
        return {name: ids for name, ids in visible.items() if ids}

    def dates(self, side: Side, name: str) -> dict[int, tuple[int, int]]:
        """First and last second of the dates of a field of visible items.

        Args:
            side: "images" or "texts".
            name: The field.

        Returns:
            Key -> seconds of its earliest date.
        """
        dates = self._base.dates(side, name)
        there = self._among(side, list(dates))
        return {key: date for key, date in dates.items() if key in there}


def _places(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(N) places of wanted keys among ascending ones, and (N) flags of those that are there."""
    places = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    there = keys[places] == wanted if len(keys) else np.zeros(len(wanted), dtype=np.bool_)
    return places, there


class VisibleStore(Store):
    """An index of which some items are hidden, to read; see the module.

    Args:
        whole: The index.
        conditions: What every visible image fulfils.

    Raises:
        RequirementError: For a condition on a field that no image has.
    """

    def __init__(self, whole: Store, conditions: Sequence[Condition]) -> None:
        self._base = whole
        self.conditions = tuple(conditions)
        self.path = whole.path
        with whole.reading() as view:
            matching(view, "images", self.conditions)

    @classmethod
    def create(cls, location: str, manifest: Manifest) -> Store:
        """Not of this class: it shows an index that is there.

        Args:
            location: Of the index.
            manifest: Describes the index.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(location, manifest)

    @property
    def manifest(self) -> Manifest:  # type: ignore[override]  # An attribute of every other store.
        """Describes the index."""
        return self._base.manifest

    @property
    def whole(self) -> Store:
        """The index with the hidden items: what changes it needs this one."""
        return self._base

    @contextmanager
    def reading(self) -> Iterator[View]:
        """The visible items at this moment.

        Yields:
            A view, valid inside the block.
        """
        with self._base.reading() as view:
            yield VisibleView(view, self.conditions)

    def writing(self, verb: str) -> AbstractContextManager[Writer]:
        """A writer of the whole index; see `Store.writing`.

        Args:
            verb: Name of the command.

        Returns:
            A writer, valid inside the block.
        """
        return self._base.writing(verb)

    def check(self) -> list[IndexIssue]:
        """Check the whole index for damage.

        Returns:
            The damage.
        """
        return self._base.check()

    @property
    def text_side(self) -> Path | None:
        """See `Store.text_side`."""
        return self._base.text_side

    @property
    def was_replaced(self) -> bool:
        """Whether another index has taken its place; then open it again."""
        return self._base.was_replaced

    def close(self) -> None:
        """Release connections that nobody uses at this moment."""
        self._base.close()
