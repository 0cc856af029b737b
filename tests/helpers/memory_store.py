"""A store from outside the package, in memory: the fifteen methods that a store has to implement, in one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.errors import SearchIndexError
from subtext.retrieval.ann import rescore_top_k
from subtext.retrieval.manifest import Manifest
from subtext.retrieval.stores.errors import IndexIssue
from subtext.retrieval.stores.facets import DATE, NUMBER, AnyOf, Condition, facets, fulfils, item_words
from subtext.retrieval.stores.item import (
    SIDES,
    Applied,
    Change,
    FieldValues,
    Hits,
    IndexEntry,
    Side,
    StoredRow,
    deletion_hash,
)
from subtext.retrieval.stores.store import Stats, Store, View, Writer
from subtext.retrieval.words import fold

INDEXES: dict[str, Data] = {}


class Data:
    """One index."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest, self.revision, self.last = manifest, manifest.revision, 0
        self.rows: dict[Side, dict[int, tuple[StoredRow, IndexEntry, NDArray[np.float32]]]] = {
            side: {} for side in SIDES
        }
        self.links: set[tuple[str, str]] = set()
        self.deleted: set[bytes] = set()
        self.jobs: list[list[Any]] = []
        self.documents: dict[str, str] = {}


class MemoryView(View):
    def __init__(self, data: Data) -> None:
        super().__init__(data.manifest, data.revision, {side: len(data.rows[side]) for side in SIDES})
        self.data = data

    def stats(self) -> Stats:
        return Stats(0, {side: self.counts[side] for side in SIDES})

    def select(self, side: Side, where: Sequence[Condition | AnyOf] = ()) -> NDArray[np.int64]:
        keys = [
            key
            for key, (row, entry, _) in sorted(self.data.rows[side].items())
            if all(self._fulfils(row, entry, condition) for condition in where)
        ]
        return np.array(keys, dtype=np.int64)

    def _fulfils(self, row: StoredRow, entry: IndexEntry, condition: Condition | AnyOf) -> bool:
        if isinstance(condition, Condition) and condition.field == "text":
            return fold(str(condition.value)) in fold(row.text or "")
        return fulfils(condition, row.id, facets(entry.metadata))

    def rows(
        self, side: Side, *, keys: Sequence[int] | None = None, ids: Sequence[str] | None = None, links: bool = False
    ) -> list[StoredRow]:
        rows = [row for row, _, _ in self.data.rows[side].values() if row.key in (keys or ()) or row.id in (ids or ())]
        other = {row.id: row.key for row, _, _ in self.data.rows[SIDES[1 - SIDES.index(side)]].values()}
        own, facing = (0, 1) if side == "images" else (1, 0)
        return [
            row._replace(links=tuple(sorted(other[link[facing]] for link in self.data.links if link[own] == row.id)))
            for row in rows
        ]

    def nearest(
        self,
        side: Side,
        queries: NDArray[np.float32],
        *,
        top: int,
        among: NDArray[np.int64] | None = None,
        exact: bool = False,
    ) -> list[Hits]:
        keys = self.select(side) if among is None else among
        vectors = self.vectors(side, keys)
        flat = vectors.reshape(-1, self.manifest.width)
        return [Hits(*rescore_top_k(query, flat, np.repeat(keys, vectors.shape[1]), top)) for query in queries]

    def vectors(self, side: Side, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        found = [self.data.rows[side][key][2] for key in keys.tolist()]
        return np.array(found, dtype=np.float32).reshape(len(keys), self.manifest.views[side], self.manifest.width)

    def search_words(self, side: Side, words: str, *, top: int | None) -> list[tuple[int, float]]:
        wanted = set(words.casefold().split())
        rows = self.data.rows[side].items()
        texts = [
            (key, (row.text or "") if side == "texts" else item_words(row.id, row.path, row.fields))
            for key, (row, _, _) in rows
        ]
        scores = [(key, float(len(wanted & set(text.casefold().split())))) for key, text in texts]
        return sorted([score for score in scores if score[1]], key=lambda score: (-score[1], score[0]))[:top]

    def fields(self, side: Side) -> list[str]:
        names = {name for _, entry, _ in self.data.rows[side].values() for name, _ in facets(entry.metadata)}
        return sorted(name for name in names if not name.endswith((DATE, NUMBER)))

    def values(self, side: Side, name: str, *, limit: int = 0) -> FieldValues:
        every = [own for _, entry, _ in self.data.rows[side].values() for own in facets(entry.metadata)]
        counts = Counter(value for field, value in every if field == name)
        texts = [value for value in counts if isinstance(value, str)]
        return FieldValues(bool(texts), len(texts) < len(counts), len(counts), tuple(counts.most_common(limit)))

    def records(self, kind: str) -> list[tuple[Any, ...]]:
        if kind == "jobs":
            return [tuple(job) for job in self.data.jobs]
        if kind == "deleted":
            return [(own,) for own in self.data.deleted]
        if kind == "documents":
            return [(name, hash(text)) for name, text in self.data.documents.items()]
        return [(self.data.documents[kind],)] if kind in self.data.documents else []


class MemoryWriter(Writer):
    store: Memory

    def apply(self, change: Change) -> Applied:
        data, side = self.store.data, change.side
        vectors = change.checked_vectors(data.manifest.views[side], data.manifest.width)
        keys = {row.id: key for key, (row, _, _) in data.rows[side].items()}
        for entry, own in zip(change.entries, vectors, strict=True):
            data.rows[side].pop(keys.get(entry.id, 0), None)
            data.last += 1
            self._put(side, data.last, entry, own)
            data.deleted.discard(deletion_hash(side, entry.id))
        for entry in change.amended:
            self._put(side, keys[entry.id], entry, data.rows[side][keys[entry.id]][2])
        data.links = {link for link in data.links if link[1] not in change.exact_texts} | set(change.links)
        deleted = {side: set(change.deleted) & set(keys)}
        if side == "images" and not change.keep_texts:
            texts = {text for image, text in data.links if image in deleted[side]}
            deleted["texts"] = texts - {text for image, text in data.links if image not in deleted[side]}
        for own_side, names in deleted.items():
            data.rows[own_side] = {key: own for key, own in data.rows[own_side].items() if own[0].id not in names}
            data.deleted |= {deletion_hash(own_side, name) for name in names if change.remember}
        ids = [{row.id for row, _, _ in data.rows[own].values()} for own in SIDES]
        data.links = {link for link in data.links if link[0] in ids[0] and link[1] in ids[1]}
        data.deleted |= set(change.remembered)
        data.documents |= change.documents
        data.revision = data.revision.next()
        job = None if change.job is None else self._job(change)
        return Applied({own: len(deleted.get(own, ())) for own in SIDES}, job)

    def compact(self, *, seed: int = 0) -> list[str]:
        return ["nothing to do"]

    def _put(self, side: Side, key: int, entry: IndexEntry, vectors: NDArray[np.float32]) -> None:
        digest = entry.digest(SIDES.index(side), key)
        row = StoredRow(key, entry.id, entry.path, entry.text, entry.metadata_json, entry.content, entry.stamp, digest)
        self.store.data.rows[side][key] = (row, row.entry(), vectors)

    def _job(self, change: Change) -> int:
        update, jobs = change.job, self.store.data.jobs
        assert update is not None
        if update.number is None:
            for number, job in enumerate(jobs, start=1):
                if job[4] is None and (job[1], job[2]) == (update.verb, update.source_json):
                    return number
            jobs.append([len(jobs) + 1, update.verb, update.source_json, "now", None, 0, update.total])
            return len(jobs)
        job = jobs[update.number - 1]
        job[4], job[5] = ("now" if update.finished else job[4]), job[6] if update.finished else update.done
        return update.number


class Memory(Store):
    def __init__(self, address: str) -> None:
        if address not in INDEXES:
            raise SearchIndexError(f"there is no index {address}")
        self.path, self.data = address, INDEXES[address]
        self.manifest = self.data.manifest

    @classmethod
    def create(cls, location: str, manifest: Manifest) -> Memory:
        cls.require_free(location)
        INDEXES[location] = Data(manifest)
        return cls(location)

    @contextmanager
    def reading(self) -> Iterator[MemoryView]:
        self.require_revision(INDEXES[self.path].revision)
        yield MemoryView(self.data)

    @contextmanager
    def writing(self, verb: str) -> Iterator[MemoryWriter]:
        self.require_revision(INDEXES[self.path].revision)
        yield MemoryWriter(self, self.manifest)

    def check(self) -> list[IndexIssue]:
        return []
