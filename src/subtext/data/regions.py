"""Files of image regions, any number per image, and of the boxes of the regions.

Regions as bottom-up attention is stored (Anderson et al. 2018):

    FOLDER/NAME.npz or .npy   a file per image: "features" or "x" (regions, width); "num_bbox" tells a transposed array
    FILE.h5                   "features" or "image_features" (images, regions, width), with "num_boxes" where rows are
                              padded; or (all regions, width) with "pos_boxes" (images, 2), first region and the one
                              after the last; names in "ids", "image_ids" or "names"
    FILE.npz                  "grid" (all regions, width) with "counts" (images), and "names"

Boxes beside the features:

    FILE.npz                  "boxes", laid out as "grid" is: (images, regions, 4), or (all regions, 4) with "counts"
    FILE.npy                  FILE_boxes.npy (images, regions, 4)
    FOLDER/PREFIX_ims.npy     PREFIX_boxes.npy (rows, regions, 4), in SCAN's form
    FOLDER/NAME.npz or .npy   "bbox" or "boxes" (regions, 4) in it; NAME_boxes.npy beside an npy
    FILE.h5                   "boxes", "image_bb" or "bbox", laid out as the features are; else "spatial_features" (six
                              numbers per region, of which the first four are a relative box)

A box is left, top, right, bottom. Boxes in pixels need the width and height of their images: "sizes" or "img_sizes"
(images, 2), in a file of its own where boxes are (FILE_sizes.npy); or "widths" and "heights", or "image_w" and
"image_h". Boxes are relative to the image (0 to 1) where there are no sizes, or no box of the image goes beyond 1.
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

from subtext.data.arrays import (
    NUMBERS,
    Rows,
    as_float32,
    ids_beside,
    open_npy,
    open_npz,
    padded,
    require_inflated,
    scan_splits,
)
from subtext.errors import DataError, Setting
from subtext.text_helpers import install_hint

BOX = 4
"""Numbers of a box: left, top, right and bottom edge, as shares of the image's width and height."""
SLACK = 0.05
"""How far a box may exceed its image, as a share of the side, before it is an error; it is clipped to the image."""
_FEATURES = ("features", "image_features", "grid")
_NAMES = ("ids", "image_ids", "names")
_COUNTS = ("num_boxes", "counts")
_SPANS = "pos_boxes"
_BOXES = ("boxes", "image_bb", "bbox")
_RELATIVE = "spatial_features"
_SIZES = ("sizes", "img_sizes")
_SIDES = (("widths", "heights"), ("image_w", "image_h"))
_MEMBERS = (*_BOXES, *_SIZES, *_SIDES[0], *_SIDES[1])
_BESIDE = {"_boxes": "boxes", "_sizes": "sizes", "_img_sizes": "sizes"}
"""Endings of the names of npy files beside features, and what these files hold."""

ReadBoxes = Callable[[int], tuple[NDArray[Any], NDArray[Any] | None]]
"""Row -> the boxes of an image as they are stored, and its width and height; None for relative boxes."""


@dataclass(frozen=True)
class Regions:
    """The features, or the boxes, of the regions of images, read image by image.

    Attributes:
        read: Row -> (regions, width).
        names: Of the images.
        longest: The largest number of regions of an image, or an estimate, for the use of memory.
        width: Numbers per region.
        dtype: Type of the numbers on disk.
        path: The file or folder.
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
        """The number of images."""
        return len(self.names)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read the regions of the chosen images as float32, padded with zeros.

        Args:
            rows: (N) indices of images.

        Returns:
            (N P width).

        Raises:
            DataError: For an image without regions, or with regions of another width.
        """
        return padded([self._of_image(int(row)) for row in rows], (self.width,))

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Read the regions of every image in order.

        Args:
            size: Not used: a block is one image.

        Yields:
            (regions, width) of each image.
        """
        for row in range(len(self)):
            yield np.ascontiguousarray(self._of_image(row))

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of every number, and of the number of each image's regions."""
        digest = hashlib.blake2b(digest_size=8)
        lengths = []
        for block in self.blocks(0):
            digest.update(block.data)
            lengths.append(len(block))
        digest.update(lengths_digest(lengths))
        return digest.hexdigest()

    def _of_image(self, row: int) -> NDArray[Any]:
        regions = self.read(row)
        good = regions.ndim == 2 and regions.shape[1] == self.width and regions.dtype.kind in NUMBERS
        if not good or not len(regions):
            raise DataError(
                f"{self.path} needs one region or more, each of {self.width} real numbers, of every image; "
                f"{self.names[row]!r} has shape {regions.shape} of {regions.dtype}; leave it out, or extract it again"
            )
        return regions


