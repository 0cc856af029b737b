"""From rows to Dataset: splits are settled, and what has no partner is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.data.columns import RowError
from subtext.data.dataset import Dataset, Judgements
from subtext.data.gather import Gathering, GroupRows
from subtext.data.rows import Problem, Source
from subtext.data.splits import MERGED, draw_splits


@dataclass(frozen=True)
class Assembled:
    """Dataset, what was wrong, and where each picture was first named."""

    pairs: Dataset
    problems: list[Problem]
    where: list[str]


def assemble(source: Source, *, seed: int, merge_split: Mapping[str, str] | None = None) -> Assembled:
    """All rows as Dataset; rows that contradict earlier ones become problems.

    merge_split  further names of splits that are read as another
    """
    state = Gathering({**MERGED, **(merge_split or {})})
    problems = []
    for row in source.rows:
        if isinstance(row, Problem):
            problems.append(row)
            continue
        try:
            state.add(row)
        except RowError as error:
            problems.append(error.at(row.where))
    _join_groups(state)
    splits, lacking = _splits(state.groups, seed)
    problems += lacking
    pairs = Dataset(
        images=state.images.items(splits),
        texts=state.texts.items(splits),
        links=np.array(list(state.links), dtype=np.int64).reshape(-1, 2),
        root=source.root,
        judgements=_judgements(source, state),
    )
    pairs, kept = _whole(pairs, state.lone)
    return Assembled(pairs, problems, [state.images.where[row] for row in kept])


def _whole(pairs: Dataset, lone: set[int]) -> tuple[Dataset, NDArray[np.int64]]:
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


def _join_groups(state: Gathering) -> None:
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


def _splits(groups: GroupRows, seed: int) -> tuple[NDArray[np.character], list[Problem]]:
    """(groups) the data set's own splits, "" where one lacks; or drawn ones where it names none."""
    if all(split is None for split in groups.splits):
        return draw_splits(groups.first, seed=seed), []
    lacking = [
        Problem(where, "has no split, and other rows have one; name the split of every row")
        for split, where in zip(groups.splits, groups.where, strict=True)
        if split is None
    ]
    return np.array([split or "" for split in groups.splits]), lacking


def _judgements(source: Source, state: Gathering) -> Judgements | None:
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
