"""Copies among images, whatever their names and captions: the same file, scaled, compressed again, or turned.

Candidates are images whose difference hashes differ in a few bits, in one of four turns, mirrored or not; their greys
decide. A mirror image is no copy: an arrow to the left is another icon than one to the right.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subtext.data.batches import read_ahead
from subtext.data.dataset import Items
from subtext.data.image_files import difference_hash, identify, open_image, read_bytes
from subtext.data.rows import components
from subtext.errors import DataError
from subtext.evaluation.checks.overlap import ALIKE, SIDE

Kind = Literal["exact", "recompressed", "resized", "rotated", "mirrored"]
TURNS, VIEWS = 4, 8
"""Turns by 90 degrees; and those of the image and of its mirror image."""
HELD_OUT = ("test", "val")
"""Splits whose copies elsewhere are leaks."""
BITS = 12
"""Bits of 64 in which the hashes of two copies may differ: the greys decide, and 16 found no other pair in 9,000
images."""
_BLOCK = 512
_SEEN = 64
"""Pixels a side of the image that is turned."""


@dataclass(frozen=True)
class Look:
    """What an image is compared by.

    Attributes:
        digest: Hash of the bytes of its file.
        bits: (VIEWS) difference hash of the image, and of the image turned by 90, 180 and 270 degrees; then the same of
            its mirror image.
        greys: (SIDE SIDE) of mean 0 and length 1; None for an image of one colour, which has only exact copies.
        size: Width and height of the file in pixels, the longer first.
    """

    digest: bytes
    bits: tuple[int, ...]
    greys: NDArray[np.float32] | None
    size: tuple[int, int]


@dataclass(frozen=True)
class Copy:
    """An image that is a copy of another.

    Attributes:
        row: Its row.
        of: The row of the image that stays.
        kind: "exact": the same bytes; "recompressed": of the same size; "resized"; "rotated": by 90, 180 or 270
            degrees, and perhaps resized; "mirrored": a mirror image, perhaps turned, which is no copy.
        size: Its width and height in pixels, the longer first.
    """

    row: int
    of: int
    kind: Kind
    size: tuple[int, int]


@dataclass(frozen=True)
class ImageCopies:
    """The copies among images.

    Attributes:
        copies: Those that stand for another, in the order of their rows.
        groups: (I) number of each image's group; -1 for an image without a copy.
        unread: Images that could not be read, so that nothing is known of them.
        mirrored: Images that mirror another one, in the order of their rows; both stay, and are in no common group.
    """

    copies: tuple[Copy, ...]
    groups: NDArray[np.int64]
    unread: int
    mirrored: tuple[Copy, ...] = ()


def look_at(value: str | bytes | None, root: Path) -> Look | None:
    """What an image is compared by.

    Args:
        value: Path or bytes; None for an image with features only.
        root: Folder of relative paths.

    Returns:
        Its look; None if it cannot be read.
    """
    if value is None:
        return None
    try:
        data = read_bytes(value, root)
        image = open_image(data, at_least=2 * _SEEN, thumbnail=True).convert("L")
        with identify(BytesIO(data), "an image") as header:
            longer, shorter = sorted(header.size, reverse=True)
    except (DataError, OSError, ValueError):
        return None
    small = image.resize((_SEEN, _SEEN), Image.Resampling.BOX)
    mirror = small.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    bits = tuple(difference_hash(side.rotate(90 * turn)) for side in (small, mirror) for turn in range(TURNS))
    greys = np.asarray(small.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)
    centred = greys - greys.mean()
    length = float(np.linalg.norm(centred))
    digest = hashlib.blake2b(data, digest_size=16).digest()
    return Look(digest, bits, centred / length if length > SIDE else None, (longer, shorter))


def find_copies(
    images: Items,
    root: Path,
    *,
    own_splits: bool = True,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ImageCopies:
    """Find the copies among images.

    Of a group, the image in "test" stays, else the one in "val", else the largest, else the first.

    Args:
        images: The items.
        root: Folder of relative paths.
        own_splits: Whether the data names its splits; sampled ones decide nothing.
        workers: Threads that read images; None for one per core.
        progress: Called with the number of images that were read.

    Returns:
        The copies and their groups, and mirror images.

    Complexity:
        Reading every image, and 8 I^2 comparisons of 64 bits.
    """
    looks: list[Look | None] = []
    for look in read_ahead(images.values, lambda value: look_at(value, root), workers=workers or os.cpu_count() or 1):
        looks.append(look)
        if progress is not None:
            progress(len(looks))
    first: dict[bytes, int] = {}
    exact = [(first.setdefault(look.digest, row), row) for row, look in enumerate(looks) if look is not None]
    near = list(_alike(looks))
    groups = numbered(len(looks), [*exact, *((row, later) for row, later, kind in near if kind != "mirrored")])
    staying = stays(
        images, groups, own_splits=own_splits, sizes=[look.size if look is not None else (0, 0) for look in looks]
    )
    copies = []
    for row in np.flatnonzero(groups >= 0).tolist():
        of = staying[int(groups[row])]
        look, other = looks[row], looks[of]
        if row != of and look is not None and other is not None:
            kind = _kind(look, other)
            # Two of a group may be alike by way of a third.
            copies.append(Copy(row, of, "rotated" if kind in (None, "mirrored") else kind, look.size))
    # Of two groups that mirror each other, those that stay are named.
    pairs = [sorted(staying.get(int(groups[row]), row) for row in edge[:2]) for edge in near if edge[2] == "mirrored"]
    mirrored = dict[int, Copy]()
    for of, row in sorted(map(tuple, pairs)):
        if (look := looks[row]) is not None and row != of and (groups[row] < 0 or groups[row] != groups[of]):
            mirrored.setdefault(row, Copy(row, of, "mirrored", look.size))
    return ImageCopies(
        tuple(copies), groups, sum(look is None for look in looks), tuple(mirrored[row] for row in sorted(mirrored))
    )


def numbered(count: int, edges: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Number the connected components in the order of their first rows.

    Args:
        count: Number of rows.
        edges: Pairs of rows.

    Returns:
        (count) the number of each row's component; -1 for a row without another.
    """
    first_of = components((left, right) for left, right in edges if left != right)
    numbers: dict[int, int] = {}
    for row in sorted(first_of):
        numbers.setdefault(first_of[row], len(numbers))
    return np.array([numbers[first_of[row]] if row in first_of else -1 for row in range(count)], dtype=np.int64)