def of_counts(flat: NDArray[Any], counts: NDArray[Any], names: Sequence[str], path: Path) -> Regions:
    """Read the regions of all images from one array.

    Args:
        flat: (all regions, width).
        counts: (N) regions per image.
        names: (N) names of the images.
        path: The file, for messages.

    Returns:
        The regions.

    Raises:
        DataError: If the numbers do not add up.
    """
    if flat.ndim != 2 or counts.ndim != 1 or len(counts) != len(names) or int(counts.sum()) != len(flat):
        raise DataError(
            f"{path} needs 'grid' (all regions, width) and 'counts' (images) that add up to it; it got "
            f"{flat.shape} and {counts.shape} for {len(names)} names, {int(counts.sum())} regions counted"
        )
    stops = np.cumsum(counts.astype(np.int64))
    return _of_spans(flat, stops - counts, stops, names, path)


def _of_spans(flat: Any, starts: NDArray[Any], stops: NDArray[Any], names: Sequence[str], path: Path) -> Regions:
    def read(row: int) -> NDArray[Any]:
        return np.asarray(flat[int(starts[row]) : int(stops[row])])

    return Regions(read, names, max(1, int((stops - starts).max(initial=1))), flat.shape[1], flat.dtype, path)


def open_folder(folder: Path) -> Regions | None:
    """Open a folder with a file per image, named after it.

    Args:
        folder: The folder.

    Returns:
        The regions; None if the folder has neither npz nor npy files.

    Raises:
        DataError: If a file does not hold the regions of one image.
    """
    files = _image_files(folder)
    if not files:
        return None
    first = _read_image(files[0])
    if first.ndim != 2:
        raise DataError(f"{files[0]} needs the regions of one image, (regions, width); it got shape {first.shape}")
    names = [path.stem for path in files]
    return Regions(lambda row: _read_image(files[row]), names, max(len(first), 1), first.shape[1], first.dtype, folder)


