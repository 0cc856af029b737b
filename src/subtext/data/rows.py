"""The form in which every reader returns a data set: rows and problems in the order of the file, and their splits."""

from __future__ import annotations

import json
import math
import posixpath
import re
import unicodedata
from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from subtext.data.addresses import address_error, shown
from subtext.data.dataset import RowIssue
from subtext.data.feature_file import FeatureFile
from subtext.data.objects import NAME
from subtext.errors import ArgumentError, DataError
from subtext.ops import draw

IMAGE = ("image", "file_name", "filename")
TEXT = ("captions", "caption", "text")
ROLES = dict.fromkeys(IMAGE, "image") | dict.fromkeys(TEXT, "text")
"""Names of a column in our own form -> its role."""
TEXT_ID = ("text_ids", "text_id")
MARK = b"\xef\xbb\xbf"
"""The byte-order mark that some editors write before UTF-8."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://|data:", re.IGNORECASE)
_SURROGATE = re.compile("[\ud800-\udfff]")
_PYTHON_LIST = re.compile(r"\s*\[\s*'")
_USUAL_IMAGE = (
    "image", "file_name", "filename", "image_path", "image_file", "image_name", "imagepath", "imagefile", "img_path",
    "img", "file_path", "filepath", "path", "file", "source_file", "sourcefile", "photo", "picture", "bild",
    "datei", "dateiname", "bilddatei", "fichier",
    "inventory_number", "inventory_no", "inv_no", "inventarnummer", "inventar_nr", "inv_nr", "accession_number",
    "accession_no", "object_number", "objektnummer", "signatur", "shelfmark", "numero_inventaire",
)  # fmt: skip
_USUAL_TEXT = (
    (("headline",), ("title", "titel", "titre")),
    (("caption",), ("captions",), ("text",), ("caption_abstract",), ("description", "beschreibung"),
     ("bildunterschrift", "legende"), ("alt_text", "alttext"), ("alt",), ("abstract",), ("sentence",)),
)  # fmt: skip
"""Usual names of the columns of a foreign table, the most specific first: of a headline, and of a longer text. Names in
brackets are one word in several languages, and a table may have a column for each."""
LISTS = frozenset(("keywords", "keyword", "tags", "tag", "subject", "subjects"))
"""Columns whose cells are lists, with semicolons, bars, lines or else commas between the values."""
RESERVED = frozenset((*IMAGE, *TEXT, *TEXT_ID, "id", "split", "group"))

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
"""Shares of groups, where a data set has no splits of its own."""
MERGED: Mapping[str, str] = {
    "restval": "train", "training": "train", "dev": "val", "valid": "val", "validation": "val", "testing": "test",
}  # fmt: skip
"""Names of splits that are read as another; "restval" are COCO's validation images that are used for training."""
_SPLIT_NAMES = re.compile(r"(?:^|[^a-z])(train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?)(?:[^a-z]|$)")

Node = TypeVar("Node", bound=Hashable)

Progress = Callable[[int, int], None]
"""Called with the number of finished items and their total."""

Record = tuple[str, Mapping[str, Any] | RowIssue]
"""The position of a record in its file, and its columns or the reason why it has none."""

Columns = Mapping[str, tuple[str, ...]]
"""Role -> the columns of a foreign table that have it: "image", "text", "id", "split", "group", or a metadata field."""


