"""Which fragments of a table may hold some ids, so that those that are new are not looked for in all of them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray


def hashed(ids: Collection[str]) -> NDArray[np.int64]:
    """Hashes of ids, the same within a process.

    Args:
        ids: N ids.

    Returns:
        (N) int64.
    """
    return np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids))


class IdFragments:
    """The fragment of each id of the fragments that were read, by hashes of 64 bits: 12 bytes an id.

    The rows of a fragment do not change, and its number is not given again; what a later version has deleted of it has
    to be read as well, since a reader of an earlier one still has it.
    """

    def __init__(self) -> None:
        self.read = set[int]()
        # Sorted hashes with their fragments; of each pair of blocks the earlier one is more than twice as large.
        self._blocks = list[tuple[NDArray[np.int64], NDArray[np.int32]]]()
        self._lock = threading.Lock()

    def add(
        self,
        rows: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]],
        read: Collection[int],
        present: Collection[int],
    ) -> None:
        """Take in the ids of some fragments, and forget those of fragments that are gone.

        Args:
            rows: (n) hashes of ids and (n) number of the fragment of each, block by block.
            read: Numbers of all fragments that were read, also of those without ids.
            present: Numbers of the fragments of the caller's version.
        """
        empty = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        blocks = [empty, *((hashes, own.astype(np.int32)) for hashes, own in rows)]
        block = np.concatenate([own[0] for own in blocks]), np.concatenate([own[1] for own in blocks])
        with self._lock:
            fresh = ~np.isin(block[1], list(self.read))  # Another thread may have read the same ones.
            block = block[0][fresh], block[1][fresh]
            self.read = (self.read & set(present)) | set(read)
            while self._blocks and len(self._blocks[-1][0]) <= 2 * len(block[0]):
                earlier = self._blocks.pop()
                block = np.concatenate([earlier[0], block[0]]), np.concatenate([earlier[1], block[1]])
            kept = np.isin(block[1], list(self.read))
            block = block[0][kept], block[1][kept]
            order = np.argsort(block[0], kind="stable")
            self._blocks.append((block[0][order], block[1][order]))

    def of(self, ids: Collection[str]) -> set[int]:
        """The fragments that may hold some of these ids.

        Args:
            ids: The ids.

        Returns:
            Numbers of fragments: all that hold one, and by chance another one.
        """
        wanted, found = np.unique(hashed(ids)), set[int]()
        with self._lock:
            for hashes, fragments in self._blocks:
                first, end = (np.searchsorted(hashes, wanted, side=side) for side in ("left", "right"))
                for start, stop in zip(first[first < end], end[first < end], strict=True):
                    found.update(fragments[start:stop].tolist())
        return found
