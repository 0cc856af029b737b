"""BM25 over some texts as arrays: as SQLite's FTS5 computes it, a hundred times sooner where many texts have a word."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from subtext.retrieval.words import LEAST, LENGTH, SATURATION, query_words

SPARSE = 1 / 16
"""Share of texts from which on what a word adds is kept for all of them, once it was asked for: there are few such
words, and a whole array is added sooner than its parts."""


class WordIndex:
    """The words of N texts, and what each of them adds to the score of a text that has it.

    Args:
        texts: Words of each text, with spaces between them; see `words.spaced`.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        codes, lengths = array("q"), array("q")
        self.vocabulary: dict[str, int] = {}
        for text in texts:
            own = text.split()
            lengths.append(len(own))
            codes.extend([self.vocabulary.setdefault(word, len(self.vocabulary)) for word in own])
        self.count = len(texts)
        counted = np.array(lengths, dtype=np.int64)
        self.mean = float(counted.mean()) if self.count else 1.0
        rows = np.repeat(np.arange(self.count), counted)
        # Of each word its texts, and how often each has it.
        pairs, times = np.unique(np.array(codes, dtype=np.int64) * max(1, self.count) + rows, return_counts=True)
        of_word, self.rows = pairs // max(1, self.count), (pairs % max(1, self.count)).astype(np.int32)
        self.starts = np.searchsorted(of_word, np.arange(len(self.vocabulary) + 1))
        having = np.diff(self.starts)
        self.weights = np.maximum(np.log((self.count - having + 0.5) / (having + 0.5)), LEAST)
        added = self.weights[of_word] * times * (SATURATION + 1) / (times + self._norm(counted[self.rows]))
        self.added = added.astype(np.float32)
        self._frequent: dict[int, NDArray[np.float32]] = {}

    def _norm(self, lengths: NDArray[np.int64] | int) -> NDArray[np.float64]:
        shares = np.asarray(lengths, dtype=np.float64) / max(self.mean, 1e-9)
        return np.asarray(SATURATION * (1 - LENGTH + LENGTH * shares))

    def scores(self, query: str) -> NDArray[np.float64]:
        """BM25 of each text; a word of the query counts once.

        Args:
            query: Words.

        Returns:
            (N) scores, 0 for a text that has none of the words.
        """
        total = np.zeros(self.count)
        for word in dict.fromkeys(query_words(query)):
            code = self.vocabulary.get(word)
            if code is None:
                continue
            own = slice(self.starts[code], self.starts[code + 1])
            if own.stop - own.start <= SPARSE * self.count:
                total[self.rows[own]] += self.added[own]
                continue
            if code not in self._frequent:
                added = np.zeros(self.count, dtype=np.float32)
                added[self.rows[own]] = self.added[own]
                self._frequent[code] = added
            total += self._frequent[code]
        return total

    def score(self, query: str, text: str) -> float:
        """BM25 of a text that is none of these.

        Args:
            query: Words.
            text: The text, as of `WordIndex`.

        Returns:
            The score.
        """
        own = Counter(text.split())
        norm = float(self._norm(own.total()))
        return sum(
            float(self.weights[self.vocabulary[word]]) * own[word] * (SATURATION + 1) / (own[word] + norm)
            for word in dict.fromkeys(query_words(query))
            if word in own and word in self.vocabulary
        )
