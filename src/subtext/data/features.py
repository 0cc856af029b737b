"""Precomputed features as the input of an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from subtext.data.arrays import LARGEST, NUMBERS, open_npy, open_npz, padded, unusable
from subtext.data.feature_file import FeatureFile, real_regions, without_regions
from subtext.data.inputs import Draw, InputBatch, Tensors, read_settings, settings_hash, write_settings
from subtext.data.regions import BOX
from subtext.errors import DataError, Setting
from subtext.ops import draw as draws

__all__ = ["FeatureFile", "FeatureInput"]

_FILE = "features.json"
_SETTINGS = ("modality", "region_drop", "pooled", "grid", "boxes")
_BLOCK = 128
"""Items whose boxes are checked at a time."""
_AXES = {"pooled": 1, "grid": 2}
"""The axes of each part, of one item."""


@dataclass(frozen=True)
class FeatureInput:
    """Items -> "pooled" (N G) and/or "grid" (N P E) with "mask" (N P), by name in a file or from arrays.

    An item with its own features is one array where the encoder reads one part, (G) or (P E), and a mapping where it
    reads both, {"pooled": (G), "grid": (P E)}. Items may have different numbers of regions; regions of zeros at the
    end of a grid are padding.

    Args:
        modality: "image" or "text", for messages.
        file: The features; None in a loaded run until `with_file`, which still reads items with their own features.
        region_drop: Share of regions hidden while training, in [0, 1); an item always keeps one (as in Chen et al.
            2021).
        pooled: Widths that the encoder reads.
        grid: Both from the file where neither is set.
        boxes: Whether the last four numbers of each region are its box (left, top, right, bottom, as shares of the
            image); a file has them beside the features, whose width is then four less than `grid`.

    Raises:
        DataError: If `region_drop` is not in [0, 1), or the file's widths are not those of `pooled` and `grid`.
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
            # Opened here, and not with the first batch.
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
        if self.boxes:
            settings["boxes"] = "" if self.file is None else self.file.boxes.fingerprint
        return settings_hash(settings)

    def with_file(self, file: FeatureFile) -> FeatureInput:
        """Return the same Input with another file.

        Args:
            file: The features.

        Returns:
            The Input.

        Raises:
            DataError: If its widths are not those that the encoder expects.
        """
        return replace(self, file=file)

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> Tensors:
        """Read the features of a batch: those of the items themselves, else those of their names.

        Args:
            batch: N items.
            draw: Seed and epoch of hidden regions; None outside of training.

        Returns:
            "ids" (N), "pooled" (N G) and/or "grid" (N P E) with "mask" (N P), float32.

        Raises:
            DataError: If an item has no features, or they are not finite, not alike or of another width.
        """
        import torch

        if any(isinstance(value, np.ndarray | Mapping) for value in batch.values):
            arrays = self._of_items(batch)
        else:
            try:
                rows = self.rows(batch.ids, batch.values)
            except DataError as error:
                if self.file is None:
                    raise
                raise DataError(f"{self._needs}; {error}") from error
            arrays = self.of_rows(rows)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if "grid" in arrays:
            mask = real_regions(arrays["grid"])
            if draw is not None and self.region_drop:
                purpose = f"{self.modality} region drop"
                uniforms = draws.uniform(
                    batch.keys, seed=draw.seed, epoch=draw.epoch, purpose=purpose, count=mask.shape[1]
                )
                uniforms[~mask] = -1.0
                mask = uniforms >= self.region_drop
                mask[np.arange(len(mask)), uniforms.argmax(axis=1)] = True
            tensors["mask"] = torch.from_numpy(mask)
        tensors["ids"] = torch.from_numpy(np.ascontiguousarray(batch.rows))
        return tensors

    def require(self, values: Sequence[Any]) -> None:
        """Require that each value is a name to look up, or has features: an image alone is not enough.

        Args:
            values: Values of the items.

        Raises:
            DataError: If one is not.
        """
        for value in values:
            if not isinstance(value, str | np.ndarray | Mapping):
                raise DataError(f"{self._needs}; it got {_described(value)}")

    def require_boxes(self, ids: Sequence[str], values: Sequence[Any]) -> None:
        """Require that the file's boxes fit its regions, where boxes are read.

        Args:
            ids: (N) ids of the items.
            values: (N) their values.

        Raises:
            DataError: If they do not.

        Complexity:
            One pass over these rows.
        """
        if self.boxes:
            rows = np.sort(self.rows(ids, values))
            for start in range(0, len(rows), _BLOCK):
                self.of_rows(rows[start : start + _BLOCK])

    def rows(self, ids: Sequence[str], values: Sequence[Any]) -> NDArray[np.int64]:
        """Find the row of each item in the file, as `FeatureFile.rows` does.

        Args:
            ids: (N) ids of the items.
            values: (N) their values.

        Returns:
            (N) the rows.

        Raises:
            DataError: If there is no file, or items have no row in it.
        """
        if self.file is None:
            raise DataError(
                f"{self._needs}; it got the name {ids[0]!r} and has no file to look it up in; name the file "
                "with the data (",
                Setting("features" if self.modality == "image" else "text_features"),
                ")",
            )
        return self.file.rows(ids, values)

    def of_file(self, path: Path) -> dict[str, NDArray[Any]]:
        """Read the features of one item in a file of its own: an npz with "pooled" and/or "grid", or an npy.

        Args:
            path: The file.

        Returns:
            Name of the part -> array.

        Raises:
            DataError: If it is none of these, or its arrays are not those that the encoder reads.
        """
        if not path.is_file():
            raise DataError(f"{self._needs}; {path} is not there")
        named = path.suffix == ".npz"
        arrays = open_npz(path, tuple(self._widths)) if named else {next(iter(self._widths), "pooled"): open_npy(path)}
        for name, array in arrays.items():
            # Some files have an axis of items, with one item on it.
            arrays[name] = array[0] if array.ndim == _AXES[name] + 1 and len(array) == 1 else array
        try:
            return dict(self._parts(arrays if named else next(iter(arrays.values()))))
        except DataError as error:
            raise DataError(f"{path} needs the features of one item; {error}") from error

    def save(self, folder: Path) -> None:
        """Write widths and settings; the file itself stays where it is.

        Args:
            folder: Existing folder to write to.
        """
        write_settings(folder / _FILE, {name: getattr(self, name) for name in _SETTINGS})

    @staticmethod
    def load(folder: Path) -> FeatureInput:
        """Load the Input that `save` wrote, without a file.

        Args:
            folder: As `save` wrote it.

        Returns:
            The Input.
        """
        return FeatureInput(**read_settings(folder / _FILE, _SETTINGS))

    def of_rows(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Read the parts that the encoder reads.

        Args:
            rows: (N) rows of the file.

        Returns:
            Name of the part -> array of N rows.

        Raises:
            DataError: If they cannot be used.
        """
        assert self.file is not None
        arrays = {name: self.file.take(name, rows) for name in self._widths}
        if self.boxes:
            grid, boxes = arrays["grid"], self.file.boxes.take(rows)
            regions, filled = real_regions(grid).sum(axis=1), real_regions(boxes).sum(axis=1)
            if len(wrong := np.flatnonzero(regions != filled)):
                first = wrong[0]
                raise DataError(
                    f"{self.file.path} needs a box, not all zeros, for each region, and no more; "
                    f"{self.file.names[int(rows[first])]!r} has {regions[first]} regions and {filled[first]} boxes; "
                    "extract it again, or leave boxes out"
                )
            # Both may have padding of any length.
            boxes = np.pad(boxes[:, : grid.shape[1]], ((0, 0), (0, max(0, grid.shape[1] - boxes.shape[1])), (0, 0)))
            arrays["grid"] = np.concatenate([grid, boxes], axis=2)
        return arrays

    def _of_items(self, batch: InputBatch) -> dict[str, NDArray[np.float32]]:
        items = [self._parts(value) for value in batch.values]
        arrays = {}
        for name in self._widths:
            arrays[name] = padded([item[name] for item in items], items[0][name].shape[1:])
            if (bad := unusable(arrays[name])) is not None:
                raise DataError(
                    f"{self.modality} features need finite numbers up to {LARGEST:.0e}; '{name}' of "
                    f"{batch.ids[bad[0]]!r} has {bad[1]}; scale it, or extract it again"
                )
        if "grid" in arrays and len(empty := without_regions(arrays["grid"])):
            raise DataError(
                f"{self.modality} features need one region or more of every item; {batch.ids[int(empty[0])]!r} has "
                "zeros alone, which stand for none; leave it out"
            )
        return arrays

    def _parts(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """The arrays of one item, by name.

        Raises:
            DataError: If they are not those that the encoder reads.
        """
        widths = self._widths
        parts = {next(iter(widths)): value} if isinstance(value, np.ndarray) and len(widths) == 1 else value
        if not (
            isinstance(parts, Mapping)
            and parts.keys() == widths.keys()
            and all(
                isinstance(array := parts[name], np.ndarray)
                and array.dtype.kind in NUMBERS
                and array.ndim == _AXES[name]
                and array.size > 0
                and array.shape[-1] == width
                for name, width in widths.items()
            )
        ):
            raise DataError(f"{self._needs}; it got {_described(value)}")
        return parts

    @property
    def _widths(self) -> dict[str, int]:
        """The parts that the encoder reads, and their widths."""
        return {name: getattr(self, name) for name in _AXES if getattr(self, name) is not None}

    @property
    def _needs(self) -> str:
        """The first part of a message: the form of an item."""
        arrays = {name: f"an array ({'regions, ' * (_AXES[name] - 1)}{width})" for name, width in self._widths.items()}
        form = _described(arrays) if len(arrays) > 1 else next(iter(arrays.values()), "an array")
        form += f" whose last {BOX} numbers of a region are its box, in shares of the image," * self.boxes
        return f"this model reads {self.modality} features: it needs {form} for each item, or its name in a file"


def _described(value: object) -> str:
    """The form of an item, in words."""
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name!r}: {_described(part)}' for name, part in value.items())}}}"
    return value[:60] if isinstance(value, str) else f"a value of type {type(value).__name__}"
