"""Which fragments of a table may hold some ids, so that those that are new are not looked for in all of them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class IdFragments:
    """The fragment of each id of the fragments that were read, by hashes of 64 bits.

    Fragments do not change, and their numbers are not given again: what was read once holds for all versions of a
    table. An id that was deleted since may still be found here. 12 bytes an id.
    """

    def __init__(self) -> None:
        self.read = set[int]()
        # Sorted hashes with their fragments; of each pair of blocks the earlier one is more than twice as large.
        self._blocks = list[tuple[NDArray[np.int64], NDArray[np.int32]]]()
        self._lock = threading.Lock()

    def add(self, ids: Iterable[str], fragments: NDArray[np.int64], read: Collection[int]) -> None:
        """Take in the ids of some fragments.

        Args:
            ids: Of n rows.
            fragments: (n) number of the fragment of each.
            read: Numbers of all fragments that were read, also of those without ids.
        """
        hashes = np.fromiter(map(hash, ids), dtype=np.int64, count=len(fragments))
        with self._lock:
            fresh = ~np.isin(fragments, list(self.read))  # Another thread may have read the same ones.
            self.read |= set(read)
            block = hashes[fresh], fragments[fresh].astype(np.int32)
            while self._blocks and len(self._blocks[-1][0]) <= 2 * len(block[0]):
                earlier = self._blocks.pop()
                block = np.concatenate([earlier[0], block[0]]), np.concatenate([earlier[1], block[1]])
            order = np.argsort(block[0], kind="stable")
            self._blocks.append((block[0][order], block[1][order]))

    def of(self, ids: Sequence[str]) -> set[int]:
        """The fragments that may hold some of these ids.

        Args:
            ids: The ids.

        Returns:
            Numbers of fragments: all that hold one, and by chance another one.
        """
        wanted, found = np.unique(np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))), set[int]()
        with self._lock:
            for hashes, fragments in self._blocks:
                first, end = (np.searchsorted(hashes, wanted, side=side) for side in ("left", "right"))
                for start, stop in zip(first[first < end], end[first < end], strict=True):
                    found.update(fragments[start:stop].tolist())
        return found
