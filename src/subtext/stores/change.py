"""What is to be changed in an index at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.stores.item import Entry, Side


@dataclass(frozen=True)
class Change:
    """What is to be put into one side at once.

    entries, vectors  N items that are new or whose content has changed, and their (N K D) vectors
    amended           items that are there, of which only what is known about them has changed
    links             (picture id, text id) to be joined, where both are there
    exact_texts       ids of texts whose links are to be these alone
    """

    side: Side
    entries: Sequence[Entry] = ()
    vectors: NDArray[np.float32] | None = None
    amended: Sequence[Entry] = ()
    links: Sequence[tuple[str, str]] = ()
    exact_texts: frozenset[str] = frozenset()
