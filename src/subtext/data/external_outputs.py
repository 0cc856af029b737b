"""The output of another program for images and texts, read by name: a matrix of scores, or vectors. Never a pickle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from subtext.data.arrays import (
    ids_beside,
    ids_of_array,
    listed_ids,
    open_npy,
    open_npz,
    parquet_batches,
    read_ids,
    require_unique,
    rows_by_name,
)
from subtext.data.dataset import Items
from subtext.data.objects import named_arrays, to_array
from subtext.errors import DataError

FORMATS = "npz, npy, safetensors or parquet"
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".joblib", ".ckpt")
_VECTORS = ("vectors", "embeddings", "pooled")
_NAMES = ("ids", "names")
_BLOCK = 2**24
"""Numbers that are checked at a time."""


@dataclass(frozen=True)
class Output:
    """Numbers with a name for each entry of an axis, from one file.

    Attributes:
        values: Scores (I T), larger is better, or vectors (N D), (N K D) for K views; in memory or mapped.
        names: A list for each axis that has them: [images, texts], or [items].
        path: Where it was read from, for messages.

    Raises:
        DataError: If names and values differ in number, a name occurs twice, or a number is not finite.
    """

    values: NDArray[Any]
    names: tuple[list[str], ...]
    path: Path

    def __post_init__(self) -> None:
        lengths = tuple(len(names) for names in self.names)
        shape = self.values.shape[: len(lengths)]
        if shape != lengths or self.values.dtype.kind != "f":
            hint = "; transpose the matrix" if lengths == shape[::-1] and len(shape) > 1 else ""
            raise DataError(
                f"{self.path} needs fractions of shape {lengths} as it has ids; it got {self.values.dtype} "
                f"of shape {self.values.shape}{hint}"
            )
        for names in self.names:
            require_unique(names, self.path)
        flat = max(1, _BLOCK // max(1, self.values[:1].size))
        for start in range(0, len(self.values), flat):
            block = self.values[start : start + flat]
            if not np.isfinite(block).all():
                position = np.argwhere(~np.isfinite(block))[0]
                item = self.names[0][start + position[0]]
                raise DataError(
                    f"{self.path} needs finite numbers; '{item}' has {block[tuple(position)]} in column {position[1]}; "
                    "a pair that was not scored can be given a number below all others"
                )

    def rows(self, items: Items, *, axis: int = 0) -> NDArray[np.int64]:
        """Find the index of each item on an axis, as `rows_by_name` does.

        Args:
            items: (N) images or texts.
            axis: Axis of the array.

        Returns:
            (N) the indices.

        Raises:
            DataError: If items have none.
        """
        row_of = {name: row for row, name in enumerate(self.names[axis])}
        return rows_by_name(row_of, items.ids, items.values, self.path)


Ids: TypeAlias = Path | Sequence[Any] | None
"""Names of the rows of an array: a file, or a list; None for those that come with the array."""


def read_scores(path: Path | Any, *, image_ids: Ids = None, text_ids: Ids = None) -> Output:
    """Read scores of images (rows) with texts (columns).

    npz            scores, image_ids, text_ids
    npy            with FILE.image_ids.txt and FILE.text_ids.txt beside it (or .json), or the two files
    safetensors    the tensor scores; image_ids and text_ids as JSON lists in its metadata, or files as for npy
    parquet        a row per pair: image_id, text_id, score

    in memory      an array, or a mapping with scores, image_ids and text_ids

    Args:
        path: The file, or arrays in memory.
        image_ids: Files of ids, one per line or a JSON list, or lists, in place of those in or beside the file.
        text_ids: See `image_ids`.

    Returns:
        The scores with the ids of both axes.

    Raises:
        DataError: If the file is none of these, holds pickled objects, or does not fit `Output`.
    """
    path, arrays = _arrays(path, ("scores", "image_ids", "text_ids"), name="scores")
    values = arrays.get("scores")
    if values is None or values.ndim != 2:
        raise DataError(f"{path} needs 'scores' (images, texts); it got {_shapes(arrays)}")
    files = {"image_ids": image_ids, "text_ids": text_ids}
    return Output(values, tuple(_ids(path, name, file, arrays) for name, file in files.items()), path)


def read_vectors(path: Path | Any, modality: str, *, ids: Ids = None) -> Output:
    """Read vectors of the images or of the texts.

    npz            <modality>_vectors and <modality>_ids, as `subtext embed` writes them; or vectors (embeddings,
                   pooled) and ids (names)
    npy            with FILE.ids.txt or FILE.ids.json beside it, or the other file
    safetensors    the tensor vectors (embeddings); ids as a JSON list in its metadata, or a file as for npy
    parquet        a row per item: id, vector (a list), and modality where the file has both
    in memory      see `objects.named_arrays`

    Args:
        path: The file, or arrays in memory.
        modality: "image" or "text".
        ids: File or list of ids, in place of those in or beside the file.

    Returns:
        The vectors with their ids.

    Raises:
        DataError: As `read_scores` does.
    """
    tensors = (f"{modality}_vectors", *_VECTORS)
    named = (f"{modality}_ids", *_NAMES)
    path, arrays = _arrays(path, (*tensors, *named), modality, name=f"{modality}_embeddings")
    values = next((arrays[name] for name in tensors if name in arrays), None)
    if values is None or values.ndim not in (2, 3):
        raise DataError(f"{path} needs '{modality}_vectors' or 'vectors' (items, width); it got {_shapes(arrays)}")
    name = next((name for name in named if name in arrays), "ids")
    return Output(values, (_ids(path, name, ids, arrays),), path)


def _arrays(
    path: Path | Any, names: Sequence[str], modality: str = "", *, name: str
) -> tuple[Path, dict[str, NDArray[Any]]]:
    """The arrays of these names that exist, lists of ids included, and the path that messages name."""
    if isinstance(path, str | os.PathLike):
        return Path(path), _of_file(Path(path), names, modality)
    arrays = named_arrays(path, name)
    if not modality and "vectors" in arrays and "scores" not in arrays:
        arrays["scores"] = arrays.pop("vectors")
    return Path(name), {key: array for key, array in arrays.items() if key in names}


def _of_file(path: Path, names: Sequence[str], modality: str) -> dict[str, NDArray[Any]]:
    """From Parquet scores, or vectors of a modality."""
    if path.suffix in PICKLES:
        raise DataError(f"{path.name} may hold pickled objects, which can run anything; save the numbers as {FORMATS}")
    if path.suffix not in (".npz", ".npy", ".safetensors", ".parquet"):
        raise DataError(f"scores and vectors need {FORMATS}; it got {path.name}")
    if not path.is_file():
        raise DataError(f"{path} needs to be a file; it is not there")
    if path.suffix == ".npz":
        return open_npz(path, names)
    if path.suffix == ".npy":
        return {names[0] if names[0] == "scores" else "vectors": open_npy(path)}
    if path.suffix == ".parquet":
        return _vectors(path, modality) if modality else _scores(path)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys() if name in names}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} needs to be a safetensors file of plain numbers; reading it failed: {error}"
        ) from error
    lists = {name: listed_ids(text, f"{path}: '{name}'") for name, text in metadata.items() if name in names}
    return arrays | {name: np.array(ids, dtype=str) for name, ids in lists.items()}


def _ids(path: Path, name: str, given: Ids, arrays: dict[str, NDArray[Any]]) -> list[str]:
    """The names that were given, else those in the file of the numbers, else beside it; Parquet always has its own."""
    if isinstance(given, Path) and path.suffix != ".parquet":
        return read_ids(given)
    if given is not None and path.suffix != ".parquet":
        return ids_of_array(to_array(given, name), name)
    if name in arrays:
        return ids_of_array(arrays[name], f"{path}: '{name}'")
    if not path.suffix:
        given_as = f"external={{'{name if '_' in name else str(path).partition('_')[0] + '_ids'}': [...]}}"
        raise DataError(
            f"{path} needs '{name}', the ids of its rows, since rows are joined by name and not by position; it got an "
            f"array of shape {next(iter(arrays.values())).shape}; give {given_as}"
        )
    return ids_beside(path, name)


def read_table(path: Path, columns: Sequence[str], *, optional: str = "modality") -> dict[str, list[Any]]:
    """Read columns of a Parquet file.

    Args:
        path: The file.
        columns: Names of the columns.
        optional: Name of a column that may be missing.

    Returns:
        Name -> values.

    Raises:
        DataError: If one is missing.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if missing := [name for name in columns if name not in names]:
                raise DataError(f"{path} needs the columns {', '.join(columns)}; {', '.join(missing)} is not there")
            present = [name for name in names if name in (*columns, optional)]
            batches = list(parquet_batches(file, path, present))
            schema = pa.schema([file.schema_arrow.field(name) for name in present])
            table: dict[str, list[Any]] = pa.Table.from_batches(batches, schema).to_pydict()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} needs to be Parquet; reading it failed: {str(error).splitlines()[0]}") from error
    return table


