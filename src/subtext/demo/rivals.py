"""How many of the demonstration's queries are answered among the first ten: by the index, and by its rivals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.demo.queries import AcceptedQuery
from subtext.models.encoders.language import SentenceEncoder
from subtext.models.model import Model
from subtext.search import Index

TOP = 10
"""Items of an answer that count."""


@dataclass(frozen=True)
class Gallery:
    """The items that are searched.

    ids, emoji  (N) of each item; an icon has the emoji ""
    """

    ids: Sequence[str]
    emoji: Sequence[str]

    @staticmethod
    def of(pairs: Dataset) -> Gallery:
        """All images of a data set of the demonstration."""
        return Gallery(pairs.images.ids, [str(emoji) for emoji in pairs.images.metadata["emoji"]])

    def accepted(self, query: AcceptedQuery) -> set[str]:
        """The ids of the items that a query accepts."""
        return {id for id, emoji in zip(self.ids, self.emoji, strict=True) if query.accepts(emoji, id)}

    def share(self, answers: Mapping[str, Iterable[str]], queries: Sequence[AcceptedQuery]) -> float:
        """The share of queries, in per cent, that have an accepted item among the first ten ids of their answer."""
        right = [bool(self.accepted(query) & set(list(answers[query.query])[:TOP])) for query in queries]
        return 100 * sum(right) / len(right)

    def chance(self, queries: Sequence[AcceptedQuery]) -> float:
        """The share, in per cent, that ten items drawn at random answer on average."""
        count = len(self.ids)
        draws = min(TOP, count)
        missed = [comb(count - len(self.accepted(query)), draws) / comb(count, draws) for query in queries]
        return 100 * (1 - sum(missed) / len(missed))

    def best(self, scores: NDArray[np.float32]) -> list[str]:
        """The ids of the first ten items by their scores (N)."""
        return [self.ids[row] for row in np.argsort(-scores, kind="stable")[:TOP]]


def by_words(index: Index, queries: Sequence[AcceptedQuery]) -> dict[str, list[str]]:
    """BM25 over names and tags: query -> the first ids."""
    answers = {}
    with index.store.reading() as view:
        for query in queries:
            texts = [key for key, _ in view.search_text(query.query, top=50 * TOP)]
            images = view.partners("texts", texts)
            keys = list(dict.fromkeys(key for text in texts for key in images.get(text, [])))[:TOP]
            answers[query.query] = [item.id for item in view.items("images", keys)]
    return answers


def by_sentences(pairs: Dataset, queries: Sequence[AcceptedQuery]) -> dict[str, list[str]]:
    """The sentence encoder, texts to texts, without any image: query -> the first ids."""
    encoder, gallery = SentenceEncoder("starter", batch_size=256), Gallery.of(pairs)
    # Texts of similar length need little padding.
    texts = sorted({str(text) for text in pairs.texts.values}, key=lambda text: (len(text), text))
    row = {text: number for number, text in enumerate(texts)}
    scores = encoder([query.query for query in queries]) @ encoder(texts).T
    answers = {}
    for query, of_texts in zip(queries, scores, strict=True):
        best = np.full(len(gallery.ids), -np.inf, dtype=np.float32)
        of_pairs = of_texts[[row[str(pairs.texts.values[text])] for text in pairs.links[:, 1]]]
        np.maximum.at(best, pairs.links[:, 0], of_pairs)
        answers[query.query] = gallery.best(best)
    return answers


def by_pixels(model: Model, pairs: Dataset, queries: Sequence[AcceptedQuery]) -> dict[str, list[str]]:
    """A model that sees the images alone: query -> the first ids."""
    gallery = Gallery.of(pairs)
    images = model.embed_images(list(pairs.images.values), root=pairs.root)
    scores = model.compare(images, model.embed_texts([query.query for query in queries])).numpy()
    return {query.query: gallery.best(scores[:, column]) for column, query in enumerate(queries)}
