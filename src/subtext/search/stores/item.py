"""What an index keeps of a picture or a text beside its vectors, and how it is told apart, checked and filtered by."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal

Side = Literal["images", "texts"]
SIDES: tuple[Side, Side] = ("images", "texts")

Facet = tuple[str, str | int | float]
"""A field that can be filtered by, and one of its values."""

DATE = "@"
"""Ends the name of the facet that holds a date as seconds: a field of dates has one beside its texts."""

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")


@dataclass(frozen=True)
class Entry:
    """One item as it is put into an index.

    id        its name, unique on its side
    content   digest of what was embedded: the bytes of a picture, the words of a text, or features
    path      of a picture, against the index's root; None for one without a file
    text      of a text; None for one that is known by features alone
    metadata  plain data: numbers, texts, truth values, and lists of them can be filtered by
    stamp     size and time of the file, so that an unchanged one need not be read again
    """

    id: str
    content: bytes
    path: str | None = None
    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stamp: str | None = None

    @property
    def metadata_json(self) -> str:
        """The metadata as it is kept; what JSON does not know is kept as text."""
        return json.dumps(dict(self.metadata), ensure_ascii=False, default=_plain)

    def digest(self, side: int, key: int) -> bytes:
        """16 bytes that change with anything that is kept of the item: what `verify` compares."""
        return item_digest((key, side, self.id, self.path, self.text, self.metadata_json, self.content, self.stamp))


@dataclass(frozen=True)
class Item:
    """One item as an index gives it.

    key       its number in the index; never used again for another
    captions  the texts of a picture; of a text, the text itself
    metadata  as it was put in; of a text also "images", the ids of its pictures
    """

    key: int
    id: str
    path: str | None
    captions: list[str]
    metadata: dict[str, Any]


def item_digest(columns: tuple[Any, ...]) -> bytes:
    """16 bytes of a row of items: key, side, id, path, text, metadata, content and stamp."""
    told = json.dumps([value.hex() if isinstance(value, bytes) else value for value in columns], ensure_ascii=False)
    return hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def facets(metadata: Mapping[str, Any]) -> set[Facet]:
    """What the metadata can be filtered by: its texts and numbers, each of a list, and the dates among the texts.

    >>> sorted(facets({"year": 1990, "tags": ["a", "b"], "map": {"x": 1}, "none": None}))
    [('tags', 'a'), ('tags', 'b'), ('year', 1990)]
    >>> [name for name, _ in sorted(facets({"taken": "2021-03-05"}))]
    ['taken', 'taken@']
    """
    found: set[Facet] = set()
    for name, value in metadata.items():
        for one in value if isinstance(value, list | tuple | set) else [value]:
            plain = _plain(one) if not isinstance(one, str | int | float) else one
            if isinstance(plain, bool):
                found.add((name, int(plain)))
            elif isinstance(plain, int):
                # SQLite holds 64 bits.
                found.add((name, plain if abs(plain) < 2**63 else str(plain)))
            elif isinstance(plain, float) and math.isfinite(plain):
                found.add((name, plain))
            elif isinstance(plain, str):
                found.add((name, plain))
                when = seconds(plain)
                if when is not None:
                    found.add((name + DATE, when))
    return found


def seconds(text: str) -> float | None:
    """A date of ISO 8601 as seconds since 1970, in UTC unless it names an offset; None for any other text.

    >>> seconds("1970-01-02"), seconds("1970-01-01T01:00:00+01:00"), seconds("1936")
    (86400.0, 0.0, None)
    """
    if not _ISO.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def facet_sum(facet: Facet, side: int, key: int) -> int:
    """A number of a facet, whose sum over all of them tells whether any is missing, whatever their order."""
    name, value = facet
    told = json.dumps([side, key, name, value], ensure_ascii=False)
    return int.from_bytes(hashlib.blake2b(told.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "little")


def _plain(value: Any) -> Any:
    """NumPy's numbers and the library's dates as JSON knows them; else the value's text."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, dict | list | tuple) else str(value)
