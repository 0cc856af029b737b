"""Files of precomputed features, which are joined to images or texts by name and never by position."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data import atomic
from subtext.data.arrays import (
    LARGEST,
    NUMBERS,
    Rows,
    ids_beside,
    ids_of_array,
    open_npy,
    open_npz,
    require_unique,
    rows_by_name,
    scan_names,
    scan_splits,
    unusable,
)
from subtext.data.objects import Arrays, named_arrays
from subtext.data.regions import Regions, lengths_digest, of_counts, open_boxes, open_folder, open_h5
from subtext.errors import ArgumentError, DataError
from subtext.text_helpers import counted

BLOCK_BYTES = 32 * 2**20
"""Bytes of a feature file that are held in memory at once."""


@dataclass(frozen=True)
class FeatureShape:
    """Widths of precomputed features.

    Attributes:
        pooled: G, one vector an item; None where the file has none.
        grid: E, one vector a cell or region; None where the file has none.
        mean: "pooled" or "grid" -> (width) float32 over the training split; empty when a saved run is opened, whose
            tensors bring them.
        std: See `mean`.
    """

    pooled: int | None = None
    grid: int | None = None
    mean: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    std: dict[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class FeatureFile:
    """Features of one modality, on disk: a row per name.

    Attributes:
        names: (N) unique.
        pooled: (N G), one vector per item; None where the file has none.
        grid: (N P E), one vector per cell or region; regions of zeros at the end are padding, and images may have
            different numbers of regions (`regions`); None where the file has none.
        path: The file or folder; of features in memory, the name of the setting.
        in_memory: Whether there is no file.

    Raises:
        DataError: If the arrays do not agree.
    """

    names: list[str]
    pooled: Rows | None
    grid: Rows | Regions | None
    path: Path
    in_memory: bool = False

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {source.shape}" for name, source in self._sources.items())
        return f"FeatureFile({self.path}: {shapes})"

    def __post_init__(self) -> None:
        if self.pooled is None and self.grid is None:
            raise DataError(
                f"{self.path} needs an array 'pooled' (items, width) or 'grid' (items, cells, width); it got none"
            )
        for name, rows in self._sources.items():
            axes = 2 if name == "pooled" else 3
            if len(rows.shape) != axes or 0 in rows.shape[1:] or rows.dtype.kind not in NUMBERS:
                raise DataError(
                    f"{self.path}: '{name}' needs {axes} axes of real numbers (items, {'cells, ' * (axes - 2)}width); "
                    f"it got {rows.dtype} of shape {rows.shape}"
                )
            if len(rows) != len(self.names):
                raise DataError(f"{self.path}: '{name}' needs one row a name, {len(self.names)}; it got {len(rows)}")
        require_unique(self.names, self.path)

    @staticmethod
    def open(path: Path | str | Arrays | FeatureFile, side: str = "image", *, name: str = "features") -> FeatureFile:
        """Open a feature file, or take features in memory.

        An npz with `names` and `pooled` and/or `grid`, or of `embed`; an npy with FILE.ids.txt or FILE.ids.json beside
        it; a folder in SCAN's form (`train_ims.npy`, `train_caps.txt`, ...), or of a file per image; or HDF5
        (`regions`).

        Stored arrays are mapped, not read.

        Args:
            path: The file or folder; or arrays with the ids of their rows, see `objects.named_arrays`.
            side: "image" or "text", which vectors of a file of `embed` are read.
            name: Of the setting that they come from.

        Returns:
            The features.

        Raises:
            DataError: If it is none of these, or its arrays do not agree.
            ArgumentError: If an object is no path and no array with ids.
        """
        if isinstance(path, FeatureFile):
            return path
        if not isinstance(path, str | os.PathLike):
            return _of_arrays(named_arrays(path, name), side, name)
        path = Path(path)
        if path.is_dir() and not any(path.glob("*_ims.npy")) and (regions := open_folder(path)) is not None:
            return FeatureFile(list(regions.names), None, regions, path)
        if path.is_dir():
            splits = scan_splits(path)
            arrays, _, steps = zip(*splits.values(), strict=True)
            if len({array.shape[1:] for array in arrays}) != 1:
                shapes = ", ".join(f"{prefix} {array.shape}" for prefix, (array, _, _) in splits.items())
                raise DataError(f"{path} needs arrays alike in all but length; it got {shapes}")
            names = [name for p, (array, _, step) in splits.items() for name in scan_names(p, -(-len(array) // step))]
            return FeatureFile._of_rows(names, Rows(arrays, steps), path)
        if not path.is_file():
            raise DataError(f"features need a file; {path} is not there")
        if path.suffix == ".npz":
            ids, vectors = f"{side}_ids", f"{side}_vectors"
            members = open_npz(path, ("names", "pooled", "grid", "counts", ids, vectors))
            if ids in members and vectors in members:
                of_side = ids_of_array(members[ids], f"{path}: '{ids}'")
                return FeatureFile._of_rows(of_side, Rows((members[vectors],)), path)
            if "names" not in members:
                raise DataError(f"{path} needs 'names', one a row, to be joined by; it has only {', '.join(members)}")
            names = ids_of_array(members["names"], f"{path}: 'names'")
            pooled, grid = (Rows((members[name],)) if name in members else None for name in ("pooled", "grid"))
            if "grid" in members and "counts" in members:
                return FeatureFile(names, pooled, of_counts(members["grid"], members["counts"], names, path), path)
            return FeatureFile(names, pooled, grid, path)
        if path.suffix in (".h5", ".hdf5"):
            regions = open_h5(path)
            return FeatureFile(list(regions.names), None, regions, path)
        if path.suffix == ".npy":
            rows = Rows((open_npy(path),))
            return FeatureFile._of_rows(ids_beside(path), rows, path)
        raise DataError(
            "features need an .npz, an .npy with an ids file, an .h5, or a folder of *_ims.npy or of a file per image; "
            f"got {path.name}"
        )

    @staticmethod
    def _of_rows(names: list[str], rows: Rows, path: Path) -> FeatureFile:
        """Rows of one vector are pooled features; rows of several are a grid."""
        flat = len(rows.shape) <= 2
        return FeatureFile(names, rows if flat else None, None if flat else rows, path)

    @property
    def _sources(self) -> dict[str, Rows | Regions]:
        sources = {"pooled": self.pooled, "grid": self.grid}
        return {name: source for name, source in sources.items() if source is not None}

    def rows(self, ids: Sequence[str], values: Sequence[Any] | None = None) -> NDArray[np.int64]:
        """Find the row of each item, as `rows_by_name` does.

        Args:
            ids: (N) ids of the items.
            values: (N) paths or texts; None to look up ids alone.

        Returns:
            (N) the rows.

        Raises:
            DataError: If items have none.
        """
        return rows_by_name(self._row_of, ids, values, self.path)

    def name_of(self, *names: str) -> str | None:
        """Find the first name that has a row, as it is or as a path's file name.

        Args:
            names: Names in order of preference.

        Returns:
            The name in the file; None if none has a row.
        """
        files = [PurePosixPath(name).name for name in names]
        return next((name for name in (*names, *files) if name in self._row_of), None)

    def shape(self, ids: Sequence[str] | None = None, values: Sequence[Any] | None = None) -> FeatureShape:
        """Compute widths, mean and standard deviation, in blocks.

        A channel that never changes has a standard deviation of 1, so that dividing by it is safe. Padding regions are
        left out.

        Args:
            ids: (N) ids of the items; None for all rows.
            values: (N) paths or texts of these.

        Returns:
            The shape and the statistics.

        Raises:
            DataError: If an item has no row, or a row is not finite.
        """
        rows = np.arange(len(self.names), dtype=np.int64) if ids is None else np.sort(self.rows(ids, values))
        moments = {name: self._moments(name, rows) for name in self._sources if len(rows)}
        return FeatureShape(
            **{name: source.shape[-1] for name, source in self._sources.items()},
            mean={name: mean for name, (mean, _) in moments.items()},
            std={name: std for name, (_, std) in moments.items()},
        )

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Read rows of an array as float32.

        Args:
            name: "pooled" or "grid".
            rows: (N) indices.

        Returns:
            (N G) or (N P E).

        Raises:
            DataError: If one of them is not finite or too large (`unusable`), and for an image whose regions are all
                zeros: it has none.
        """
        if name not in self._sources:
            raise DataError(f"{self.path} has no '{name}' features")
        taken = self._sources[name].take(rows)
        if (bad := unusable(taken)) is not None:
            raise DataError(
                f"{self.path} needs finite numbers up to {LARGEST:.0e}; '{name}' of {self.names[int(rows[bad[0]])]!r} "
                f"has {bad[1]}; scale it, or extract it again"
            )
        if name == "grid" and len(empty := without_regions(taken)):
            raise DataError(
                f"{self.path} needs one region or more of every item; of {self.names[int(rows[empty[0]])]!r} it has "
                "zeros alone, which stand for none; leave it out, or extract it again"
            )
        return taken

    def require(self, ids: Sequence[str], values: Sequence[object]) -> None:
        """Require that every item has a row of finite numbers: before training, and not after an epoch.

        Args:
            ids: (N) ids of the items.
            values: (N) paths or texts.

        Raises:
            DataError: If an item has no row, or a row is not finite.

        Complexity:
            One pass over these rows.
        """
        rows = np.sort(self.rows(ids, values))
        for name in self._sources:
            for _ in self._blocks(name, rows):
                pass

    def _blocks(self, name: str, rows: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        """The rows of "pooled" or "grid", in blocks of about BLOCK_BYTES."""
        size = max(1, BLOCK_BYTES // max(1, 4 * int(np.prod(self._sources[name].shape[1:]))))
        for start in range(0, len(rows), size):
            yield self.take(name, rows[start : start + size])

    def _moments(self, name: str, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The mean and standard deviation of each channel."""
        width = self._sources[name].shape[-1]
        count, total, squares = 0, np.zeros(width), np.zeros(width)
        shift: NDArray[np.float64] | None = None
        for block in self._blocks(name, rows):
            flat = block.reshape(-1, width).astype(np.float64)
            if name == "grid":
                flat = flat[flat.any(axis=1)]
            if not len(flat):
                continue
            if shift is None:
                shift = flat.mean(axis=0)
            # Squares around a point close to the mean lose no digits to it.
            flat -= shift
            count += len(flat)
            total += flat.sum(axis=0)
            squares += np.einsum("nd,nd->d", flat, flat)
        if shift is None:
            return np.zeros(width, dtype=np.float32), np.ones(width, dtype=np.float32)
        offset = total / count
        std = np.sqrt(np.maximum(squares / count - offset**2, 0))
        return (shift + offset).astype(np.float32), np.where(std > 1e-7, std, 1.0).astype(np.float32)

    @cached_property
    def fingerprint(self) -> str:
        """32 hexadecimal digits of the names, every number and the number of each image's regions; a copy has the same.

        Complexity:
            One pass over the file, about a second per gigabyte.
        """
        digest = hashlib.blake2b("\n".join(self.names).encode("utf-8", "surrogatepass"), digest_size=16)
        for source in self._sources.values():
            digest.update(f"{source.dtype} {source.shape}".encode())
            lengths = []
            for block in source.blocks(BLOCK_BYTES):
                digest.update(block.data)
                lengths.append(len(block))
            if isinstance(source, Regions):
                digest.update(lengths_digest(lengths))
        return digest.hexdigest()

    @cached_property
    def boxes(self) -> Regions:
        """The boxes of the regions.

        Raises:
            DataError: If the file has none.
        """
        if self.in_memory:
            raise DataError(
                f"boxes need a file of features; {self.path} are arrays in memory; save them with their boxes"
            )
        return open_boxes(self.path, self.names)

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}


def _of_arrays(arrays: dict[str, NDArray[Any]], side: str, name: str) -> FeatureFile:
    """Features in memory, by the names that files have."""
    ids = next((key for key in (f"{side}_ids", "ids", "names") if key in arrays), None)
    got = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
    if ids is None:
        raise ArgumentError(
            f"{name} needs the ids of its rows, since rows are joined by name and not by position; it got {got}; give "
            "{'ids': [...], 'vectors': array}, (array, ids) or {id: vector}",
            field=name,
        )
    names, path = ids_of_array(arrays[ids], f"{name}: '{ids}'"), Path(name)
    vectors = next((arrays[key] for key in (f"{side}_vectors", "vectors", "embeddings") if key in arrays), None)
    parts = {key: Rows((arrays[key],)) if key in arrays else None for key in ("pooled", "grid")}
    if vectors is not None:
        parts["pooled" if vectors.ndim <= 2 else "grid"] = Rows((vectors,))
    if parts["grid"] is not None and "counts" in arrays:
        return FeatureFile(names, parts["pooled"], of_counts(arrays["grid"], arrays["counts"], names, path), path, True)
    if not any(parts.values()):
        raise ArgumentError(f"{name} needs 'vectors', 'pooled' or 'grid' beside '{ids}'; it got {got}", field=name)
    return FeatureFile(names, parts["pooled"], parts["grid"], path, in_memory=True)


def without_regions(grid: NDArray[Any]) -> NDArray[np.int64]:
    """Find the items all of whose regions are zeros.

    Args:
        grid: (N P E) features.

    Returns:
        Indices of these items.
    """
    empty = np.flatnonzero(~grid[:, 0].any(axis=1))
    return empty[~grid[empty].any(axis=(1, 2))]


def real_regions(grid: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Mark regions that are no padding: zeros after the last real region of an item are padding.

    Args:
        grid: (N P E) features.

    Returns:
        (N P) True for a real region.
    """
    if grid[:, -1].any(axis=-1).all():
        return np.ones(grid.shape[:2], dtype=bool)
    real = (grid != 0).any(axis=-1)
    return np.logical_or.accumulate(real[:, ::-1], axis=1)[:, ::-1].copy()


def join_features(
    cells: FeatureFile, regions: FeatureFile, out: Path, *, progress: Callable[[int], None] | None = None
) -> tuple[int, int, tuple[int, int], tuple[int, int]]:
    """Write an npz whose `grid` has the cells of each image of `regions` and then its regions: `counts`, and `cells`.

    The narrower features are padded with zeros, which loses nothing where cells and regions have weights of their own
    (`heads.graph`); standardised features use one mean over both, zeros included. Pooled vectors and boxes are left
    out.

    Args:
        cells: Features with the same number of cells for each image.
        regions: Features with any number of regions per image.
        out: The new file.
        progress: Called with the number of finished images.

    Returns:
        The number of images, the cells of each, the fewest and the most regions, and both widths.

    Raises:
        DataError: If a file has no grid or no images, an image has no cells, or numbers of cells differ.
        OutputError: If it cannot be written.

    Complexity:
        Two passes over both files, in blocks of 32 MB.
    """
    for part, file in (("cells", cells), ("regions", regions)):
        if file.grid is None:
            raise DataError(f"{file.path} needs '{part}' of every image, an array 'grid'; it has 'pooled' only")
    assert cells.grid is not None and regions.grid is not None
    if not regions.names:
        raise DataError(f"{regions.path} needs images; it has none; name the file of the regions")
    number, widths = cells.grid.shape[1], (cells.grid.shape[2], regions.grid.shape[2])
    cell_rows = cells.rows(regions.names)
    lengths = np.concatenate([counts for _, counts in _join_blocks(cells, regions, cell_rows, number)])
    width, total = max(widths), int(lengths.sum())

    def fill(target: Path) -> None:
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            known = {"names": np.array(regions.names), "counts": lengths, "cells": np.array(number)}
            for name, array in known.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
            with archive.open("grid.npy", "w", force_zip64=True) as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (total, width)}
                np.lib.format.write_array_header_1_0(file, header)
                done = 0
                for parts, counts in _join_blocks(cells, regions, cell_rows, number):
                    real = np.arange(parts.shape[1]) < counts[:, None]
                    file.write(parts[real].astype("<f4", copy=False).tobytes())
                    done += len(counts)
                    if progress is not None:
                        progress(done)

    atomic.write_file(out, fill)
    return len(lengths), number, (int(lengths.min()) - number, int(lengths.max()) - number), widths


def _join_blocks(
    cells: FeatureFile, regions: FeatureFile, cell_rows: NDArray[np.int64], number: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """Blocks of images: their cells and regions side by side, and the number of both."""
    assert cells.grid is not None and regions.grid is not None
    width = max(cells.grid.shape[2], regions.grid.shape[2])
    size = max(1, BLOCK_BYTES // (4 * width * (number + regions.grid.shape[1])))
    for start in range(0, len(cell_rows), size):
        rows = np.arange(start, min(start + size, len(cell_rows)), dtype=np.int64)
        first, second = cells.take("grid", cell_rows[rows]), regions.take("grid", rows)
        cell_counts = real_regions(first).sum(axis=1)
        if (short := np.flatnonzero(cell_counts != number)).size:
            raise DataError(
                f"{cells.path} needs as many cells of every image, {number}; {regions.names[int(rows[short[0]])]!r} "
                f"has {counted(int(cell_counts[short[0]]), 'cell')}, not counting zeros at the end; REGIONS may have "
                "any number"
            )
        parts = np.zeros((len(rows), number + second.shape[1], width), dtype=np.float32)
        parts[:, :number, : first.shape[2]] = first
        parts[:, number:, : second.shape[2]] = second
        yield parts, number + real_regions(second).sum(axis=1)
