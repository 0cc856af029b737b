"""Precomputed features as what an encoder reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.data.feature_file import FeatureFile
from subtext.data.inputs import Batch, Draw, Tensors
from subtext.data.settings import read_settings, settings_hash, write_settings
from subtext.errors import DataError
from subtext.ops import draw as draws

__all__ = ["FeatureFile", "FeatureInput"]

_FILE = "features.json"
_AXES: tuple[tuple[Literal["pooled", "grid"], int], ...] = (("pooled", 1), ("grid", 2))


@dataclass(frozen=True)
class FeatureInput:
    """Items -> "pooled" (N G) and/or "grid" (N P E) with "mask" (N P), looked up by name or given as arrays.

    modality     "image" or "text", for messages
    file         where features are; None in an opened run until `with_file`, which still reads arrays given in a batch
    region_drop  share of regions hidden while training, in [0, 1); an item always keeps one (Chen et al. 2021 drop
                 a share of the regions in the same way)
    pooled, grid  widths that the encoder expects; taken from the file where not given
    """

    modality: Literal["image", "text"]
    file: FeatureFile | None = None
    region_drop: float = 0.0
    pooled: int | None = None
    grid: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.region_drop < 1:
            raise DataError(f"region_drop is a share in [0, 1); it got {self.region_drop}")
        if self.file is None:
            return
        for name, _ in _AXES:
            rows, wanted = getattr(self.file, name), getattr(self, name)
            got = None if rows is None else rows.shape[-1]
            if wanted is None:
                object.__setattr__(self, name, got)
            elif got != wanted:
                raise DataError(
                    f"the {self.modality} encoder needs '{name}' features of width {wanted}; {self.file.path} has "
                    f"{'none' if got is None else got}; give the features that it was trained on"
                )

    @property
    def augments(self) -> bool:
        """Whether regions are dropped while training."""
        return self.region_drop > 0 and self.grid is not None

    @property
    def fingerprint(self) -> str:
        """Changes with the widths and with the file."""
        file = "" if self.file is None else self.file.fingerprint
        return settings_hash({"kind": "features", "pooled": self.pooled, "grid": self.grid, "file": file})

    def with_file(self, file: FeatureFile) -> FeatureInput:
        """The same Input reading another file.

        Raises DataError when its widths are not the ones that the encoder expects.
        """
        return replace(self, file=file)

    def __call__(self, batch: Batch, draw: Draw | None = None) -> Tensors:
        """The features of a batch as float32, and its ids.

        An item whose value is an array brings its own features: one axis is pooled, two are a grid; else it is looked
        up by name. Raises DataError when an item has no features, or they are not finite or of another width.
        """
        given = [isinstance(value, np.ndarray) for value in batch.values]
        arrays = self._stacked(batch) if any(given) else self._looked_up(batch)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if "grid" in arrays:
            tensors["mask"] = torch.from_numpy(self._mask(arrays["grid"], batch, draw))
        tensors["ids"] = torch.from_numpy(np.ascontiguousarray(batch.rows))
        return tensors

    def save(self, folder: Path) -> None:
        """Write widths and settings; the file itself stays where it is."""
        write_settings(
            folder / _FILE,
            {"modality": self.modality, "region_drop": self.region_drop, "pooled": self.pooled, "grid": self.grid},
        )

    @staticmethod
    def load(folder: Path) -> FeatureInput:
        """What `save` wrote, without a file."""
        return FeatureInput(**read_settings(folder / _FILE, ("modality", "region_drop", "pooled", "grid")))

    def _looked_up(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        if self.file is None:
            raise DataError(
                f"this model reads {self.modality} features, and has no file of them; it got {batch.ids[0]!r}; give "
                f"the file (--{'' if self.modality == 'image' else 'text-'}features FILE), or one array an item"
            )
        rows = self.file.rows(batch.ids, batch.values)
        return {name: self.file.take(name, rows) for name, _ in _AXES if getattr(self, name) is not None}

    def _stacked(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        wanted = {name: axes for name, axes in _AXES if getattr(self, name) is not None}
        shapes: set[tuple[int, ...]] = {np.shape(value) for value in batch.values}
        if len(shapes) != 1:
            raise DataError(
                f"{self.modality} features given as arrays need one shape; they have {sorted(map(str, shapes))}"
            )
        shape = shapes.pop()
        fits = [name for name, axes in wanted.items() if len(shape) == axes and shape[-1:] == (getattr(self, name),)]
        if not fits or len(wanted) > 1:
            needs = " and ".join(
                f"'{name}' ({axes} axes, width {getattr(self, name)})" for name, axes in wanted.items()
            )
            raise DataError(
                f"the {self.modality} encoder needs {needs}; it got one array of shape {shape} an item; give "
                f"{'a feature file that has both' if len(wanted) > 1 else 'arrays of that width'}"
            )
        stacked = np.stack([np.asarray(value, dtype=np.float32) for value in batch.values])
        if not np.isfinite(stacked).all():
            raise DataError(f"{self.modality} features need finite numbers; an array of this batch has NaN or infinity")
        return {fits[0]: stacked}

    def _mask(self, grid: NDArray[np.float32], batch: Batch, draw: Draw | None) -> NDArray[np.bool_]:
        mask: NDArray[np.bool_] = np.ones(grid.shape[:2], dtype=bool)
        if not grid[:, -1].any(axis=-1).all():
            # Padding stands last, so a file whose last regions are all real has none.
            mask = (grid != 0).any(axis=-1).reshape(mask.shape)
            mask[:, 0] |= ~mask.any(axis=1)
        if draw is None or not self.region_drop:
            return mask
        drawn = draws.uniform(
            batch.keys, seed=draw.seed, epoch=draw.epoch, purpose=f"{self.modality} region drop", count=mask.shape[1]
        )
        drawn[~mask] = -1.0
        kept = drawn >= self.region_drop
        kept[np.arange(len(kept)), drawn.argmax(axis=1)] = True
        return kept
