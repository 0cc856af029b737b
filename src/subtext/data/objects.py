"""Tables in memory: the two ways in which objects become the records that a reader of files gives.

    whatever has `__arrow_c_stream__`    a frame or a table of columns: pandas, polars, pyarrow, DuckDB
    any rows that are mappings           a list, a generator, a `datasets.Dataset`, a torch `Dataset`

An image in a cell is a path, the bytes of a file, a PIL image, or an array (H W), (H W 3) of uint8.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias, runtime_checkable

from subtext.errors import ArgumentError

NAME = "the list of rows"
"""What messages call a table in memory."""
_PLAIN = (str, int, float, bytes, PurePath, type(None))
_INDEX = "__index_level_"
"""Arrow's name of an index without a name, such as the row numbers of a filtered frame; it is no column."""
_FORMS = "rows such as {'image': 'a.jpg', 'caption': 'The ruling stands.'}"


@runtime_checkable
class ArrowStream(Protocol):
    """A table of columns that Arrow can read: of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as an Arrow C stream."""


@runtime_checkable
@runtime_checkable
class Indexed(Protocol):
    """Rows by number, as a torch `Dataset` has them."""

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, row: int, /) -> Any:
        """A row, from 0."""


Rows: TypeAlias = ArrowStream | Iterable[Mapping[str, Any]] | Indexed
"""A data set as an object: a table that Arrow can read, or rows that are mappings."""


@runtime_checkable
class Shaped(Protocol):
    """An array or a tensor of any library."""

    @property
    def shape(self) -> Any:
        """Its shape."""


Arrays: TypeAlias = Mapping[str, Any] | tuple[Any, Any] | Shaped
"""Arrays or tensors with the ids of their rows: {"ids": [...], "vectors": array}, (array, ids) or {id: vector}; or an
array alone, where its ids are given beside it."""


@dataclass(frozen=True, repr=False)
class Records:
    """A table in memory, read once: it can be used again where its object was a generator.

    Attributes:
        rows: The position of each row with its columns.
        header: Whether all rows have all columns.
    """

    rows: tuple[tuple[str, Mapping[str, Any]], ...]
    header: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"Records({len(self):,} rows)"


def records_of(data: Any) -> Records:
    """The records of an object.

    Args:
        data: A table that Arrow can read, or rows; see the module.

    Returns:
        Its rows, with plain values.

    Raises:
        ArgumentError: If it is neither, or a row is no mapping.
    """
    if isinstance(data, Records):
        return data
    if isinstance(data, type):
        raise ArgumentError(
            f"a data set needs {_FORMS}; it got the class {data.__name__}; give an object: {data.__name__}(...)"
        )
    if hasattr(data, "__arrow_c_stream__"):
        return Records(_numbered(_of_arrow(data)), header=True)
    if isinstance(data, Mapping):
        names = ", ".join(map(repr, list(data)[:4]))
        raise ArgumentError(
            f"a data set needs a path, or {_FORMS}; it got a mapping of {names or 'nothing'}; give one of its values "
            "where these are data sets, or rows: [dict(zip(data, row)) for row in zip(*data.values())]"
        )
    rows: Iterable[Any]
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        rows = data
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, str | bytes):
        rows = (data[number] for number in range(len(data)))
    else:
        advice = "; collect it first" if hasattr(data, "collect") else ""
        raise ArgumentError(
            f"a data set needs a path, or {_FORMS}, or a table that Arrow can read (pandas, polars, pyarrow); it got "
            f"{type(data).__name__} {str(data)!r:.60}{advice}"
        )
    return Records(_numbered(rows), header=False)


