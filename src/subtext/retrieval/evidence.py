"""The evidence of an index for a query: the signals of each item, their weighted sum, and what it is made of.

Where a store compares all rows of a space (`View.exact_spaces`), every item is scored by every signal: the best items
are those that a loop over all of them finds. Other stores give candidates of each signal; all candidates are then
scored by all signals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.retrieval.answer import Fit
from subtext.retrieval.calibration import STALE, changed_since
from subtext.retrieval.confidence import (
    BEST,
    SAMPLES,
    THRESHOLD,
    Background,
    Evidence,
    Judgement,
    best_products,
    percentile_of,
    sample,
)
from subtext.retrieval.ranker import LEXICAL, SIGNALS, Moments, Ranker, Signal, Weights
from subtext.retrieval.stores.facets import item_words
from subtext.retrieval.stores.item import Hits, Side, Space
from subtext.retrieval.stores.store import View
from subtext.retrieval.words import query_words, words

MOST_WORDS = 256
"""Different words of a query that are looked up; the first ones."""
CANDIDATES = 10
"""Candidates of each signal per result, where not all items are scored."""
LEAST_CANDIDATES = 200
FULL_MATCH = 4.0
"""Where the fields of an image have all words of a query, such as "1987-118", fields weigh 1 + so much times more;
where they have a share, so much by its square. One word of a long sentence in a file name says little."""
COVERING = 10
"""Images with the best fields, by which it is told how many words of a query an image has."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """One part of a query: what its signals compare.

    Attributes:
        weight: Below 0 for a negative part.
        vectors: (L D), as they are compared with the side that is searched.
        modality: The side that they are of.
        key: Of the item of the index, on that side; None for text or an external image.
        text: Its words; None for an image.
        sentence: (1 E) by the sentence encoder of the index; None where there is none, or no text.
        toward_texts: (L D), as they are compared with texts, where that differs from `vectors`.
        readable: Whether the model knows any of its words.
    """

    weight: float
    vectors: NDArray[np.float32]
    modality: Side
    key: int | None = None
    text: str | None = None
    sentence: NDArray[np.float32] | None = None
    toward_texts: NDArray[np.float32] | None = None
    readable: bool = True


@dataclass(frozen=True)
class PartScores:
    """The signals of N items for one part of a query.

    Attributes:
        part: The part.
        factor: That all its amounts are multiplied by; 1 for a query of one part.
        values: Signal -> (N), NaN where an item lacks the signal.
        moments: Of each signal over the sample.
        weights: Signal -> (N), multiplied by the factor.
        amounts: Signal -> (N), what it adds to the scores.
    """

    part: Part
    factor: float
    values: Mapping[Signal, Values]
    moments: Mapping[Signal, Moments]
    weights: Mapping[Signal, Values]
    amounts: Mapping[Signal, Values]

    def slope(self, signal: Signal) -> float:
        """What a signal that is larger by 1 adds to the score of an item that has all signals.

        Args:
            signal: The signal.

        Returns:
            The largest weight of it, divided by its deviation; 0 for a signal that the query does not have.
        """
        weights = self.weights.get(signal)
        return 0.0 if weights is None or not len(weights) else float(weights.max()) / self.moments[signal].deviation


@dataclass(frozen=True)
class ItemScores:
    """The signals and scores of N items for a query.

    Attributes:
        keys: (N) of the items, ascending.
        parts: Of each part of the query.
        scores: (N) sums of all amounts.
        background: (M) scores of the sample.
        exact: Whether the items are all that could be returned.
    """

    keys: NDArray[np.int64]
    parts: Sequence[PartScores]
    scores: Values
    background: Values
    exact: bool

    def with_words(self) -> NDArray[np.int64] | None:
        """The items that have words of the query, where words are all that its positive parts have.

        Returns:
            Their keys, ascending; None where there are other signals, by which all items can be ranked.
        """
        positive = [own.values for own in self.parts if own.part.weight > 0]
        if any(set(values) - set(LEXICAL) for values in positive):
            return None
        matched = np.zeros(len(self.keys), dtype=np.bool_)
        for values in positive:
            for own in values.values():
                matched |= np.nan_to_num(own) > 0
        return self.keys[matched]

    def best(
        self,
        count: int,
        *,
        among: NDArray[np.int64] | None = None,
        without: Sequence[int] = (),
        first: NDArray[np.int64] | Sequence[int] = (),
    ) -> Hits:
        """The best items.

        Args:
            count: Number of items.
            among: (M) int64 keys to choose from, ascending; None for all.
            without: Keys to leave out.
            first: Keys of items that come before all others.

        Returns:
            At most `count` hits, best first; equal scores in the order of their keys.
        """
        if len(first):
            chosen = np.intersect1d(self.keys if among is None else among, first)
            before = self.best(count, among=chosen, without=without)
            if len(before.keys) == count:
                return before
            after = self.best(count - len(before.keys), among=among, without=[*without, *chosen.tolist()])
            return Hits(np.append(before.keys, after.keys), np.append(before.scores, after.scores))
        rows = np.arange(len(self.keys)) if among is None else np.flatnonzero(np.isin(self.keys, among))
        if len(without):
            rows = rows[~np.isin(self.keys[rows], list(without))]
        scores = self.scores[rows]
        if len(rows) > count:
            limit = np.partition(scores, len(rows) - count)[len(rows) - count]
            rows, scores = rows[scores >= limit], scores[scores >= limit]
        order = rows[np.argsort(-scores, kind="stable")[:count]]
        return Hits(self.keys[order], self.scores[order].astype(np.float32))


class Gatherer:
    """Gathers the evidence of one side of an index.

    Args:
        view: The index at one moment.
        side: "images" or "texts": what is searched.
        weights: Of the signals.
        signals: Signals to use; those that the index lacks are left out.
    """

    def __init__(self, view: View, side: Side, weights: Weights, signals: Sequence[Signal] = SIGNALS) -> None:
        self.view = view
        self.side = side
        self.weights = weights
        self.wanted = signals
        self.sampled = sample(view, side, SAMPLES)
        self._memo: dict[tuple[Side, str], tuple[NDArray[np.int64], Values]] = {}

    @property
    def text_space(self) -> Space:
        """Where texts are compared with texts."""
        return "texts" if self.view.manifest.encoder is None else "sentences"

    @cached_property
    def has_texts(self) -> bool:
        """Whether images have texts (of texts: whether there are some)."""
        return len(self.view.owner_links()[0]) > 0 if self.side == "images" else self.view.counts["texts"] > 0

    def signals(self, part: Part) -> list[Signal]:
        """The signals that a part of a query has in this index.

        Args:
            part: The part.

        Returns:
            In the order of `SIGNALS`; "words" and "fields" only if an item has one of the words.
        """
        found: list[Signal] = ["pixels"] if part.readable and (part.text is None or self.side == "images") else []
        if part.text is not None:
            compared = part.sentence is not None if self.text_space == "sentences" else part.readable
            found += ["texts"] if self.has_texts and compared else []
            looks_up = self.has_texts and "words" in self.wanted
            found += ["words"] if looks_up and len(self._matches("texts", part.text)[0]) else []
            if self.side == "images":
                found += ["fields"] if "fields" in self.wanted and len(self._matches("images", part.text)[0]) else []
                near = part.sentence is not None and len(self.view.owners("neighbours")[0]) > 0
                found += ["neighbours"] if near else []
        return [signal for signal in found if signal in self.wanted]

    def gather(self, parts: Sequence[Part], *, count: int, among: NDArray[np.int64] | None = None) -> ItemScores:
        """Score items by all parts of a query.

        Several parts are brought to one scale: each is divided by its standard deviation over the sample.

        Args:
            parts: One part or more.
            count: Number of results that are needed.
            among: (M) int64 keys to search, ascending; None for all. It has no influence on scores.

        Returns:
            The evidence of all items; of candidates where the store does not score all.
        """
        exact = self.view.exact_spaces
        keys = self.view.keys(self.side) if exact else self._candidates(parts, count, among)
        every = keys if exact else np.union1d(keys, self.sampled)
        own, sampled = np.searchsorted(every, keys), np.searchsorted(every, self.sampled)
        gathered = []
        scores, background = np.zeros(len(keys)), np.zeros(len(self.sampled))
        for part in parts:
            values = {signal: self.values(signal, part, every) for signal in self.signals(part)}
            moments = {
                signal: self._moments(signal, part, own_values, sampled) for signal, own_values in values.items()
            }
            deviations = {
                signal: (own_values - moments[signal].mean) / moments[signal].deviation
                for signal, own_values in values.items()
            }
            weights, amounts = self._weighted(part, deviations)
            total = np.sum(list(amounts.values()), axis=0) if amounts else np.zeros(len(every))
            factor = 1.0
            if len(parts) > 1:
                factor = part.weight / Moments.of(total[sampled]).deviation
            scores += factor * total[own]
            background += factor * total[sampled]
            gathered.append(
                PartScores(
                    part,
                    factor,
                    {signal: own_values[own] for signal, own_values in values.items()},
                    moments,
                    {signal: factor * weight[own] for signal, weight in weights.items()},
                    {signal: factor * amount[own] for signal, amount in amounts.items()},
                )
            )
        return ItemScores(keys, gathered, scores, background, exact)

    def _weighted(
        self, part: Part, deviations: Mapping[Signal, Values]
    ) -> tuple[Mapping[Signal, Values], Mapping[Signal, Values]]:
        """The weights of the signals for each item, and what they add; an image or item has one signal, of weight 1."""
        if part.text is None:
            return {signal: np.ones(len(values)) for signal, values in deviations.items()}, deviations
        weights, amounts = self.weights.applied(deviations)
        if "fields" in weights:
            rises = 1 + FULL_MATCH * self._covered(part.text) ** 2
            weights["fields"], amounts["fields"] = rises * weights["fields"], rises * amounts["fields"]
        return weights, amounts

    def _covered(self, text: str) -> float:
        """The largest share of the words of a query that the fields of one image have, of those that match best."""
        asked, best = set(query_words(text)), self._best_matches("images", text, COVERING).tolist()
        said = [set(words(item_words(row.id, row.path, row.fields))) for row in self.view.rows("images", keys=best)]
        return max((len(asked & own) for own in said), default=0) / max(1, len(asked))

    def compared(self, part: Part) -> NDArray[np.float32] | None:
        """What a part is compared with texts by.

        Args:
            part: The part.

        Returns:
            (L D) vectors, in the space `text_space`; None for none.
        """
        if self.text_space == "sentences":
            return part.sentence
        return part.vectors if part.toward_texts is None else part.toward_texts

    def values(self, signal: Signal, part: Part, keys: NDArray[np.int64]) -> Values:
        """A signal of some items.

        Args:
            signal: The signal.
            part: A part of a query that has it.
            keys: (N) int64 keys of items of the side, ascending.

        Returns:
            (N), NaN where an item lacks the signal.
        """
        if signal == "pixels":
            return self._scores(self.side, part.vectors, keys)
        if signal == "neighbours":
            assert part.sentence is not None
            return self._scores("neighbours", part.sentence, keys)
        assert part.text is not None
        if signal == "fields":
            return _placed(*self._matches("images", part.text), keys)
        if signal == "words":
            return self._words(part.text, keys)
        compared = self.compared(part)
        assert compared is not None
        if self.side == "texts":
            return self._scores(self.text_space, compared, keys)
        return self._of_best_texts(compared, keys)

    def _of_best_texts(self, compared: NDArray[np.float32], keys: NDArray[np.int64]) -> Values:
        """(N) scores of the best own text of images; NaN for an image without any."""
        view, space = self.view, self.text_space
        images, texts = self.own_texts(keys)
        if not view.exact_spaces:
            own = np.unique(texts)
            return best_of(images, self._scores(space, compared, own)[np.searchsorted(own, texts)], keys)
        known, scores = view.scores(space, compared)
        if len(keys) != view.counts["images"]:
            return best_of(images, _aligned(known, scores, texts), keys)
        return self._best_of_all(space, known, scores, keys)

    def _best_of_all(
        self, space: Space, known: NDArray[np.int64], scores: NDArray[Any], keys: NDArray[np.int64]
    ) -> Values:
        """(N) score of the best own text of all images of the index; NaN for an image without any.

        Which rows of a space belong to which image does not depend on the query, and is kept.
        """
        name = f"rows of own texts in {space}"
        if name not in self.view.cache:
            images, texts = self.own_texts(keys)
            rows = np.minimum(np.searchsorted(known, texts), max(len(known) - 1, 0))
            there = known[rows] == texts if len(known) else np.zeros(len(texts), dtype=np.bool_)
            owners = images[there]
            starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1])) if len(owners) else owners
            self.view.cache[name] = rows[there], starts, np.searchsorted(keys, owners[starts])
        rows, starts, places = self.view.cache[name]
        values = np.full(len(keys), np.nan)
        if len(starts):
            values[places] = np.maximum.reduceat(scores[rows], starts)
        return values

    def _words(self, text: str, keys: NDArray[np.int64]) -> Values:
        """BM25 of the best text; 0 where no text has a word, NaN where an item has no text."""
        found, scores = self._matches("texts", text)
        if self.side == "texts":
            return _placed(found, scores, keys)
        known = self.view.keys("texts")
        if len(keys) == self.view.counts["images"]:
            return self._best_of_all("texts", known, _placed(found, scores, known), keys)
        images, texts = self.own_texts(keys)
        own = np.unique(texts)
        return best_of(images, _placed(found, scores, own)[np.searchsorted(own, texts)], keys)

    def _matches(self, side: Side, text: str) -> tuple[NDArray[np.int64], Values]:
        """Keys and BM25 of the items of a side that have words of a text."""
        name = side, text
        if name not in self._memo:
            asked = " ".join(list(dict.fromkeys(query_words(text)))[:MOST_WORDS])
            self._memo[name] = self.view.word_scores(side, asked)
        return self._memo[name]

    def _best_matches(self, side: Side, text: str, count: int) -> NDArray[np.int64]:
        """Keys of the items of a side that have the words best, best first."""
        keys, scores = self._matches(side, text)
        rows = np.argpartition(-scores, count)[:count] if len(keys) > count else np.arange(len(keys))
        return keys[rows[np.lexsort((keys[rows], -scores[rows]))]]

    def own_texts(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The texts of some images.

        Args:
            keys: Of images, ascending.

        Returns:
            (M) keys of images, ascending, and (M) of their texts.
        """
        cache = self.view.cache
        if "links by image" not in cache:
            texts, images = self.view.owner_links()
            order = np.argsort(images, kind="stable")
            cache["links by image"] = images[order], texts[order]
        images, texts = cache["links by image"]
        if len(keys) == self.view.counts["images"]:
            return images, texts
        own = np.isin(images, keys)
        return images[own], texts[own]

    def _scores(self, space: Space, vectors: NDArray[np.float32], keys: NDArray[np.int64]) -> Values:
        """(N) best inner products of items in a space; NaN for an item that has no row there."""
        if self.view.exact_spaces:
            return _aligned(*self.view.scores(space, vectors), keys)
        held, rows, there = self._held(space)
        values = np.full(len(keys), np.nan)
        places = np.minimum(np.searchsorted(held, keys), max(len(held) - 1, 0))
        known = held[places] == keys if len(held) else np.zeros(len(keys), dtype=np.bool_)
        for chosen, own, own_there in (
            (known, rows[places[known]], there[places[known]]),
            (~known, *self.view.vectors_in(space, keys[~known])),
        ):
            values[chosen] = np.where(own_there, best_products(vectors[None], own)[0], np.nan)
        return values

    def _held(self, space: Space) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """Keys, vectors and flags of what the sample has in a space: every query is standardised over it."""
        name = f"sample of {self.side} in {space}"
        if name not in self.view.cache:
            of_texts = self.side == "images" and space == self.text_space
            keys = np.unique(self.own_texts(self.sampled)[1]) if of_texts else self.sampled
            self.view.cache[name] = keys, *self.view.vectors_in(space, keys)
        held: tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]] = self.view.cache[name]
        return held

    def _moments(self, signal: Signal, part: Part, values: Values, sampled: NDArray[np.int64]) -> Moments:
        """The moments of a signal over the sample."""
        best = -np.inf
        if signal in LEXICAL and part.text is not None:
            best = float(self._matches("texts" if signal == "words" else "images", part.text)[1].max(initial=-np.inf))
        return Moments.of(values[sampled], best=best)

    def _candidates(self, parts: Sequence[Part], count: int, among: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """The best items of each signal of the positive parts."""
        view, depth = self.view, max(LEAST_CANDIDATES, CANDIDATES * count)
        found = [np.zeros(0, dtype=np.int64)]
        images, texts = self.own_texts(view.keys("images")) if self.side == "images" else (found[0], found[0])
        own = None if among is None else np.unique(texts[np.isin(images, among)]) if self.side == "images" else among

        def owners(of: NDArray[np.int64]) -> NDArray[np.int64]:
            return images[np.isin(texts, of)] if self.side == "images" else of

        for part in parts:
            if part.weight <= 0:
                continue
            for signal in self.signals(part):
                if signal == "pixels":
                    found.append(view.nearest_in(self.side, part.vectors[None], top=depth, among=among)[0].keys)
                elif signal == "neighbours" and part.sentence is not None:
                    hits = view.nearest_in("neighbours", part.sentence[None], top=depth, among=among)[0]
                    found.append(hits.keys)
                elif signal == "texts" and (compared := self.compared(part)) is not None:
                    found.append(owners(view.nearest_in(self.text_space, compared[None], top=depth, among=own)[0].keys))
                elif part.text is not None:
                    side: Side = "texts" if signal == "words" else "images"
                    matches = self._best_matches(side, part.text, len(self._matches(side, part.text)[0]))
                    limits = own if signal == "words" else among
                    matches = (matches if limits is None else matches[np.isin(matches, limits)])[:depth]
                    found.append(owners(matches) if signal == "words" else matches)
        keys = np.unique(np.concatenate(found))
        return keys if among is None else keys[np.isin(keys, among)]


def judge_evidence(view: View, ranker: Ranker, scored: ItemScores, background: Background) -> Judgement | None:
    """Judge a query of text by the scores of all evidence.

    Args:
        view: The index at one moment.
        ranker: That of the index.
        scored: The scores of its items.
        background: The sample of the side that is searched.

    Returns:
        The judgement; None for fixed weights, and for a query of another kind than the ranker has learnt from.
    """
    if not ranker.levels or scored.parts[0].part.text is None or not len(scored.keys):
        return None
    hits = scored.best(BEST)
    fit = Fit(percentile_of(float(hits.scores[0]), ranker.levels), THRESHOLD)
    nothing = np.zeros(0, dtype=np.float32)
    evidence = Evidence.collect(hits.keys, hits.scores, background, scored.background.astype(np.float32), nothing)
    changed = changed_since(view, ranker)
    direction = ranker.direction
    level = 0.0 if direction is None else evidence.level(direction.temperature)
    return Judgement(direction, level, fit, changed if changed > STALE else None, ranker.levels)


def _aligned(known: NDArray[np.int64], scores: NDArray[np.float32], keys: NDArray[np.int64]) -> Values:
    """(N) scores of items, NaN for those that are not among the known."""
    if len(known) == len(keys) and np.array_equal(known, keys):
        return scores.astype(np.float64)
    values = np.full(len(keys), np.nan)
    if len(known):
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        there = known[places] == keys
        values[there] = scores[places[there]]
    return values


def _placed(found: NDArray[np.int64], scores: Values, keys: NDArray[np.int64]) -> Values:
    """(N) scores of items, 0 for those that are not among the found."""
    values = np.zeros(len(keys))
    if len(found) and len(keys):
        places = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
        there = keys[places] == found
        values[places[there]] = scores[there]
    return values


def best_of(owners: NDArray[np.int64], scores: Values, keys: NDArray[np.int64]) -> Values:
    """The best score of the rows of each item.

    Args:
        owners: (M) keys of the items that rows belong to, ascending.
        scores: (M) of the rows; NaN for none.
        keys: (N) of the items, ascending; the owners are among them.

    Returns:
        (N), NaN for an item that has no row with a score.
    """
    values = np.full(len(keys), np.nan)
    known = ~np.isnan(scores)
    owners, scores = owners[known], scores[known]
    if len(owners):
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        values[np.searchsorted(keys, owners[starts])] = np.maximum.reduceat(scores, starts)
    return values
