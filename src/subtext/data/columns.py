"""From the columns of a row to a Row, with a sentence for every way in which they can be wrong."""

from __future__ import annotations

import itertools
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from subtext.data.rows import Problem, Row
from subtext.errors import DataError

IMAGE = ("image", "file_name")
TEXT = ("captions", "caption", "text")
TEXT_ID = ("text_ids", "text_id")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://|data:", re.IGNORECASE)
_PYTHON_LIST = re.compile(r"\s*\[\s*'")
_TAKEN = frozenset((*IMAGE, *TEXT, *TEXT_ID, "id", "split", "group"))

Raw = tuple[str, Mapping[str, Any] | Problem]
"""Where a row stands, and its columns or why it has none."""


class RowError(Exception):
    """Why a row cannot be used; it ends as a Problem, never outside of the readers. `name` as in Problem."""

    def __init__(self, what: str, name: str = "") -> None:
        super().__init__(what)
        self.name = name

    def at(self, where: str) -> Problem:
        """The problem of the row that stands there."""
        return Problem(where, str(self), name=self.name)


def rows_of(
    raws: Iterable[Raw], name: str | None, *, folder: str = "", split: str | None = None
) -> Iterator[Row | Problem]:
    """Rows of a table.

    name    the file's, for the message that its columns are others; None for a format that has no columns to rename
    folder  what relative picture paths start from, relative to the root
    split   of rows without a split column

    Raises DataError when none of the first rows has a picture and a text column.
    """
    raws = iter(raws)
    first = list(itertools.islice(raws, 20))
    objects = [raw for _, raw in first if not isinstance(raw, Problem)]
    columns = {column for raw in objects for column in raw}
    if objects and name is not None:
        _need(columns, name)
    for where, raw in itertools.chain(first, raws):
        if isinstance(raw, Problem):
            yield raw
            continue
        try:
            row, problems = row_of(raw, where, folder=folder, split=split)
        except RowError as error:
            yield error.at(where)
            continue
        yield from problems
        if row.texts:
            yield row


def row_of(
    raw: Mapping[str, Any], where: str, *, folder: str = "", split: str | None = None
) -> tuple[Row, list[Problem]]:
    """One row, and a problem for each of its texts that was left out."""
    image, path = image_of(raw, folder)
    image_id = name_of(raw, "id") or path
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
    more = {column: value for column, value in raw.items() if column not in _TAKEN and value is not None}
    for column, value in more.items():
        if not valid(column) or (isinstance(value, str) and not valid(value)):
            raise RowError("has a column that is not valid UTF-8; save the file as UTF-8")
    own = name_of(raw, "split")
    row = Row(
        where=where,
        image=image,
        image_id=image_id,
        texts=texts,
        text_ids=text_ids,
        split=own if own is not None else split,
        group=name_of(raw, "group"),
        more=more,
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
        # Spreadsheets of many countries save CSV with semicolons, which then reads as one column.
        semicolons = len(columns) == 1 and ";" in have and name.endswith(".csv")
        advice = "separate them by commas" if semicolons else "rename them"
        raise DataError(f"{name} needs {' and '.join(lacks)}; its columns are {have}; {advice}")


def image_of(raw: Mapping[str, Any], folder: str = "") -> tuple[str | bytes | None, str | None]:
    """The path or the bytes of a row's picture, and the name that the bytes came with.

    Raises RowError when there is something, but no picture on disk.
    """
    column = _filled(raw, IMAGE)
    value = None if column is None else raw[column]
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
        raise RowError(f"'image' needs a path, or the bytes of a picture; it is {described(value)}")
    if not valid(value):
        raise RowError("'image' is not valid Unicode; save the file as UTF-8")
    if _ADDRESS.match(value):
        raise RowError(f"'image' is an address, {value[:80]}; pictures need to be on disk; fetch it first", value[:80])
    return posixpath.normpath(posixpath.join(folder, value)), None


def _texts(raw: Mapping[str, Any], where: str) -> tuple[dict[int, str], list[Problem]]:
    """Texts by their place in the row, and a problem for each that cannot be used."""
    column = _filled(raw, TEXT)
    if column is None:
        if _filled(raw, TEXT_ID) is not None:
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
        wrong = wrong_text(text)
        if wrong is None:
            texts[number] = text
        else:
            which = f"text {number + 1} of {len(values)}" if len(values) > 1 else "the text"
            problems.append(Problem(where, f"{which} {wrong}"))
    return texts, problems


def wrong_text(text: Any) -> str | None:
    """Why something is no text, as the end of a sentence; None for a text.

    A number is none: what wrote it as a number may have made 7 or 7.0 of "007".
    """
    if text is None or text != text or (isinstance(text, str) and not text.strip()):
        return "is empty; give a caption, or leave it out"
    if not isinstance(text, str):
        return f"needs to be a string; it is {described(text)}"
    return None if valid(text) else "is not valid UTF-8; save the file as UTF-8"


def _listed(cell: str) -> Any:
    """A JSON list of texts in a cell of a CSV file; a cell that only looks like one is a text."""
    if _PYTHON_LIST.match(cell):
        raise RowError("'captions' is a list as Python writes it; write it as JSON, with json.dumps")
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    return values if isinstance(values, list) and any(isinstance(value, str) for value in values) else cell


def _text_ids(raw: Mapping[str, Any]) -> list[str] | None:
    column = _filled(raw, TEXT_ID)
    if column is None:
        return None
    value = raw[column]
    names = [_name(one, column) for one in (value if isinstance(value, list | tuple) else [value])]
    if None in names:
        raise RowError(f"'{column}' has an empty name")
    return [name for name in names if name is not None]


def _filled(raw: Mapping[str, Any], columns: Iterable[str]) -> str | None:
    """The first of these columns that holds something: null, "" and not-a-number (pandas' empty cell) are nothing."""
    for column in columns:
        value = raw.get(column)
        if value is not None and value != "" and value == value:
            return column
    return None


def name_of(raw: Mapping[str, Any], *columns: str) -> str | None:
    """The name that the first filled of these columns gives: a string, or a number as it is written without a point.

    Raises RowError when it is something else.
    """
    column = _filled(raw, columns)
    return None if column is None else _name(raw[column], column)


def _name(value: Any, column: str) -> str | None:
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f"'{column}' needs a string or a whole number; it is {described(value)}")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    name = str(value)
    if not valid(name):
        raise RowError(f"'{column}' is not valid UTF-8; save the file as UTF-8")
    return name


def described(value: Any) -> str:
    """What something is that should have been another thing, in plain words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {str(value)[:20]}"
    kinds = {type(None): "nothing", str: "a string", list: "a list", dict: "an object", bytes: "bytes"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def valid(text: str) -> bool:
    """Whether a text can be written as UTF-8: undecodable bytes and lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