def _numbered(rows: Iterable[Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Rows with their positions, their cells as plain values."""
    records = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            advice = ""
            if isinstance(row, tuple) and len(row) == 2:
                advice = "; name its parts: ({'image': image, 'captions': texts} for image, texts in data)"
            elif hasattr(row, "shape"):
                advice = "; a table of numbers is no data set: features go to features="
            raise ArgumentError(
                f"a data set needs a path, or {_FORMS}; it got, as row {number}, a {type(row).__name__}: "
                f"{row!r:.60}{advice}"
            )
        records.append((f"row {number}", {str(name): plain_cell(cell) for name, cell in row.items()}))
    return tuple(records)


def _of_arrow(data: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of a table of columns; those that Arrow cannot hold, such as PIL images, are read column by column."""
    import pyarrow as pa

    from subtext.data.arrays import record_values

    try:
        reader = pa.RecordBatchReader.from_stream(data)
        # polars hands out the addresses of its objects as bytes of a fixed size.
        foreign = any(pa.types.is_fixed_size_binary(field.type) for field in reader.schema)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as error:
        if not hasattr(data, "columns"):
            raise ArgumentError(
                f"a data set needs a table of columns, with {_FORMS}; it got a {type(data).__name__} that Arrow cannot "
                f"read: {str(error).splitlines()[0]:.100}"
            ) from error
        foreign = True
    if foreign and hasattr(data, "columns"):
        yield from _of_columns(data)
        return
    if twice := _repeated(reader.schema.names):
        raise ArgumentError(f"a data set needs columns with different names; '{twice}' is there twice; rename one")
    keep = [name for name in reader.schema.names if not name.startswith(_INDEX)]
    for batch in reader:
        for row in record_values(batch.select(keep)):
            if isinstance(row, str):
                raise ArgumentError(f"a row of the {type(data).__name__} {row}")
            yield row


def _of_columns(data: Any) -> Iterator[Mapping[str, Any]]:
    names = list(data.columns)
    if twice := _repeated([str(name) for name in names]):
        raise ArgumentError(f"a data set needs columns with different names; '{twice}' is there twice; rename one")
    for cells in zip(*(list(data[name]) for name in names), strict=True):
        yield dict(zip(map(str, names), cells, strict=True))


def _repeated(names: list[str]) -> str:
    return next((name for number, name in enumerate(names) if name in names[:number]), "")


def plain_cell(value: Any) -> Any:
    """A cell as a reader of files has it: numbers of Python, lists, and images as a path or the bytes of a file.

    Args:
        value: Of any library.

    Returns:
        The value; what is not known here stays as it is, and is refused where it is used.
    """
    if isinstance(value, _PLAIN):
        return value
    if type(value).__name__ == "NAType":  # pandas' missing value, which is equal to nothing and has no truth.
        return None
    if hasattr(value, "getbands") and hasattr(value, "tobytes"):
        return _image(value)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and len(shape) in (2, 3) and str(getattr(value, "dtype", "")) == "uint8":
        from PIL import Image

        if shape[2:] in ((), (3,), (4,)) and hasattr(value, "__array_interface__"):
            return _image(Image.fromarray(value))
    if hasattr(value, "tolist") and (not isinstance(shape, tuple) or len(shape) < 2):
        return value.tolist()
    if hasattr(value, "to_list"):  # A list in a cell of polars, where a column is read by itself.
        value = value.to_list()
    if isinstance(value, list | tuple):
        return [plain_cell(one) for one in value]
    return value


def _image(image: Any) -> str | bytes:
    """A PIL image: its file where it is not decoded yet, else its pixels as PNG, upright and in RGB."""
    from subtext.data.image_files import open_image

    if getattr(image, "tile", None) and getattr(image, "fp", None) is not None and image.tell() == 0:
        name = getattr(image, "filename", "")
        if isinstance(name, str | PurePath) and str(name):
            return str(PurePath(name))
        image.fp.seek(0)
        data: bytes = image.fp.read()
        return data
    file = io.BytesIO()
    open_image(image).save(file, "PNG", compress_level=1)
    return file.getvalue()


_KNOWN = frozenset(
    f"{side}{name}"
    for side in ("", "image_", "text_")
    for name in ("ids", "names", "vectors", "embeddings", "pooled", "grid", "counts", "scores")
)
"""Names of arrays, as the files of features, vectors and scores have them."""


def named_arrays(value: Any, name: str) -> dict[str, Any]:
    """Arrays with the ids of their rows, as an .npz file has them.

    Args:
        value: A mapping of arrays by the names that files have, with their "ids"; a mapping id -> vector; a pair of
            array and ids, in either order; an array or a tensor alone; or what `embed` returns.
        name: Of the setting, for messages.

    Returns:
        Name -> array of numpy: "vectors" where the value has no name for it, with "ids" where it has them.

    Raises:
        ArgumentError: If it is none of these.
    """
    import numpy as np

    if hasattr(value, "image_vectors") and hasattr(value, "dataset"):
        sides = {
            side: (getattr(value, f"{side}s").ids, getattr(value, f"{side}_vectors")) for side in ("image", "text")
        }
        arrays = {f"{side}_ids": np.array(ids, dtype=str) for side, (ids, _) in sides.items()}
        return arrays | {f"{side}_vectors": to_array(vectors, name) for side, (_, vectors) in sides.items()}
    if isinstance(value, Mapping):
        if not value:
            raise ArgumentError(f"{name} needs arrays with ids; it got an empty mapping", field=name)
        if known := [key for key in value if key in _KNOWN]:
            return {key: to_array(value[key], f"{name}: '{key}'", field=name) for key in known}
        vectors = [to_array(vector, f"{name}: '{key}'", field=name) for key, vector in value.items()]
        if len(shapes := {vector.shape for vector in vectors}) > 1:
            raise ArgumentError(f"{name} needs vectors of one shape; it got {sorted(shapes)[:4]}", field=name)
        return {"ids": np.array([str(key) for key in value], dtype=str), "vectors": np.stack(vectors)}
    if isinstance(value, list | tuple) and len(value) == 2:
        first, second = value
        pair = (first, second) if _are_ids(second) else (second, first) if _are_ids(first) else None
        if pair is not None:
            return {"ids": np.array([str(one) for one in pair[1]], dtype=str), "vectors": to_array(pair[0], name)}
    if hasattr(value, "shape") or hasattr(value, "vectors"):
        return {"vectors": to_array(value, name)}
    forms = "{'ids': [...], 'vectors': array}, (array, ids) or {id: vector}"
    raise ArgumentError(
        f"{name} needs a path, or arrays with ids, as {forms}; it got a {type(value).__name__}", field=name
    )


def _are_ids(value: Any) -> bool:
    """Whether a value lists ids: strings, or whole numbers."""
    if hasattr(value, "dtype"):
        return len(getattr(value, "shape", ())) == 1 and getattr(value.dtype, "kind", "") in "USOiu"
    return isinstance(value, list | tuple) and all(isinstance(one, str | int | PurePath) for one in value)


def to_array(value: Any, what: str, *, field: str = "") -> Any:
    """An array of numpy from an array, a tensor of any device, embeddings, or lists of numbers or ids.

    Args:
        value: The value.
        what: What it is, for messages.
        field: Of the setting; `what` by default.

    Returns:
        The array; bfloat16 becomes float32.

    Raises:
        ArgumentError: If it is none.
    """
    import numpy as np

    if hasattr(value, "log_std") and hasattr(value, "vectors"):  # Embeddings, of one view or several.
        vectors = value.vectors
        value = vectors[:, 0] if vectors.shape[1] == 1 else vectors
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        array = value.numpy() if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            f"{what} needs an array of numbers; it cannot be one: {reason:.100}", field=field or what
        ) from (error)
    if array.dtype == object and array.ndim == 1 and all(isinstance(one, str) for one in array):
        array = array.astype(str)
    if array.dtype.kind not in "USfiu":
        raise ArgumentError(
            f"{what} needs an array of numbers; it got {array.dtype} of shape {array.shape}", field=field or what
        )
    return array
