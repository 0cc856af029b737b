"""Readers: one file a format, each giving rows; here is what makes pairs of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

from subtext.data.assemble import assemble
from subtext.data.check_images import check_images
from subtext.data.image_files import image_exists
from subtext.data.recognise import open_source
from subtext.data.rows import Problem, Progress, Reading, Source, UnusableData, told
from subtext.errors import DataError, counted

__all__ = ["Problem", "Reading", "read_pairs", "told"]


def read_pairs(
    path: Path,
    *,
    images: Path | None = None,
    seed: int = 0,
    bad: Literal["refuse", "skip"] = "refuse",
    verify: bool = False,
    merge_split: Mapping[str, str] | None = None,
    need_images: bool = True,
    progress: Progress | None = None,
) -> Reading:
    """A data set in any format that is known: see `recognise.py` for which, `columns.py` for their columns.

    images         folder that relative picture paths start from; by default the data set's own, or its `images`
    seed           of the 80-10-10 split by group, for data without splits
    bad            "refuse" the data set when a row cannot be used, or "skip" such rows
    verify         decode every picture once; `progress` hears how many are done, and of how many
    merge_split    further names of splits that are read as another ("restval", "dev" and the like are known)
    need_images  False where features stand for the pictures: their files need not be there

    Raises DataError when there is no data set, no pair is left, or a row cannot be used and bad is "refuse".
    """
    try:
        source = open_source(Path(path), images)
        assembled = assemble(source, seed=seed, merge_split=merge_split)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    pairs, problems = assembled.pairs, assembled.problems
    if images is None:
        pairs = replace(pairs, root=_root(source, pairs.images.values))
    if need_images and len(pairs.images):
        pairs, found = check_images(pairs, assembled.where, verify=verify, progress=progress)
        problems = problems + found
    fatal = [problem for problem in problems if problem.fatal]
    if not len(pairs.links):
        raise UnusableData(f"{path} needs at least one picture with a text; it has none{_told(fatal)}", problems)
    if fatal and bad == "refuse":
        raise UnusableData(
            f"{path} has {counted(len(fatal), 'problem')}{_told(fatal)}; mend {'it' if len(fatal) == 1 else 'them'}, "
            "or skip bad rows (--bad skip)",
            problems,
        )
    return Reading(pairs, problems, source.features)


def _root(source: Source, values: list[str | bytes | None]) -> Path:
    """The source's own root, or `images` in it where the first pictures lie there and not in the root."""
    first = [value for value in values[:20] if isinstance(value, str)]
    inner = source.root / "images"
    if not first or any(image_exists(value, source.root) for value in first):
        return source.root
    return inner if any(image_exists(value, inner) for value in first) else source.root


def _told(problems: list[Problem]) -> str:
    sentences = told(problems)
    return f": {'; '.join(sentences[:3])}{'; ...' if len(sentences) > 3 else ''}" if sentences else ""
