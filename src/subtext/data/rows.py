"""What every reader gives: rows and problems, in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subtext.data.dataset import Dataset
from subtext.data.feature_file import FeatureFile
from subtext.errors import DataError

Progress = Callable[[int, int], None]
"""Hears how many are done, and of how many."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a data set.

    where  "line 17", "metadata.csv line 3", "picture a.jpg"
    what   what is wrong, and what to do
    fatal  whether what it speaks of cannot be used; else it is a warning
    name   the piece of the sentence that differs from row to row ("'a.jpg'"), so that many of a kind can be counted; ""
           where none does
    """

    where: str
    what: str
    fatal: bool = True
    name: str = ""

    def __str__(self) -> str:
        """Where and what, in one sentence."""
        return f"{self.where}: {self.what}"

    @property
    def kind(self) -> str:
        """What problems of one kind have in common: the sentence without the name."""
        return self.what.replace(self.name, "...", 1) if self.name else self.what


def told(problems: Iterable[Problem]) -> list[str]:
    """Problems for people: one sentence a kind, with where the first ones are and how many there are.

    >>> told([Problem(f"line {n}", "has no text") for n in range(2, 7)])
    ['line 2 and 4 like it (line 3, line 4, ...): has no text']
    """
    kinds: dict[tuple[str, bool], list[Problem]] = {}
    for problem in problems:
        kinds.setdefault((problem.kind, problem.fatal), []).append(problem)
    return [_together(alike) for alike in kinds.values()]


def _together(alike: list[Problem]) -> str:
    first, others = alike[0], [problem.where for problem in alike[1:]]
    if not others:
        return str(first)
    places = ", ".join([*others[:2], *(["..."] if len(others) > 2 else [])])
    return f"{first.where} and {len(others):,} like it ({places}): {first.what}"


@dataclass(slots=True)
class Row:
    """One row of a file, whatever its format.

    image     path relative to the root, or bytes; None for a picture that is known by features alone
    texts     its texts; None in place of a text that is known by features alone
    text_ids  their names, where the file gives some
    lone      a picture or a text that stands alone on purpose, such as a distractor of a gallery
    more      all other columns
    """

    where: str
    image: str | bytes | None
    image_id: str | None
    texts: list[str | None]
    text_ids: list[str] | None = None
    split: str | None = None
    group: str | None = None
    more: dict[str, Any] = field(default_factory=dict)
    lone: bool = False


@dataclass(frozen=True)
class Source:
    """An opened data set.

    rows        rows and problems, read as they are asked for
    root        where relative picture paths start
    judgements  (text id, picture id, score), where the data set brings graded truth
    features    precomputed picture features, where the data set consists of them
    """

    rows: Iterable[Row | Problem]
    root: Path
    judgements: tuple[tuple[str, str, float], ...] = ()
    features: FeatureFile | None = None


@dataclass(frozen=True)
class Reading:
    """A data set as it was read.

    pairs     what can be used
    problems  what was wrong, in order; with bad="skip" the fatal ones were left out of the pairs
    features  precomputed picture features, where the data set consists of them
    """

    pairs: Dataset
    problems: list[Problem]
    features: FeatureFile | None = None


class UnusableData(DataError):
    """A data set of which nothing, or not enough, can be used; `problems` says why, row by row."""

    def __init__(self, message: str, problems: list[Problem]) -> None:
        super().__init__(message)
        self.problems = problems
