"""What another program made of images and texts, read by name: a matrix of scores, or vectors. Never a pickle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.arrays import open_npy, open_npz
from subtext.data.dataset import Items
from subtext.errors import DataError

FORMATS = "npz, npy, safetensors or parquet"
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".joblib", ".ckpt")
_VECTORS = ("vectors", "embeddings", "pooled")
_NAMES = ("ids", "names")
_BLOCK = 2**24
"""Numbers that are looked at together."""


@dataclass(frozen=True)
class Output:
    """Numbers with a name for each entry of an axis, from one file.

    values  scores (I T), larger is better, or vectors (N D), (N K D) for K views; in memory or mapped
    names   a list for each axis that has them: [images, texts], or [items]
    path    where it was read from, for messages

    Raises DataError when names and values differ in number, a name stands twice, or a number is none or infinite.
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
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise DataError(
                    f"{self.path} needs ids that are unique; {len(twice)} come more than once: {_some(twice)}"
                )
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
        """(N) where each item stands on that axis: by its id, else by its path or text, else by the path's file name.

        Raises DataError that counts the items without an entry, and names the first three.
        """
        row_of = {name: row for row, name in enumerate(self.names[axis])}
        row_numbers = [_row(row_of, name, value) for name, value in zip(items.ids, items.values, strict=True)]
        missing = [name for name, row in zip(items.ids, row_numbers, strict=True) if row < 0]
        if missing:
            raise DataError(
                f"{self.path} needs an entry for every item of the split; {len(missing)} of {len(items)} have none: "
                f"{_some(missing)}; it names {_some(self.names[axis])}"
            )
        return np.array(row_numbers, dtype=np.int64)


def read_scores(path: Path, *, image_ids: Path | None = None, text_ids: Path | None = None) -> Output:
    """Scores of images (rows) with texts (columns).

    npz            scores, image_ids, text_ids
    npy            with FILE.image_ids.txt and FILE.text_ids.txt beside it (or .json), or the files given
    safetensors    the tensor scores; image_ids and text_ids as JSON lists in its metadata, or files as for npy
    parquet        a row a pair: image_id, text_id, score

    image_ids, text_ids  files of ids, one a line or a JSON list, which count before those in or beside the file

    Raises DataError when the file is none of these, holds pickled objects, or is not as `Output` needs it.
    """
    kind = _kind(path)
    if kind == ".parquet":
        return _long_scores(path)
    arrays, lists = _arrays(path, kind, ("scores", "image_ids", "text_ids"))
    values = arrays.get("scores")
    if values is None or values.ndim != 2:
        raise DataError(f"{path} needs 'scores' (images, texts); it got {_shapes(arrays)}")
    id_files = (("image_ids", image_ids), ("text_ids", text_ids))
    return Output(values, tuple(_ids(path, name, file, arrays, lists) for name, file in id_files), path)


def holds_scores(path: Path) -> bool:
    """Whether a file has scores of pairs rather than vectors of items; an npy, which names nothing, has scores.

    Raises DataError when it is of no known format, or cannot be read.
    """
    kind = _kind(path)
    if kind == ".parquet":
        return "score" in _columns(path)
    return "scores" in _arrays(path, kind, ("scores", *(f"{side}_vectors" for side in ("image", "text")), *_VECTORS))[0]


def read_vectors(path: Path, modality: str, *, ids: Path | None = None) -> Output:
    """Vectors of the images or of the texts.

    npz            <modality>_vectors and <modality>_ids, as `subtext embed` writes them; or vectors (embeddings,
                   pooled) and ids (names)
    npy            with FILE.ids.txt or FILE.ids.json beside it, or the file given
    safetensors    the tensor vectors (embeddings); ids as a JSON list in its metadata, or a file as for npy
    parquet        a row an item: id, vector (a list), and modality where the file has both

    Raises DataError as `read_scores` does.
    """
    kind = _kind(path)
    if kind == ".parquet":
        return _vector_rows(path, modality)
    tensors = (f"{modality}_vectors", *_VECTORS)
    named = (f"{modality}_ids", *_NAMES)
    arrays, lists = _arrays(path, kind, (*tensors, *named))
    values = next((arrays[name] for name in tensors if name in arrays), None)
    if values is None or values.ndim not in (2, 3):
        raise DataError(f"{path} needs '{modality}_vectors' or 'vectors' (items, width); it got {_shapes(arrays)}")
    name = next((name for name in named if name in arrays or name in lists), "ids")
    return Output(values, (_ids(path, name, ids, arrays, lists),), path)


