"""Every pair of a data set with all that is known of it, and the reasons to leave it out.

What is plainly wrong, or odd, with a text or a picture by itself.

Groups of pictures, and of texts, that are copies of one another, and those that stand in two splits.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from subtext.core import Embeddings
from subtext.curation.kinds import (
    KINDS,
    Kinds,
    Surroundings,
    align,
    aligned,
    chance_links,
    kinds_of,
    near_links,
    surroundings,
)
from subtext.data.batches import read_ahead
from subtext.data.dataset import Dataset, Items
from subtext.data.image_files import open_image
from subtext.data.prepare import near_copies
from subtext.data.words import guess_language, tokenise
from subtext.errors import DataError, RequirementError
from subtext.evaluation.overlap import ALIKE, BITS, Look, looks_of
from subtext.neighbours.graph import Graph

MIN_WORDS = 6
"""Words from which equal texts of different pictures are copies: shorter ones are said of many things."""
HELD_OUT = ("test", "val")
"""Splits whose copies elsewhere are leaks."""
_BLOCK = 512


def picture_copies(looks: list[Look | None]) -> NDArray[np.int64]:
    """(I) a number for each picture, equal for copies (by bytes, or to the eye); -1 for one without a copy.

    A difference hash with at most 8 of 64 bits apart, confirmed by greys. Cost time I^2 / 2 at a nanosecond each.
    """
    joined = _Joined(len(looks))
    first: dict[bytes, int] = {}
    for row, look in enumerate(looks):
        if look is not None:
            joined.join(first.setdefault(look.digest, row), row)
    readable = [row for row, look in enumerate(looks) if look is not None and look.greys is not None]
    bits = np.array([look.bits for look in looks if look is not None and look.greys is not None], dtype=np.uint64)
    greys = [look.greys for look in looks if look is not None and look.greys is not None]
    for start in range(0, len(readable), _BLOCK):
        apart = np.bitwise_count(bits[start : start + _BLOCK, None] ^ bits[None, start:])
        for place, second in zip(*np.nonzero(apart <= BITS), strict=True):
            if place < second and float(greys[start + place] @ greys[start + second]) >= ALIKE:
                joined.join(readable[start + place], readable[start + second])
    return joined.numbers()


def text_copies(pairs: Dataset, *, progress: Callable[[int], None] | None = None) -> tuple[NDArray[np.int64], str]:
    """(T) a number for each text, equal for copies of different pictures; -1 without; and how they were found.

    Near copies by MinHash where datasketch is installed; else texts of `MIN_WORDS` words or more that are the same.
    """
    joined = _Joined(len(pairs.texts))
    long = [isinstance(value, str) and len(tokenise(value)) >= MIN_WORDS for value in pairs.texts.values]
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for row, value in enumerate(pairs.texts.values):
        if long[row]:
            groups[str(value).casefold()].setdefault(int(pairs.texts.groups[row]), row)
    for rows in groups.values():
        for row in rows.values():
            joined.join(next(iter(rows.values())), row)
    how = f"equal texts of {MIN_WORDS} words or more"
    if all(isinstance(value, str) for value in pairs.texts.values):
        try:
            copies = near_copies(pairs, progress=progress).copy_of
            for copy in np.flatnonzero(copies >= 0).tolist():
                if long[copy]:
                    joined.join(int(copies[copy]), copy)
            how = f"texts of {MIN_WORDS} words or more that share 0.8 of their runs of three words (MinHash)"
        except RequirementError:
            # Without datasketch equal texts are found all the same, and the report says which it was.
            how += "; near copies need datasketch"
    return joined.numbers(), how


def leaks(items: Items, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N) whether an item has a copy in a held-out split other than its own, and should go: the held-out one stays."""
    splits = np.array([str(split) for split in items.splits])
    leaked = np.zeros(len(items), dtype=np.bool_)
    for number in np.unique(numbers[numbers >= 0]):
        rows = np.flatnonzero(numbers == number)
        held_out_splits = [name for name in HELD_OUT if (splits[rows] == name).any()]
        if held_out_splits:
            leaked[rows[splits[rows] != held_out_splits[0]]] = True
    return leaked