def _image_files(folder: Path) -> list[Path]:
    """The npz and npy files of a folder, except those of boxes and sizes beside another."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".npz", ".npy"))
    beside = {f"{path.stem}{end}.npy" for path in files if path.suffix == ".npy" for end in _BESIDE}
    return [path for path in files if path.name not in beside]


def _read_image(path: Path) -> NDArray[Any]:
    if path.suffix == ".npy":
        return open_npy(path)
    arrays = open_npz(path, ("features", "x", "num_bbox"))
    regions = _first(arrays, ("features", "x"))
    if regions is None:
        raise DataError(f"{path} needs 'features' or 'x', the regions of one image; it has {', '.join(arrays)}")
    # Bottom-up attention's own files have a column per region.
    boxes = int(arrays["num_bbox"]) if "num_bbox" in arrays else len(regions)
    return regions.T if regions.ndim == 2 and len(regions) != boxes == regions.shape[1] else regions


def open_h5(path: Path) -> Regions:
    """Open an HDF5 file.

    Args:
        path: The file.

    Returns:
        The regions.

    Raises:
        DataError: If it has no features, or no names in it or beside it.
    """
    file = _open_hdf5(path)
    features, stored, counts = (_first(file, names) for names in (_FEATURES, _NAMES, _COUNTS))
    if features is None or features.ndim not in (2, 3):
        raise DataError(f"{path} needs one of {', '.join(_FEATURES)}; it holds {', '.join(file) or 'nothing'}")
    if stored is None:
        names = ids_beside(path)
    else:
        names = [name.decode() if isinstance(name, bytes) else str(name) for name in stored[:]]
    lengths = None if counts is None else counts[:].reshape(-1)
    if features.ndim == 3:
        count, longest, width = features.shape
        lengths = np.full(count, longest) if lengths is None else lengths
        if not count == len(names) == len(lengths):
            raise DataError(f"{path} needs a name and a number of boxes for each of {count} images")
        return Regions(lambda row: features[row, : int(lengths[row])], names, longest, width, features.dtype, path)
    if _SPANS in file and len(file[_SPANS]) == len(names):
        starts, stops = file[_SPANS][:].T
        return _of_spans(features, starts, stops, names, path)
    if lengths is None:
        raise DataError(f"{path} needs 'pos_boxes' or 'num_boxes', a row a name, to tell images' regions apart")
    return of_counts(features, lengths, names, path)


def _open_hdf5(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise DataError(f"{path} needs h5py to be read; it is not installed; {install_hint('regions')}") from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} needs to be an HDF5 file; reading it failed: {error}") from error
    for dataset in (file[name] for name in (*_FEATURES, *_NAMES, *_COUNTS, *_MEMBERS, _SPANS) if name in file):
        if isinstance(dataset, h5py.Dataset):
            require_inflated(path, dataset.nbytes, dataset.id.get_storage_size())
    return file


def _first(arrays: Any, names: Sequence[str]) -> Any:
    return next((arrays[name] for name in names if name in arrays), None)


def lengths_digest(lengths: Sequence[int]) -> bytes:
    """Encode the numbers of regions, for a fingerprint of all images' regions.

    Equal numbers follow from their sum; without them such files have the fingerprints that runs have recorded.

    Args:
        lengths: (N) regions per image.

    Returns:
        Bytes; empty if all images have equally many.
    """
    return b"" if len(set(lengths)) <= 1 else np.asarray(lengths, dtype="<i8").tobytes()


def open_boxes(path: Path, names: Sequence[str]) -> Regions:
    """Open the boxes beside the features of a file, relative to their images.

    Args:
        path: The feature file.
        names: (N) names of the images.

    Returns:
        (regions, 4) per image: left, top, right, bottom, in [0, 1].

    Raises:
        DataError: If it has none.
    """
    if path.is_dir():
        read = _of_scan(path) if any(path.glob("*_ims.npy")) else _of_files(_image_files(path))
    elif path.suffix == ".npz":
        read = _of_arrays(open_npz(path, (*_MEMBERS, "names", "counts")), len(names))
    else:
        read = _of_arrays(_open_hdf5(path) if path.suffix in (".h5", ".hdf5") else _beside(path), len(names))
    if read is None:
        raise DataError(
            f"boxes need to lie beside the features, one a region; {path} has none; give features with boxes, "
            "or leave ",
            Setting("boxes"),
            " out (docs/datasets.md says where they are looked for)",
        )
    dtype = np.dtype(np.float32)
    return Regions(lambda row: _relative_boxes(*read(row), path, names[row]), names, 1, BOX, dtype, path)


def _relative_boxes(stored: NDArray[Any], size: NDArray[Any] | None, path: Path, name: str) -> NDArray[np.float32]:
    """Boxes in [0, 1].

    Raises:
        DataError: For boxes of another form, or outside of their image.
    """
    boxes = stored
    if boxes.ndim != 2 or boxes.shape[1] != BOX or boxes.dtype.kind not in NUMBERS:
        raise DataError(
            f"{path} needs boxes of {BOX} numbers, a region each; {name!r} has shape {boxes.shape} of {boxes.dtype}"
        )
    boxes, divided = as_float32(boxes), ""
    if size is not None:
        if size.shape != (2,) or not (size > 0).all():
            raise DataError(
                f"{path} needs the width and height of every image, above 0; {name!r} has {size.tolist()}; correct its "
                "sizes"
            )
        # Relative boxes may have sizes, too; boxes in pixels never all end within the first pixel.
        if (boxes > 1 + SLACK).any():
            boxes = (boxes / np.tile(np.asarray(size, dtype=np.float32), 2)).astype(np.float32)
            divided = " once divided"
    good = ((boxes >= -SLACK) & (boxes <= 1 + SLACK)).all(axis=1) & (boxes[:, 2:] >= boxes[:, :2]).all(axis=1)
    if not good.all():
        raise DataError(
            f"{path} needs boxes inside their image: left, top, right, bottom, in shares from 0 to 1, or in pixels "
            f"with the image's width and height; {name!r} has {boxes[~good][0].round(3).tolist()}{divided}; correct "
            "them, or give sizes"
        )
    return np.clip(boxes, 0, 1)


def _of_arrays(arrays: Mapping[str, Any], count: int) -> ReadBoxes | None:
    """The boxes of all images in one array."""
    boxes, sizes = _first(arrays, _BOXES), _sizes(arrays)
    # The usual file of bottom-up attention has boxes in pixels without sizes, and relative boxes beside them.
    if _RELATIVE in arrays and (boxes is None or sizes is None):
        boxes, sizes, columns = arrays[_RELATIVE], None, BOX
    else:
        columns = None
    if boxes is None:
        return None
    flat = len(boxes.shape) == 2
    starts = stops = None
    if flat and _SPANS in arrays and len(arrays[_SPANS]) == count:
        starts, stops = np.asarray(arrays[_SPANS][:]).T
    elif (counts := _first(arrays, _COUNTS)) is not None and len(counts := np.asarray(counts[:]).reshape(-1)) == count:
        stops = np.cumsum(counts.astype(np.int64))
        starts = stops - counts
    complete = stops is not None and int(stops.max(initial=0)) == len(boxes) if flat else len(boxes) == count
    if not complete or (sizes is not None and len(sizes) != count):
        raise DataError(
            f"boxes need a row for each of {count} images, as their sizes do; got shape {tuple(boxes.shape)}"
            f"{'' if sizes is None else f' and {len(sizes)} sizes'}"
        )

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        start, stop = (0, None) if starts is None or stops is None else (int(starts[row]), int(stops[row]))
        rows = boxes[start:stop] if flat else boxes[row][: None if stop is None else stop - start]
        return np.asarray(rows)[:, :columns], None if sizes is None else np.asarray(sizes[row])

    return read


def _of_scan(folder: Path) -> ReadBoxes | None:
    """A folder in SCAN's form: the boxes and sizes of each split beside its features, row by row."""
    splits = scan_splits(folder)
    files = {prefix: _beside(folder / f"{prefix}.npy") for prefix in splits}
    if not all("boxes" in arrays for arrays in files.values()):
        return None
    for prefix, arrays in files.items():
        if wrong := [name for name, array in arrays.items() if len(array) != len(splits[prefix][0])]:
            raise DataError(f"{folder} needs as many rows of {prefix}'s {wrong[0]} as of its features; it has others")
    lacking = [prefix for prefix, arrays in files.items() if "sizes" not in arrays]
    if 0 < len(lacking) < len(files):
        raise DataError(
            f"{folder} needs the sizes of all splits' images, or of none; {lacking[0]} has none; write "
            f"{lacking[0]}_sizes.npy, or take the others away"
        )
    steps = tuple(step for _, _, step in splits.values())
    boxes = Rows(tuple(arrays["boxes"] for arrays in files.values()), steps)
    sizes = None if lacking else Rows(tuple(arrays["sizes"] for arrays in files.values()), steps)

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        rows = np.array([row])
        return boxes.take(rows)[0], None if sizes is None else sizes.take(rows)[0]

    return read


