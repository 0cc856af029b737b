"""Saved lists of images as a document of an index has them; see `retrieval.lists`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from subtext.errors import SearchIndexError

JUDGED = ("like", "not_like")
"""What a judgement says of an image: it fits the query of the list, or it does not."""


@dataclass(frozen=True)
class SavedList:
    """A list of images.

    Attributes:
        name: What people call it.
        link: What it is asked for by; it does not change.
        ids: Of images, in their order; each once.
        query: The query that found them; None for none.
        created: When, in UTC.
        judged: "like" and "not_like" -> ids of images that were judged so for the query.
    """

    name: str
    link: str
    ids: tuple[str, ...]
    query: str | None = None
    created: str = ""
    judged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def every_id(self) -> set[str]:
        """All images that it names."""
        return {*self.ids, *(name for ids in self.judged.values() for name in ids)}

    def among(self, there: Collection[str]) -> SavedList:
        """The list without other images.

        Args:
            there: Ids that it may name.

        Returns:
            The list.
        """
        judged = {kind: tuple(name for name in ids if name in there) for kind, ids in self.judged.items()}
        return replace(self, ids=tuple(name for name in self.ids if name in there), judged=judged)


def parse_lists(text: str) -> list[SavedList]:
    """The lists of a document.

    Args:
        text: The document.

    Returns:
        The lists.

    Raises:
        SearchIndexError: If it is damaged.
    """
    try:
        rows = json.loads(text)["lists"]
        return [
            SavedList(
                _text(row["name"]),
                _text(row["link"]),
                tuple(map(_text, row["ids"])),
                None if row["query"] is None else _text(row["query"]),
                _text(row["created"]),
                {kind: tuple(map(_text, row["judged"].get(kind, ()))) for kind in JUDGED if kind in row["judged"]},
            )
            for row in rows
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise SearchIndexError(f"the saved lists of the index are damaged: {problem}; restore a backup") from problem


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value


def write_lists(lists: Sequence[SavedList]) -> str:
    """The document of some lists; see `parse_lists`.

    Args:
        lists: The lists.

    Returns:
        JSON.
    """
    return json.dumps({"lists": [asdict(one) for one in lists]}, ensure_ascii=True, indent=1)


def without_images(text: str, ids: Collection[str]) -> str | None:
    """The lists without some images.

    Args:
        text: The document.
        ids: Of images that are deleted.

    Returns:
        The document; None where no list names one of them.

    Raises:
        SearchIndexError: If it is damaged.
    """
    lists, gone = parse_lists(text), set(ids)
    if not any(gone & one.every_id for one in lists):
        return None
    return write_lists([one.among(one.every_id - gone) for one in lists])
