"""The evidence of an index for a query: the signals of each item, their weighted sum, and what it is made of.

Where a store compares all rows of a space (`View.exact_spaces`), the best items are those that a loop over all items
finds. All are scored nearly, with a bound of the error; an item whose score plus its error is below the scores less
their errors of as many others as are asked for is not among the best. The others, some hundreds, are scored exactly.
Other stores give candidates of each signal. All candidates are then scored by all signals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from subtext.retrieval.ranker import BY_MACHINES, LEXICAL, OWN, SIGNALS, Moments, Ranker, Signal, Weights
from subtext.retrieval.stores.facets import Condition, item_words
from subtext.retrieval.stores.item import MACHINE, MACHINES, Hits, Side, Space
from subtext.retrieval.stores.store import Keys, View, are_among
from subtext.retrieval.words import query_words, words

MOST_WORDS = 256
"""Different words of a query that are looked up; the first ones."""
CANDIDATES = 10
"""Candidates of each signal per result, where not all items are scored."""
LEAST_CANDIDATES = 200
COVERING = 10
"""Texts, or images by their fields, that match best, by which it is told how many words of a query one of them has."""

SOFT = 0.1
"""Temperature of the soft maximum over the texts of an image, in cosine."""
SUM_ROUNDING, SOFT_ROUNDING = 1e-4, 1e-6
"""More than rounding of float32 changes: in a sum of signals, relative to it, and in a soft maximum."""

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
        shares: Signal of words -> the share of the words of the query that one item has; of fields its square.
        weights: Signal -> (N), multiplied by the factor, and by the share.
        amounts: Signal -> (N), what it adds to the scores.
    """

    part: Part
    factor: float
    values: Mapping[Signal, Values]
    moments: Mapping[Signal, Moments]
    shares: Mapping[Signal, float]
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
        exact: Whether no other item can be among those that were asked for.
    """

    keys: NDArray[np.int64]
    parts: Sequence[PartScores]
    scores: Values
    background: Values
    exact: bool

    def best(
        self,
        count: int,
        *,
        among: Keys | None = None,
        without: Sequence[int] = (),
        first: NDArray[np.int64] | Sequence[int] = (),
    ) -> Hits:
        """The best items.

        Args:
            count: Number of items.
            among: M keys to choose from, ascending; None for all.
            without: Keys to leave out.
            first: Keys of items that come before all others.

        Returns:
            At most `count` hits, best first; equal scores in the order of their keys.
        """
        if len(first):
            chosen = np.intersect1d(self.keys, first)
            chosen = chosen if among is None else chosen[are_among(chosen, among)]
            before = self.best(count, among=chosen, without=without)
            if len(before.keys) == count:
                return before
            after = self.best(count - len(before.keys), among=among, without=[*without, *chosen.tolist()])
            return Hits(np.append(before.keys, after.keys), np.append(before.scores, after.scores))
        rows = np.arange(len(self.keys)) if among is None else np.flatnonzero(are_among(self.keys, among))
        if len(without):
            rows = rows[~np.isin(self.keys[rows], list(without))]
        # Of float32, in which equal items have equal scores.
        scores = self.scores[rows].astype(np.float32)
        if len(rows) > count:
            limit = np.partition(scores, len(rows) - count)[len(rows) - count]
            rows, scores = rows[scores >= limit], scores[scores >= limit]
        order = np.argsort(-scores, kind="stable")[:count]
        return Hits(self.keys[rows[order]], scores[order])


def text_space(view: View) -> Space:
    """Where the texts of an index are compared with texts: by its sentence encoder, where some have vectors of it.

    Args:
        view: The index at one moment.

    Returns:
        "sentences" or "texts".
    """
    return "sentences" if view.manifest.encoder is not None and len(view.owners("sentences")[0]) else "texts"


@dataclass(frozen=True)
class _Scale:
    """What brings the signals of one part to one unit, by the sample.

    Attributes:
        part: The part.
        moments: Of each signal that the part has.
        shares: Of each signal of words, as in `PartScores`.
        sample: (M) scores of the sample by this part.
        factor: That the part is multiplied by.
    """

    part: Part
    moments: Mapping[Signal, Moments]
    shares: Mapping[Signal, float]
    sample: Values
    factor: float = 1.0


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
        self._memo: dict[tuple[Side | Signal, str], Values] = {}

    @cached_property
    def text_space(self) -> Space:
        """Where texts are compared with texts."""
        return text_space(self.view)

    def _has_texts(self, signal: Signal) -> bool:
        """Whether images have texts that a signal is of (of texts: whether there are some, whoever wrote them)."""
        if self.side == "images":
            return len(self.own_texts(self.view.keys("images"), signal)[0]) > 0
        return signal in OWN and self.view.counts["texts"] > 0

    def signals(self, part: Part) -> list[Signal]:
        """The signals that a part of a query has in this index.

        Args:
            part: The part.

        Returns:
            In the order of `SIGNALS`; those of words only if an item has one of the words.
        """
        if part.text is None:
            return [signal for signal in self.wanted if signal == "pixels" and part.readable]
        return [signal for signal in SIGNALS if signal in self.wanted and self._has(signal, part, part.text)]

    def _has(self, signal: Signal, part: Part, text: str) -> bool:
        """Whether a part of words has a signal in this index."""
        if signal == "pixels":
            return part.readable and self.side == "images"
        if signal == "neighbours":
            near = self.side == "images" and part.sentence is not None
            return near and len(self.view.owners("neighbours")[0]) > 0
        if signal in LEXICAL:
            there = self.side == "images" if signal == "fields" else self._has_texts(signal)
            return there and bool(self._matches(signal, text).any())
        compared = part.sentence is not None if self.text_space == "sentences" else part.readable
        return compared and self._has_texts(signal)

    def with_words(self, parts: Sequence[Part]) -> NDArray[np.int64] | None:
        """The items that have words of a query, where words are all that its positive parts have.

        Args:
            parts: Of the query.

        Returns:
            Their keys, ascending; None where there are other signals, by which all items can be ranked.
        """
        positive = [(part, self.signals(part)) for part in parts if part.weight > 0]
        if any(set(signals) - set(LEXICAL) for _, signals in positive):
            return None
        found = [np.zeros(0, dtype=np.int64)]
        for part, signals in positive:
            for signal in signals:
                found.append(self._owners(signal, self._best_matches(signal, part.text or "", None)))
        return np.unique(np.concatenate(found))

    def _owners(self, signal: Signal, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The items that some texts belong to; of fields, which are of images, these themselves."""
        if self.side == "texts" or signal == "fields":
            return keys
        images, own = self.own_texts(self.view.keys("images"), signal)
        return images[np.isin(own, keys)]

    def gather(
        self,
        parts: Sequence[Part],
        *,
        count: int,
        among: Keys | None = None,
        without: Sequence[int] = (),
        first: NDArray[np.int64] | Sequence[int] = (),
    ) -> ItemScores:
        """Score items by all parts of a query.

        Several parts are brought to one scale: each is divided by its standard deviation over the sample.

        Args:
            parts: One part or more.
            count: Number of results that are needed.
            among: M keys to search, ascending; None for all. It has no influence on scores.
            without: Keys that are left out of the results.
            first: Keys of items that come before all others.

        Returns:
            The evidence of the items that can be among the `count` best of `among`, or of `first`, or among the `BEST`
            of all; of candidates where the store does not score all.
        """
        scales = [self._scale(part) for part in parts]
        if len(parts) > 1:
            scales = [replace(own, factor=own.part.weight / Moments.of(own.sample).deviation) for own in scales]
        if self.view.exact_spaces:
            keys = self._contenders(scales, count, among, without, first)
        else:
            keys = self._candidates(parts, count, among)
        gathered, scores, background = [], np.zeros(len(keys)), np.zeros(len(self.sampled))
        for scale in scales:
            values = {signal: self.values(signal, scale.part, keys) for signal in scale.moments}
            weights, amounts = self._weighted(scale, values)
            for amount in amounts.values():
                scores += amount
            background += scale.factor * scale.sample
            gathered.append(PartScores(scale.part, scale.factor, values, scale.moments, scale.shares, weights, amounts))
        return ItemScores(keys, gathered, scores, background, self.view.exact_spaces)

    def _scale(self, part: Part) -> _Scale:
        """The moments of the signals of a part over the sample, and the scores of the sample by it."""
        values = {signal: self.values(signal, part, self.sampled) for signal in self.signals(part)}
        moments = {signal: self._moments(signal, part, own) for signal, own in values.items()}
        shares = {signal: self._covered(signal, part.text or "") for signal in values if signal in LEXICAL}
        scale = _Scale(part, moments, shares, np.zeros(len(self.sampled)))
        amounts = self._weighted(scale, values)[1].values()
        return replace(scale, sample=np.sum(list(amounts), axis=0)) if amounts else scale

    def _weighted(
        self, scale: _Scale, values: Mapping[Signal, NDArray[Any]]
    ) -> tuple[Mapping[Signal, NDArray[Any]], Mapping[Signal, NDArray[Any]]]:
        """The weights of the signals for each item, and what they add; an image or item has one signal, of weight 1."""
        deviations = {
            signal: (own - scale.moments[signal].mean) / scale.moments[signal].deviation
            for signal, own in values.items()
        }
        if scale.part.text is None:
            weights = {signal: np.ones_like(own) for signal, own in deviations.items()}
            amounts = deviations
        else:
            weights, amounts = self.weights.applied(deviations)
        for signal in weights:
            factor = scale.factor * scale.shares.get(signal, 1.0)
            if factor != 1:
                weights[signal], amounts[signal] = factor * weights[signal], factor * amounts[signal]
        return weights, amounts

    def _contenders(
        self,
        scales: Sequence[_Scale],
        count: int,
        among: Keys | None,
        without: Sequence[int],
        first: NDArray[np.int64] | Sequence[int],
    ) -> NDArray[np.int64]:
        """The items that can be among the best, by nearly computed scores and their errors."""
        keys = self.view.keys(self.side)
        scores, errors = np.zeros(len(keys), dtype=np.float32), np.zeros(len(keys), dtype=np.float32)
        for scale in scales:
            near = {signal: self._nearly(signal, scale.part) for signal in scale.moments}
            weights, amounts = self._weighted(scale, {signal: own for signal, (own, _) in near.items()})
            for signal, (_, error) in near.items():
                scores += amounts[signal]
                if error is not None:
                    errors += np.abs(weights[signal]) * (error / np.float32(scale.moments[signal].deviation))
        errors += np.float32(SUM_ROUNDING) * (1 + np.abs(scores))
        most, least = scores + errors, scores - errors
        chosen = np.zeros(len(keys), dtype=np.bool_)

        def choose(rows: NDArray[np.int64] | slice, number: int) -> None:
            lowest = least[rows]
            limit = (
                np.partition(lowest, len(lowest) - number)[len(lowest) - number] if len(lowest) > number else -np.inf
            )
            chosen[rows] |= most[rows] >= limit

        # What a query is judged by is the best of all items, whichever it asks for.
        choose(slice(None), max(count, BEST) + len(without))
        searched = np.arange(len(keys)) if among is None else np.flatnonzero(are_among(keys, among))
        choose(searched, count + len(without))
        if len(first):
            choose(searched[np.isin(keys[searched], first)], count)
            # Those that follow are the best of the others.
            choose(searched, count + len(first))
        return keys[chosen]

    def _nearly(self, signal: Signal, part: Part) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """(N) a signal of all items, NaN where one lacks it, and by how much each may be off; None for rounding."""
        if signal in LEXICAL:
            return self.values(signal, part, self.view.keys(self.side)).astype(np.float32), None
        if signal == "pixels":
            return self._placed_in(self.side, part.vectors)
        if signal == "neighbours":
            assert part.sentence is not None
            return self._placed_in("neighbours", part.sentence)
        compared = self.compared(part)
        assert compared is not None
        if self.side == "texts":
            return self._placed_in(self.text_space, compared)
        known, scores, errors = self.view.scores(self.text_space, compared)
        own = self._best_of_all(signal, self.text_space, known, scores, soft=True)
        # A soft maximum is off by no more than its scores, but for rounding.
        own_errors = self._best_of_all(signal, self.text_space, known, errors) + SOFT_ROUNDING
        return own, np.nan_to_num(own_errors, copy=False)

    def _placed_in(self, space: Space, vectors: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(N) scores of all items in a space, NaN for those without a row there, and their errors."""
        known, scores, errors = self.view.scores(space, vectors)
        keys, name = self.view.keys(self.side), f"places of {space}"
        if len(known) == len(keys):
            return scores, errors
        if name not in self.view.cache:
            self.view.cache[name] = np.searchsorted(keys, known)
        own, own_errors = np.full(len(keys), np.nan, dtype=np.float32), np.zeros(len(keys), dtype=np.float32)
        own[self.view.cache[name]], own_errors[self.view.cache[name]] = scores, errors
        return own, own_errors

    def _covered(self, signal: Signal, text: str) -> float:
        best = self._best_matches(signal, text, COVERING).tolist()
        if signal != "fields":
            return covered(text, [words(row.text or "") for row in self.view.rows("texts", keys=best)])
        rows = self.view.rows("images", keys=best)
        # One word of a long sentence in a file name says less than in a text.
        return covered(text, [words(item_words(row.id, row.path, row.fields)) for row in rows]) ** 2

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
            return self._matches(signal, part.text)[self._rows("images", keys)]
        if signal in LEXICAL:
            return self._words(signal, part.text, keys)
        compared = self.compared(part)
        assert compared is not None
        if self.side == "texts":
            return self._scores(self.text_space, compared, keys)
        return self._of_best_texts(signal, compared, keys)

    def _of_best_texts(self, signal: Signal, compared: NDArray[np.float32], keys: NDArray[np.int64]) -> Values:
        """(N) scores of the best text of images that a signal is of; NaN for an image without any."""
        images, texts = self.own_texts(keys, signal)
        own = np.unique(texts)
        scores = self._scores(self.text_space, compared, own, of=signal)
        return best_of(images, scores[np.searchsorted(own, texts)], keys, soft=True)

    def _best_of_all(
        self, signal: Signal, space: Space, known: NDArray[np.int64], scores: NDArray[Any], *, soft: bool = False
    ) -> NDArray[Any]:
        """(N) score of the best text of all images of the index that a signal is of; NaN for an image without any.

        Which rows of a space belong to which image does not depend on the query, and is kept.
        """
        name, keys = f"rows of {_writers(signal)} in {space}", self.view.keys("images")
        if name not in self.view.cache:
            images, texts = self.own_texts(keys, signal)
            rows = np.minimum(np.searchsorted(known, texts), max(len(known) - 1, 0))
            there = known[rows] == texts if len(known) else np.zeros(len(texts), dtype=np.bool_)
            owners = images[there]
            starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1])) if len(owners) else owners
            self.view.cache[name] = rows[there], starts, np.searchsorted(keys, owners[starts])
        rows, starts, places = self.view.cache[name]
        values = np.full(len(keys), np.nan, dtype=scores.dtype)
        if len(starts):
            values[places] = best_in(scores[rows], starts, soft=soft)
        return values

    def _words(self, signal: Signal, text: str, keys: NDArray[np.int64]) -> Values:
        """BM25 of the best text; 0 where no text has a word, NaN where an item has no text."""
        scores = self._matches(signal, text)
        if self.side == "texts":
            return scores[self._rows("texts", keys)]
        if keys is self.view.keys("images"):
            return self._best_of_all(signal, "texts", self.view.keys("texts"), scores)
        images, texts = self.own_texts(keys, signal)
        return best_of(images, scores[self._rows("texts", texts)], keys)

    def _rows(self, side: Side, keys: NDArray[np.int64]) -> NDArray[np.int64] | slice:
        """The places of some items among all of their side."""
        every = self.view.keys(side)
        return slice(None) if keys is every else np.searchsorted(every, keys)

    def _matches(self, signal: Signal, text: str) -> Values:
        """(N) BM25 of all texts, of fields of images; 0 for those without a word, and for texts of other writers."""
        if (signal, text) in self._memo:
            return self._memo[signal, text]
        side: Side = "images" if signal == "fields" else "texts"
        if (side, text) not in self._memo:
            asked = " ".join(list(dict.fromkeys(query_words(text)))[:MOST_WORDS])
            self._memo[side, text] = self.view.word_scores(side, asked)
        scores = self._memo[side, text]
        if self.side == "images" and side == "texts" and len(self.machine_texts):
            by_machines = np.zeros(len(scores), dtype=np.bool_)
            by_machines[np.searchsorted(self.view.keys("texts"), self.machine_texts)] = True
            scores = np.where(by_machines == (signal in BY_MACHINES), scores, 0.0)
        self._memo[signal, text] = scores
        return scores

    def _best_matches(self, signal: Signal, text: str, count: int | None) -> NDArray[np.int64]:
        """Keys of the items that have the words best, best first; None for all."""
        scores = self._matches(signal, text)
        rows = np.flatnonzero(scores)
        if count is not None and len(rows) > count:
            rows = rows[np.argpartition(-scores[rows], count)[:count]]
        return self.view.keys("images" if signal == "fields" else "texts")[rows[np.lexsort((rows, -scores[rows]))]]

    @cached_property
    def machine_texts(self) -> NDArray[np.int64]:
        """(M) int64 keys of the texts that machines wrote, ascending."""
        if MACHINE not in self.view.cache:
            self.view.cache[MACHINE] = self.view.select("texts", [Condition(MACHINE, "in", MACHINES)])
        found: NDArray[np.int64] = self.view.cache[MACHINE]
        return found

    def own_texts(
        self, keys: NDArray[np.int64], signal: Signal = "texts"
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The texts of some images that a signal is of.

        Args:
            keys: Of images, ascending.
            signal: One of `OWN` for those of people, or of `BY_MACHINES`.

        Returns:
            (M) keys of images, ascending, and (M) of their texts.
        """
        cache, writers = self.view.cache, _writers(signal)
        if f"links of {writers}" not in cache:
            texts, images = self.view.owner_links()
            chosen = np.isin(texts, self.machine_texts, invert=signal not in BY_MACHINES)
            order = np.argsort(images[chosen], kind="stable")
            cache[f"links of {writers}"] = images[chosen][order], texts[chosen][order]
        images, texts = cache[f"links of {writers}"]
        if len(keys) == self.view.counts["images"]:
            return images, texts
        if keys is not self.sampled:
            return self._own_texts(keys, images, texts)
        if f"{writers} of the sample" not in cache:
            cache[f"{writers} of the sample"] = self._own_texts(keys, images, texts)
        return cache[f"{writers} of the sample"]

    @staticmethod
    def _own_texts(
        keys: NDArray[np.int64], images: NDArray[np.int64], texts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        first = np.searchsorted(images, keys)
        counts = np.searchsorted(images, keys, side="right") - first
        # The rows of each image stand together.
        rows = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        return images[rows], texts[rows]

    def _scores(
        self, space: Space, vectors: NDArray[np.float32], keys: NDArray[np.int64], *, of: Signal = "texts"
    ) -> Values:
        """(N) best inner products of items in a space; NaN for an item that has no row there."""
        held, rows, there = self._held(space, of)
        if np.array_equal(keys, held):
            return np.where(there, best_products(vectors[None], rows)[0], np.nan).astype(np.float64)
        values = np.full(len(keys), np.nan)
        places = np.minimum(np.searchsorted(held, keys), max(len(held) - 1, 0))
        known = held[places] == keys if len(held) else np.zeros(len(keys), dtype=np.bool_)
        for chosen, own, own_there in (
            (known, rows[places[known]], there[places[known]]),
            (~known, *self.view.vectors_in(space, keys[~known])),
        ):
            # In float64: a score depends on its item alone, and not on where the item lies.
            products = np.einsum("nkd,ld->nkl", own, vectors, dtype=np.float64, casting="same_kind")
            values[chosen] = np.where(own_there, products.max(axis=(1, 2), initial=-np.inf), np.nan)
        return values

    def _held(self, space: Space, signal: Signal) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """Keys, vectors and flags of what the sample has in a space: every query is standardised over it."""
        of_texts = self.side == "images" and space == self.text_space
        name = f"sample of {self.side} in {space}{f', {_writers(signal)}' if of_texts else ''}"
        if name not in self.view.cache:
            keys = np.unique(self.own_texts(self.sampled, signal)[1]) if of_texts else self.sampled
            self.view.cache[name] = keys, *self.view.vectors_in(space, keys)
        held: tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]] = self.view.cache[name]
        return held

    def _moments(self, signal: Signal, part: Part, values: Values) -> Moments:
        """The moments of a signal over the sample."""
        best = -np.inf
        if signal in LEXICAL and part.text is not None:
            best = float(self._matches(signal, part.text).max(initial=-np.inf))
        return Moments.of(values, best=best)

    def _candidates(self, parts: Sequence[Part], count: int, among: Keys | None) -> NDArray[np.int64]:
        """The best items of each signal of the positive parts."""
        view, depth = self.view, max(LEAST_CANDIDATES, CANDIDATES * count)
        found = [np.zeros(0, dtype=np.int64)]

        def limits(signal: Signal) -> Keys | None:
            """What a signal may find: rows of its own items, of writers and of images."""
            if self.side == "texts" or signal not in (*OWN, *BY_MACHINES):
                return among
            if among is None and not len(self.machine_texts):
                return None
            images, texts = self.own_texts(view.keys("images"), signal)
            return np.unique(texts if among is None else texts[are_among(images, among)])

        for part in parts:
            if part.weight <= 0:
                continue
            for signal in self.signals(part):
                if signal == "pixels":
                    found.append(view.nearest_in(self.side, part.vectors[None], top=depth, among=among)[0].keys)
                elif signal == "neighbours" and part.sentence is not None:
                    hits = view.nearest_in("neighbours", part.sentence[None], top=depth, among=among)[0]
                    found.append(hits.keys)
                elif signal not in LEXICAL and (compared := self.compared(part)) is not None:
                    hits = view.nearest_in(self.text_space, compared[None], top=depth, among=limits(signal))[0]
                    found.append(self._owners(signal, hits.keys))
                elif part.text is not None:
                    matches, own = self._best_matches(signal, part.text, None), limits(signal)
                    matches = (matches if own is None else matches[are_among(matches, own)])[:depth]
                    found.append(self._owners(signal, matches))
        keys = np.unique(np.concatenate(found))
        return keys if among is None else keys[are_among(keys, among)]