@dataclass(slots=True)
class Row:
    """One row of a file of any format.

    Attributes:
        where: Position of the row, for messages.
        image: Path relative to the root, an address in a store, or bytes; None for an image with features only.
        image_id: Unique name of the image.
        texts: Its texts, none for an image without a text; None for a text with features only.
        text_ids: Their names, if the file has some.
        split: Name of the split; None if the data set has none.
        group: Name of the group; None for the image's own.
        metadata: All other columns.
        unpaired: Whether the image or text has no partner, such as a distractor in a gallery.
        mark: Number and hash of the rows of its image that stand together; see `data.unchanged`.
        inside: Gives the rows of what is written inside the image, in the place of this one; None for a row as it is.
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
    mark: tuple[int, str] | None = None
    inside: Callable[[], Iterator[Row | RowIssue]] | None = None


@dataclass(frozen=True)
class Source:
    """The content of a data set, before it is assembled.

    Attributes:
        rows: Rows and problems, read lazily.
        root: The folder of relative image paths.
        judgements: (text id, image id, score), if the data set has graded truth.
        features: Precomputed image features, if the data set has features instead of images.
        tables: The tables whose rows these are, which are joined with the files of the root; none for other formats.
        whole: Folder whose images all belong to the tables, so that those in no row are named; None for none.
    """

    rows: Iterable[Row | RowIssue]
    root: Path
    judgements: tuple[tuple[str, str, float], ...] = ()
    features: FeatureFile | None = None
    tables: tuple[Path, ...] = ()
    whole: Path | None = None


class RowError(Exception):
    """The reason why a row cannot be used; readers turn it into a RowIssue.

    Args:
        problem: The reason.
        name: As in RowIssue.
    """

    def __init__(self, problem: str, name: str = "") -> None:
        super().__init__(problem)
        self.name = name
        self.item = ""

    def at(self, where: str) -> RowIssue:
        """Make the problem of a row.

        Args:
            where: Position of the row.

        Returns:
            The problem.
        """
        return RowIssue(where, str(self), name=self.name, item=self.item)


def rows_of(
    records: Iterable[Record], name: str | None, *, folder: str = "", split: str | None = None
) -> Iterator[Row | RowIssue]:
    """Convert the records of a table to rows.

    Args:
        records: Position and columns of each row.
        name: Of the file, for the message that columns are missing; None for a format with fixed columns.
        folder: The folder of relative image paths, relative to the root.
        split: Of rows without a split column.

    Yields:
        A row, or the reason why it cannot be used.

    Raises:
        DataError: If none of the first rows has an image and a text column.
    """
    records = iter(records)
    first = list(islice(records, 20))
    objects = [columns for _, columns in first if not isinstance(columns, RowIssue)]
    if objects and name is not None:
        _require_columns({column for columns in objects for column in columns}, name)
    for where, columns in chain(first, records):
        if isinstance(columns, RowIssue):
            yield columns
            continue
        try:
            row, problems = _row(columns, where, folder, split)
        except RowError as error:
            yield error.at(where)
            continue
        yield from problems
        if row.texts or not any(problem.fatal for problem in problems):
            yield row


def parse_columns(columns: str | Mapping[str, str | Sequence[str]] | None, text_fields: str | None) -> Columns:
    """Parse `image=filename,text=headline+caption`, or the same as a mapping.

    Args:
        columns: Columns of each role, as text or role -> column or columns; None for none.
        text_fields: Columns of the texts alone, separated by commas; None for none.

    Returns:
        Role -> columns.

    Raises:
        ArgumentError: If the form is another.

    Example:
        >>> parse_columns("image=file,text=head+body", None)
        {'image': ('file',), 'text': ('head', 'body')}
        >>> parse_columns({"image": "file", "text": ["head, short", "body"]}, None)
        {'image': ('file',), 'text': ('head, short', 'body')}
    """
    form = "columns needs ROLE=COLUMN with commas, as in image=filename,text=headline+caption,date=taken_on"
    roles: dict[str, tuple[str, ...]] = {}
    named: list[tuple[object, str, tuple[str, ...]]] = []
    if isinstance(columns, Mapping):
        for role, sources in columns.items():
            several = sources if isinstance(sources, list | tuple) else (sources,)
            if not isinstance(role, str) or not all(isinstance(name, str) for name in several):
                needs = "{'image': 'filename', 'text': ['headline', 'caption']}"
                raise ArgumentError(f"columns needs names, as in {needs}; it got { ({role: sources})!r:.80}")
            named.append(({role: sources}, role, tuple(several)))
    elif columns is not None and not isinstance(columns, str):
        raise ArgumentError(f"{form}, or a mapping of these; it got a {type(columns).__name__}", field="columns")
    for part in columns.split(",") if isinstance(columns, str) else ():
        role, equals, sources = part.partition("=")
        named.append((f"'{part}'", role, tuple(name.strip() for name in sources.split("+")) if equals else ()))
    for written, role, names in named:
        if not role.strip() or not names or "" in names:
            raise ArgumentError(f"{form}; it got {written}")
        if (role := ROLES.get(role.strip(), role.strip())) in roles:
            raise ArgumentError(f"{form}; '{role}' is there twice; put several columns of one role together with +")
        if len(names) > 1 and role in RESERVED - {"text"}:
            raise ArgumentError(
                f"{form}; several columns can be texts or metadata, and '{role}' is one column; got {written}"
            )
        roles[role] = names
    if text_fields is not None:
        fields = tuple(field.strip() for field in text_fields.split(","))
        if "" in fields or "text" in roles:
            wrong = "it names an empty field" if "" in fields else "columns names the text, too; give one of them"
            raise ArgumentError(
                f"text_fields needs fields with commas, as in headline,keywords; {wrong}", field="text_fields"
            )
        roles["text"] = fields
    return roles


def require_columns(columns: Columns, available: Collection[str], subject: str) -> None:
    """Require that the columns of all roles exist.

    Args:
        columns: Role -> columns.
        available: Names that exist.
        subject: What has them, for the message.

    Raises:
        DataError: If a column is missing; the message has the nearest names.
    """
    for role, sources in columns.items():
        for missing in set(sources) - set(available):
            near = get_close_matches(missing, available, n=3, cutoff=0.5)
            names = ", ".join(f"'{name}'" for name in near or sorted(map(str, available))) or "none"
            raise DataError(
                f"{subject} has no '{missing}', which is named for '{role}'; "
                f"{'the nearest names are' if near else 'there are'} {names}"
            )


def with_roles(records: Iterable[Record], columns: Columns, name: str, *, header: bool = False) -> Iterator[Record]:
    """Rename the columns of a table to those of their roles.

    Image and text of a table that has neither our own names nor is named here are guessed by usual names, and a note
    says what was guessed.

    Args:
        records: Position and columns of each row.
        columns: Role -> columns.
        name: Of the file, for messages.
        header: Whether every record has all columns; without one, a column may first be in the last record.

    Yields:
        The records under the names of roles, and a note if columns were guessed.

    Raises:
        DataError: If no record has a column; the message has the nearest names.
    """
    records = iter(records)
    first: list[Record] = []
    names: dict[str, None] = {}
    requested = {source for sources in columns.values() for source in sources}
    for record in records:
        first.append(record)
        names |= {} if isinstance(record[1], RowIssue) else dict.fromkeys(map(str, record[1]))
        if len(first) >= 20 and (header or requested <= names.keys()):
            break
    if names:
        require_columns(columns, names, name)
    usual = _guessed([column for column in names if column not in requested])
    if guessed := {role: sources for role, sources in usual.items() if role not in columns}:
        chosen = columns_setting(guessed, name).removeprefix("--").removeprefix("columns").lstrip(" =")
        advice = "name others with columns=" if name == NAME else "name others with --columns"
        yield name, RowIssue(name, f"its columns were guessed: {chosen}; {advice}", fatal=False)
    columns = {**guessed, **columns}
    for where, row in chain(first, records):
        yield where, row if isinstance(row, RowIssue) or not columns else renamed(row, columns)


def _guessed(names: Sequence[str]) -> Columns:
    """The columns of image and text by usual names, whatever their case; of a role that has our own name, none."""
    plain = {re.sub(r"[\W_]+", "_", name.strip().casefold()).strip("_"): name for name in reversed(names)}
    columns: dict[str, tuple[str, ...]] = {}
    if not set(IMAGE) & set(names):
        columns["image"] = tuple(plain[usual] for usual in _USUAL_IMAGE if usual in plain)[:1]
    if not {*TEXT, *TEXT_ID} & set(names):
        kinds = (next((word for word in kind if plain.keys() & set(word)), ()) for kind in _USUAL_TEXT)
        columns["text"] = tuple(plain[usual] for word in kinds for usual in reversed(plain) if usual in word)
    return {role: sources for role, sources in columns.items() if sources}


def renamed(record: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    """Rename the columns of a record to those of their roles.

    The texts of an image are the values of all columns of "text", without what an earlier column has; those columns
    are no metadata but for lists, such as keywords. Another role of several columns is a list of their values.

    Args:
        record: Column -> value.
        columns: Role -> columns.

    Returns:
        Role or column -> value.
    """
    moved = {name for sources in columns.values() for name in sources}
    replaced = {name for role in columns for name in {"image": IMAGE, "text": TEXT}.get(role, (role,))}
    lists = {name: value for name, value in record.items() if name in moved and isinstance(value, list)}
    new = {name: value for name, value in record.items() if name not in moved | replaced} | lists
    for role, sources in columns.items():
        values = [value for name in sources if not _is_empty(value := record.get(name))]
        if role == "text":
            texts = list[Any]()
            for value in values:
                own = list(value) if isinstance(value, list | tuple) else [value]
                # A caption that repeats the headline is no second text; two people who wrote the same are.
                texts += [text for text in own if not isinstance(text, str) or text not in texts]
            new["captions"] = texts
        elif len(sources) > 1:
            new[role] = values
        elif values:
            (new[role],) = values
    return new


def with_lists(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Cut the cells of columns that are lists; no other cell is cut.

    Args:
        row: Column -> value.

    Returns:
        The row, with lists in the columns of `LISTS`.

    Example:
        >>> with_lists({"Keywords": "law; court, high", "place": "Paris, Texas"})
        {'Keywords': ['law', 'court, high'], 'place': 'Paris, Texas'}
    """
    named = [name for name, cell in row.items() if isinstance(cell, str) and _is_list(str(name))]
    return {**row, **{name: _cut(row[name]) for name in named}} if named else row


