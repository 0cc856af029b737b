"""Where a file's regions lie in their images: boxes beside the features of `region_files`, told in shares.

    FILE.npz                  "boxes", laid out as "grid" is: (images, regions, 4), or (all regions, 4) with "counts"
    FILE.npy                  FILE_boxes.npy (images, regions, 4)
    FOLDER/PREFIX_ims.npy     PREFIX_boxes.npy (rows, regions, 4), in SCAN's form
    FOLDER/NAME.npz or .npy   "bbox" or "boxes" (regions, 4) in it; NAME_boxes.npy beside an npy
    FILE.h5                   "boxes", "image_bb" or "bbox", laid out as the features are; else "spatial_features" (six
                              numbers a region, whose first four are shares already)

A box is left, top, right, bottom. In pixels it needs its image's width and height: "sizes" or "img_sizes"
(images, 2), in a file of its own where boxes are (FILE_sizes.npy); or "widths" and "heights", or "image_w" and
"image_h". Without sizes boxes are taken for shares, from 0 to 1, and with them where none of an image's is beyond 1.

Files of image regions, any number an image: bottom-up attention's npz, npy and HDF5 (Anderson et al. 2018).

    FOLDER/NAME.npz or .npy   a file per image: "features" or "x" (regions, width), turned where "num_bbox" says so
    FILE.h5                   "features" or "image_features" (images, regions, width), with "num_boxes" where rows are
                              padded; or (all regions, width) with "pos_boxes" (images, 2), first region and the one
                              after the last; names in "ids", "image_ids" or "names"
    FILE.npz                  "grid" (all regions, width) with "counts" (images), and "names"

Boxes may lie beside them: `boxes`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.arrays import Rows, open_npy, open_npz, scan_splits
from subtext.errors import DataError

_FEATURES = ("features", "image_features", "grid")
_NAMES = ("ids", "image_ids", "names")
_COUNTS = ("num_boxes", "counts")
_SPANS = "pos_boxes"
BESIDE = {"_boxes": "boxes", "_sizes": "sizes", "_img_sizes": "sizes"}
"""How the names of npy files beside features end, and what they hold."""


@dataclass(frozen=True)
class Regions:
    """Regions read image by image, as many as each has.

    read     row -> (regions, width)
    names    of the images
    longest  the most regions that an image has, or a guess: what memory is reckoned by
    """

    read: Callable[[int], NDArray[Any]]
    names: Sequence[str]
    longest: int
    width: int
    dtype: np.dtype[Any]
    path: Path

    @property
    def shape(self) -> tuple[int, ...]:
        """Images, regions of the largest one, width."""
        return (len(self.names), self.longest, self.width)

    def __len__(self) -> int:
        """How many images."""
        return len(self.names)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Regions of the chosen images as float32, filled up with zeros behind the shorter ones' last.

        Raises DataError for an image without regions, or with regions of another width.
        """
        regions_of = [self._one(int(row)) for row in rows]
        taken = np.zeros((len(rows), max(map(len, regions_of), default=1), self.width), dtype=np.float32)
        for index, regions in enumerate(regions_of):
            taken[index, : len(regions)] = regions
        return taken

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Every image's regions in order; an image at a time, whatever the size."""
        for row in range(len(self)):
            yield np.ascontiguousarray(self._one(row))

    def _one(self, row: int) -> NDArray[Any]:
        regions = self.read(row)
        if regions.ndim != 2 or regions.shape[1] != self.width or not len(regions):
            raise DataError(
                f"{self.path} needs one region or more, each of {self.width} numbers, of every image; "
                f"{self.names[row]!r} has shape {regions.shape}; leave it out, or extract it again"
            )
        return regions


