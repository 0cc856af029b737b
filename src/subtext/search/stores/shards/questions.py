"""What shards that one process keeps open are asked; keys of items are those of the index as a whole.

Every question takes the shards, each as its keys and what it is at this moment, and gives their answers as one. What
several processes have answered is put together by `view`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.ops import draw
from subtext.search.stores.condition import Condition
from subtext.search.stores.item import SIDES, Item, Side
from subtext.search.stores.journal import Job
from subtext.search.stores.shards.numbering import Numbering
from subtext.search.stores.shelf import SOME, Found
from subtext.search.stores.values import Value
from subtext.search.stores.view import View

Open = Sequence[tuple[int, Numbering, View]]
"""Shards that are open: their numbers, the keys of their items, and what they are at this moment."""


@dataclass(frozen=True)
class Facts:
    """One shard at one moment: how many changes it has had, and of each side items, vectors, and loose vectors."""

    generation: int
    items: Mapping[Side, int]
    rows: Mapping[Side, int]
    loose: Mapping[Side, int]


def facts(shards: Open) -> dict[int, Facts]:
    """Of each shard."""
    return {
        number: Facts(
            view.generation,
            {side: view.counts[side] for side in SIDES},
            {side: view.shelves[side].rows for side in SIDES},
            {side: view.shelves[side].loose for side in SIDES},
        )
        for number, _, view in shards
    }


def nearest(
    shards: Open, side: Side, queries: NDArray[np.float32], top: int, among: NDArray[np.int64] | None, exact: bool
) -> list[Found]:
    """Of each query the best `top` items of these shards; see `Shelf.nearest`."""
    found: list[list[Found]] = [[] for _ in queries]
    for _, numbering, view in shards:
        chosen = None if among is None else numbering.own(among)[1]
        if chosen is not None and not len(chosen):
            continue
        answers = view.shelves[side].nearest(queries, top=top, among=chosen, exact=exact)
        for own, answer in zip(found, answers, strict=True):
            own.append(Found(numbering.whole(answer.keys), answer.scores))
    return [best(own, top) for own in found]


def best(found: Sequence[Found], top: int) -> Found:
    """The best `top` of several answers to one query; equal scores in the order of the keys.

    >>> one, other = Found(np.array([4, 2]), np.float32([0.9, 0.5])), Found(np.array([3, 1]), np.float32([0.9, 0.1]))
    >>> best([one, other], 3).keys.tolist()
    [3, 4, 2]
    """
    keys = np.concatenate([np.zeros(0, np.int64), *(each.keys for each in found)])
    scores = np.concatenate([np.zeros(0, np.float32), *(each.scores for each in found)])
    order = np.lexsort((keys, -scores))[:top]
    return Found(keys[order], scores[order])


def vectors_of(
    shards: Open, side: Side, keys: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[NDArray[np.float32]]]:
    """Of the keys that lie in these shards, the places among all that are asked for, and each one's (K D) vectors."""
    places, vectors = [np.zeros(0, np.int64)], list[NDArray[np.float32]]()
    for _, numbering, view in shards:
        place, own = numbering.own(keys)
        if len(own):
            places.append(place)
            vectors += list(view.shelves[side].vectors_of(own))
    return np.concatenate(places), vectors


def live(shards: Open, side: Side) -> NDArray[np.int64]:
    """The keys of all items that are there."""
    return np.concatenate([np.zeros(0, np.int64), *(own.whole(view.shelves[side].live) for _, own, view in shards)])


def up_to(shards: Open, side: Side, key: int) -> int:
    """How many items have this key or a smaller one."""
    return sum(int(np.searchsorted(own.whole(view.shelves[side].live), key, side="right")) for _, own, view in shards)