@lru_cache
def _is_list(column: str) -> bool:
    """Whether a column is a list by its name; a table asks for the same names in every row."""
    return column.strip().casefold() in LISTS


def _cut(cell: str) -> list[str]:
    if cell.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            values = json.loads(cell)
            if isinstance(values, list):
                return [str(value) for value in values]
    parts = re.split(r"[;|\n]", cell) if re.search(r"[;|\n]", cell) else cell.split(",")
    return list(dict.fromkeys(filter(None, (" ".join(part.split()) for part in parts))))


def _require_columns(columns: set[str], name: str) -> None:
    missing: list[str] = []
    needed: list[tuple[str, Sequence[str]]] = []
    if not columns.intersection((*IMAGE, "id")):
        missing.append("an image column ('image', 'file_name' or 'filename'; 'id' for images known by features)")
        needed.append(("image", _USUAL_IMAGE))
    if not columns.intersection((*TEXT, *TEXT_ID)):
        missing.append("a text column ('captions', 'caption' or 'text'; 'text_id' for texts known by features)")
        needed.append(("text", tuple(usual for kind in _USUAL_TEXT for word in kind for usual in word)))
    if missing:
        names = ", ".join(f"'{column}'" for column in sorted(map(str, columns))) or "none"
        near = [(role, _nearest(columns, usual)) for role, usual in needed]
        advice = columns_setting({role: (column or "COLUMN",) for role, column in near}, name)
        image = next((column for column in IMAGE if column in columns), None)
        hint = ""
        if image is not None:
            hint = f"; images without texts are items of an index: {columns_setting({'image': (image,)}, name)}"
        elif name != NAME:
            hint = f"; a folder of images alone has no table: then move {name} out of it"
        raise DataError(f"{name} needs {' and '.join(missing)}; its columns are {names}; name yours: {advice}{hint}")


