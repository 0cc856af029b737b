"""From what is asked for to what is found: candidates, their order, and the reasons for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.errors import RequirementError
from subtext.ops.reorder import fuse_ranks, inverted_softmax, local_scaling, spread_out
from subtext.search.background import Background
from subtext.search.hit import Reason
from subtext.search.query import Order, Part
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.shelf import Found
from subtext.search.stores.store import StoreShelf, StoreView

REASONS = 3
"""Reasons that an item is given."""
WORDS_DEPTH = 5
"""Texts that are found by their words, for each place that is asked for: several may belong to one picture."""


def other(side: Side) -> Side:
    """The other side."""
    return SIDES[1 - SIDES.index(side)]


def scores_with(part: Part, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """(N) inner products of a part with (N K D) items, of the views that fit best."""
    products = np.einsum("nkd,ld->nkl", vectors, part.vectors, dtype=np.float64, casting="same_kind")
    found: NDArray[np.float64] = products.max(axis=(1, 2)) if len(vectors) else np.zeros(0)
    return found


@dataclass(frozen=True)
class Together:
    """Several things asked for as one: the weighted sum of their scores, each in deviations over the background.

    Cosines of words with pictures and of pictures with pictures are of different sizes; in deviations the weights mean
    what they say. One thing alone, that is wanted, keeps its cosine.
    """

    parts: Sequence[Part]
    background: Background

    @property
    def alone(self) -> bool:
        """Whether one thing is asked for, as it is."""
        return len(self.parts) == 1

    def scaled(self) -> list[tuple[Part, float, float]]:
        """Each part, its mean over the background, and its weight in units of its spread there."""
        if self.alone:
            return [(self.parts[0], 0.0, 1.0)]
        found = []
        for part in self.parts:
            crowd = self.background.scores(part.vectors[None])[0].astype(np.float64)
            spread = float(crowd.std()) if len(crowd) > 1 else 0.0
            found.append((part, float(crowd.mean()) if len(crowd) else 0.0, part.weight / (spread or 1.0)))
        return found

    def scores(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """(N) scores of (N K D) items."""
        total = np.zeros(len(vectors))
        for part, mean, factor in self.scaled():
            total += factor * (scores_with(part, vectors) - mean)
        return total

    def best(self, shelf: StoreShelf, count: int, *, among: NDArray[np.int64] | None, exact: bool) -> Found:
        """The `count` best items, but for those that are asked with.

        Exact where items and what is asked for have one vector each. Else they are looked for among the best of every
        wanted part, ten times as many of each: an item that is good in all and among those of none is missed.
        """
        asked = {part.key for part in self.parts if part.key is not None}
        scaled = self.scaled()
        if self.alone or (shelf.views <= 1 and all(len(part.vectors) == 1 for part in self.parts)):
            vectors = scaled[0][0].vectors if self.alone else np.sum([f * p.vectors for p, _, f in scaled], axis=0)
            found = shelf.nearest(vectors[None].astype(np.float32), top=count + len(asked), among=among, exact=exact)[0]
            shift = sum(factor * mean for _, mean, factor in scaled)
            keys, scores = found.keys, found.scores if self.alone else (found.scores - shift).astype(np.float32)
        else:
            wanted = np.stack([part.vectors for part in self.parts if part.weight > 0])
            each = shelf.nearest(wanted, top=10 * (count + len(asked)), among=among, exact=exact)
            keys = np.unique(np.concatenate([one.keys for one in each]))
            worth = self.scores(shelf.vectors_of(keys))
            order = np.lexsort((keys, -worth))
            keys, scores = keys[order], worth[order].astype(np.float32)
        kept = ~np.isin(keys, list(asked))
        return Found(keys[kept][:count], scores[kept][:count])


def ordered(
    view: StoreView,
    side: Side,
    found: Found,
    together: Together,
    *,
    order: Order,
    bank: Background,
    temperature: float,
    words: tuple[str | None, NDArray[np.int64] | None],
) -> Found:
    """What was found, in another order; scores stay as they are.

    bank         items of the kind that is asked with
    temperature  of the inverted softmax
    words        the question's words, and the keys that alone may be found; None for none, and for all
    """
    shelf = view.shelves[side]
    keys, scores = found.keys, found.scores
    vectors = shelf.vectors_of(keys)
    worth = scores.astype(np.float64)
    if order.hubs:
        if not together.alone or not len(bank.keys):
            need = "one thing to be asked for" if len(bank.keys) else "items of the kind that is asked with"
            raise RequirementError(f"holding hubs back needs {need}; the search has none; leave it out")
        crowd = bank.scores(vectors).astype(np.float64)
        worth = (
            local_scaling(worth, crowd)
            if order.hubs == "csls"
            else inverted_softmax(worth, crowd, temperature=temperature)
        )
    if order.words:
        by_score = keys[np.argsort(-worth, kind="stable")].tolist()
        fused = fuse_ranks([by_score, _by_words(view, side, words, len(keys))])
        further = np.array([key for key in fused if key not in set(by_score)], dtype=np.int64)
        if len(further):
            more = shelf.vectors_of(further)
            keys, vectors = np.concatenate([keys, further]), np.concatenate([vectors, more])
            scores = np.concatenate([scores, together.scores(more).astype(np.float32)])
        worth = np.array([fused[int(key)] for key in keys])
    first = np.argsort(-worth, kind="stable")[: order.depth]
    if order.diversity:
        some = vectors[first]
        flat = some.reshape(-1, some.shape[2])
        alike = (flat @ flat.T).reshape(len(first), some.shape[1], len(first), some.shape[1]).max(axis=(1, 3))
        first = first[spread_out(worth[first], alike.astype(np.float64), count=len(first), diversity=order.diversity)]
    return Found(keys[first], scores[first])


def _by_words(view: StoreView, side: Side, words: tuple[str | None, NDArray[np.int64] | None], count: int) -> list[int]:
    """Keys of a side that have some of the words, the best first."""
    text, among = words
    if text is None:
        raise RequirementError("finding by words needs words; the search has none; give some, or leave that out")
    texts = [key for key, _ in view.by_words(text, top=WORDS_DEPTH * count)]
    found = texts
    if side == "images":
        of_text = view.partners("texts", texts)
        found = list(dict.fromkeys(key for text_key in texts for key in of_text.get(text_key, [])))
    allowed = None if among is None else set(among.tolist())
    return [key for key in found if allowed is None or key in allowed][:count]


def reasons(view: StoreView, side: Side, keys: NDArray[np.int64], parts: Sequence[Part]) -> list[list[Reason]]:
    """Of each item what speaks for it: its own captions (a text's own pictures) by their cosine with what is wanted.

    An item without any gets those of the other side that are nearest to it.
    """
    facing = other(side)
    own = view.partners(side, keys)
    every = sorted({key for partners in own.values() for key in partners})
    shelf = view.shelves[facing]
    wanted = [part for part in parts if part.weight > 0]
    vectors = shelf.vectors_of(np.array(every, dtype=np.int64))
    cosines = np.sum([part.weight * scores_with(part, vectors) for part in wanted], axis=0) if every else []
    worth = dict(zip(every, (float(value) for value in cosines), strict=True))
    alone = np.array([key for key in keys.tolist() if key not in own], dtype=np.int64)
    near: dict[int, Found] = {}
    if len(alone) and shelf.rows:
        found = shelf.nearest(view.shelves[side].vectors_of(alone), top=REASONS)
        near = dict(zip(alone.tolist(), found, strict=True))
    told = []
    for key in keys.tolist():
        if key in own:
            best = sorted(own[key], key=lambda partner: -worth[partner])[:REASONS]
            told.append([("own", partner, worth[partner]) for partner in best])
        else:
            its = near.get(key)
            told.append(
                []
                if its is None
                else [("nearest", int(k), float(s)) for k, s in zip(its.keys, its.scores, strict=True)]
            )
    items = {item.key: item for item in view.items(facing, sorted({key for each in told for _, key, _ in each}))}

    def reason(kind: str, key: int, score: float) -> Reason:
        item = items[key]
        words = item.captions[0] if facing == "texts" and item.captions else None
        return Reason(item.id, words, score, "own" if kind == "own" else "nearest")

    return [[reason(*each) for each in one] for one in told]