def later(items: Items, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N) whether an item is a copy of one that stays: of a held-out one, else of the first."""
    rank = {name: position for position, name in enumerate(HELD_OUT)}
    order = np.argsort([rank.get(str(split), len(HELD_OUT)) for split in items.splits], kind="stable")
    has_copy = numbers >= 0
    _, first = np.unique(numbers[order], return_index=True)
    has_copy[order[first]] = False
    return has_copy


class _Joined:
    """Rows in groups that grow together."""

    def __init__(self, count: int) -> None:
        self._up = list(range(count))

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self._top(one), self._top(other)))
        self._up[second] = first

    def numbers(self) -> NDArray[np.int64]:
        """The groups numbered from 0 in the order of their first rows; -1 for rows alone."""
        tops = np.array([self._top(row) for row in range(len(self._up))], dtype=np.int64)
        counts = np.bincount(tops, minlength=len(tops)) if len(tops) else np.zeros(0, np.int64)
        several = np.unique(tops[counts[tops] > 1])
        found = np.full(len(tops), -1, dtype=np.int64)
        member = counts[tops] > 1
        found[member] = np.searchsorted(several, tops[member])
        return found

    def _top(self, row: int) -> int:
        while self._up[row] != row:
            self._up[row] = self._up[self._up[row]]
            row = self._up[row]
        return row


UNUSABLE = frozenset({"no words", "cannot be read"})
"""Flags that leave nothing to learn from."""
SHORT, LONG = 3, 100
"""Words below and above which a text is flagged."""
SMALL = 64
"""Pixels of the shorter side below which a picture is flagged."""
NARROW = 4.0
"""Longer side over shorter side above which it is."""
PLAIN = 4.0
"""Standard deviation of greys, of 255, below which it is of one colour."""

_ADDRESS = re.compile(r"https?://|www\.|\S+@\S+\.\w")
_MARKUP = re.compile(r"</?[a-z][a-z0-9]*\b[^>]*>|&[a-z]+;|\{\{|\]\]", re.IGNORECASE)
_FILE = re.compile(r"^\S+\.(jpe?g|png|gif|webp|tiff?|bmp|raw)$|^(img|dsc|image|photo)[_ -]?\d+$", re.IGNORECASE)


def text_flags(text: str) -> list[str]:
    """What is odd about a text.

    >>> text_flags("IMG_1234"), text_flags("A dog runs along the beach.")
    (['a file name', 'short'], [])
    """
    words = tokenise(text)
    flags = []
    if not words:
        flags.append("no words")
    if _FILE.search(text.strip()):
        flags.append("a file name")
    if 0 < len(words) < SHORT:
        flags.append("short")
    if len(words) > LONG:
        flags.append("long")
    if _ADDRESS.search(text):
        flags.append("an address")
    if _MARKUP.search(text):
        flags.append("markup")
    letters = [letter for letter in text if letter.isalpha()]
    if len(letters) > 10 and all(letter.isupper() for letter in letters):
        flags.append("capitals")
    if len(words) >= 6 and len(set(words)) <= len(words) / 3:
        flags.append("repeats itself")
    return flags


def picture_flags(value: str | bytes | None, root: Path) -> list[str]:
    """What is odd about a picture; nothing for one that is known by features alone."""
    if value is None:
        return []
    try:
        image = open_image(value, root)
    except DataError:
        return ["cannot be read"]
    flags = []
    short, long = sorted(image.size)
    if short < SMALL:
        flags.append("small")
    if long > NARROW * max(1, short):
        flags.append("narrow")
    greys = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.BOX), dtype=np.float32)
    if float(greys.std()) < PLAIN:
        flags.append("of one colour")
    return flags


Reason = Literal["mismatched", "copies", "leaks", "unusable", "flagged"]
REASONS: tuple[Reason, ...] = ("mismatched", "copies", "leaks", "unusable", "flagged")
FEWEST = 50
"""Pairs below which nothing is said of kinds: shares of so few are noise."""


@dataclass(frozen=True)
class Judged:
    """Pairs and what is known of each.

    columns  name -> (L) values, one a link of `pairs`
    shares   of loose and mismatched pairs, as estimated; empty where there are too few pairs
    how      in words: how copies were found, and the like
    """

    pairs: Dataset
    columns: dict[str, list[Any]]
    shares: dict[str, float]
    how: dict[str, str]

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.pairs.links)

    def row(self, link: int) -> dict[str, Any]:
        """One pair."""
        return {name: values[link] for name, values in self.columns.items()}


def judge(
    pairs: Dataset,
    images: Embeddings,
    texts: Embeddings,
    *,
    graph: Graph | None = None,
    workers: int = 2,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Judged:
    """All that is known of the pairs of a data set.

    images, texts  embeddings of its items, in their order
    graph          of its texts: without it there are no neighbours, and nothing is called loose
    progress           hears how many pictures have been looked at

    Cost that of `align`, of reading every picture, and time I^2 for copies among pictures.
    """
    scores, kinds = kinds_of_pairs(pairs, images, texts, graph=graph, seed=seed)
    neighbourhood = None if graph is None else surroundings(graph, pairs, images, texts)
    looks = _pictures(pairs, workers, progress)
    copies, how = text_copies(pairs)
    rows, words = pairs.links[:, 0], pairs.links[:, 1]
    values = pairs.texts.values
    odd = [text_flags(value) if isinstance(value, str) else [] for value in values]
    columns: dict[str, list[Any]] = {
        "picture": [pairs.images.ids[row] for row in rows],
        "text": [pairs.texts.ids[row] for row in words],
        "caption": [values[row] if isinstance(values[row], str) else None for row in words],
        "path": [value if isinstance(value := pairs.images.values[row], str) else None for row in rows],
        "split": [str(pairs.images.splits[row]) for row in rows],
        "language": _languages(pairs, words),
        **scores,
        **({} if neighbourhood is None else _near_columns(neighbourhood)),
        **_uncertain_columns(pairs, images, texts),
        "picture_copies": looks.copies[rows].tolist(),
        "text_copies": copies[words].tolist(),
        "copy": (later(pairs.images, looks.copies)[rows] & later(pairs.texts, copies)[words]).tolist(),
        "leak": (leaks(pairs.images, looks.copies)[rows] | leaks(pairs.texts, copies)[words]).tolist(),
        "flags": [[*looks.flags[row], *odd[word]] for row, word in zip(rows, words, strict=True)],
    }
    return Judged(pairs, columns, {} if kinds is None else kinds.shares, {"text copies": how, "pictures": looks.how})


def kinds_of_pairs(
    pairs: Dataset, images: Embeddings, texts: Embeddings, *, graph: Graph | None, seed: int = 0
) -> tuple[dict[str, list[Any]], Kinds | None]:
    """Columns of scores and kinds of the links, and the kinds; None where there are too few pairs to say."""
    alignments, crowd = align(pairs, images, texts, seed=seed)
    columns: dict[str, list[Any]] = {"cosine": alignments.cosine.tolist(), "alignment": alignments.alignment.tolist()}
    chance = chance_links(pairs, seed=seed)
    if len(pairs.links) < FEWEST or len(chance) < FEWEST:
        return columns | {name: [None] * len(pairs.links) for name in (*KINDS, "kind")}, None
    vectors = [alignment.vectors.float().numpy() for alignment in (images, texts)]
    details = {
        "chance": chance,
        "near": np.zeros((0, 2), np.int64) if graph is None else near_links(graph, pairs, seed=seed),
    }
    worth = {name: aligned(crowd, pairs, vectors[0], vectors[1], links).alignment for name, links in details.items()}
    kinds = kinds_of(alignments.alignment, worth["chance"], worth["near"] if len(worth["near"]) else None)
    likely = {name: getattr(kinds, name).tolist() for name in KINDS}
    return columns | likely | {"kind": list(kinds.likeliest)}, kinds


def left_out(judgement: Judged, drop: Sequence[Reason], *, least: float = 0.5) -> list[list[str]]:
    """Of each pair the reasons to leave it out, in words; an empty list for one that stays.

    least  probability of a mismatch from which a pair goes
    """
    reasons: list[list[str]] = []
    columns = judgement.columns
    for link in range(len(judgement)):
        why = []
        wrong = columns["mismatched"][link]
        if "mismatched" in drop and wrong is not None and wrong >= least:
            why.append(f"mismatched ({wrong:.2f})")
        if "copies" in drop and columns["copy"][link]:
            why.append("a copy of another pair")
        if "leaks" in drop and columns["leak"][link]:
            why.append("has a copy in a held-out split")
        flags = set(columns["flags"][link])
        if "unusable" in drop and flags & UNUSABLE:
            why.append(", ".join(sorted(flags & UNUSABLE)))
        if "flagged" in drop and flags - UNUSABLE:
            why.append(", ".join(sorted(flags - UNUSABLE)))
        reasons.append(why)
    return reasons


@dataclass(frozen=True)
class _Looked:
    copies: NDArray[np.int64]
    flags: list[list[str]]
    how: str = "difference hash, confirmed by greys"


def _pictures(pairs: Dataset, workers: int, progress: Callable[[int], None] | None) -> _Looked:
    """Copies among the pictures, and what is odd about them; nothing where none is there, but features alone."""
    values = pairs.images.values
    looks = looks_of(pairs.images, pairs.root, workers, progress, 0)
    if all(look is None for look in looks):
        how = "none can be read: nothing is said of copies among them, or of what is odd"
        return _Looked(np.full(len(values), -1, dtype=np.int64), [[] for _ in values], how)
    flags = list(read_ahead(values, lambda value: picture_flags(value, pairs.root), workers=workers))
    return _Looked(picture_copies(looks), flags)


def _languages(pairs: Dataset, words: NDArray[np.int64]) -> list[str | None]:
    column = pairs.texts.metadata.get("language")
    if column is not None:
        return [None if column[row] is None else str(column[row]) for row in words]
    guessed = [guess_language(value) if isinstance(value, str) else None for value in pairs.texts.values]
    return [guessed[row] for row in words]


def _near_columns(neighbourhood: Surroundings) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for modality in ("image", "text"):
        columns[f"diversity_{modality}"] = _known(neighbourhood.diversity[modality])
        columns[f"discrepancy_{modality}"] = _known(neighbourhood.discrepancy[modality])
    return {**columns, "agreement": _known(neighbourhood.agreement)}


def _uncertain_columns(pairs: Dataset, images: Embeddings, texts: Embeddings) -> dict[str, list[Any]]:
    """How uncertain the model is of each pair's picture and text; nothing where items are no distributions."""
    columns = {}
    for index, (name, items) in enumerate((("picture", images), ("text", texts))):
        if (uncertainty := items.uncertainty) is not None:
            columns[f"{name}_uncertainty"] = uncertainty[torch.from_numpy(pairs.links[:, index])].tolist()
    return columns


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