def of_counts(flat: NDArray[Any], counts: NDArray[Any], names: Sequence[str], path: Path) -> Regions:
    """All images' regions in one array, so many of each. Raises DataError when the numbers do not add up."""
    if flat.ndim != 2 or counts.ndim != 1 or len(counts) != len(names) or int(counts.sum()) != len(flat):
        raise DataError(
            f"{path} needs 'grid' (all regions, width) and 'counts' (images) that add up to it; it got "
            f"{flat.shape} and {counts.shape} for {len(names)} names, {int(counts.sum())} regions counted"
        )
    stops = np.cumsum(counts.astype(np.int64))
    return _spans(flat, stops - counts, stops, names, path)


def open_folder(folder: Path) -> Regions | None:
    """A file an image, named by it; None where the folder has neither npz nor npy files."""
    files = pictures(folder)
    if not files:
        return None

    def read(row: int) -> NDArray[Any]:
        return _one_file(files[row])

    first = read(0)
    if first.ndim != 2:
        raise DataError(f"{files[0]} needs the regions of one image, (regions, width); it got shape {first.shape}")
    return Regions(read, [path.stem for path in files], max(len(first), 1), first.shape[1], first.dtype, folder)


def pictures(folder: Path) -> list[Path]:
    """The npz and npy files of a folder, but for those of boxes and sizes beside another."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".npz", ".npy"))
    beside = {f"{path.stem}{end}.npy" for path in files if path.suffix == ".npy" for end in BESIDE}
    return [path for path in files if path.name not in beside]


def open_h5(path: Path, names_beside: Callable[[Path], list[str]]) -> Regions:
    """An HDF5 file. Raises DataError when it has no features, or no names in it or beside it.

    names_beside  reads the names from a file beside it
    """
    file = members(path)
    features = _member(file, _FEATURES)
    if features is None or features.ndim not in (2, 3):
        raise DataError(f"{path} needs one of {', '.join(_FEATURES)}; it holds {', '.join(file) or 'nothing'}")
    stored = _member(file, _NAMES)
    names = names_beside(path) if stored is None else [_text(name) for name in stored[:]]
    counts, spans = _member(file, _COUNTS), bounds(file, len(names))
    if features.ndim == 3:
        lengths = np.full(len(names), features.shape[1]) if counts is None else counts[:].reshape(-1)
        if not len(features) == len(names) == len(lengths):
            raise DataError(f"{path} needs a name and a number of boxes for each of {len(features)} images")
        return Regions(
            lambda row: features[row, : int(lengths[row])], names, features.shape[1], features.shape[2],
            features.dtype, path,
        )  # fmt: skip
    if spans is not None and _SPANS in file:
        return _spans(features, *spans, names, path)
    if counts is None:
        raise DataError(f"{path} needs 'pos_boxes' or 'num_boxes', a row a name, to tell images' regions apart")
    return of_counts(features, counts[:].reshape(-1), names, path)


def members(path: Path) -> Any:
    """An HDF5 file, opened. Raises DataError when it is none, or nothing here reads it."""
    try:
        import h5py
    except ImportError as error:
        raise DataError(f"{path} needs h5py to be read; it is not there; pip install subtext[regions]") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} needs to be an HDF5 file; reading it failed: {error}") from error


def bounds(arrays: Mapping[str, Any], count: int, *, padded: bool = False) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The first region of each of `count` images, and the one after its last; None where nothing tells.

    padded  whether each image has rows of its own, so that only their numbers count
    """
    if not padded and _SPANS in arrays and len(arrays[_SPANS]) == count:
        spans = np.asarray(arrays[_SPANS][:])
        return spans[:, 0], spans[:, 1]
    counts = _member(arrays, _COUNTS)
    if counts is None or len(counts := np.asarray(counts[:]).reshape(-1)) != count:
        return None
    stops = np.cumsum(counts.astype(np.int64))
    return stops - counts, stops


def _spans(flat: Any, starts: NDArray[Any], stops: NDArray[Any], names: Sequence[str], path: Path) -> Regions:
    longest = int((stops - starts).max()) if len(names) else 1

    def read(row: int) -> NDArray[Any]:
        return np.asarray(flat[int(starts[row]) : int(stops[row])])

    return Regions(read, names, max(longest, 1), flat.shape[1], flat.dtype, path)


