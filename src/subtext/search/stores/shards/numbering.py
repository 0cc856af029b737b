"""Keys of items in a shard, and in the index as a whole.

An item's key in the whole is the one that it would have in one folder of all: pictures first, in the order of the
shards, then texts. So draws by key, and the order of equal scores, are those of such a folder. Keys that a shard gives
out later, when it is changed by itself, come after all of them, the shards taking turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray


@dataclass(frozen=True)
class Numbering:
    """The keys of one shard.

    first   keys in the whole of its first picture and of its first text
    made    pictures and texts that it was made with, whose keys in it are 1, 2, ... in this order
    every   items that all shards were made with
    place, places   which shard, of how many
    """

    first: tuple[int, int]
    made: tuple[int, int]
    every: int
    place: int
    places: int

    def whole(self, keys: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """(n) keys in the whole of keys in this shard; an ascending order stays one."""
        images, own = self.made[0], sum(self.made)
        first = np.where(keys <= images, self.first[0] + keys - 1, self.first[1] + keys - images - 1)
        later = self.every + 1 + (keys - own - 1) * self.places + self.place
        found: NDArray[np.int64] = np.where(keys <= own, first, later).astype(np.int64)
        return found

    def own(self, keys: Int[np.ndarray, "n"]) -> tuple[Int[np.ndarray, "m"], Int[np.ndarray, "m"]]:
        """Of keys in the whole the places of those that are this shard's, and their keys in it."""
        images, own = self.made[0], sum(self.made)
        found = np.zeros(len(keys), dtype=np.int64)
        for first, count, before in zip(self.first, self.made, (0, images), strict=True):
            inside = (keys >= first) & (keys < first + count)
            found[inside] = keys[inside] - first + 1 + before
        after = keys - self.every - 1
        later = (after >= 0) & (after % self.places == self.place)
        found[later] = after[later] // self.places + own + 1
        places = np.flatnonzero(found)
        return places, found[places]


def numberings(made: Sequence[tuple[int, int]]) -> list[Numbering]:
    """The keys of shards that were made with so many pictures and texts each.

    >>> first, second = numberings([(2, 3), (1, 1)])
    >>> first.whole(np.arange(1, 7)).tolist(), second.whole(np.arange(1, 4)).tolist()
    ([1, 2, 4, 5, 6, 8], [3, 7, 9])
    >>> [own.own(np.array([3, 8, 4]))[1].tolist() for own in (first, second)]
    [[6, 3], [1]]
    """
    images, every = sum(own[0] for own in made), sum(map(sum, made))
    found, first = [], [1, images + 1]
    for place, own in enumerate(made):
        found.append(Numbering((first[0], first[1]), own, every, place, len(made)))
        first = [first[0] + own[0], first[1] + own[1]]
    return found