def _of_files(files: Sequence[Path]) -> ReadBoxes | None:
    """A file per image, with its boxes in it or beside it."""

    def arrays_of(row: int) -> Mapping[str, Any]:
        path = files[row]
        return open_npz(path, _MEMBERS, empty=True) if path.suffix == ".npz" else _beside(path)

    def read(row: int) -> tuple[NDArray[Any], NDArray[Any] | None]:
        arrays = arrays_of(row)
        boxes, sizes = _first(arrays, _BOXES), _sizes({name: np.asarray(array)[None] for name, array in arrays.items()})
        if boxes is None:
            raise DataError(f"boxes need to lie beside the features, one a region; {files[row]} has none")
        return boxes, None if sizes is None else sizes[0]

    return None if _first(arrays_of(0), _BOXES) is None else read


def _beside(path: Path) -> dict[str, NDArray[Any]]:
    """NAME_boxes.npy, and NAME_sizes.npy or NAME_img_sizes.npy, beside NAME.npy."""
    files = [(name, path.with_name(f"{path.stem}{end}.npy")) for end, name in _BESIDE.items()]
    return {name: open_npy(file) for name, file in files if file.is_file()}


def _sizes(arrays: Mapping[str, Any]) -> NDArray[Any] | None:
    """(images, 2) width and height."""
    sizes = _first(arrays, _SIZES)
    if sizes is not None:
        return np.asarray(sizes[:])
    for names in _SIDES:
        if all(name in arrays for name in names):
            return np.stack([np.asarray(arrays[name][:]).reshape(-1) for name in names], axis=1)
    return None
