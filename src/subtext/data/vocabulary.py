"""The words that have an embedding of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from subtext.data.settings import read_json, write_settings
from subtext.data.words import tokenise
from subtext.errors import CheckpointError, DataError

PAD, START, END, UNKNOWN = 0, 1, 2, 3
"""Codes of the marks; words begin at 4."""

MARKS = ("<pad>", "<start>", "<end>", "<unknown>")

_FILE = "vocabulary.json"


@dataclass(frozen=True)
class Vocabulary:
    """Words and their codes.

    tokens  the four marks (pad, start, end, unknown), then words; a token's code is its place
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.tokens[: len(MARKS)] != MARKS:
            raise DataError(f"a vocabulary needs to begin with {', '.join(MARKS)}; it begins with {self.tokens[:4]}")
        if len(self._codes) != len(self.tokens):
            raise DataError(f"a vocabulary needs words that differ; {len(self.tokens) - len(self._codes)} come again")

    @staticmethod
    def build(texts: Iterable[str], *, min_count: int = 1, largest: int | None = None) -> Vocabulary:
        """The words of the training texts, most frequent first, equally frequent ones in the order of their letters.

        min_count  words seen less often are unknown        largest  keep this many words at most

        Raises DataError when no word is left.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(tokenise(text))
        words = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
        if not words:
            raise DataError(
                f"a vocabulary needs a word that is seen {min_count} times or more in the training texts; of "
                f"{len(counts)} words none is; give texts, or lower min_count"
            )
        return Vocabulary((*MARKS, *words[:largest]))

    def __len__(self) -> int:
        """How many tokens, marks included."""
        return len(self.tokens)

    def encode(self, words: Sequence[str]) -> list[int]:
        """A code a word; UNKNOWN for a word that is not in the vocabulary. No marks are added."""
        codes = self._codes
        return [codes.get(word, UNKNOWN) for word in words]

    def save(self, folder: Path) -> None:
        """Write vocabulary.json, a JSON list."""
        write_settings(folder / _FILE, list(self.tokens))

    @staticmethod
    def load(folder: Path) -> Vocabulary:
        """What `save` wrote. Raises CheckpointError when it is missing or damaged."""
        tokens = read_json(folder / _FILE)
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise CheckpointError(f"{folder / _FILE} needs a JSON list of words; it is damaged, or another file")
        return Vocabulary(tuple(tokens))

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {token: code for code, token in enumerate(self.tokens)}