def covered(query: str, said: Sequence[Sequence[str]]) -> float:
    """The largest share of the words of a query that one text has.

    Args:
        query: Its words.
        said: The words of some texts.

    Returns:
        A number from 0 to 1; 0 for no texts.

    Example:
        >>> covered("a bird that flies", [["bird"], ["a", "bird"]])
        0.5
    """
    asked = set(query_words(query))
    return max((len(asked.intersection(own)) for own in said), default=0) / max(1, len(asked))


def _writers(signal: Signal) -> str:
    return "texts by machines" if signal in BY_MACHINES else "texts by people"


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
    if not ranker.levels or ranker.fit == "everyday captions" or scored.parts[0].part.text is None:
        return None
    if not len(scored.keys):
        return None
    hits = scored.best(BEST)
    fit = Fit(percentile_of(float(hits.scores[0]), ranker.levels), THRESHOLD)
    nothing = np.zeros(0, dtype=np.float32)
    evidence = Evidence.collect(hits.keys, hits.scores, background, scored.background.astype(np.float32), nothing)
    changed = changed_since(view, ranker)
    direction = ranker.direction
    level = 0.0 if direction is None else evidence.level(direction.temperature)
    return Judgement(direction, level, fit, changed if changed > STALE else None, ranker.levels)


def best_of(owners: NDArray[np.int64], scores: Values, keys: NDArray[np.int64], *, soft: bool = False) -> Values:
    """The best score of the rows of each item.

    Args:
        owners: (M) keys of the items that rows belong to, ascending.
        scores: (M) of the rows; NaN for none.
        keys: (N) of the items, ascending; the owners are among them.
        soft: Their soft maximum instead; see `best_in`.

    Returns:
        (N), NaN for an item that has no row with a score.
    """
    values = np.full(len(keys), np.nan)
    known = ~np.isnan(scores)
    owners, scores = owners[known], scores[known]
    if len(owners):
        starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        values[np.searchsorted(keys, owners[starts])] = best_in(scores, starts, soft=soft)
    return values


def best_in(scores: NDArray[Any], starts: NDArray[np.int64], *, soft: bool = False) -> NDArray[Any]:
    """The best of the scores of each item.

    Args:
        scores: (M), those of an item one after the other.
        starts: (N) where those of each item begin.
        soft: SOFT * log of the mean of exp(score / SOFT), which is a score for one text, and between mean and maximum
            for several: of two items with one good text each, the better one has no others that tell of other things.

    Returns:
        (N).
    """
    best = np.maximum.reduceat(scores, starts)
    counts = np.diff(np.append(starts, len(scores)))
    if not soft or counts.max() == 1:
        return best
    above = np.exp((scores - np.repeat(best, counts)) / SOFT)
    mean = np.add.reduceat(above, starts) / counts
    return np.where(counts > 1, best + SOFT * np.log(mean), best).astype(scores.dtype)
