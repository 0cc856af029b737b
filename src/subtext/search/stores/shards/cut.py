"""How a data set is cut into shards: in its order, about equally, and never between a picture and its texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from subtext.errors import RequirementError, counted


@dataclass(frozen=True)
class Share:
    """Rows of the pictures and of the texts that make one shard, both ascending."""

    images: NDArray[np.int64]
    texts: NDArray[np.int64]


def cut(links: Int[np.ndarray, "l 2"], *, images: int, texts: int, count: int) -> list[Share]:
    """The shares of `count` shards.

    links   picture row and text row of what belongs together, and so comes into one shard: its texts are then found
            beside a picture without asking another shard
    images, texts   how many there are

    What belongs together stands in the order of its first picture; texts without one come last. Each shard gets
    something. Raises RequirementError when that cannot be.

    >>> [share.images.tolist() for share in cut(np.array([[0, 0], [1, 1], [2, 1], [3, 2]]), images=4, texts=3, count=2)]
    [[0], [1, 2, 3]]
    """
    first_of = pieces(links, images=images, texts=texts)
    _, place, sizes = np.unique(first_of, return_inverse=True, return_counts=True)
    if not 1 <= count <= len(sizes):
        raise RequirementError(
            f"shards need something each; {counted(images, 'picture')} and {counted(texts, 'text')} that belong "
            f"together make {counted(len(sizes), 'piece')}, which cannot be cut any more; it got {count} shards; ask "
            f"for 1 to {len(sizes):,} (--shards)"
        )
    number = np.arange(len(sizes))
    # Each piece into the shard in whose share its middle lies; at most one further than the piece before it, and so
    # far that what is left still goes round.
    middle = np.cumsum(sizes) - sizes / 2
    shard = np.floor(middle * count / sizes.sum()).astype(np.int64)
    shard[0] = 0
    shard = np.minimum.accumulate(shard - number) + number
    shard = np.maximum(shard, count - len(sizes) + number)
    of_item = shard[place]
    return [
        Share(
            np.flatnonzero(of_item[:images] == own).astype(np.int64),
            np.flatnonzero(of_item[images:] == own).astype(np.int64),
        )
        for own in range(count)
    ]


def pieces(links: Int[np.ndarray, "l 2"], *, images: int, texts: int) -> Int[np.ndarray, "n"]:
    """(I + T) of each picture, then each text, the first item that it belongs together with, over any number of links.

    >>> pieces(np.array([[0, 0], [2, 0], [1, 1]]), images=3, texts=3).tolist()
    [0, 1, 0, 0, 1, 5]
    """
    found: NDArray[np.int64] = np.arange(images + texts, dtype=np.int64)
    left, right = links[:, 0], links[:, 1] + images
    while True:
        before = found.copy()
        least = np.minimum(found[left], found[right])
        np.minimum.at(found, left, least)
        np.minimum.at(found, right, least)
        # What an item leads to leads on: long chains are short after few rounds.
        found = found[found]
        if np.array_equal(found, before):
            return found