def columns_setting(columns: Columns, name: str) -> str:
    """The setting that names columns, as it is typed for a file and for a table in memory.

    Args:
        columns: Role -> columns.
        name: Of the table.

    Returns:
        Such as "--columns image=file", or "columns={'image': 'file'}".
    """
    if name == NAME:
        named = {role: [name, *more] if more else name for role, (name, *more) in columns.items()}
        return f"columns={named}"
    return "--columns " + ",".join(f"{role}={'+'.join(names)}" for role, names in columns.items())


def _nearest(columns: Iterable[str], usual: Sequence[str]) -> str | None:
    """The column whose name is most like a usual one; None where none is."""
    ratio, best = max(
        (
            (SequenceMatcher(None, str(column).casefold(), name).ratio(), str(column))
            for column in columns
            for name in usual
        ),
        default=(0.0, ""),
    )
    return best if ratio >= 0.6 else None


def _row(columns: Mapping[str, Any], where: str, folder: str, split: str | None) -> tuple[Row, list[RowIssue]]:
    """One row, and a problem for each of its texts that cannot be used."""
    image, path = image_of(columns, folder)
    image_id = name_of(columns, "id") or path
    try:
        return _row_of(columns, where, image, image_id, split)
    except RowError as error:
        error.item = image_id or (shown(image) if isinstance(image, str) else "")
        raise


