"""Where a file's regions lie in their pictures: boxes beside the features of `region_files`, told in shares.

    FILE.npz                  "boxes", laid out as "grid" is: (pictures, regions, 4), or (all regions, 4) with "counts"
    FILE.npy                  FILE_boxes.npy (pictures, regions, 4)
    FOLDER/PREFIX_ims.npy     PREFIX_boxes.npy (rows, regions, 4), in SCAN's form
    FOLDER/NAME.npz or .npy   "bbox" or "boxes" (regions, 4) in it; NAME_boxes.npy beside an npy
    FILE.h5                   "boxes", "image_bb" or "bbox", laid out as the features are; else "spatial_features" (six
                              numbers a region, whose first four are shares already)

A box is left, top, right, bottom. In pixels it needs its picture's width and height: "sizes" or "img_sizes"
(pictures, 2), in a file of its own where boxes are (FILE_sizes.npy); or "widths" and "heights", or "image_w" and
"image_h". Without sizes boxes are taken for shares, from 0 to 1, and with them where none of a picture's is beyond 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.arrays import Rows, open_npy, open_npz
from subtext.data.region_files import BESIDE, bounds, members, pictures
from subtext.data.scan_files import scan_splits
from subtext.errors import DataError

BOX = 4
"""Numbers of a box: left, top, right and bottom edge, in shares of the picture's width and height."""
SLACK = 0.05
"""How far outside its picture, in shares, a box may lie before it is taken for wrong; what is outside is cut off."""
_BOXES = ("boxes", "image_bb", "bbox")
_SIZES = ("sizes", "img_sizes")
_SIDES = (("widths", "heights"), ("image_w", "image_h"))
_SHARES = "spatial_features"
_WANTED = (*_BOXES, *_SIZES, *_SIDES[0], *_SIDES[1])

Read = Callable[[int], tuple[NDArray[Any], NDArray[Any] | None]]
"""Row -> the boxes of a picture as they are stored, and its width and height; None: boxes are shares already."""


@dataclass(frozen=True)
class Boxes:
    """Boxes read picture by picture.

    names  of the pictures        path  for messages
    """

    read: Read
    names: Sequence[str]
    path: Path

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N P 4) boxes of the chosen pictures in [0, 1], filled up with zeros behind the shorter ones' last.

        Raises DataError for boxes that are of another form, or lie outside their picture.
        """
        found = [self._one(int(row)) for row in rows]
        taken = np.zeros((len(rows), max(map(len, found), default=1), BOX), dtype=np.float32)
        for place, boxes in enumerate(found):
            taken[place, : len(boxes)] = boxes
        return taken

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of every box, and of where pictures end."""
        digest = hashlib.blake2b(digest_size=8)
        lengths = []
        for row in range(len(self.names)):
            boxes = self._one(row)
            digest.update(boxes.tobytes())
            lengths.append(len(boxes))
        digest.update(ends(lengths))
        return digest.hexdigest()

    def _one(self, row: int) -> NDArray[np.float32]:
        stored, size = self.read(row)
        boxes = np.asarray(stored, dtype=np.float32)
        if boxes.ndim != 2 or boxes.shape[1] != BOX:
            raise DataError(
                f"{self.path} needs boxes of {BOX} numbers, a region each; {self.names[row]!r} has shape {boxes.shape}"
            )
        divided = False
        if size is not None:
            if size.shape != (2,) or not (size > 0).all():
                raise DataError(
                    f"{self.path} needs the width and height of every picture, above 0; {self.names[row]!r} has "
                    f"{size.tolist()}; correct its sizes"
                )
            # Sizes may lie beside what are shares already; no picture's regions all end within its first pixel.
            divided = bool((boxes > 1 + SLACK).any())
            if divided:
                boxes = (boxes / np.tile(np.asarray(size, dtype=np.float32), 2)).astype(np.float32)
        good = ((boxes >= -SLACK) & (boxes <= 1 + SLACK)).all(axis=1) & (boxes[:, 2:] >= boxes[:, :2]).all(axis=1)
        if not good.all():
            first = f"{boxes[~good][0].round(3).tolist()}{' once divided' if divided else ''}"
            raise DataError(
                f"{self.path} needs boxes inside their picture: left, top, right, bottom, in shares from 0 to 1, or in "
                f"pixels with the picture's width and height; {self.names[row]!r} has {first}; correct them, or give "
                "sizes"
            )
        return np.clip(boxes, 0, 1)


def ends(lengths: Sequence[int]) -> bytes:
    """What a fingerprint needs beside all pictures' regions in a row: how many each has; nothing where all are alike.

    Equal numbers follow from their sum; left out, they leave such files the fingerprints that runs have recorded.
    """
    return b"" if len(set(lengths)) <= 1 else np.asarray(lengths, dtype="<i8").tobytes()


