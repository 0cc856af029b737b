"""From the columns of a row to a Row, with a sentence for every way in which they can be wrong."""

from __future__ import annotations

import itertools
import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from subtext.data.readers.rows import Problem, Row
from subtext.errors import DataError

IMAGE = ("image", "file_name")
TEXT = ("captions", "caption", "text")
TEXT_ID = ("text_ids", "text_id")
_TAKEN = frozenset((*IMAGE, *TEXT, *TEXT_ID, "id", "split", "group"))

Raw = tuple[str, Mapping[str, Any] | Problem]
"""Where a row stands, and its columns or why it has none."""


class RowError(Exception):
    """Why a row cannot be used; it ends as a Problem, never outside of the readers."""


def rows_of(raws: Iterable[Raw], name: str, *, folder: str = "", split: str | None = None) -> Iterator[Row | Problem]:
    """Rows of a table.

    name    the file's, for messages
    folder  what relative picture paths start from, relative to the root
    split   of rows without a split column

    Raises DataError when none of the first rows has a picture and a text column.
    """
    raws = iter(raws)
    first = list(itertools.islice(raws, 20))
    objects = [raw for _, raw in first if not isinstance(raw, Problem)]
    columns = {column for raw in objects for column in raw}
    if objects:
        _need(columns, name)
    for where, raw in itertools.chain(first, raws):
        if isinstance(raw, Problem):
            yield raw
            continue
        try:
            row, problems = row_of(raw, where, folder=folder, split=split)
        except RowError as error:
            yield Problem(where, str(error))
            continue
        yield from problems
        if row.texts:
            yield row


def row_of(
    raw: Mapping[str, Any], where: str, *, folder: str = "", split: str | None = None
) -> tuple[Row, list[Problem]]:
    """One row, and a problem for each of its texts that was left out."""
    image, path = image_of(raw, folder)
    image_id = _name(raw.get("id"), "id") or path
    if image is None and image_id is None:
        raise RowError("has no picture: 'image' (or 'file_name', or 'id' for features) is empty")
    numbered, problems = _texts(raw, where)
    texts: list[str | None] = list(numbered.values())
    text_ids = _text_ids(raw)
    if text_ids is not None:
        if not numbered and not problems:
            texts = [None] * len(text_ids)
        elif len(text_ids) != len(numbered) + len(problems):
            raise RowError(
                f"needs one name a text; it got {len(text_ids)} names and {len(numbered) + len(problems)} texts"
            )
        else:
            text_ids = [text_ids[number] for number in numbered]
    own = _name(raw.get("split"), "split")
    row = Row(
        where=where,
        image=image,
        image_id=image_id,
        texts=texts,
        text_ids=text_ids,
        split=own if own is not None else split,
        group=_name(raw.get("group"), "group"),
        more={column: value for column, value in raw.items() if column not in _TAKEN and value is not None},
    )
    return row, problems


def _need(columns: set[str], name: str) -> None:
    lacks = []
    if not columns.intersection((*IMAGE, "id")):
        lacks.append("a picture column ('image' or 'file_name'; 'id' for pictures known by features)")
    if not columns.intersection((*TEXT, *TEXT_ID)):
        lacks.append("a text column ('captions', 'caption' or 'text'; 'text_id' for texts known by features)")
    if lacks:
        have = ", ".join(f"'{column}'" for column in sorted(map(str, columns))) or "none"
        raise DataError(f"{name} needs {' and '.join(lacks)}; its columns are {have}; rename them")


def image_of(raw: Mapping[str, Any], folder: str = "") -> tuple[str | bytes | None, str | None]:
    """The path or the bytes of a row's picture, and the name that the bytes came with.

    Raises RowError when there is something, but no picture on disk.
    """
    value = next((raw[column] for column in IMAGE if raw.get(column) not in (None, "")), None)
    if isinstance(value, Mapping):
        # The struct in which the Hub stores pictures: bytes, or the path of a file.
        path = value.get("path")
        inner = value.get("bytes")
        if isinstance(inner, bytes) and inner:
            return inner, path if isinstance(path, str) and path else None
        value = path
    if value is None or isinstance(value, bytes):
        return value, None
    if not isinstance(value, str):
        raise RowError(f"'image' needs a path, or the bytes of a picture; it got {type(value).__name__}")
    if not valid(value):
        raise RowError("'image' is not valid Unicode; save the file as UTF-8")
    if value.startswith(("http://", "https://")):
        raise RowError(f"'image' is an address, {value[:80]}; pictures need to be on disk; fetch it first")
    return posixpath.normpath(posixpath.join(folder, value)), None


def _texts(raw: Mapping[str, Any], where: str) -> tuple[dict[int, str], list[Problem]]:
    """Texts by their place in the row, and a problem for each that cannot be used."""
    column = next((name for name in TEXT if raw.get(name) is not None), None)
    if column is None:
        if any(raw.get(name) is not None for name in TEXT_ID):
            return {}, []
        raise RowError("has no text; give a caption, or leave the row out")
    value = raw[column]
    if isinstance(value, str) and column == "captions" and value.lstrip().startswith("["):
        value = _listed(value)
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise RowError(f"'{column}' is an empty list; give a caption, or leave the row out")
    texts: dict[int, str] = {}
    problems = []
    for number, text in enumerate(values):
        which = f"text {number + 1} of {len(values)}" if len(values) > 1 else "the text"
        if isinstance(text, int | float) and not isinstance(text, bool):
            text = str(text)
        if text is None or (isinstance(text, str) and not text.strip()):
            problems.append(Problem(where, f"{which} is empty; give a caption, or leave it out"))
        elif not isinstance(text, str):
            problems.append(Problem(where, f"{which} needs to be a string; it is {type(text).__name__}"))
        elif not valid(text):
            problems.append(Problem(where, f"{which} is not valid UTF-8; save the file as UTF-8"))
        else:
            texts[number] = text
    return texts, problems


def _listed(cell: str) -> Any:
    """A JSON list in a cell of a CSV file; a cell that only looks like one is a text."""
    try:
        return json.loads(cell)
    except json.JSONDecodeError:
        return cell


def _text_ids(raw: Mapping[str, Any]) -> list[str] | None:
    value = next((raw[column] for column in TEXT_ID if raw.get(column) not in (None, "")), None)
    if value is None:
        return None
    values = value if isinstance(value, list | tuple) else [value]
    names = [_name(one, "text_id") for one in values]
    if None in names:
        raise RowError("'text_id' has an empty name")
    return [name for name in names if name is not None]


def _name(value: Any, column: str) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f"'{column}' needs a string or a whole number; it got {type(value).__name__}")
    if isinstance(value, float):
        if value != value:
            return None
        value = int(value) if value.is_integer() else value
    name = str(value)
    if not valid(name):
        raise RowError(f"'{column}' is not valid UTF-8; save the file as UTF-8")
    return name


def valid(text: str) -> bool:
    """Whether a text can be written as UTF-8: undecodable bytes and lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
