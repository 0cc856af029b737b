"""The configuration of a figure, and a figure that is drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reproduce.figures.catalogue import FIGURES, FigureKind, needed
from subtext.api.options import DataOptions
from subtext.core import Direction
from subtext.errors import RequirementError
from subtext.ops.compiled.semantic_rank import RankTies
from subtext.report.page import PageSection


@dataclass(frozen=True)
class FigureConfig:
    """A figure and its options.

    name        of `catalogue.FIGURES`                  systems  (label, path) of runs, or of files of scores or vectors
    out         HTML, or SVG for a drawing              json     file of its numbers; None for none
    relevance   name of a relevance                     references  first texts that represent an image; None for all
    cache       folder for the relevance matrix         asp_ties    ranks of equal values in ASP
    item        id of the query image or text; None for a sampled one
    direction   of the query, in figure 1c              count  length of the lists; None for that of the paper
    thresholds, tops  of figures 1b and 3; empty for even steps        seed  of the sampled item
    split       to measure; None for the validation split of the first run
    options     data and execution, as in `subtext.evaluate`
    """

    name: str
    systems: tuple[tuple[str, Path], ...]
    split: str | None = None
    options: DataOptions = field(default_factory=lambda: DataOptions())
    out: Path | None = None
    json: Path | None = None
    relevance: str = "tfidf1"
    references: int | None = None
    cache: Path | None = None
    asp_ties: RankTies = "ordinal"
    item: str | None = None
    direction: Direction = "text_to_image"
    count: int | None = None
    thresholds: tuple[float, ...] = ()
    tops: tuple[int, ...] = ()
    seed: int = 0

    @property
    def running(self) -> dict[str, Any]:
        """The options without those of the data set: features, device, batch size, workers."""
        names = ("data", "images", "split_seed", "on_error")
        return {name: value for name, value in self.options.items() if name not in names and value is not None}

    @property
    def quiet(self) -> bool:
        """Whether no progress is shown."""
        return bool(self.options.get("quiet"))

    @property
    def kind(self) -> FigureKind:
        """The figure's entry in the catalogue."""
        return FIGURES[self.name]

    @property
    def files(self) -> list[Path]:
        """The files to write."""
        return [path for path in (self.out, self.json) if path is not None]

    def check(self) -> None:
        """Raise RequirementError for systems, labels or a file that do not fit the figure."""
        kind, labels = self.kind, [label for label, _ in self.systems]
        if not kind.least <= len(self.systems) <= kind.most:
            raise RequirementError(f"{self.name} needs {needed(kind)}; it got {len(self.systems)}")
        files = [path.name for _, path in self.systems if not is_run(path)]
        if files and kind.systems == "runs":
            raise RequirementError(f"{self.name} needs {needed(kind)}; {files[0]} is a file")
        if len(set(labels)) < len(labels):
            raise RequirementError(
                f"{self.name} needs systems with different names; it got {', '.join(labels)}; write NAME=PATH"
            )
        endings = (".html", ".svg") if kind.curve else (".html",)
        if self.out is not None and self.out.suffix not in endings:
            raise RequirementError(f"{self.name} is written as {' or '.join(endings)}; it got {self.out.name}")


@dataclass(frozen=True)
class Figure:
    """A figure that is drawn.

    lead      what it shows, for its page          summary  its main result in a sentence
    numbers   behind it, as plain data             facts    (name, value) of how it was made
    sections  of its page                          drawing  SVG; empty for a page of lists
    files     that were written
    """

    lead: str
    summary: str
    numbers: dict[str, Any]
    facts: Sequence[tuple[str, str]]
    sections: Sequence[PageSection] = ()
    drawing: str = ""
    files: tuple[Path, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Its numbers."""
        return self.numbers

    def json_text(self) -> str:
        """Its numbers as indented JSON."""
        return json.dumps(self.numbers, indent=2, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return "\n".join([self.summary, *([", ".join(map(str, self.files))] if self.files else [])])

    __repr__ = __str__

    def _repr_svg_(self) -> str | None:
        return self.drawing or None


def is_run(path: Path) -> bool:
    """Whether a path means the folder of a run, not a file."""
    return path.is_dir() or not path.suffix


def labelled(text: str) -> tuple[str, Path]:
    """(label, path) of `NAME=PATH`, or of a path, whose label is its name; of a table's row its first run.

    Raises what `run_of_table` raises.
    """
    name, equals, value = text.partition("=")
    if equals and name and not Path(text).exists():
        return name, run_of_table(value) or Path(value).expanduser()
    if (run := run_of_table(text)) is not None:
        return text.rpartition("#")[2], run
    path = Path(text).expanduser()
    return path.stem if path.is_file() else path.resolve().name, path


def run_of_table(text: str) -> Path | None:
    """The run with the first seed of a row, of TABLE.json#ROW/DATA; None for another text.

    Raises RequirementError where the file is no table, or has no such row.
    """
    file, hash_sign, row = text.rpartition("#")
    path = Path(file).expanduser()
    if not hash_sign or path.suffix != ".json" or Path(text).exists():
        return None
    try:
        runs = dict(json.loads(path.read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RequirementError(
            f"{text} needs a file that `python -m reproduce.tables` wrote; {path} is none ({type(problem).__name__})"
        ) from problem
    if not runs.get(row):
        raise RequirementError(
            f"{text} needs a row that was trained, as ROW/DATA; {path.name} has {', '.join(runs) or 'none'}"
        )
    return path.parent / runs[row][0]
