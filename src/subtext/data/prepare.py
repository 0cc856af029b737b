"""One-time changes of a data set: shorter or fewer texts, new splits, no near-duplicates (MinHash, Broder 1997)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.rows import draw_splits
from subtext.data.words import tokenise
from subtext.errors import DataError, RequirementError
from subtext.text_helpers import install_hint

_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”’）]*")
_LOWER = re.compile(r"\s+[a-z,;]")
# fmt: off
_ABBREVIATIONS = frozenset((
    "mr", "mrs", "ms", "dr", "prof", "rev", "gen", "sen", "rep", "gov", "lt", "col", "sgt", "capt", "st", "vs", "vol",
    "fig", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "u.s", "u.k", "u.n",
    "e.g", "i.e", "a.m", "p.m",
))
# fmt: on
"""A point after one of these ends no sentence, even before a capital."""

_PRIORITY = {"test": 0, "val": 1, "train": 3}
"""The splits whose texts stay where copies are in several splits; other splits come between val and train."""

PERMUTATIONS = 128
"""Of MinHash."""
_MISSED = 0.005
"""Share of pairs at the threshold that MinHash may miss; above the threshold it misses fewer."""


def keep_texts(pairs: Dataset, keep: NDArray[np.bool_]) -> Dataset:
    """Keep the marked texts, and their images.

    Args:
        pairs: The data set.
        keep: (T) marks.

    Returns:
        The data set of these texts.

    Raises:
        DataError: If none is marked.
    """
    images = np.unique(pairs.links[keep[pairs.links[:, 1]], 0])
    if not len(images):
        raise DataError(f"of {len(pairs.texts):,} texts none would remain; use a weaker filter")
    return pairs.subset(images, np.flatnonzero(keep).astype(np.int64))


def only_longer(pairs: Dataset, characters: int) -> Dataset:
    """Keep texts of more than a number of characters (Thomas and Kovashka's code removes articles of up to 500).

    Args:
        pairs: The data set.
        characters: The number.

    Returns:
        The data set of these texts and their images.
    """
    keep = [isinstance(text, str) and len(text) > characters for text in pairs.texts.values]
    return keep_texts(pairs, np.array(keep, dtype=bool))


def cut_sentences(pairs: Dataset, count: int) -> Dataset:
    """Keep the first sentences of each text (Thomas and Kovashka 2020, section 4.1: two of each article).

    Args:
        pairs: The data set.
        count: Sentences per text.

    Returns:
        The same items with shorter texts.
    """
    values = [first_sentences(text, count) if isinstance(text, str) else text for text in pairs.texts.values]
    return replace(pairs, texts=replace(pairs.texts, values=values))


def resplit_groups(pairs: Dataset, *, seed: int) -> Dataset:
    """Split randomly by group, 80-10-10, in place of the data set's own splits.

    Args:
        pairs: The data set.
        seed: Seed of the split.

    Returns:
        The same items with new splits.
    """
    groups, first, of_image = np.unique(pairs.images.groups, return_index=True, return_inverse=True)
    splits = draw_splits([pairs.images.ids[row] for row in first], seed=seed)
    of_text = np.searchsorted(groups, pairs.texts.groups)
    return replace(
        pairs,
        images=replace(pairs.images, splits=splits[of_image]),
        texts=replace(pairs.texts, splits=splits[of_text]),
        own_splits=True,
    )


def first_sentences(text: str, count: int) -> str:
    """Cut a text after its first sentences.

    A point ends no sentence after an initial or a common abbreviation (Mr., U.S.), nor before a small letter. "in the
    U.S. It ..." is therefore read as one sentence, since such rules cannot tell it from "the U.S. Senate".

    Args:
        text: The text.
        count: Number of sentences.

    Returns:
        The start of the text, unchanged but for white space around it.

    Example:
        >>> first_sentences('Mr. Lee went. "Did he?" asked J. Doe. He did.', 2)
        'Mr. Lee went. "Did he?"'
        >>> first_sentences("one only", 2)
        'one only'
    """
    text = text.strip()
    ends = (match.end() for match in _END.finditer(text) if not _continues(text, match))
    return text[: next(islice(ends, count - 1, None), len(text))]


def _continues(text: str, match: re.Match[str]) -> bool:
    """Whether the sentence continues after a full stop or another mark."""
    before_lower = _LOWER.match(text[match.end() :]) is not None
    if match[0] != ".":
        # A question in quotes is a sentence even where its speaker follows.
        return match[0].startswith(".") and before_lower
    word = text[: match.start()].rpartition(" ")[2].lstrip("\"'“‘([").lower()
    initial = len(word) == 1 and word.isalpha() and word != "i"
    return initial or word in _ABBREVIATIONS or before_lower


@dataclass(frozen=True)
class Copies:
    """The near-duplicates among texts.

    Attributes:
        copy_of: (T) the row of the text that stays in place of a near-duplicate; -1 for a text that stays.
        overlap: (T) their Jaccard similarity, 0 for a text that stays.
    """

    copy_of: NDArray[np.int64]
    overlap: NDArray[np.float64]

    @property
    def retained(self) -> NDArray[np.bool_]:
        """(T) whether a text stays."""
        return self.copy_of < 0


def near_copies(
    pairs: Dataset,
    *,
    threshold: float = 0.8,
    shingle_size: int = 3,
    progress: Callable[[int], None] | None = None,
) -> Copies:
    """Detect near-duplicates among texts of different groups; captions of one image may be alike.

    Texts are visited in the order test, val, train, and then by their keys: a copy in train is removed and its
    counterpart in test stays, whatever the order of rows.

    Args:
        pairs: The data set.
        threshold: Jaccard similarity of their shingles, above 0, at most 1; pairs that MinHash finds are compared
            exactly, so none is removed wrongly; at the threshold itself one pair in 200 may be missed.
        shingle_size: Words per shingle; a shorter text is one shingle.
        progress: Called with the number of finished texts.

    Returns:
        Which texts are copies, and of which.

    Raises:
        RequirementError: If datasketch is not installed.
        DataError: For texts known by features alone.

    Complexity:
        Time linear in the words, memory in texts x `PERMUTATIONS`.
    """
    if not 0 < threshold <= 1:
        raise DataError(f"copies need a threshold above 0 and at most 1; got {threshold}")
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError as error:
        raise RequirementError(
            f"finding copies needs datasketch, which is not installed; {install_hint('dedup')}"
        ) from error
    # The most rows per band that miss no more than `_MISSED`.
    fit = (rows for rows in range(PERMUTATIONS, 1, -1) if (1 - threshold**rows) ** (PERMUTATIONS // rows) <= _MISSED)
    rows = next(fit, 1)
    index: Any = MinHashLSH(num_perm=PERMUTATIONS, params=(PERMUTATIONS // rows, rows))
    empty: Any = MinHash(num_perm=PERMUTATIONS, seed=1)
    values = [text for text in pairs.texts.values if isinstance(text, str)]
    if len(values) < len(pairs.texts):
        name = next(name for name, text in zip(pairs.texts.ids, pairs.texts.values, strict=True) if text is None)
        raise DataError(f"finding copies needs words for every text; '{name}' is known by features alone")
    rank = np.array([_PRIORITY.get(str(split), 2) for split in pairs.texts.splits])
    order = np.lexsort((pairs.texts.keys, rank))
    copy_of = np.full(len(values), -1, dtype=np.int64)
    overlap = np.zeros(len(values))
    for done, row in enumerate(order.tolist(), start=1):
        shingles = _shingles(values[row], shingle_size)
        sketch = empty.copy()
        sketch.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in shingles])
        candidates = [text for text in index.query(sketch) if pairs.texts.groups[text] != pairs.texts.groups[row]]
        others = {text: _shingles(values[text], shingle_size) for text in candidates}
        shared = {text: len(shingles & other) / len(shingles | other) for text, other in others.items()}
        best = max(shared, key=lambda text: (shared[text], -int(pairs.texts.keys[text])), default=None)
        if best is not None and shared[best] >= threshold:
            copy_of[row], overlap[row] = best, shared[best]
        else:
            index.insert(row, sketch, check_duplication=False)
        if progress is not None:
            progress(done)
    return Copies(copy_of, overlap)


def _shingles(text: str, size: int) -> set[str]:
    """Each run of `size` words, as one string."""
    words = tokenise(text) or [text]
    return {" ".join(words[start : start + size]) for start in range(max(len(words) - size + 1, 1))}
