"""An index in shards at one moment: questions go to all that keep shards open, and their answers become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.search.stores.condition import ID, TEXT, Condition, require_fields
from subtext.search.stores.item import SIDES, Item, Side
from subtext.search.stores.journal import Job
from subtext.search.stores.manifest import Manifest
from subtext.search.stores.shards.questions import Facts, best, first_by_words
from subtext.search.stores.shelf import Found
from subtext.search.stores.values import Value, Values

Ask = Callable[..., list[Any]]
"""Takes a question's name and its words; gives the answer of each keeper."""


@dataclass(frozen=True)
class Shelf:
    """The vectors of one side of all shards at one moment.

    views  K, vectors an item      rows, count, loose   vectors; items; vectors that every search compares
    """

    ask: Ask
    side: Side
    views: int
    width: int
    rows: int
    count: int
    loose: int

    def nearest(
        self, queries: NDArray[np.float32], *, top: int, among: NDArray[np.int64] | None = None, exact: bool = False
    ) -> list[Found]:
        """The best `top` items of each of (Q L D) queries, or of those `among` these keys.

        Each shard gives its own best `top`, so that the best of all are among them. `exact` compares all vectors,
        however many a shard has.
        """
        answers = self.ask("nearest", self.side, queries, top, among, exact)
        return [best(own, top) for own in zip(*answers, strict=True)]

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N K D) vectors of items, in the order of the keys; each has to be there."""
        found = np.empty((len(keys), self.views, self.width), dtype=np.float32)
        told = 0
        for places, vectors in self.ask("vectors_of", self.side, keys):
            if len(places):
                found[places] = np.stack(vectors)
            told += len(places)
        if told != len(keys):
            raise KeyError(f"{len(keys) - told} of {len(keys)} items are in no shard")
        return found

    @property
    def live(self) -> NDArray[np.int64]:
        """The keys of all items that are there, ascending. Cost a read of all keys, and their way here."""
        found: NDArray[np.int64] = np.sort(np.concatenate(self.ask("live", self.side)))
        return found

    def up_to(self, key: int) -> int:
        """How many items have this key or a smaller one."""
        return sum(self.ask("up_to", self.side, key))

    def drawn(self, count: int, *, seed: int = 0) -> NDArray[np.int64]:
        """At most `count` keys of items that are there, ascending; the same as of a folder with these keys."""
        answers = self.ask("drawn", self.side, count, seed)
        keys = np.concatenate([own for own, _ in answers])
        if len(keys) > count:
            keys = keys[np.argpartition(np.concatenate([order for _, order in answers]), count)[:count]]
        found: NDArray[np.int64] = np.sort(keys)
        return found


@dataclass(frozen=True)
class View:
    """Items and vectors of all shards at one moment; of use inside the `with` that gave it.

    generation  how many changes the shards have had together
    shelves     the vectors of "images" and of "texts"
    """

    ask: Ask
    generation: int
    shelves: Mapping[Side, Shelf]

    @staticmethod
    def of(ask: Ask, facts: Iterable[Facts], manifest: Manifest) -> View:
        """What shards of these facts are together."""
        known = list(facts)

        def shelf(side: Side) -> Shelf:
            return Shelf(
                ask,
                side,
                manifest.views[side],
                manifest.width,
                rows=sum(own.rows[side] for own in known),
                count=sum(own.items[side] for own in known),
                loose=sum(own.loose[side] for own in known),
            )

        return View(ask, sum(own.generation for own in known), {side: shelf(side) for side in SIDES})

    @property
    def counts(self) -> dict[str, int]:
        """Items of each side."""
        return {side: self.shelves[side].count for side in SIDES}

    def matching(self, side: Side, where: Sequence[Condition]) -> NDArray[np.int64]:
        """The keys of all items that fulfil every condition, ascending.

        Raises RequirementError when no item of that side, in any shard, has a field that is asked for.
        """
        if {condition.field for condition in where} - {TEXT, ID}:
            require_fields(side, where, self.fields(side))
        found: NDArray[np.int64] = np.sort(np.concatenate(self.ask("matching", side, list(where))))
        return found

    def items(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> list[Item]:
        """The items of these keys, in their order. Raises KeyError for one that is not there."""
        wanted = np.asarray(keys, dtype=np.int64)
        found: dict[int, Item] = {}
        for own in self.ask("items", side, wanted) if len(wanted) else []:
            found |= own
        return [found[key] for key in wanted.tolist()]

    def keys_of(self, side: Side, ids: Sequence[str]) -> dict[str, int]:
        """Key of each of these ids that is there."""
        return {name: key for own in self.ask("keys_of", side, list(ids)) for name, key in own.items()}

    def partners(self, side: Side, keys: Sequence[int] | NDArray[np.int64]) -> dict[int, list[int]]:
        """Of items of a side the keys of those that they are joined with on the other, ascending; without, no entry."""
        wanted = np.asarray(keys, dtype=np.int64)
        return {key: joined for own in self.ask("partners", side, wanted) for key, joined in own.items()}

    def by_words(self, words: str, *, top: int) -> list[tuple[int, float]]:
        """The `top` texts that have some of the words, as (key, BM25 score); larger is better.

        How rare a word is, and how long texts are, each shard knows of its own texts: scores are nearly, not wholly,
        those of one folder.
        """
        return first_by_words([each for own in self.ask("by_words", words, top) for each in own], top)

    def fields(self, side: Side) -> list[str]:
        """Names of the metadata that can be filtered by."""
        return sorted({name for own in self.ask("fields", side) for name in own})

    def values(self, side: Side, name: str, *, most: int, choice: int) -> Values:
        """What a field holds: the `most` commonest values where no more than `choice` are different.

        Cost the way of all different values here.
        """
        counts: Counter[Value] = Counter()
        dates: list[float] = []
        for own, ends in self.ask("values", side, name):
            counts.update(own)
            dates += ends
        ends = (min(dates), max(dates)) if dates else None
        return Values.of(counts, most=most, choice=choice, dates=ends)

    def page(self, side: Side, *, offset: int, top: int) -> list[int]:
        """`top` keys of a side, after so many, in their order. Cost a read of all keys, and their way here."""
        found: list[int] = self.shelves[side].live[offset : offset + top].tolist()
        return found

    def content(self, side: Side, key: int) -> bytes:
        """The digest of what was embedded of an item. Raises KeyError where there is no such key."""
        found: list[bytes] = [each for own in self.ask("contents", side, key) for each in own]
        if not found:
            raise KeyError(key)
        return found[0]

    def jobs(self) -> list[Job]:
        """The journals of the shards, one after the other."""
        found: dict[int, list[Job]] = {}
        for own in self.ask("jobs"):
            found |= own
        return [job for number in sorted(found) for job in found[number]]
