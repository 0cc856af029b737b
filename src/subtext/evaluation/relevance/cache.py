"""Matrices of relevance on disk, by what they were made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.data.atomic import write_file
from subtext.errors import DataError

_FORM = 1
"""Raised when the same texts and settings come to give other numbers."""


def kept(
    folder: Path,
    about: Mapping[str, object],
    *,
    shape: tuple[int, int],
    precision: str,
    fill: Callable[[NDArray[np.floating]], object],
) -> Float[np.ndarray, "g c"]:
    """The matrix of these settings, mapped: as `fill` wrote it into an array of that shape, now or another time.

    about      whatever the numbers depend on, as JSON; texts by their `digest`
    precision  "float32" or "float16"

    Raises DataError when the file is damaged; OutputError when it cannot be written.
    """
    settings = {"form": _FORM, "shape": shape, "precision": precision, **about}
    name = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16).hexdigest()
    place = folder / f"{name}.npy"
    if not place.is_file():

        def write(new: Path) -> None:
            array = np.lib.format.open_memmap(new, mode="w+", dtype=np.dtype(precision), shape=shape)
            fill(array)
            array.flush()

        write_file(place, write)
    try:
        values = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{place} is damaged: {error}; remove it, it is made again") from error
    if values.shape != shape or values.dtype != np.dtype(precision):
        raise DataError(f"{place} is damaged: it holds {values.shape} of {values.dtype}; remove it, it is made again")
    return values


def digest(texts: Iterable[str]) -> str:
    """32 hexadecimal digits that change with any text and with their order."""
    found = hashlib.blake2b(digest_size=16)
    for text in texts:
        coded = text.encode("utf-8", "surrogatepass")
        found.update(len(coded).to_bytes(8, "little"))
        found.update(coded)
    return found.hexdigest()


def digest_numbers(*arrays: NDArray[np.int64]) -> str:
    """The same of numbers."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(len(array).to_bytes(8, "little"))
        found.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return found.hexdigest()