def _row_of(
    columns: Mapping[str, Any], where: str, image: str | bytes | None, image_id: str | None, split: str | None
) -> tuple[Row, list[RowIssue]]:
    if (name := image_id or (image if isinstance(image, str) else None)) and (reason := id_error(name)):
        raise RowError(f"the id {name!r} {reason}; rename it")
    if image is None and image_id is None:
        raise RowError(
            "has no image: 'image' (or 'file_name', 'filename', the column of --columns, or 'id' for features) is empty"
        )
    if image_id is None and isinstance(image, str) and shown(image) != image:
        raise RowError(
            f"needs a column `id`: without one the address is the id, which visitors see, and the query of "
            f"{shown(image):.80} may be a signature that gives access",
            f"{shown(image):.80}",
        )
    values, text_ids = _texts(columns), _text_ids(columns)
    if text_ids is not None and values and len(text_ids) != len(values):
        raise RowError(f"needs one name per text; it got {len(text_ids)} names and {len(values)} texts")
    texts: list[str | None] = [] if values or text_ids is None else [None] * len(text_ids)
    names, problems = [], []
    for number, value in enumerate(values):
        if (reason := text_error(value)) is None:
            texts.append(value.replace("\0", " ").strip() if "\0" in value else value)
            names += text_ids[number : number + 1] if text_ids is not None else []
        else:
            subject = f"text {number + 1} of {len(values)}" if len(values) > 1 else "the text"
            item = image_id or (image if isinstance(image, str) else "")
            problems.append(RowIssue(where, f"{subject} {reason}", item=item))
    reserved = RESERVED if _first_filled(columns, IMAGE) == "filename" else RESERVED - {"filename"}
    metadata = {}
    for column, value in columns.items():
        if column in reserved or value is None:
            continue
        column = clean_name(column)
        if isinstance(value, bytes):
            note = f"'{column}' is bytes, which cannot be shown or searched; it is left out"
            problems.append(RowIssue(where, note, fatal=False, name=f"'{column}'"))
            continue
        plain = value if isinstance(value, str) and "\0" not in value else plain_value(value, column)
        if not valid(column) or (isinstance(plain, str) and not valid(plain)):
            raise RowError("has a column that is not valid UTF-8; save the file as UTF-8")
        if plain is not None:
            metadata[column] = plain
    row_split = name_of(columns, "split")
    row = Row(
        where=where,
        image=image,
        image_id=image_id,
        texts=texts,
        text_ids=names if values and text_ids is not None else text_ids,
        split=row_split if row_split is not None else split,
        group=name_of(columns, "group"),
        metadata=metadata,
    )
    return row, problems