def drawn(shards: Open, side: Side, count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The `count` keys that are drawn first from these shards, and their draws; all where they are fewer."""
    keys = live(shards, side)
    order = draw.uniform(keys, seed=seed, epoch=0, purpose=SOME)[:, 0]
    if len(keys) > count:
        chosen = np.argpartition(order, count)[:count]
        keys, order = keys[chosen], order[chosen]
    return keys, order


def matching(shards: Open, side: Side, where: Sequence[Condition]) -> NDArray[np.int64]:
    """The keys of all items that fulfil every condition."""
    found = [own.whole(view.fulfilling(side, where)) for _, own, view in shards]
    return np.concatenate([np.zeros(0, np.int64), *found])


def items(shards: Open, side: Side, keys: NDArray[np.int64]) -> dict[int, Item]:
    """The items of those keys that lie in these shards. Raises KeyError for one that is gone."""
    found: dict[int, Item] = {}
    for _, numbering, view in shards:
        places, own = numbering.own(keys)
        for place, item in zip(places.tolist(), view.items(side, own), strict=True):
            key = int(keys[place])
            found[key] = replace(item, key=key)
    return found


def keys_of(shards: Open, side: Side, ids: Sequence[str]) -> dict[str, int]:
    """Key of each of these ids that is there."""
    found: dict[str, int] = {}
    for _, numbering, view in shards:
        own = view.keys_of(side, ids)
        whole = numbering.whole(np.array(list(own.values()), dtype=np.int64))
        found |= dict(zip(own, whole.tolist(), strict=True))
    return found


def partners(shards: Open, side: Side, keys: NDArray[np.int64]) -> dict[int, list[int]]:
    """The keys of the items that each of these is joined with: they lie in its shard."""
    found: dict[int, list[int]] = {}
    for _, numbering, view in shards:
        for key, joined in view.partners(side, numbering.own(keys)[1]).items():
            (whole,) = numbering.whole(np.array([key])).tolist()
            found[whole] = numbering.whole(np.array(joined)).tolist()
    return found


def by_words(shards: Open, words: str, top: int) -> list[tuple[int, float]]:
    """The `top` texts that have some of the words, by the BM25 score of each one's shard; larger is better."""
    found: list[tuple[int, float]] = []
    for _, numbering, view in shards:
        own = view.by_words(words, top=top)
        keys = numbering.whole(np.array([key for key, _ in own], dtype=np.int64)).tolist()
        found += [(key, score) for key, (_, score) in zip(keys, own, strict=True)]
    return first_by_words(found, top)


def first_by_words(found: Sequence[tuple[int, float]], top: int) -> list[tuple[int, float]]:
    """The `top` of (key, score), best first; equal scores in the order of the keys."""
    return sorted(found, key=lambda each: (-each[1], each[0]))[:top]


def fields(shards: Open, side: Side) -> list[str]:
    """Names of the metadata that can be filtered by."""
    return sorted({name for _, _, view in shards for name in view.fields(side)})


def values(shards: Open, side: Side, name: str) -> tuple[dict[Value, int], list[float]]:
    """All values of a field and how many items have each; the first and last of its dates in each shard."""
    counts: Counter[Value] = Counter()
    dates: list[float] = []
    for _, _, view in shards:
        counts.update(view.counted(side, name))
        ends = view.values(side, name, most=0, choice=0).dates
        dates += [] if ends is None else list(ends)
    return dict(counts), dates


def contents(shards: Open, side: Side, key: int) -> list[bytes]:
    """The digest of what was embedded of an item; none where it is in other shards."""
    found = []
    for _, numbering, view in shards:
        found += [view.content(side, own) for own in numbering.own(np.array([key]))[1].tolist()]
    return found


def gone(shards: Open) -> list[str]:
    """Trace names of what was deleted."""
    return [own.hex() for _, _, view in shards for own in view.forgotten()]


def jobs(shards: Open) -> dict[int, list[Job]]:
    """The journal of each shard."""
    return {number: view.jobs() for number, _, view in shards}


QUESTIONS: Mapping[str, Callable[..., Any]] = {
    own.__name__: own
    for own in (
        facts, nearest, vectors_of, live, up_to, drawn, matching, items, keys_of, partners, by_words, fields, values,
        contents, gone, jobs,
    )
}  # fmt: skip
"""By name."""