def _one_file(path: Path) -> NDArray[Any]:
    if path.suffix == ".npy":
        return open_npy(path)
    arrays = open_npz(path, ("features", "x", "num_bbox"))
    regions = arrays["features"] if "features" in arrays else arrays.get("x")
    if regions is None:
        raise DataError(f"{path} needs 'features' or 'x', the regions of one image; it has {', '.join(arrays)}")
    # Bottom-up attention's own files have a column a region.
    boxes = int(arrays["num_bbox"]) if "num_bbox" in arrays else len(regions)
    return regions.T if regions.ndim == 2 and len(regions) != boxes == regions.shape[1] else regions


def _member(file: Any, names: Sequence[str]) -> Any:
    return next((file[name] for name in names if name in file), None)


def _text(name: Any) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


BOX = 4
"""Numbers of a box: left, top, right and bottom edge, in shares of the image's width and height."""
SLACK = 0.05
"""How far outside its image, in shares, a box may lie before it is taken for wrong; what is outside is cut off."""
_BOXES = ("boxes", "image_bb", "bbox")
_SIZES = ("sizes", "img_sizes")
_SIDES = (("widths", "heights"), ("image_w", "image_h"))
_SHARES = "spatial_features"
_WANTED = (*_BOXES, *_SIZES, *_SIDES[0], *_SIDES[1])

Read = Callable[[int], tuple[NDArray[Any], NDArray[Any] | None]]
"""Row -> the boxes of an image as they are stored, and its width and height; None: boxes are shares already."""


@dataclass(frozen=True)
class Boxes:
    """Boxes read image by image.

    names  of the images        path  for messages
    """

    read: Read
    names: Sequence[str]
    path: Path

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """(N P 4) boxes of the chosen images in [0, 1], filled up with zeros behind the shorter ones' last.

        Raises DataError for boxes that are of another form, or lie outside their image.
        """
        boxes_of = [self._one(int(row)) for row in rows]
        taken = np.zeros((len(rows), max(map(len, boxes_of), default=1), BOX), dtype=np.float32)
        for index, boxes in enumerate(boxes_of):
            taken[index, : len(boxes)] = boxes
        return taken

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of every box, and of where images end."""
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
                    f"{self.path} needs the width and height of every image, above 0; {self.names[row]!r} has "
                    f"{size.tolist()}; correct its sizes"
                )
            # Sizes may lie beside what are shares already; no image's regions all end within its first pixel.
            divided = bool((boxes > 1 + SLACK).any())
            if divided:
                boxes = (boxes / np.tile(np.asarray(size, dtype=np.float32), 2)).astype(np.float32)
        good = ((boxes >= -SLACK) & (boxes <= 1 + SLACK)).all(axis=1) & (boxes[:, 2:] >= boxes[:, :2]).all(axis=1)
        if not good.all():
            first = f"{boxes[~good][0].round(3).tolist()}{' once divided' if divided else ''}"
            raise DataError(
                f"{self.path} needs boxes inside their image: left, top, right, bottom, in shares from 0 to 1, or in "
                f"pixels with the image's width and height; {self.names[row]!r} has {first}; correct them, or give "
                "sizes"
            )
        return np.clip(boxes, 0, 1)


def ends(lengths: Sequence[int]) -> bytes:
    """What a fingerprint needs beside all images' regions in a row: how many each has; nothing where all are alike.

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