def image_of(columns: Mapping[str, Any], folder: str = "") -> tuple[str | bytes | None, str | None]:
    """Get the image of a row.

    Args:
        columns: Column -> value.
        folder: Folder of relative paths, relative to the root.

    Returns:
        The path or the bytes, and the name that came with the bytes.

    Raises:
        RowError: If the value is no image on disk.
    """
    column = _first_filled(columns, IMAGE)
    value = None if column is None else columns[column]
    if isinstance(value, Mapping):
        # The struct in which the Hub stores images: bytes, or the path of a file.
        path, data = value.get("path"), value.get("bytes")
        if isinstance(data, bytes) and data:
            return data, path if isinstance(path, str) and path else None
        value = path
    if value is None or isinstance(value, bytes):
        return value, None
    value = value.as_posix() if isinstance(value, PurePath) else value
    if not isinstance(value, str):
        if hasattr(value, "shape"):
            got = f"a {type(value).__name__} of shape {tuple(value.shape)}"
            raise RowError(
                f"'image' needs a path, bytes, a PIL image, or an array (height, width, 3) of uint8; it is {got}"
            )
        raise RowError(f"'image' needs a path, or the bytes of an image; it is {described(value)}")
    if not valid(value):
        raise RowError("'image' is not valid Unicode; save the table as UTF-8, or rename the image")
    if _ADDRESS.match(value):
        if (reason := address_error(value)) is not None:
            raise RowError(f"'image' is the address {shown(value):.80}; {reason}", f"{shown(value):.80}")
        return value, None
    return posixpath.normpath(posixpath.join(folder, value)), None


def _texts(columns: Mapping[str, Any]) -> list[Any]:
    """The values of a row's text column; none where all are empty, or its texts are known by features."""
    column = _first_filled(columns, TEXT)
    if column is None:
        return []
    value = columns[column]
    if isinstance(value, str) and column == "captions" and value.lstrip().startswith("["):
        # A cell of a CSV file may have a JSON list of texts; one that only looks like a list is a text.
        if _PYTHON_LIST.match(value):
            raise RowError("'captions' is a list in Python's notation; write it as JSON, with json.dumps")
        try:
            values = json.loads(value)
        except (ValueError, RecursionError):
            values = None
        if isinstance(values, list) and any(isinstance(text, str) for text in values):
            value = values
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values if any(map(_has_content, values)) else []


def text_error(text: Any) -> str | None:
    """Explain why a value is no text.

    A number is no text: the program that wrote it may have made 7 or 7.0 of "007".

    Args:
        text: The value.

    Returns:
        The end of a sentence; None for a text.
    """
    if not _has_content(text):
        return "is empty; add a caption, or remove it"
    if not isinstance(text, str):
        return f"needs to be a string; it is {described(text)}"
    return None if valid(text) else "is not valid UTF-8; save the file as UTF-8"


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
        if name in columns and not _is_empty(columns[name]):
            return name
    return None


def _has_content(text: Any) -> bool:
    return not _is_empty(text) and not (isinstance(text, str) and not text.strip())


def _is_empty(value: Any) -> bool:
    if value is None or isinstance(value, _PLAIN):
        return value is None or value == ""
    differs = value != value  # NaN; an array has no single answer.
    return isinstance(differs, bool) and differs


def name_of(columns: Mapping[str, Any], *names: str) -> str | None:
    """Get the value of the first filled column as a name: a string, or a whole number without its point.

    Args:
        columns: Column -> value.
        names: Names of columns, in order of preference.

    Returns:
        The name; None if all are empty.

    Raises:
        RowError: If it is something else.
    """
    column = _first_filled(columns, names)
    return None if column is None else _name(columns[column], column)


_PLAIN = (str, int, list, Mapping)
_MOST_NESTED, _MOST_DIGITS = 16, 300
"""Levels of lists and objects in a value, and digits of a number, that an index can hold."""