def stays(
    items: Items,
    groups: NDArray[np.int64],
    *,
    own_splits: bool = True,
    sizes: list[tuple[int, int]] | None = None,
) -> dict[int, int]:
    """The item of each group of copies that stays: a held-out one, else the largest, else the first.

    Args:
        items: (N) images or texts.
        groups: (N) number of each item's group; -1 for none.
        own_splits: Whether a held-out item stays.
        sizes: (N) of images; None where size is nothing.

    Returns:
        Number of the group -> row.
    """
    rank = {name: position for position, name in enumerate(HELD_OUT)} if own_splits else {}
    chosen: dict[int, tuple[int, int, int]] = {}
    for row, group in enumerate(groups.tolist()):
        if group >= 0:
            pixels = 0 if sizes is None else sizes[row][0] * sizes[row][1]
            place = (rank.get(str(items.splits[row]), len(HELD_OUT)), -pixels, row)
            chosen[group] = min(chosen.get(group, place), place)
    return {group: row for group, (_, _, row) in chosen.items()}


def _alike(looks: list[Look | None]) -> Iterator[tuple[int, int, Kind]]:
    """Rows of each two images that look alike, the lower row first, and how."""
    seen = [(row, look) for row, look in enumerate(looks) if look is not None and look.greys is not None]
    bits = np.array([look.bits for _, look in seen], dtype=np.uint64).reshape(-1, VIEWS)
    for start in range(0, len(seen), _BLOCK):
        rows, met = bits[start : start + _BLOCK, :1], set[tuple[int, int]]()
        for view in range(VIEWS):
            near = np.bitwise_count(rows ^ bits[None, start:, view]) <= BITS
            met.update(zip(*(side.tolist() for side in np.nonzero(np.triu(near, 1))), strict=True))
        for position, other in sorted(met):
            (row, look), (later, another) = seen[start + position], seen[start + other]
            if (kind := _kind(look, another)) is not None:
                yield row, later, kind


def _correlation(look: Look, other: Look, view: int) -> float:
    """Of the greys of an image with those of another in one of `VIEWS`."""
    if look.greys is None or other.greys is None:
        return 0.0
    greys = other.greys if view < TURNS else np.fliplr(other.greys)
    return float((look.greys * np.rot90(greys, view % TURNS)).sum())


def _kind(look: Look, of: Look) -> Kind | None:
    """What an image is of another; None where they do not look alike.

    What is alike both turned and mirrored has an axis of symmetry, as an arrow has: it counts as mirrored.
    """
    if look.digest == of.digest:
        return "exact"
    if _correlation(look, of, 0) >= ALIKE:
        return "recompressed" if look.size == of.size else "resized"
    if any(_correlation(look, of, view) >= ALIKE for view in range(TURNS, VIEWS)):
        return "mirrored"
    return "rotated" if any(_correlation(look, of, view) >= ALIKE for view in range(1, TURNS)) else None
