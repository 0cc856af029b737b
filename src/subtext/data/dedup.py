"""Texts that are nearly copies of another's (MinHash, Broder 1997), such as what a site puts under every article."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.text import tokenise
from subtext.errors import DataError, RequirementError

_PRIORITY = {"test": 0, "val": 1, "train": 3}
"""Whose texts stay where copies are in several splits; those of other names come between val and train."""

_MISSED = 0.005
"""Share of couples at the very threshold that MinHash may fail to find; above it fewer."""


@dataclass(frozen=True)
class Copies:
    """What to leave out.

    copy_of  (T) the row of the text that a text is nearly a copy of, and that stays; -1 for a text that stays
    overlap  (T) their Jaccard similarity, 0 for a text that stays
    """

    copy_of: NDArray[np.int64]
    overlap: NDArray[np.float64]

    @property
    def retained(self) -> NDArray[np.bool_]:
        """(T) whether a text stays."""
        mask: NDArray[np.bool_] = self.copy_of < 0
        return mask


def near_copies(
    pairs: Dataset,
    *,
    threshold: float = 0.8,
    shingle_size: int = 3,
    permutations: int = 128,
    progress: Callable[[int], None] | None = None,
) -> Copies:
    """Near-duplicates among texts of different groups; captions of one image may be alike.

    threshold     Jaccard similarity of their shingles, above 0, at most 1; pairs that MinHash finds are compared
                  exactly, so none is removed wrongly; at the threshold itself one pair in 200 may be missed
    shingle_size  words per shingle; a shorter text is one shingle
    permutations  of MinHash

    Texts are visited in the order test, val, train, and then by their keys: a copy in train is removed and its
    counterpart in test stays, whatever the order of rows.

    Raises RequirementError where datasketch is not installed, DataError for texts known by features alone.
    Cost time linear in the words, memory in texts x permutations.
    """
    if not 0 < threshold <= 1:
        raise DataError(f"copies need a threshold above 0 and at most 1; got {threshold}")
    empty, index = _sketches(threshold, permutations)
    values = [_words_of(text, name) for text, name in zip(pairs.texts.values, pairs.texts.ids, strict=True)]
    rank = np.array([_PRIORITY.get(str(split), 2) for split in pairs.texts.splits])
    order = np.lexsort((pairs.texts.keys, rank))
    copy_of = np.full(len(values), -1, dtype=np.int64)
    overlap = np.zeros(len(values))
    for done, row in enumerate(order.tolist(), start=1):
        shingles = _shingles(values[row], shingle_size)
        sketch = empty.copy()
        sketch.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in shingles])
        candidates = [text for text in index.query(sketch) if pairs.texts.groups[text] != pairs.texts.groups[row]]
        shared = {text: _jaccard(shingles, _shingles(values[text], shingle_size)) for text in candidates}
        best = max(shared, key=lambda text: (shared[text], -int(pairs.texts.keys[text])), default=None)
        if best is not None and shared[best] >= threshold:
            copy_of[row], overlap[row] = best, shared[best]
        else:
            index.insert(row, sketch, check_duplication=False)
        if progress is not None:
            progress(done)
    return Copies(copy_of, overlap)


def _sketches(threshold: float, permutations: int) -> tuple[Any, Any]:
    """An empty MinHash and an empty index of them: its rows are as many as let no more than `_MISSED` slip through."""
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError as problem:
        raise RequirementError(
            "finding copies needs datasketch, which is not installed; pip install 'subtext[dedup]'"
        ) from problem
    fit = (rows for rows in range(permutations, 1, -1) if (1 - threshold**rows) ** (permutations // rows) <= _MISSED)
    rows = next(fit, 1)
    index = MinHashLSH(num_perm=permutations, params=(permutations // rows, rows))
    return MinHash(num_perm=permutations, seed=1), index


def _words_of(text: Any, name: str) -> str:
    if not isinstance(text, str):
        raise DataError(f"finding copies needs words for every text; '{name}' is known by features alone")
    return text


def _shingles(text: str, size: int) -> set[str]:
    """Each run of `size` words, as one string."""
    words = tokenise(text) or [text]
    return {" ".join(words[start : start + size]) for start in range(max(len(words) - size + 1, 1))}


def _jaccard(left: set[str], right: set[str]) -> float:
    return len(left & right) / len(left | right)
