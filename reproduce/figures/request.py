"""What `subtext figure` was asked for, and what a figure is once it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from reproduce.figures.catalogue import FIGURES, Known, needed
from subtext.api.load import Work
from subtext.core import Direction
from subtext.errors import RequirementError
from subtext.ops.semantic_rank import RankTies
from subtext.report.page import Section


@dataclass(frozen=True)
class Asked:
    """A figure; fields are the command's options.

    name        of `known.FIGURES`                      systems  (label, path) of runs, or of files of scores or vectors
    out         HTML, or SVG for a drawing              json_out  file of its numbers; None for none
    relevance   a relevance by its name                 references  first texts that a picture is known by; None for all
    cache       folder for its matrix                   asp_ties    ranks of equal values in ASP
    item        id of the picture or text that is asked for; None for a drawn one
    direction   who asks, in figure 1c                  count  how much is shown; None for as much as in the paper
    thresholds, tops  of figures 1b and 3; empty for even steps        seed  of what is drawn
    work        where the data is, and how work is done; its run is unused
    """

    name: str
    systems: tuple[tuple[str, Path], ...]
    work: Work
    out: Path | None = None
    json_out: Path | None = None
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
    def figure(self) -> Known:
        """What is known of the figure."""
        return FIGURES[self.name]

    @staticmethod
    def from_options(values: Mapping[str, Any]) -> Asked:
        """What the command was told; "-" for the JSON means no file."""
        given = {field.name: values[field.name] for field in fields(Asked) if field.name not in ("work", "systems")}
        given["json_out"] = None if values["json_out"] == Path("-") else values["json_out"]
        systems = tuple(_labelled(text) for text in values["systems"])
        return Asked(**given, systems=systems, work=Work.from_options({**values, "run": None}))

    def check(self) -> None:
        """Raise RequirementError for systems, labels or a file that do not suit the figure."""
        figure, labels = self.figure, [label for label, _ in self.systems]
        if not figure.least <= len(self.systems) <= figure.most:
            raise RequirementError(f"{self.name} is drawn of {needed(figure)}; it got {len(self.systems)} of these")
        files = [path.name for _, path in self.systems if not is_run(path)]
        if files and figure.systems == "runs":
            raise RequirementError(f"{self.name} is drawn of {needed(figure)}; {files[0]} is a file")
        if len(set(labels)) < len(labels):
            raise RequirementError(
                f"{self.name} needs systems with names of their own; it got {', '.join(labels)}; write NAME=PATH"
            )
        endings = (".html", ".svg") if figure.curve else (".html",)
        if self.out is not None and self.out.suffix not in endings:
            raise RequirementError(f"{self.name} is written as {' or '.join(endings)}; it got {self.out.name}")


@dataclass(frozen=True)
class Drawn:
    """A figure.

    lead      what it is of                        said   the sentence to take away
    numbers   behind it, as JSON can hold them     facts  (name, value) of how it was made
    sections  of its page                          drawing  SVG; empty for a page of lists
    """

    lead: str
    said: str
    numbers: dict[str, Any]
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section] = ()
    drawing: str = ""


def is_run(path: Path) -> bool:
    """Whether a path is to be a run's folder, not a file."""
    return path.is_dir() or not path.suffix


def _labelled(text: str) -> tuple[str, Path]:
    """`NAME=PATH`, or a path that is called by its own name."""
    name, equals, place = text.partition("=")
    if equals and name and not Path(text).exists():
        return name, Path(place).expanduser()
    path = Path(text).expanduser()
    return path.stem if path.is_file() else path.resolve().name, path