def open_boxes(path: Path, names: Sequence[str]) -> Boxes:
    """The boxes that lie beside the features of a file, a row a name. Raises DataError when it has none."""
    count = len(names)
    if path.is_dir():
        read = _of_scan(path) if any(path.glob("*_ims.npy")) else _of_files(pictures(path))
    elif path.suffix == ".npz":
        read = _of_arrays(open_npz(path, (*_WANTED, "names", "counts")), count)
    elif path.suffix in (".h5", ".hdf5"):
        read = _of_arrays(members(path), count)
    else:
        read = _of_arrays(_beside(path), count)
    if read is None:
        raise DataError(
            f"boxes need to lie beside the features, one a region; {path} has none; give features with boxes, or leave "
            "boxes out (docs/datasets.md says where they are looked for)"
        )
    return Boxes(read, names, path)


def _of_arrays(found: Mapping[str, Any], count: int) -> Read | None:
    """Boxes of all pictures in one array."""
    boxes = _first(found, _BOXES)
    # The usual file of bottom-up attention has boxes in pixels without sizes, and their shares beside.
    of_shares = _SHARES in found and (boxes is None or _sizes(found) is None)
    boxes = found[_SHARES] if of_shares else boxes
    if boxes is None:
        return None
    flat, sizes = len(boxes.shape) == 2, None if of_shares else _sizes(found)
    spans = bounds(found, count, padded=not flat)
    if (
        (flat and (spans is None or int(spans[1].max(initial=0)) != len(boxes)))
        or (not flat and len(boxes) != count)
        or (sizes is not None and len(sizes) != count)
    ):
        raise DataError(
            f"boxes need a row for each of {count} pictures, as their sizes do; got shape {tuple(boxes.shape)}"
            f"{'' if sizes is None else f' and {len(sizes)} sizes'}"
        )

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        start, stop = (0, None) if spans is None else (int(spans[0][row]), int(spans[1][row]))
        own = boxes[start:stop] if flat else boxes[row][: None if stop is None else stop - start]
        return np.asarray(own)[:, : BOX if of_shares else None], None if sizes is None else np.asarray(sizes[row])

    return read


def _of_scan(folder: Path) -> Read | None:
    """A folder in SCAN's form: boxes and sizes of each split beside its features, row by row."""
    splits = scan_splits(folder)
    found = {prefix: _beside(folder / f"{prefix}.npy") for prefix in splits}
    if not all("boxes" in each for each in found.values()):
        return None
    for prefix, each in found.items():
        if wrong := [name for name, array in each.items() if len(array) != len(splits[prefix][0])]:
            raise DataError(f"{folder} needs as many rows of {prefix}'s {wrong[0]} as of its features; it has others")
    steps = tuple(step for _, _, step in splits.values())
    boxes = Rows(tuple(each["boxes"] for each in found.values()), steps)
    with_sizes = all("sizes" in each for each in found.values())
    if any("sizes" in each for each in found.values()) and not with_sizes:
        lacking = next(prefix for prefix, each in found.items() if "sizes" not in each)
        raise DataError(
            f"{folder} needs the sizes of all splits' pictures, or of none; {lacking} has none; write "
            f"{lacking}_sizes.npy, or take the others away"
        )
    sizes = Rows(tuple(each["sizes"] for each in found.values()), steps) if with_sizes else None

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        rows = np.array([row])
        return boxes.take(rows)[0], None if sizes is None else sizes.take(rows)[0]

    return read


def _of_files(files: Sequence[Path]) -> Read | None:
    """A file a picture, with its boxes in it or beside it."""

    def found(row: int) -> Mapping[str, Any]:
        path = files[row]
        return open_npz(path, _WANTED, empty=True) if path.suffix == ".npz" else _beside(path)

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        own = found(row)
        boxes, sizes = _first(own, _BOXES), _sizes({name: np.asarray(array)[None] for name, array in own.items()})
        if boxes is None:
            raise DataError(f"boxes need to lie beside the features, one a region; {files[row]} has none")
        return boxes, None if sizes is None else sizes[0]

    return None if _first(found(0), _BOXES) is None else read


def _beside(path: Path) -> dict[str, NDArray[Any]]:
    """NAME_boxes.npy, and NAME_sizes.npy or NAME_img_sizes.npy, beside NAME.npy."""
    found = {}
    for end, name in BESIDE.items():
        file = path.with_name(f"{path.stem}{end}.npy")
        if file.is_file():
            found[name] = open_npy(file)
    return found


def _sizes(found: Mapping[str, Any]) -> NDArray[Any] | None:
    """(pictures, 2) width and height."""
    sizes = _first(found, _SIZES)
    if sizes is not None:
        return np.asarray(sizes[:])
    for names in _SIDES:
        if all(name in found for name in names):
            return np.stack([np.asarray(found[name][:]).reshape(-1) for name in names], axis=1)
    return None


def _first(found: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((found[name] for name in names if name in found), None)
