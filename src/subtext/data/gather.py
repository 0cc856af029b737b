"""What the rows of a data set have named so far: pictures, texts, groups, and what belongs together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.columns import RowError
from subtext.data.dataset import Items
from subtext.data.rows import Row

_OF_A_TEXT = ("language",)
"""Columns that speak of a text, and are lists where a row has several."""


@dataclass
class ItemRows:
    """Pictures or texts, a row each: the columns of Items, where each was first named, and its row by name."""

    ids: list[str] = field(default_factory=list)
    values: list[str | bytes | None] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    more: list[Mapping[str, Any]] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    row_of: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, value: str | bytes | None, group: int, more: Mapping[str, Any], where: str) -> int:
        """The row of a new item."""
        row = len(self.ids)
        self.row_of[name] = row
        self.ids.append(name)
        self.values.append(value)
        self.groups.append(group)
        self.more.append(more)
        self.where.append(where)
        return row

    def items(self, splits: NDArray[np.character]) -> Items:
        """All of them as columns; `splits` is one a group."""
        groups = np.asarray(self.groups, dtype=np.int64)
        names = dict.fromkeys(name for more in self.more for name in more)
        return Items(
            ids=self.ids,
            values=self.values,
            groups=groups,
            splits=splits[groups],
            metadata={name: [more.get(name) for more in self.more] for name in names},
        )


@dataclass
class GroupRows:
    """Groups by number: their names, where they began, and the split that they are in."""

    row_of: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    named: list[str | None] = field(default_factory=list)

    def add(self, name: str | None, first: str, split: str | None, where: str) -> int:
        """The number of a new group; `first` is the picture that it begins with."""
        number = len(self.first)
        if name is not None:
            self.row_of[name] = number
        self.first.append(first)
        self.splits.append(split)
        self.where.append(where)
        self.named.append(name)
        return number


class Gathering:
    """Takes rows one by one, and refuses those that contradict the ones before.

    links  (picture row, text row) of every pair, in order        lone  pictures that stand alone on purpose
    """

    def __init__(self, merged: Mapping[str, str]) -> None:
        self.merged = merged
        self.images, self.texts, self.groups = ItemRows(), ItemRows(), GroupRows()
        self.by_path: dict[str | bytes, int] = {}
        self.links: dict[tuple[int, int], None] = {}
        self.text_of: dict[tuple[int, str], int] = {}
        self.counted: dict[int, int] = {}
        self.lone: set[int] = set()

    def add(self, row: Row) -> None:
        """Take a row. Raises RowError when it contradicts an earlier one."""
        split = row.split and self.merged.get(row.split.lower(), row.split)
        image = None
        if row.image is not None or row.image_id is not None:
            image = self._image(row, split)
            if row.lone:
                self.lone.add(image)
        group = self.images.groups[image] if image is not None else self._group_of_text(row, split)
        for number, text in enumerate(row.texts):
            self._text(row, number, text, image, group)

    def _image(self, row: Row, split: str | None) -> int:
        path = row.image
        known = None if path is None else self.by_path.get(path)
        name = row.image_id or (path if isinstance(path, str) else _of_bytes(path))
        named = self.images.row_of.get(name)
        if known is None and named is not None:
            if path is not None and self.images.values[named] is not None:
                raise RowError(
                    f"id '{name}' names another picture ({self._shown(named)}, {self.images.where[named]}); ids need "
                    "to be unique"
                )
            known = named
        elif known is not None and named is not None and named != known:
            raise RowError(f"id '{name}' names another picture ({self.images.where[named]}); ids need to be unique")
        if known is None:
            group = self._group(row, split, name)
            known = self.images.add(name, path, group, row.more, row.where)
            if path is not None:
                self.by_path[path] = known
            return known
        self._agree(row, split, known)
        self.images.row_of.setdefault(name, known)
        return known

    def _group(self, row: Row, split: str | None, name: str) -> int:
        number = None if row.group is None else self.groups.row_of.get(row.group)
        if number is None:
            return self.groups.add(row.group, name, split, row.where)
        self._one_split(f"group '{row.group}'", split, number)
        return number

    def _group_of_text(self, row: Row, split: str | None) -> int:
        named = row.text_ids and self.texts.row_of.get(row.text_ids[0])
        if isinstance(named, int):
            return self.texts.groups[named]
        return self._group(row, split, (row.text_ids or [""])[0] or row.where)

    def _agree(self, row: Row, split: str | None, image: int) -> None:
        """A picture that is named again needs to be in the same group and the same split."""
        group = self.images.groups[image]
        self._one_split(f"picture '{self.images.ids[image]}'", split, group)
        if row.group is not None and self.groups.named[group] != row.group:
            raise RowError(
                f"picture '{self.images.ids[image]}' is in group '{row.group}' here and in "
                f"'{self.groups.named[group]}' ({self.images.where[image]}); a picture needs to be in one group"
            )

    def _one_split(self, what: str, split: str | None, group: int) -> None:
        before = self.groups.splits[group]
        if before is None:
            self.groups.splits[group] = split
        elif split is not None and before != split:
            raise RowError(
                f"{what} is in split '{split}' here and in '{before}' ({self.groups.where[group]}); it needs to be in "
                "one split alone"
            )

    def _text(self, row: Row, number: int, text: str | None, image: int | None, group: int) -> None:
        named = self.groups.named[group] is not None
        if row.text_ids is not None:
            name = row.text_ids[number]
            known = self.texts.row_of.get(name)
            if known is not None and (self.texts.values[known] != text or self.texts.groups[known] != group):
                raise RowError(
                    f"text id '{name}' names another text ({self.texts.where[known]}); ids need to be unique, "
                    "and a text of several pictures needs them in one group"
                )
        else:
            owner = self.images.ids[image] if image is not None else row.where
            # In a group that the file names, the same words from another picture are the same text.
            known = self.text_of.get((group, text)) if named and text is not None else None
            if known is not None and image is not None and (image, known) in self.links:
                known = None
            name = self._next_name(owner, group if image is None else image) if known is None else ""
        if known is None:
            more = row.more if len(row.texts) == 1 else _one_of(row.more, number, len(row.texts))
            known = self.texts.add(name, text, group, more, row.where)
            if named and text is not None:
                self.text_of.setdefault((group, text), known)
        if image is not None:
            self.links[(image, known)] = None

    def _next_name(self, owner: str, place: int) -> str:
        """PICTURE#0, PICTURE#1, ...: the names by which text features are joined."""
        while True:
            number = self.counted.get(place, 0)
            self.counted[place] = number + 1
            name = f"{owner}#{number}"
            if name not in self.texts.row_of:
                return name

    def _shown(self, image: int) -> str:
        value = self.images.values[image]
        return value if isinstance(value, str) else "stored as bytes"


def _one_of(more: Mapping[str, Any], number: int, count: int) -> Mapping[str, Any]:
    """The columns of one text of several: a list of languages gives it its own."""
    listed = {
        name: more[name][number] for name in _OF_A_TEXT if isinstance(more.get(name), list) and len(more[name]) == count
    }
    return {**more, **listed} if listed else more


def _of_bytes(data: bytes | None) -> str:
    return blake2b(data or b"", digest_size=8).hexdigest()
