"""What every reader gives: rows and problems, in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subtext.data.feature_file import FeatureFile
from subtext.data.pairs import Pairs
from subtext.errors import DataError

Progress = Callable[[int, int], None]
"""Hears how many are done, and of how many."""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a data set.

    where  "line 17", "metadata.csv line 3", "picture a.jpg"
    what   what is wrong, and what to do
    fatal  whether what it speaks of cannot be used; else it is a warning
    """

    where: str
    what: str
    fatal: bool = True

    def __str__(self) -> str:
        """Where and what, in one sentence."""
        return f"{self.where}: {self.what}"


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

    pairs: Pairs
    problems: list[Problem]
    features: FeatureFile | None = None


class UnusableData(DataError):
    """A data set of which nothing, or not enough, can be used; `problems` says why, row by row."""

    def __init__(self, message: str, problems: list[Problem]) -> None:
        super().__init__(message)
        self.problems = problems
