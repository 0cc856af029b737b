"""What every reader gives: rows and problems in the order of the file, made from columns or records.

Splits: what data sets call them, and drawing them where there are none.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Problem
from subtext.data.feature_file import FeatureFile
from subtext.data.image_files import image_exists
from subtext.errors import DataError
from subtext.ops import draw

IMAGE = ("image", "file_name")
TEXT = ("captions", "caption", "text")
TEXT_ID = ("text_ids", "text_id")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://|data:", re.IGNORECASE)
_PYTHON_LIST = re.compile(r"\s*\[\s*'")
_RESERVED = frozenset((*IMAGE, *TEXT, *TEXT_ID, "id", "split", "group"))

Progress = Callable[[int, int], None]
"""Called with the number of finished items and their total."""

Record = tuple[str, Mapping[str, Any] | Problem]
"""The position of a record in its file, and its columns or the reason why it has none."""


@dataclass(slots=True)
class Row:
    """One row of a file, whatever its format.

    image     path relative to the root, or bytes; None for an image that is known by features alone
    texts     its texts; None in place of a text that is known by features alone
    text_ids  their names, where the file gives some
    unpaired  an image or a text that has no partner on purpose, such as a distractor of a gallery
    metadata  all other columns
    """

    where: str
    image: str | bytes | None
    image_id: str | None
    texts: list[str | None]
    text_ids: list[str] | None = None
    split: str | None = None
    group: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    unpaired: bool = False


@dataclass(frozen=True)
class Source:
    """An opened data set.

    rows        rows and problems, read lazily
    root        where relative image paths start
    judgements  (text id, image id, score), where the data set brings graded truth
    features    precomputed image features, where the data set consists of them
    """

    rows: Iterable[Row | Problem]
    root: Path
    judgements: tuple[tuple[str, str, float], ...] = ()
    features: FeatureFile | None = None


class RowError(Exception):
    """The reason why a row cannot be used; readers turn it into a Problem. `name` as in Problem."""

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(problem)
        self.name = name

    def at(self, where: str) -> Problem:
        """The problem of the row at this position."""
        return Problem(where, str(self), name=self.name)


def rows_of(
    records: Iterable[Record], name: str | None, *, folder: str = "", split: str | None = None
) -> Iterator[Row | Problem]:
    """The rows of a table.

    name    of the file, for the message that columns are missing; None for a format without columns to rename
    folder  where relative image paths start, relative to the root
    split   of rows without a split column

    Raises DataError when none of the first rows has an image and a text column.
    """
    records = iter(records)
    first = list(islice(records, 20))
    objects = [columns for _, columns in first if not isinstance(columns, Problem)]
    if objects and name is not None:
        _require_columns({column for columns in objects for column in columns}, name)
    for where, columns in chain(first, records):
        if isinstance(columns, Problem):
            yield columns
            continue
        try:
            row, problems = row_of(columns, where, folder=folder, split=split)
        except RowError as error:
            yield error.at(where)
            continue
        yield from problems
        if row.texts:
            yield row


def row_of(
    columns: Mapping[str, Any], where: str, *, folder: str = "", split: str | None = None
) -> tuple[Row, list[Problem]]:
    """One row, and a problem for each of its texts that was left out."""
    image, path = image_of(columns, folder)
    image_id = name_of(columns, "id") or path
    if image is None and image_id is None:
        raise RowError("has no image: 'image' (or 'file_name', or 'id' for features) is empty")
    numbered, problems = _texts(columns, where)
    texts: list[str | None] = list(numbered.values())
    text_ids = _text_ids(columns)
    if text_ids is not None:
        if not numbered and not problems:
            texts = [None] * len(text_ids)
        elif len(text_ids) != len(numbered) + len(problems):
            raise RowError(
                f"needs one name per text; it got {len(text_ids)} names and {len(numbered) + len(problems)} texts"
            )
        else:
            text_ids = [text_ids[number] for number in numbered]
    metadata = {column: value for column, value in columns.items() if column not in _RESERVED and value is not None}
    for column, value in metadata.items():
        if not valid(column) or (isinstance(value, str) and not valid(value)):
            raise RowError("has a column that is not valid UTF-8; save the file as UTF-8")
    row_split = name_of(columns, "split")
    row = Row(
        where=where,
        image=image,
        image_id=image_id,
        texts=texts,
        text_ids=text_ids,
        split=row_split if row_split is not None else split,
        group=name_of(columns, "group"),
        metadata=metadata,
    )
    return row, problems


def _require_columns(columns: set[str], name: str) -> None:
    missing = []
    if not columns.intersection((*IMAGE, "id")):
        missing.append("an image column ('image' or 'file_name'; 'id' for images known by features)")
    if not columns.intersection((*TEXT, *TEXT_ID)):
        missing.append("a text column ('captions', 'caption' or 'text'; 'text_id' for texts known by features)")
    if missing:
        names = ", ".join(f"'{column}'" for column in sorted(map(str, columns))) or "none"
        # Spreadsheets of many countries save CSV with semicolons, which then reads as one column.
        semicolons = len(columns) == 1 and ";" in names and name.endswith(".csv")
        advice = "separate them by commas" if semicolons else "rename them"
        raise DataError(f"{name} needs {' and '.join(missing)}; its columns are {names}; {advice}")


def image_of(columns: Mapping[str, Any], folder: str = "") -> tuple[str | bytes | None, str | None]:
    """The path or the bytes of a row's image, and the name that came with the bytes.

    Raises RowError when the value is no image on disk.
    """
    column = _first_filled(columns, IMAGE)
    value = None if column is None else columns[column]
    if isinstance(value, Mapping):
        # The struct in which the Hub stores images: bytes, or the path of a file.
        path = value.get("path")
        data = value.get("bytes")
        if isinstance(data, bytes) and data:
            return data, path if isinstance(path, str) and path else None
        value = path
    if value is None or isinstance(value, bytes):
        return value, None
    if not isinstance(value, str):
        raise RowError(f"'image' needs a path, or the bytes of an image; it is {described(value)}")
    if not valid(value):
        raise RowError("'image' is not valid Unicode; save the file as UTF-8")
    if _ADDRESS.match(value):
        raise RowError(f"'image' is a URL, {value[:80]}; images need to be on disk; download it first", value[:80])
    return posixpath.normpath(posixpath.join(folder, value)), None


def _texts(columns: Mapping[str, Any], where: str) -> tuple[dict[int, str], list[Problem]]:
    """Texts by their index in the row, and a problem for each that cannot be used."""
    column = _first_filled(columns, TEXT)
    if column is None:
        if _first_filled(columns, TEXT_ID) is not None:
            return {}, []
        raise RowError("has no text; add a caption, or remove the row")
    value = columns[column]
    if isinstance(value, str) and column == "captions" and value.lstrip().startswith("["):
        value = _parsed_list(value)
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise RowError(f"'{column}' is an empty list; add a caption, or remove the row")
    texts: dict[int, str] = {}
    problems = []
    for number, text in enumerate(values):
        reason = text_error(text)
        if reason is None:
            texts[number] = text
        else:
            subject = f"text {number + 1} of {len(values)}" if len(values) > 1 else "the text"
            problems.append(Problem(where, f"{subject} {reason}"))
    return texts, problems


def text_error(text: Any) -> str | None:
    """Why a value is no text, as the end of a sentence; None for a text.

    A number is no text: the program that wrote it may have made 7 or 7.0 of "007".
    """
    if text is None or text != text or (isinstance(text, str) and not text.strip()):
        return "is empty; add a caption, or remove it"
    if not isinstance(text, str):
        return f"needs to be a string; it is {described(text)}"
    return None if valid(text) else "is not valid UTF-8; save the file as UTF-8"


def _parsed_list(cell: str) -> Any:
    """A JSON list of texts in a cell of a CSV file; a cell that only looks like a list is a text."""
    if _PYTHON_LIST.match(cell):
        raise RowError("'captions' is a list in Python's notation; write it as JSON, with json.dumps")
    try:
        values = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    return values if isinstance(values, list) and any(isinstance(value, str) for value in values) else cell


def _text_ids(columns: Mapping[str, Any]) -> list[str] | None:
    column = _first_filled(columns, TEXT_ID)
    if column is None:
        return None
    value = columns[column]
    names = [_name(item, column) for item in (value if isinstance(value, list | tuple) else [value])]
    if None in names:
        raise RowError(f"'{column}' has an empty name")
    return [name for name in names if name is not None]


def _first_filled(columns: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """The first of these columns that has a value: null, "" and not-a-number (pandas' empty cell) are none."""
    for name in names:
        value = columns.get(name)
        if value is not None and value != "" and value == value:
            return name
    return None


def name_of(columns: Mapping[str, Any], *names: str) -> str | None:
    """The value of the first filled column as a name: a string, or a whole number without its point.

    Raises RowError when it is something else.
    """
    column = _first_filled(columns, names)
    return None if column is None else _name(columns[column], column)


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
    """What a value is, in plain words."""
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


def folder_of(names: Iterable[str], root: Path, candidates: Sequence[str]) -> str:
    """The first candidate folder, relative to root, that has one of the first 20 images; the first where none has."""
    first = list(islice(names, 20))
    matches = (folder for folder in candidates if any(image_exists(joined(folder, name), root) for name in first))
    return next(matches, candidates[0])


def joined(folder: str, name: str) -> str:
    """The path of an image in a folder, which may be empty."""
    return f"{folder}/{name}" if folder else name


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file. Raises DataError when the file holds something else."""
    try:
        value = json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be a JSON object; {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} needs to be a JSON object; it is another JSON value")
    return value


def lines_of(path: Path) -> list[str]:
    """The lines of a text file without their ends; bytes that are no UTF-8 stay recognisable as such.

    Only a line feed ends a line: Python's splitlines would cut a caption at eight other characters, too.
    """
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
"""Of groups, where a data set has no splits of its own."""

MERGED: Mapping[str, str] = {
    "restval": "train",
    "training": "train",
    "dev": "val",
    "valid": "val",
    "validation": "val",
    "testing": "test",
}
"""Names of splits that are read as another; "restval" are COCO's validation images that everyone trains on."""

_NAMES = re.compile(r"(?:^|[^a-z])(train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?)(?:[^a-z]|$)")


def split_in_name(name: str) -> str | None:
    """The split that a file or folder is named after ("train-00000-of-00002", "validation"), or None."""
    match = _NAMES.search(name.lower())
    return None if match is None else MERGED.get(match[1], match[1])


def draw_splits(names: Sequence[str], *, seed: int) -> NDArray[np.character]:
    """80-10-10 of groups, each by the name of its first image alone: a row added elsewhere moves no other.

    Of three groups or more every split gets one: the group whose draw is nearest to it is moved where none fell in.
    """
    draws = draw.uniform(draw.keys(list(names)), seed=seed, epoch=0, purpose="split")[:, 0]
    bounds = np.cumsum([SHARES["train"], SHARES["val"]])
    codes = np.searchsorted(bounds, draws, side="right")
    middles = (SHARES["train"] / 2, bounds[0] + SHARES["val"] / 2, 1 - SHARES["test"] / 2)
    if len(names) >= 3:
        for part in (1, 2, 0):
            if not (codes == part).any():
                # Only from a split that keeps a group of its own.
                free = np.bincount(codes, minlength=3)[codes] > 1
                codes[np.argmin(np.where(free, np.abs(draws - middles[part]), np.inf))] = part
    return np.array(list(SHARES))[codes]
