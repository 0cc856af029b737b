"""Precomputed features as what an encoder reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.data.arrays import open_npy, open_npz
from subtext.data.boxes import BOX
from subtext.data.feature_file import FeatureFile, without_regions
from subtext.data.inputs import Batch, Draw, Tensors, read_json, read_settings, settings_hash, write_settings
from subtext.errors import DataError
from subtext.ops import draw as draws

__all__ = ["FeatureFile", "FeatureInput"]

_FILE = "features.json"
_BLOCK = 128
"""Items whose boxes are looked at together."""
_AXES = {"pooled": 1, "grid": 2}
"""The axes of each part, of one item."""


@dataclass(frozen=True)
class FeatureInput:
    """Items -> "pooled" (N G) and/or "grid" (N P E) with "mask" (N P), looked up by name or given as arrays.

    An item that brings its features is one array where the encoder reads one part, (G) or (P E), and a mapping where it
    reads both, {"pooled": (G), "grid": (P E)}. Items may differ in how many regions they have; regions of zeros at the
    end of a grid are padding.

    modality     "image" or "text", for messages
    file         where features are; None in an opened run until `with_file`, which still reads what items bring
    region_drop  share of regions hidden while training, in [0, 1); an item always keeps one (Chen et al. 2021 drop
                 a share of the regions in the same way)
    pooled, grid  widths that the encoder reads; both taken from the file where neither is given
    boxes        whether the last four numbers of each region are its box (left, top, right, bottom, in shares of the
                 image); of a file they are read beside the features, whose width is then four less than `grid`
    """

    modality: Literal["image", "text"]
    file: FeatureFile | None = None
    region_drop: float = 0.0
    pooled: int | None = None
    grid: int | None = None
    boxes: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.region_drop < 1:
            raise DataError(f"region_drop is a share in [0, 1); it got {self.region_drop}")
        if self.file is None:
            return
        new = not self._widths
        for name in _AXES:
            rows, required = getattr(self.file, name), getattr(self, name)
            got = None if rows is None else rows.shape[-1]
            box_columns = BOX if self.boxes and name == "grid" else 0
            if new:
                object.__setattr__(self, name, None if got is None else got + box_columns)
            elif required is not None and got != required - box_columns:
                raise DataError(
                    f"the {self.modality} encoder needs '{name}' features of width {required - box_columns}; "
                    f"{self.file.path} has {'none' if got is None else got}; give features made "
                    "as the training features were"
                )
        if self.boxes:
            # Here, and not when the first batch is read.
            _ = self.file.boxes

    @property
    def augments(self) -> bool:
        """Whether regions are dropped while training."""
        return self.region_drop > 0 and self.grid is not None

    @property
    def fingerprint(self) -> str:
        """Changes with the widths and with the file."""
        file = "" if self.file is None else self.file.fingerprint
        settings = {"kind": "features", "pooled": self.pooled, "grid": self.grid, "file": file}
        return settings_hash(
            settings
            if not self.boxes
            else {**settings, "boxes": "" if self.file is None else self.file.boxes.fingerprint}
        )

    def with_file(self, file: FeatureFile) -> FeatureInput:
        """The same Input reading another file.

        Raises DataError when its widths are not the ones that the encoder expects.
        """
        return replace(self, file=file)

    def __call__(self, batch: Batch, draw: Draw | None = None) -> Tensors:
        """The features of a batch as float32, and its ids: those that the items bring, else those of their names.

        Raises DataError when an item has no features, or they are not finite, not alike or of another width.
        """
        brought = any(isinstance(value, np.ndarray | Mapping) for value in batch.values)
        arrays = self._brought(batch) if brought else self._looked_up(batch)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if "grid" in arrays:
            tensors["mask"] = torch.from_numpy(self._mask(arrays["grid"], batch, draw))
        tensors["ids"] = torch.from_numpy(np.ascontiguousarray(batch.rows))
        return tensors

    def require(self, values: Sequence[Any]) -> None:
        """Raise DataError unless each value is a name to look up, or brings features: an image alone is not enough."""
        for value in values:
            if not isinstance(value, str | np.ndarray | Mapping):
                raise DataError(f"{self._needs}; it got {_told(value)}")

    def require_boxes(self, ids: Sequence[str], values: Sequence[Any]) -> None:
        """Raise DataError where the file's boxes do not fit its regions; nothing where boxes are not read.

        Cost one pass over these rows.
        """
        if self.boxes:
            rows = np.sort(self.rows(ids, values))
            for start in range(0, len(rows), _BLOCK):
                self.taken(rows[start : start + _BLOCK])

    def rows(self, ids: Sequence[str], values: Sequence[Any]) -> NDArray[np.int64]:
        """(N) the row of each item in the file, as `FeatureFile.rows` finds it.

        Raises DataError when there is no file, and where items have no row in it.
        """
        if self.file is None:
            raise DataError(
                f"{self._needs}; it got the name {ids[0]!r} and has no file to look it up in; name the file when the "
                f"run is opened (--{'' if self.modality == 'image' else 'text-'}features on the command line)"
            )
        return self.file.rows(ids, values)

    def of_file(self, path: Path) -> dict[str, NDArray[Any]]:
        """What the encoder reads of one item, from a file of its own: an npz with "pooled" and/or "grid", or an npy.

        Raises DataError when it is none of these, or its arrays are not what the encoder reads.
        """
        if not path.is_file():
            raise DataError(f"{self._needs}; {path} is not there")
        opened = open_npz(path, tuple(self._widths)) if path.suffix == ".npz" else open_npy(path)
        try:
            if isinstance(opened, np.ndarray):
                return dict(self._parts(_alone(opened, _AXES.get(next(iter(self._widths), ""), 1))))
            return dict(self._parts({name: _alone(array, _AXES[name]) for name, array in opened.items()}))
        except DataError as error:
            raise DataError(f"{path} needs the features of one item; {error}") from error

    def save(self, folder: Path) -> None:
        """Write widths and settings; the file itself stays where it is."""
        settings = {
            "modality": self.modality,
            "region_drop": self.region_drop,
            "pooled": self.pooled,
            "grid": self.grid,
        }
        write_settings(folder / _FILE, {**settings, "boxes": True} if self.boxes else settings)

    @staticmethod
    def load(folder: Path) -> FeatureInput:
        """What `save` wrote, without a file."""
        settings = read_settings(folder / _FILE, ("modality", "region_drop", "pooled", "grid"))
        # Runs of before there were boxes say nothing of them.
        return FeatureInput(**settings, boxes=bool(read_json(folder / _FILE).get("boxes", False)))

    def taken(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """What the encoder reads of rows of the file. Raises DataError where it cannot be used."""
        assert self.file is not None
        arrays = {name: self.file.take(name, rows) for name in self._widths}
        if self.boxes:
            arrays["grid"] = self._with_boxes(arrays["grid"], rows)
        return arrays

    def _with_boxes(self, grid: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Each region's features, and where it lies."""
        assert self.file is not None
        boxes = self.file.boxes.take(rows)
        regions, indices = _real(grid).sum(axis=1), _real(boxes).sum(axis=1)
        if len(wrong := np.flatnonzero(regions != indices)):
            first = wrong[0]
            raise DataError(
                f"{self.file.path} needs a box, not all zeros, for each region, and no more; "
                f"{self.file.names[int(rows[first])]!r} has {regions[first]} regions and {indices[first]} boxes; "
                "extract it again, or leave boxes out"
            )
        return np.concatenate([grid, _long(boxes, grid.shape[1])], axis=2)

    def _looked_up(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        return self.taken(self.rows(batch.ids, batch.values))

    def _brought(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        items = [self._parts(value) for value in batch.values]
        arrays = {}
        for name in self._widths:
            longest = max(len(item[name]) for item in items)
            stacked = np.zeros((len(items), longest, *items[0][name].shape[1:]), dtype=np.float32)
            for index, item in enumerate(items):
                stacked[index, : len(item[name])] = item[name]
            arrays[name] = stacked
            if not np.isfinite(arrays[name]).all():
                raise DataError(
                    f"{self._what} features need finite numbers; '{name}' of this batch has NaN or infinity"
                )
        if "grid" in arrays and len(empty := without_regions(arrays["grid"])):
            raise DataError(
                f"{self._what} features need one region or more of every item; {batch.ids[int(empty[0])]!r} has zeros "
                "alone, which stand for none; leave it out"
            )
        return arrays

    def _parts(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """The arrays that one item brings, by name."""
        widths = self._widths
        parts = {next(iter(widths)): value} if isinstance(value, np.ndarray) and len(widths) == 1 else value
        if not (
            isinstance(parts, Mapping)
            and parts.keys() == widths.keys()
            and all(_fits(parts[name], _AXES[name], width) for name, width in widths.items())
        ):
            raise DataError(f"{self._needs}; it got {_told(value)}")
        return parts

    @property
    def _widths(self) -> dict[str, int]:
        """The parts that the encoder reads, and how wide they are."""
        return {name: getattr(self, name) for name in _AXES if getattr(self, name) is not None}

    @property
    def _what(self) -> str:
        """The modality in words."""
        return self.modality

    @property
    def _needs(self) -> str:
        """What an item has to be, as the beginning of a sentence."""
        arrays = {name: f"an array ({'regions, ' * (_AXES[name] - 1)}{width})" for name, width in self._widths.items()}
        description = _told(arrays) if len(arrays) > 1 else next(iter(arrays.values()), "an array")
        description += f" whose last {BOX} numbers of a region are its box, in shares of the image," * self.boxes
        return f"this model reads {self._what} features: it needs {description} for each item, or its name in a file"

    def _mask(self, grid: NDArray[np.float32], batch: Batch, draw: Draw | None) -> NDArray[np.bool_]:
        mask = _real(grid)
        if draw is None or not self.region_drop:
            return mask
        uniforms = draws.uniform(
            batch.keys, seed=draw.seed, epoch=draw.epoch, purpose=f"{self.modality} region drop", count=mask.shape[1]
        )
        uniforms[~mask] = -1.0
        retained = uniforms >= self.region_drop
        retained[np.arange(len(retained)), uniforms.argmax(axis=1)] = True
        return retained


def _real(grid: NDArray[np.float32]) -> NDArray[np.bool_]:
    """(N P) the regions that are no padding."""
    if grid[:, -1].any(axis=-1).all():
        # Padding stands last: where all last regions are real there is none, and zeros before a real one are real.
        return np.ones(grid.shape[:2], dtype=bool)
    real = (grid != 0).any(axis=-1)
    return np.logical_or.accumulate(real[:, ::-1], axis=1)[:, ::-1].copy()


def _long(boxes: NDArray[np.float32], regions: int) -> NDArray[np.float32]:
    """Boxes of so many regions, cut or filled up with zeros where there is padding alone."""
    return np.pad(boxes[:, :regions], ((0, 0), (0, max(0, regions - boxes.shape[1])), (0, 0)))


def _alone(array: NDArray[Any], axes: int) -> NDArray[Any]:
    """The one item of a file that has an axis of items with one on it; else the array as it is."""
    return array[0] if array.ndim == axes + 1 and len(array) == 1 else array


def _fits(array: object, axes: int, width: int) -> bool:
    """Whether a part of one item is what the encoder reads."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype.kind in "fiub"
        and array.ndim == axes
        and array.size > 0
        and array.shape[-1] == width
    )


def _told(value: object) -> str:
    """What an item is, in words."""
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {_told(part)}' for name, part in value.items())}}}"
    return value[:60] if isinstance(value, str) else f"a value of type {type(value).__name__}"