def _kind(path: Path) -> str:
    if path.suffix in PICKLES:
        raise DataError(f"{path.name} may hold pickled objects, which can run anything; save the numbers as {FORMATS}")
    if path.suffix not in (".npz", ".npy", ".safetensors", ".parquet"):
        raise DataError(f"scores and vectors need {FORMATS}; it got {path.name}")
    if not path.is_file():
        raise DataError(f"{path} needs to be a file; it is not there")
    return path.suffix


def _arrays(path: Path, kind: str, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], dict[str, list[str]]]:
    """The wanted arrays that are there, and the lists of ids in the metadata."""
    if kind == ".npz":
        return open_npz(path, names), {}
    if kind == ".npy":
        return {names[0] if names[0] == "scores" else "vectors": open_npy(path)}, {}
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys() if name in names}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} needs to be a safetensors file of plain numbers; reading it failed: {error}"
        ) from error
    return arrays, {name: _listed(path, name, text) for name, text in metadata.items() if name in names}


def _ids(
    path: Path, name: str, file: Path | None, arrays: dict[str, NDArray[Any]], lists: dict[str, list[str]]
) -> list[str]:
    if file is None and name in arrays:
        column = arrays[name]
        if column.ndim != 1 or column.dtype.kind not in "USiu":
            raise DataError(f"{path}: '{name}' needs one name an entry; it got {column.dtype} of shape {column.shape}")
        return [value.decode("utf-8") if isinstance(value, bytes) else str(value) for value in column.tolist()]
    if file is None and name in lists:
        return lists[name]
    files = [file] if file is not None else [path.with_suffix(f".{name}{end}") for end in (".txt", ".json")]
    for place in files:
        if place.is_file():
            try:
                text = place.read_text(encoding="utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"{place} needs to be UTF-8 text; {error}") from error
            return _listed(place, name, text) if place.suffix == ".json" else text.removesuffix("\n").split("\n")
    where = " or ".join(place.name for place in files)
    raise DataError(
        f"{path} needs '{name}' in it, or in {where}; scores and vectors are joined by name, not by position"
    )


def _listed(path: Path, name: str, text: str) -> list[str]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: '{name}' needs to be a JSON list of ids; {error}") from error
    if not isinstance(values, list):
        raise DataError(f"{path}: '{name}' needs to be a JSON list of ids; it got {type(values).__name__}")
    return [str(value) for value in values]


def _columns(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names: list[str] = pq.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        raise _no_parquet(path, error) from error
    return names


def _no_parquet(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} needs to be Parquet; reading it failed: {str(error).splitlines()[0]}")


def _table(path: Path, columns: Sequence[str]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise _no_parquet(path, error) from error
    if missing := [name for name in columns if name not in table.column_names]:
        raise DataError(f"{path} needs the columns {', '.join(columns)}; {', '.join(missing)} is not there")
    return {name: table.column(name).to_pylist() for name in table.column_names if name in (*columns, "modality")}


def _vector_rows(path: Path, modality: str) -> Output:
    columns = _table(path, ("id", "vector"))
    rows = [
        row
        for row, item_modality in enumerate(columns.get("modality", [modality] * len(columns["id"])))
        if item_modality == modality
    ]
    try:
        values = np.array([columns["vector"][row] for row in rows], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: 'vector' needs lists of numbers, all of one length; {error}") from error
    return Output(values, ([str(columns["id"][row]) for row in rows],), path)


def _long_scores(path: Path) -> Output:
    table = _table(path, ("image_id", "text_id", "score"))
    names = [list(dict.fromkeys(str(value) for value in table[column])) for column in ("image_id", "text_id")]
    indices = [{name: index for index, name in enumerate(side)} for side in names]
    values = np.full((len(names[0]), len(names[1])), np.nan, dtype=np.float32)
    rows, columns = (
        [index[str(value)] for value in table[c]] for index, c in zip(indices, ("image_id", "text_id"), strict=True)
    )
    values[rows, columns] = table["score"]
    if len(rows) != values.size or np.isnan(values).any():
        raise DataError(
            f"{path} needs one row for each of {len(names[0])} x {len(names[1])} pairs; it has {len(rows)} rows for "
            f"{values.size - int(np.isnan(values).sum())} pairs with a score"
        )
    return Output(values, (names[0], names[1]), path)


def _row(row_of: dict[str, int], name: str, value: str | bytes | None) -> int:
    if name in row_of or not isinstance(value, str):
        return row_of.get(name, -1)
    return row_of.get(value, row_of.get(PurePosixPath(value).name, -1))


def _shapes(arrays: dict[str, NDArray[Any]]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none of these"


def _some(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:3])
