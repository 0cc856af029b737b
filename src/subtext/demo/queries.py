"""The queries of the demonstration, the items that are right for each (rules: `queries.json`), and rivals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from pathlib import Path

import numpy as np

from subtext.data.dataset import Dataset
from subtext.demo.emoji import base_of
from subtext.demo.icons import PREFIX
from subtext.models.model import Model
from subtext.retrieval.index import Index

TOP = 10
"""Items of an answer that count; variants of an emoji are one item."""
DEPTH = 6 * TOP
"""Images of an answer that are looked at until there are ten items."""
_FLAGS = range(0x1F1E6, 0x1F200)


@dataclass(frozen=True)
class AcceptedQuery:
    """A query, and the items that count as right for it.

    Attributes:
        query: The words.
        level: "literal", "related" or "figurative".
        items: Emoji or names of icons; the concept of the first is held out. "national flags" stands for all of them.
    """

    query: str
    level: str
    items: tuple[str, ...]

    def accepts(self, emoji: str, id: str) -> bool:
        """Test whether an item is accepted, by its emoji, whose variants count alike, or by the id of its icon.

        Args:
            emoji: Emoji of the item; "" for an icon.
            id: Id of the item.

        Returns:
            Whether it is accepted.
        """
        if not emoji:
            return id.removeprefix(PREFIX) in self.items
        return base_of(emoji) in self._bases or ("national flags" in self.items and ord(emoji[0]) in _FLAGS)

    def starts_with(self, emoji: str, id: str) -> bool:
        """Test whether an item is the first of those that are accepted.

        Args:
            emoji: Emoji of the item; "" for an icon.
            id: Id of the item.

        Returns:
            Whether it is the first.
        """
        return self._first.accepts(emoji, id)

    @cached_property
    def _first(self) -> AcceptedQuery:
        return replace(self, items=self.items[:1])

    @cached_property
    def _bases(self) -> frozenset[str]:
        return frozenset(base_of(item) for item in self.items if not item.isascii())


def accepted_queries() -> list[AcceptedQuery]:
    """Read the queries.

    Returns:
        The queries, in the order of their file.
    """
    rows = json.loads(Path(__file__).with_name("queries.json").read_text(encoding="utf-8"))["queries"]
    return [AcceptedQuery(row["query"], row["level"], tuple(row["items"])) for row in rows]


@dataclass(frozen=True)
class DemoGallery:
    """The items that are searched.

    Attributes:
        ids: (N) of each item.
        emoji: An icon has the emoji "".
    """

    ids: Sequence[str]
    emoji: Sequence[str]

    @staticmethod
    def of(pairs: Dataset) -> DemoGallery:
        """Make the gallery of all images of a data set of the demonstration.

        Args:
            pairs: The data set.

        Returns:
            The gallery.
        """
        return DemoGallery(pairs.images.ids, [str(emoji) for emoji in pairs.images.metadata["emoji"]])

    def accepted(self, query: AcceptedQuery) -> set[str]:
        """List the items that a query accepts.

        Args:
            query: The query.

        Returns:
            Their ids.
        """
        return {id for id, emoji in zip(self.ids, self.emoji, strict=True) if query.accepts(emoji, id)}

    @cached_property
    def _item_of(self) -> dict[str, str]:
        """Id -> its item: an icon, or an emoji without skin tone, gender and the like."""
        return {id: base_of(emoji) if emoji else id for id, emoji in zip(self.ids, self.emoji, strict=True)}

    def distinct(self, ids: Iterable[str]) -> list[str]:
        """The first ten items of an answer.

        Args:
            ids: Ids, best first.

        Returns:
            Ten ids or fewer: the best variant of each emoji.
        """
        found: dict[str, str] = {}
        for id in ids:
            found.setdefault(self._item_of[id], id)
        return list(found.values())[:TOP]

    def share(self, answers: Mapping[str, Iterable[str]], queries: Sequence[AcceptedQuery]) -> float:
        """Compute the share of queries that have an accepted item among the first ten of their answer.

        Args:
            answers: Query -> ids, best first.
            queries: The queries.

        Returns:
            Per cent.
        """
        right = [bool(self.accepted(query) & set(self.distinct(answers[query.query]))) for query in queries]
        return 100 * sum(right) / len(right)

    def chance(self, queries: Sequence[AcceptedQuery]) -> float:
        """Compute the expected share for ten items drawn at random.

        Args:
            queries: The queries.

        Returns:
            Per cent.
        """
        count = len({*self._item_of.values()})
        draws = min(TOP, count)
        right = [len({self._item_of[id] for id in self.accepted(query)}) for query in queries]
        missed = [comb(count - each, draws) / comb(count, draws) for each in right]
        return 100 * (1 - sum(missed) / len(missed))


def by_words(index: Index, queries: Sequence[AcceptedQuery]) -> dict[str, list[str]]:
    """Search names and tags by BM25.

    Args:
        index: The index.
        queries: The queries.

    Returns:
        Query -> the first ids.
    """
    answers = {}
    with index.store.reading() as view:
        for query in queries:
            texts = [key for key, _ in view.search_text(query.query, top=10 * DEPTH)]
            images = view.partners("texts", texts)
            keys = list(dict.fromkeys(key for text in texts for key in images.get(text, [])))[:DEPTH]
            answers[query.query] = [item.id for item in view.items("images", keys)]
    return answers


def by_sentences(pairs: Dataset, queries: Sequence[AcceptedQuery]) -> dict[str, list[str]]:
    """Search by the sentence encoder, without any image, over the English texts of each item as one text.

    Args:
        pairs: The data set.
        queries: The queries.

    Returns:
        Query -> the first ids.
    """
    from subtext.models.encoders.language import SentenceEncoder

    texts: list[list[str]] = [[] for _ in pairs.images.ids]
    for image, text in pairs.links.tolist():
        if pairs.texts.metadata["language"][text] == "en":
            texts[image].append(str(pairs.texts.values[text]))
    joined = [", ".join(parts) for parts in texts]
    # Texts of similar length need little padding.
    order = sorted(range(len(joined)), key=lambda row: len(joined[row]))
    encoder = SentenceEncoder("starter")
    scores = np.empty((len(joined), len(queries)), dtype=np.float32)
    scores[order] = encoder([joined[row] for row in order]) @ encoder([query.query for query in queries]).T
    return _first(scores, pairs, queries)


def by_pixels(model: Model, pairs: Dataset, queries: Sequence[AcceptedQuery]) -> dict[str, list[str]]:
    """Search by a model that sees the images alone.

    Args:
        model: The model.
        pairs: The data set.
        queries: The queries.

    Returns:
        Query -> the first ids.
    """
    images = model.embed_images(list(pairs.images.values), root=pairs.root)
    scores = model.compare(images, model.embed_texts([query.query for query in queries])).numpy()
    return _first(scores, pairs, queries)


def _first(scores: np.ndarray, pairs: Dataset, queries: Sequence[AcceptedQuery]) -> dict[str, list[str]]:
    """Query -> the ids of its first images, by scores (N Q)."""
    order = np.argsort(-scores, axis=0, kind="stable")[:DEPTH]
    return {query.query: [pairs.images.ids[row] for row in order[:, column]] for column, query in enumerate(queries)}