def _of_arrays(arrays: Mapping[str, Any], count: int) -> Read | None:
    """Boxes of all images in one array."""
    boxes = _first(arrays, _BOXES)
    # The usual file of bottom-up attention has boxes in pixels without sizes, and their shares beside.
    of_shares = _SHARES in arrays and (boxes is None or _sizes(arrays) is None)
    boxes = arrays[_SHARES] if of_shares else boxes
    if boxes is None:
        return None
    flat, sizes = len(boxes.shape) == 2, None if of_shares else _sizes(arrays)
    spans = bounds(arrays, count, padded=not flat)
    if (
        (flat and (spans is None or int(spans[1].max(initial=0)) != len(boxes)))
        or (not flat and len(boxes) != count)
        or (sizes is not None and len(sizes) != count)
    ):
        raise DataError(
            f"boxes need a row for each of {count} images, as their sizes do; got shape {tuple(boxes.shape)}"
            f"{'' if sizes is None else f' and {len(sizes)} sizes'}"
        )

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        start, stop = (0, None) if spans is None else (int(spans[0][row]), int(spans[1][row]))
        rows = boxes[start:stop] if flat else boxes[row][: None if stop is None else stop - start]
        return np.asarray(rows)[:, : BOX if of_shares else None], None if sizes is None else np.asarray(sizes[row])

    return read


def _of_scan(folder: Path) -> Read | None:
    """A folder in SCAN's form: boxes and sizes of each split beside its features, row by row."""
    splits = scan_splits(folder)
    files = {prefix: _beside(folder / f"{prefix}.npy") for prefix in splits}
    if not all("boxes" in arrays for arrays in files.values()):
        return None
    for prefix, arrays in files.items():
        if wrong := [name for name, array in arrays.items() if len(array) != len(splits[prefix][0])]:
            raise DataError(f"{folder} needs as many rows of {prefix}'s {wrong[0]} as of its features; it has others")
    steps = tuple(step for _, _, step in splits.values())
    boxes = Rows(tuple(arrays["boxes"] for arrays in files.values()), steps)
    with_sizes = all("sizes" in arrays for arrays in files.values())
    if any("sizes" in arrays for arrays in files.values()) and not with_sizes:
        lacking = next(prefix for prefix, arrays in files.items() if "sizes" not in arrays)
        raise DataError(
            f"{folder} needs the sizes of all splits' images, or of none; {lacking} has none; write "
            f"{lacking}_sizes.npy, or take the others away"
        )
    sizes = Rows(tuple(arrays["sizes"] for arrays in files.values()), steps) if with_sizes else None

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        rows = np.array([row])
        return boxes.take(rows)[0], None if sizes is None else sizes.take(rows)[0]

    return read


def _of_files(files: Sequence[Path]) -> Read | None:
    """A file an image, with its boxes in it or beside it."""

    def found(row: int) -> Mapping[str, Any]:
        path = files[row]
        return open_npz(path, _WANTED, empty=True) if path.suffix == ".npz" else _beside(path)

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        arrays = found(row)
        boxes, sizes = _first(arrays, _BOXES), _sizes({name: np.asarray(array)[None] for name, array in arrays.items()})
        if boxes is None:
            raise DataError(f"boxes need to lie beside the features, one a region; {files[row]} has none")
        return boxes, None if sizes is None else sizes[0]

    return None if _first(found(0), _BOXES) is None else read


def _beside(path: Path) -> dict[str, NDArray[Any]]:
    """NAME_boxes.npy, and NAME_sizes.npy or NAME_img_sizes.npy, beside NAME.npy."""
    arrays = {}
    for end, name in BESIDE.items():
        file = path.with_name(f"{path.stem}{end}.npy")
        if file.is_file():
            arrays[name] = open_npy(file)
    return arrays


def _sizes(arrays: Mapping[str, Any]) -> NDArray[Any] | None:
    """(images, 2) width and height."""
    sizes = _first(arrays, _SIZES)
    if sizes is not None:
        return np.asarray(sizes[:])
    for names in _SIDES:
        if all(name in arrays for name in names):
            return np.stack([np.asarray(arrays[name][:]).reshape(-1) for name in names], axis=1)
    return None


def _first(arrays: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((arrays[name] for name in names if name in arrays), None)