def plain_value(value: Any, name: str, depth: int = 0) -> Any:
    """A value of metadata as JSON has it: dates as texts, decimals as numbers, NaN as nothing, infinity as a text.

    Args:
        value: A value of any table.
        name: Of its column, for the message.
        depth: Lists and objects around it.

    Returns:
        Texts, finite numbers, booleans, and lists and objects of them; None for an empty cell.

    Raises:
        RowError: For a value that cannot be held.

    Example:
        >>> from decimal import Decimal
        >>> plain_value({"a": [Decimal("12.50"), float("nan"), float("inf")], "b": Decimal(3)}, "price")
        {'a': [12.5, 'inf'], 'b': 3}
    """
    if depth > _MOST_NESTED:
        raise RowError(f"'{name}' is nested in more than {_MOST_NESTED} lists and objects; flatten it", f"'{name}'")
    if isinstance(value, str):
        return value.replace("\0", " ")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value() and value.adjusted() < _MOST_DIGITS
        value = int(value) if whole else float(value)
    elif hasattr(value, "tolist"):  # NumPy's numbers and arrays.
        value = value.tolist()
    if isinstance(value, int):
        if abs(value) >= 10**_MOST_DIGITS:
            raise RowError(f"'{name}' has a number of more than {_MOST_DIGITS} digits; write it in quotes", f"'{name}'")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        inner = {clean_name(str(key)): plain_value(one, name, depth + 1) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one is not None}
    if isinstance(value, list | tuple | set | frozenset):
        return [one for one in (plain_value(each, name, depth + 1) for each in value) if one is not None]
    if isinstance(value, bytes):
        raise RowError(f"'{name}' is bytes, which cannot be shown or searched; leave the column out", f"'{name}'")
    if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
        return value.date().isoformat()  # Tables store a day as its first moment.
    return value.isoformat() if isinstance(value, date | time) else str(value)


def clean_name(column: str) -> str:
    """The name of a column without control characters.

    Args:
        column: The name.

    Returns:
        The name, with spaces in their place.
    """
    if column.isprintable():
        return column
    return " ".join("".join(" " if unicodedata.category(sign) == "Cc" else sign for sign in column).split())


def id_error(name: str) -> str | None:
    """Explain why a text is no id.

    Args:
        name: Any text.

    Returns:
        The end of a sentence; None for an id: any text without control characters that can be written as UTF-8.

    Example:
        >>> id_error(""), id_error("Zürich 7,5 [x]")
        ('needs a letter or a digit; it is empty', None)
    """
    if name.isascii() and name.isprintable() and name:
        return None
    for sign in name:
        if unicodedata.category(sign) in ("Cc", "Cs"):
            return f"needs to be without control characters; it has {sign!r}"
    return None if name else "needs a letter or a digit; it is empty"


def _name(value: Any, column: str) -> str | None:
    if _is_empty(value):
        return None
    value = value.item() if hasattr(value, "item") else int(value) if isinstance(value, Decimal) else value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowError(f"'{column}' needs a string or a whole number; it is {described(value)}")
    name = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not valid(name):
        raise RowError(f"'{column}' is not valid UTF-8; save the file as UTF-8")
    if reason := id_error(name):
        raise RowError(f"'{column}' {reason}; it is {name!r}", repr(name))
    return name


def described(value: Any) -> str:
    """Describe the kind of a value in plain words.

    Args:
        value: The value.

    Returns:
        Such as "a list".
    """
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return f"the number {value!s:.20}"
    kinds = {type(None): "nothing", str: "a string", list: "a list", dict: "an object", bytes: "bytes"}
    return kinds.get(type(value), f"a {type(value).__name__}")


def valid(text: str) -> bool:
    """Test whether a text can be written as UTF-8: undecodable bytes and lone surrogates cannot.

    Args:
        text: The text.

    Returns:
        Whether it can.
    """
    return text.isascii() or _SURROGATE.search(text) is None


