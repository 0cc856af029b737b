"""From rows to Pairs: which rows name one picture, which belong together, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.pairs import Items, Judgements, Pairs
from subtext.data.readers.columns import RowError
from subtext.data.readers.rows import Problem, Row, Source
from subtext.data.readers.splits import MERGED, draw_splits

_OF_A_TEXT = ("language",)
"""Columns that speak of a text, and are lists where a row has several."""


@dataclass
class _Items:
    ids: list[str] = field(default_factory=list)
    values: list[str | bytes | None] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    more: list[Mapping[str, Any]] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    row_of: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, value: str | bytes | None, group: int, more: Mapping[str, Any], where: str) -> int:
        row = len(self.ids)
        self.row_of[name] = row
        self.ids.append(name)
        self.values.append(value)
        self.groups.append(group)
        self.more.append(more)
        self.where.append(where)
        return row

    def items(self, splits: NDArray[np.character]) -> Items:
        groups = np.asarray(self.groups, dtype=np.int64)
        names = dict.fromkeys(name for more in self.more for name in more)
        return Items(
            ids=self.ids,
            values=self.values,
            groups=groups,
            splits=splits[groups],
            more={name: [more.get(name) for more in self.more] for name in names},
        )


@dataclass(frozen=True)
class Assembled:
    """Pairs, what was wrong, and where each picture was first named."""

    pairs: Pairs
    problems: list[Problem]
    where: list[str]


@dataclass
class _Groups:
    """Groups by number: their names, where they began, and the split that they are in."""

    row_of: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    splits: list[str | None] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    named: list[str | None] = field(default_factory=list)

    def add(self, name: str | None, first: str, split: str | None, where: str) -> int:
        number = len(self.first)
        if name is not None:
            self.row_of[name] = number
        self.first.append(first)
        self.splits.append(split)
        self.where.append(where)
        self.named.append(name)
        return number


class _Assembly:
    """The state while rows come in."""

    def __init__(self, merged: Mapping[str, str]) -> None:
        self.merged = merged
        self.images, self.texts, self.groups = _Items(), _Items(), _Groups()
        self.by_path: dict[str | bytes, int] = {}
        self.links: dict[tuple[int, int], None] = {}
        self.text_of: dict[tuple[int, str], int] = {}
        self.counted: dict[int, int] = {}
        self.lone: set[int] = set()

    def add(self, row: Row) -> None:
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


def assemble(source: Source, *, seed: int, merge_split: Mapping[str, str] | None = None) -> Assembled:
    """All rows as Pairs; rows that contradict earlier ones become problems.

    merge_split  further names of splits that are read as another
    """
    state = _Assembly({**MERGED, **(merge_split or {})})
    problems = []
    for row in source.rows:
        if isinstance(row, Problem):
            problems.append(row)
            continue
        try:
            state.add(row)
        except RowError as error:
            problems.append(Problem(row.where, str(error)))
    _join_groups(state)
    splits, lacking = _splits(state.groups, seed)
    problems += lacking
    pairs = Pairs(
        images=state.images.items(splits),
        texts=state.texts.items(splits),
        links=np.array(list(state.links), dtype=np.int64).reshape(-1, 2),
        root=source.root,
        judgements=_judgements(source, state),
    )
    pairs, kept = _whole(pairs, state.lone)
    return Assembled(pairs, problems, [state.images.where[row] for row in kept])


def _whole(pairs: Pairs, lone: set[int]) -> tuple[Pairs, NDArray[np.int64]]:
    """Without items that lack a split or a partner; and the rows of the pictures that stay."""
    keep_image = pairs.images.splits != ""
    keep_text = pairs.texts.splits != ""
    linked = np.zeros(len(pairs.images), dtype=bool)
    linked[pairs.links[:, 0]] = True
    linked[list(lone)] = True
    keep_image &= linked
    kept = np.flatnonzero(keep_image).astype(np.int64)
    if keep_image.all() and keep_text.all():
        return pairs, kept
    return pairs.subset(kept, np.flatnonzero(keep_text).astype(np.int64)), kept


def _join_groups(state: _Assembly) -> None:
    """A picture without a text of its own, in a group that has texts, belongs to all of them."""
    linked = {image for image, _ in state.links}
    lonely = [row for row in range(len(state.images.ids)) if row not in linked and row not in state.lone]
    if not lonely:
        return
    texts: dict[int, list[int]] = {}
    for row, group in enumerate(state.texts.groups):
        texts.setdefault(group, []).append(row)
    for image in lonely:
        for text in texts.get(state.images.groups[image], []):
            state.links[(image, text)] = None


def _splits(groups: _Groups, seed: int) -> tuple[NDArray[np.character], list[Problem]]:
    """(groups) the data set's own splits, "" where one lacks; or drawn ones where it names none."""
    if all(split is None for split in groups.splits):
        return draw_splits(groups.first, seed=seed), []
    lacking = [
        Problem(where, "has no split, and other rows have one; name the split of every row")
        for split, where in zip(groups.splits, groups.where, strict=True)
        if split is None
    ]
    return np.array([split or "" for split in groups.splits]), lacking


def _judgements(source: Source, state: _Assembly) -> Judgements | None:
    if not source.judgements:
        return None
    rows = [
        (state.texts.row_of[text], state.images.row_of[image], score)
        for text, image, score in source.judgements
        if text in state.texts.row_of and image in state.images.row_of
    ]
    return Judgements(
        texts=np.array([text for text, _, _ in rows], dtype=np.int64),
        images=np.array([image for _, image, _ in rows], dtype=np.int64),
        scores=np.array([score for _, _, score in rows], dtype=np.float32),
    )


def _one_of(more: Mapping[str, Any], number: int, count: int) -> Mapping[str, Any]:
    """The columns of one text of several: a list of languages gives it its own."""
    listed = {
        name: more[name][number] for name in _OF_A_TEXT if isinstance(more.get(name), list) and len(more[name]) == count
    }
    return {**more, **listed} if listed else more


def _of_bytes(data: bytes | None) -> str:
    return blake2b(data or b"", digest_size=8).hexdigest()
