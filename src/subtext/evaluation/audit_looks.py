"""What pictures look like, in a few bytes each: enough to know a copy that was scaled or compressed again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subtext.data.batches import read_ahead
from subtext.data.dataset import Items
from subtext.data.image_files import difference_hash, open_image, read_bytes
from subtext.errors import DataError

BITS = 8
"""Bits of 64 in which the hashes of two copies may differ."""
ALIKE = 0.98
"""Correlation of the greys of two copies: hashes alone take pictures of much sky for one another."""
SIDE = 16
"""Greys a side."""
_BLOCK = 512

Told = Callable[[int], None]


@dataclass(frozen=True)
class Look:
    """A picture's bytes by their hash, what is seen by another, and its greys, of mean 0 and length 1.

    Greys are None where all are the same: such a picture is like every other of its kind.
    """

    digest: bytes
    bits: int
    greys: NDArray[np.float32] | None


def looks_of(items: Items, root: Path, workers: int, told: Told | None, before: int) -> list[Look | None]:
    """What every picture looks like; None for one that cannot be read.

    told  hears how many have been looked at, and of others `before` them
    """
    found: list[Look | None] = []
    for look in read_ahead(items.values, lambda value: _look(value, root), workers=workers):
        found.append(look)
        if told is not None:
            told(before + len(found))
    return found


def _look(value: str | bytes | None, root: Path) -> Look | None:
    if value is None:
        return None
    try:
        digest = hashlib.blake2b(read_bytes(value, root), digest_size=16).digest()
        image = open_image(value, root, at_least=2 * SIDE)
    except DataError:
        # Unread pictures are counted and told; a data set is checked for them elsewhere.
        return None
    small = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32).ravel()
    centred = small - small.mean()
    length = float(np.linalg.norm(centred))
    return Look(digest, difference_hash(image), centred / length if length > SIDE else None)


def copies_of(mine: list[Look | None], theirs: list[Look | None]) -> tuple[dict[int, int], dict[int, int]]:
    """Row of an audited picture -> row of a training picture: equal to the byte, and alike to the eye."""
    known = {look.digest: row for row, look in enumerate(theirs) if look is not None}
    equal = {row: known[look.digest] for row, look in enumerate(mine) if look is not None and look.digest in known}
    seen = [
        [(row, look) for row, look in enumerate(side) if look is not None and look.greys is not None]
        for side in (mine, theirs)
    ]
    bits = [np.array([look.bits for _, look in side], dtype=np.uint64) for side in seen]
    near: dict[int, int] = {}
    for start in range(0, len(seen[0]), _BLOCK):
        apart = np.bitwise_count(bits[0][start : start + _BLOCK, None] ^ bits[1][None])
        for place, other in zip(*np.nonzero(apart <= BITS), strict=True):
            (row, look), (candidate, its) = seen[0][start + place], seen[1][other]
            assert look.greys is not None
            if its.greys is not None and float(look.greys @ its.greys) >= ALIKE:
                near.setdefault(row, candidate)
    return equal, near
