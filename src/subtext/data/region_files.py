"""Files of picture regions, any number a picture: bottom-up attention's npz, npy and HDF5 (Anderson et al. 2018).

    FOLDER/NAME.npz or .npy   a file a picture: "features" or "x" (regions, width), turned where "num_bbox" says so
    FILE.h5                   "features" or "image_features" (pictures, regions, width), with "num_boxes" where rows are
                              padded; or (all regions, width) with "pos_boxes" (pictures, 2), first region and the one
                              after the last; names in "ids", "image_ids" or "names"
    FILE.npz                  "grid" (all regions, width) with "counts" (pictures), and "names"

Boxes may lie beside them: `boxes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.arrays import open_npy, open_npz
from subtext.errors import DataError

_FEATURES = ("features", "image_features", "grid")
_NAMES = ("ids", "image_ids", "names")
_COUNTS = ("num_boxes", "counts")
_SPANS = "pos_boxes"
BESIDE = {"_boxes": "boxes", "_sizes": "sizes", "_img_sizes": "sizes"}
"""How the names of npy files beside features end, and what they hold."""


@dataclass(frozen=True)
class Regions:
    """Regions read picture by picture, as many as each has.

    read     row -> (regions, width)
    names    of the pictures
    longest  the most regions that a picture has, or a guess: what memory is reckoned by
    """

    read: Callable[[int], NDArray[Any]]
    names: Sequence[str]
    longest: int
    width: int
    dtype: np.dtype[Any]
    path: Path

    @property
    def shape(self) -> tuple[int, ...]:
        """Pictures, regions of the largest one, width."""
        return (len(self.names), self.longest, self.width)

    def __len__(self) -> int:
        """How many pictures."""
        return len(self.names)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Regions of the chosen pictures as float32, filled up with zeros behind the shorter ones' last.

        Raises DataError for a picture without regions, or with regions of another width.
        """
        found = [self._one(int(row)) for row in rows]
        taken = np.zeros((len(rows), max(map(len, found), default=1), self.width), dtype=np.float32)
        for place, regions in enumerate(found):
            taken[place, : len(regions)] = regions
        return taken

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """Every picture's regions in order; a picture at a time, whatever the size."""
        for row in range(len(self)):
            yield np.ascontiguousarray(self._one(row))

    def _one(self, row: int) -> NDArray[Any]:
        found = self.read(row)
        if found.ndim != 2 or found.shape[1] != self.width or not len(found):
            raise DataError(
                f"{self.path} needs one region or more, each of {self.width} numbers, of every picture; "
                f"{self.names[row]!r} has shape {found.shape}; leave it out, or extract it again"
            )
        return found


def of_counts(flat: NDArray[Any], counts: NDArray[Any], names: Sequence[str], path: Path) -> Regions:
    """All pictures' regions in one array, so many of each. Raises DataError when the numbers do not add up."""
    if flat.ndim != 2 or counts.ndim != 1 or len(counts) != len(names) or int(counts.sum()) != len(flat):
        raise DataError(
            f"{path} needs 'grid' (all regions, width) and 'counts' (pictures) that add up to it; it got "
            f"{flat.shape} and {counts.shape} for {len(names)} names, {int(counts.sum())} regions counted"
        )
    stops = np.cumsum(counts.astype(np.int64))
    return _spans(flat, stops - counts, stops, names, path)


def open_folder(folder: Path) -> Regions | None:
    """A file a picture, named by it; None where the folder has neither npz nor npy files."""
    files = pictures(folder)
    if not files:
        return None

    def read(row: int) -> NDArray[Any]:
        return _one_file(files[row])

    first = read(0)
    if first.ndim != 2:
        raise DataError(f"{files[0]} needs the regions of one picture, (regions, width); it got shape {first.shape}")
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
        many = np.full(len(names), features.shape[1]) if counts is None else counts[:].reshape(-1)
        if not len(features) == len(names) == len(many):
            raise DataError(f"{path} needs a name and a number of boxes for each of {len(features)} pictures")
        return Regions(
            lambda row: features[row, : int(many[row])], names, features.shape[1], features.shape[2],
            features.dtype, path,
        )  # fmt: skip
    if spans is not None and _SPANS in file:
        return _spans(features, *spans, names, path)
    if counts is None:
        raise DataError(f"{path} needs 'pos_boxes' or 'num_boxes', a row a name, to tell pictures' regions apart")
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


def bounds(found: Mapping[str, Any], count: int, *, padded: bool = False) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The first region of each of `count` pictures, and the one after its last; None where nothing tells.

    padded  whether each picture has rows of its own, so that only their numbers count
    """
    if not padded and _SPANS in found and len(found[_SPANS]) == count:
        spans = np.asarray(found[_SPANS][:])
        return spans[:, 0], spans[:, 1]
    counts = _member(found, _COUNTS)
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
    found = open_npz(path, ("features", "x", "num_bbox"))
    regions = found["features"] if "features" in found else found.get("x")
    if regions is None:
        raise DataError(f"{path} needs 'features' or 'x', the regions of one picture; it has {', '.join(found)}")
    # Bottom-up attention's own files have a column a region.
    boxes = int(found["num_bbox"]) if "num_bbox" in found else len(regions)
    return regions.T if regions.ndim == 2 and len(regions) != boxes == regions.shape[1] else regions


def _member(file: Any, names: Sequence[str]) -> Any:
    return next((file[name] for name in names if name in file), None)


def _text(name: Any) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)