def _vectors(path: Path, modality: str) -> dict[str, NDArray[Any]]:
    table = read_table(path, ("id", "vector"))
    modalities = table.get("modality", [modality] * len(table["id"]))
    rows = [row for row, item_modality in enumerate(modalities) if item_modality == modality]
    try:
        values = np.array([table["vector"][row] for row in rows], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: 'vector' needs lists of numbers, all of one length; {error}") from error
    return {"vectors": values, "ids": np.array([str(table["id"][row]) for row in rows], dtype=str)}


def _scores(path: Path) -> dict[str, NDArray[Any]]:
    table = read_table(path, ("image_id", "text_id", "score"))
    (images, rows), (texts, columns) = (
        np.unique([str(name) for name in table[column]], return_inverse=True) for column in ("image_id", "text_id")
    )
    values = np.full((len(images), len(texts)), np.nan, dtype=np.float32)
    values[rows, columns] = table["score"]
    if len(rows) != values.size or np.isnan(values).any():
        raise DataError(
            f"{path} needs one row for each of {len(images)} x {len(texts)} pairs; it has {len(rows)} rows for "
            f"{values.size - int(np.isnan(values).sum())} pairs with a score"
        )
    return {"scores": values, "image_ids": images, "text_ids": texts}


def _shapes(arrays: dict[str, NDArray[Any]]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none of these"
