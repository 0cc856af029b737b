"""Cells and regions of the same pictures, computed by two networks, as one file of features."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from subtext.data import atomic
from subtext.data.feature_file import BLOCK_BYTES, FeatureFile
from subtext.errors import DataError, counted


@dataclass(frozen=True)
class Joined:
    """What was written: cells of every picture, the fewest and the most regions of one, and the widths of both."""

    pictures: int
    cells: int
    regions: tuple[int, int]
    widths: tuple[int, int]


def join_parts(
    cells: FeatureFile, regions: FeatureFile, out: Path, *, progress: Callable[[int], None] | None = None
) -> Joined:
    """Write an npz whose `grid` has the cells of each picture of `regions` and then its regions, with `counts`.

    The narrower parts are filled up with zeros to one width, which loses nothing where cells and regions are mapped by
    weights of their own (`heads.graph`); standardised features take one mean over both, zeros among them. Pooled
    vectors and boxes are left behind.

    Raises DataError for a file without parts or pictures, a picture that the cells lack, and cells that differ in
    number; OutputError when it cannot be written.
    Cost   two passes over both files, in blocks of 32 MB.
    """
    for what, file in (("cells", cells), ("regions", regions)):
        if file.grid is None:
            raise DataError(f"{file.path} needs '{what}' of every picture, an array 'grid'; it has 'pooled' alone")
    assert cells.grid is not None and regions.grid is not None
    if not regions.names:
        raise DataError(f"{regions.path} needs pictures; it has none; name the file of the regions")
    number, widths = cells.grid.shape[1], (cells.grid.shape[2], regions.grid.shape[2])
    of_cells = cells.rows(regions.names)
    lengths = np.concatenate([own for _, own in _blocks(cells, regions, of_cells, number)])
    width, total = max(widths), int(lengths.sum())

    def fill(place: Path) -> None:
        with zipfile.ZipFile(place, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in (("names", np.array(regions.names)), ("counts", lengths)):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
            with archive.open("grid.npy", "w", force_zip64=True) as file:
                header = {"descr": "<f4", "fortran_order": False, "shape": (total, width)}
                np.lib.format.write_array_header_1_0(file, header)
                done = 0
                for parts, own in _blocks(cells, regions, of_cells, number):
                    for picture, length in zip(parts, own, strict=True):
                        file.write(np.ascontiguousarray(picture[:length], dtype="<f4").tobytes())
                    done += len(own)
                    if progress is not None:
                        progress(done)

    atomic.write_file(out, fill)
    own = lengths - number
    return Joined(len(lengths), number, (int(own.min()), int(own.max())), widths)


def _blocks(
    cells: FeatureFile, regions: FeatureFile, of_cells: Int[np.ndarray, "n"], number: int
) -> Iterator[tuple[Float[np.ndarray, "b p e"], Int[np.ndarray, "b"]]]:
    """Some pictures at a time: their cells and regions side by side, and how many both are."""
    assert cells.grid is not None and regions.grid is not None
    width = max(cells.grid.shape[2], regions.grid.shape[2])
    size = max(1, BLOCK_BYTES // (4 * width * (number + regions.grid.shape[1])))
    for start in range(0, len(of_cells), size):
        rows = np.arange(start, min(start + size, len(of_cells)), dtype=np.int64)
        first, second = cells.take("grid", of_cells[rows]), regions.take("grid", rows)
        if (short := np.flatnonzero(_lengths(first) != number)).size:
            name = regions.names[int(rows[short[0]])]
            raise DataError(
                f"{cells.path} needs as many cells of every picture, {number}; {name!r} has "
                f"{counted(int(_lengths(first)[short[0]]), 'cell')}, where zeros at the end are none; regions, any "
                "number of them, are the other file"
            )
        parts = np.zeros((len(rows), number + second.shape[1], width), dtype=np.float32)
        parts[:, :number, : first.shape[2]] = first
        parts[:, number:, : second.shape[2]] = second
        yield parts, number + _lengths(second)


def _lengths(parts: Float[np.ndarray, "b p e"]) -> Int[np.ndarray, "b"]:
    """How many parts of each picture there are: zeros at its end are none."""
    there = np.any(parts != 0, axis=2)
    return np.where(np.any(there, axis=1), parts.shape[1] - np.argmax(there[:, ::-1], axis=1), 0)
