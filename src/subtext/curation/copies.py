"""Groups of pictures, and of texts, that are copies of one another, and those that stand in two splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset, Items
from subtext.data.dedup import near_copies
from subtext.data.words import tokenise
from subtext.errors import RequirementError
from subtext.evaluation.overlap import ALIKE, BITS, Look

LONG = 6
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

    Near copies by MinHash where datasketch is installed; else texts of `LONG` words or more that are the same.
    """
    joined = _Joined(len(pairs.texts))
    long = [isinstance(value, str) and len(tokenise(value)) >= LONG for value in pairs.texts.values]
    groups: dict[str, dict[int, int]] = defaultdict(dict)
    for row, value in enumerate(pairs.texts.values):
        if long[row]:
            groups[str(value).casefold()].setdefault(int(pairs.texts.groups[row]), row)
    for rows in groups.values():
        for row in rows.values():
            joined.join(next(iter(rows.values())), row)
    how = f"equal texts of {LONG} words or more"
    if all(isinstance(value, str) for value in pairs.texts.values):
        try:
            copies = near_copies(pairs, progress=progress).copy_of
            for copy in np.flatnonzero(copies >= 0).tolist():
                if long[copy]:
                    joined.join(int(copies[copy]), copy)
            how = f"texts of {LONG} words or more that share 0.8 of their runs of three words (MinHash)"
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