def folder_of(names: Iterable[str], root: Path, candidates: Sequence[str]) -> str:
    """Find the folder of images.

    Args:
        names: Paths of images.
        root: Folder of relative paths.
        candidates: Folders relative to the root.

    Returns:
        The first candidate that has one of the first 20 images; the first where none has.
    """
    first = list(islice(names, 20))
    from subtext.data.image_files import image_exists  # Opens Pillow, which a search by words does without.

    fits = (folder for folder in candidates if any(image_exists(posixpath.join(folder, name), root) for name in first))
    return next(fits, candidates[0])


def read_object(path: Path, content: str = "") -> dict[str, Any]:
    """Read the JSON object of a file.

    Args:
        path: The file.
        content: What the object needs, for the message, such as " with 'images'".

    Returns:
        The object.

    Raises:
        DataError: If the file holds something else.
    """
    try:
        value = json.loads(path.read_bytes().removeprefix(MARK))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} needs to be a JSON object{content}; {error!s:.200}") from error
    if not isinstance(value, dict):
        raise DataError(f"{path} needs to be a JSON object{content}; it is another JSON value")
    return value


def lines_of(path: Path) -> list[str]:
    """Read the lines of a text file without their ends; bytes that are no UTF-8 stay recognisable as such.

    Only a line feed ends a line: Python's splitlines would cut a caption at eight other characters, too.

    Args:
        path: The file.

    Returns:
        The lines.
    """
    text = path.read_bytes().removeprefix(MARK).decode("utf-8", "surrogateescape")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def split_in_name(name: str) -> str | None:
    """Find the split in the name of a file or folder ("train-00000-of-00002", "validation").

    Args:
        name: The name.

    Returns:
        The split; None for none.
    """
    match = _SPLIT_NAMES.search(name.lower())
    return None if match is None else MERGED.get(match[1], match[1])


def draw_splits(names: Iterable[str], *, seed: int) -> NDArray[np.character]:
    """Split groups randomly, 80-10-10, each by the name of its first image: a row added elsewhere moves no other.

    Of three groups or more every split gets one: an empty split gets the group whose random number is closest to it.

    Args:
        names: (G) name of each group's first image.
        seed: Seed of the split.

    Returns:
        (G) "train", "val" or "test".
    """
    return np.array(list(SHARES))[draw_split_numbers(names, seed=seed)]


def draw_split_numbers(names: Iterable[str], *, seed: int) -> NDArray[np.uint8]:
    """Split groups as `draw_splits` does.

    Args:
        names: (G) name of each group's first image.
        seed: Seed of the split.

    Returns:
        (G) the place of the split in `SHARES`.
    """
    remaining, drawn = iter(names), array("d")
    while some := list(islice(remaining, 8192)):
        drawn.frombytes(draw.uniform(draw.keys(some), seed=seed, epoch=0, purpose="split")[:, 0].tobytes())
    uniforms = np.frombuffer(drawn, dtype=np.float64)
    ends = np.cumsum(list(SHARES.values()))
    middles = ends - np.array(list(SHARES.values())) / 2
    codes = np.searchsorted(ends, uniforms, side="right").astype(np.uint8)
    for code in (1, 2, 0) if len(uniforms) >= 3 else ():
        if not (codes == code).any():
            # Only from a split that keeps a group.
            free = np.bincount(codes)[codes] > 1
            codes[np.argmin(np.where(free, np.abs(uniforms - middles[code]), np.inf))] = code
    return codes


def components(edges: Iterable[tuple[Node, Node]]) -> dict[Node, Node]:
    """Find connected components.

    Args:
        edges: Pairs of nodes.

    Returns:
        Node -> the node that stands for its component: the first node of its first edge.

    Example:
        >>> components([("a", "b"), ("c", "d"), ("b", "e")])
        {'a': 'a', 'b': 'a', 'c': 'c', 'd': 'c', 'e': 'a'}
    """
    parent: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for left, right in edges:
        first = root(left)
        parent[root(right)] = first
    return {node: root(node) for node in parent}
