"""Result: figures with intervals, what chance gives, the protocol that they were measured under, and notes."""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import DIRECTIONS, Direction
from subtext.data.atomic import write_file
from subtext.data.dataset import frame
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.intervals import FEWEST, LEVEL
from subtext.evaluation.metric import Measure, figure_of
from subtext.evaluation.protocol import Protocol
from subtext.report.plots import Bar, Plot, bars
from subtext.report.text_table import Cell, SavedReport, as_html, table
from subtext.text_helpers import counted
from subtext.version import DRAWS, FORMAT, __version__

if TYPE_CHECKING:
    import pandas

SHOWN = ("recall@1", "recall@5", "recall@10", "median_rank", "mean_rank")
_HIDDEN = ("mrr", "tie_share", "nan_scores")
"""Figures for the JSON, and none for a terminal."""


@dataclass(frozen=True, repr=False)
class Result(SavedReport):
    """The result of an evaluation.

    Attributes:
        figures: Name -> number: "image_to_text/recall@10", "text_to_image/median_rank", "rsum" ... Shares are in per
            cent, ranks count from 1. A figure that needs a larger gallery is missing, and a note says so.
        intervals: Name -> (low, high), 95 % by resampling images; for means, not for medians, and only for enough
            images.
        chance: Name -> expected value for a random order.
        protocol: Gallery, truth, ties, folds, seed, versions, data.
        per_query: Name -> (Q) values behind each mean, "<direction>/id" (Q) names of the queries, and
            "text_to_image/image" (Q) the name of each text's image, empty where it has none.
        notes: Notes on the figures.
        about: Model, data and split, as plain data; the caller sets it.
        ceiling: Name -> expected value for the best order, where that is below 100.
        metrics: Name of a metric -> whether it is in per cent, its digits in a table, whether lower is better, whether
            `compare` tests it.
        sections: Extra parts of the text that a person reads, such as the table of a sweep.
    """

    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    chance: dict[str, float]
    protocol: dict[str, Any]
    per_query: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, dict[str, bool | int]] = field(default_factory=dict)
    sections: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All fields except the per-query values; figures are at the top level, and a missing interval is null.

        Returns:
            Plain JSON values.
        """
        means = [name for name in self.figures if name in self.per_query or name.startswith("rsum")]
        return {
            **self.figures,
            "intervals": {name: list(self.intervals[name]) if name in self.intervals else None for name in means},
            "chance": self.chance,
            **({"ceiling": self.ceiling} if self.ceiling else {}),
            "metrics": self.metrics,
            "notes": list(self.notes),
            **self.about,
            "protocol": self.protocol,
            "format": FORMAT,
        }

    def to_frame(self) -> pandas.DataFrame:
        """A row per figure: name, value, ends of its interval, chance and ceiling. Needs pandas.

        Returns:
            The table.
        """
        names, none = ("figure", "value", "low", "high", "chance", "ceiling"), (None, None)
        return frame(
            [
                dict(zip(names, (name, value, *ends, self.chance.get(name), self.ceiling.get(name)), strict=True))
                for name, value in self.figures.items()
                for ends in [self.intervals.get(name, none)]
            ]
        )

    def _lines(self) -> list[str]:
        return result_lines(self)

    def _bars(self) -> dict[str, list[Bar]]:
        """Direction -> the figures that are in per cent, as bars."""
        panels: dict[str, list[Bar]] = {}
        for name, value in self.figures.items():
            direction, _, figure = name.partition("/")
            declared = self.metrics.get(figure.partition("(")[0], {})
            if direction in DIRECTIONS and figure not in _HIDDEN and declared.get("percent"):
                low, high = self.intervals.get(name, (math.nan, math.nan))
                bar = Bar(figure.replace("_", " "), value, low, high, self.chance.get(name, math.nan))
                panels.setdefault(direction.replace("_", " "), []).append(bar)
        return panels

    def _repr_html_(self) -> str:
        rows = []
        for direction, values in self._bars().items():
            for bar in values:
                ends = "" if math.isnan(bar.low) else f"{bar.low:.1f}-{bar.high:.1f}"
                chance = "" if math.isnan(bar.reference) else f"{bar.reference:.1f}"
                cells = (escape(f"{direction} {bar.name}"), bar.html(0, 100), f"{bar.value:.1f}", ends, chance)
                rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        head = "".join(f"<th>{name}</th>" for name in ("", "0 to 100 %", "value", "95 %", "chance"))
        pictured = f"<table><tr>{head}</tr>{''.join(rows)}</table>" if rows else ""
        return as_html(self._lines()[:1]) + pictured + as_html(self._lines()[1:])

    def plot(self) -> Plot:
        """Draw the figures that are in per cent, with their intervals and chance.

        Returns:
            A drawing, which a notebook shows and `save` writes as SVG.
        """
        return Plot(bars(self._bars(), "per cent; dashed: chance"))

    def __repr__(self) -> str:
        recall = ", ".join(f"{name} {value:.1f}" for name, value in self.figures.items() if name.endswith("/recall@1"))
        return f"Result({len(self.figures)} figures: {recall})"

    def save_queries(self, path: Path) -> None:
        """Write the per-query values as npz, atomically.

        Args:
            path: The file, replaced if it exists.

        Raises:
            OutputError: If it cannot be written.
        """

        def fill(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **self.per_query)

        write_file(path, fill)


_CHOICE = re.compile(r"(\d+)_way(@1|@3|_mean_rank|_best@1|_best@3)")
_RECALL = re.compile(r"recall@\d+")


def stated(
    protocol: Protocol,
    gallery: Gallery,
    metrics: Iterable[Measure],
    queries: Mapping[Direction, NDArray[np.bool_]],
    fold_counts: Sequence[int],
    sizes: list[list[int]],
) -> dict[str, Any]:
    """The protocol as the JSON states it.

    Args:
        protocol: How it was measured.
        gallery: What was measured.
        metrics: By what it was measured.
        queries: Direction -> (Q) whether an item is a query: whether it has a positive in its fold.
        fold_counts: Numbers of folds: of the figures with their usual names, and of extra ones.
        sizes: Images and texts of each fold, of all sets of folds.

    Returns:
        Plain JSON values.
    """
    counts = {direction: int(queries[direction].sum()) for direction in DIRECTIONS}
    return {
        "ties": protocol.ties,
        "folds": fold_counts[0],
        "also_folds": list(fold_counts[1:]),
        "references": protocol.references,
        "bootstrap": protocol.bootstrap,
        "seed": protocol.seed,
        "exact": protocol.exact,
        "metrics": {figure_of(metric): str(metric) for metric in metrics},
        "draws": DRAWS,
        "split": gallery.split,
        "data": gallery.fingerprint,
        "gallery": {"images": len(gallery.image_ids), "texts": len(gallery.text_ids)},
        "candidates": "for an image all texts of its fold, for a text all images of its fold",
        "fold_sizes": sizes,
        "queries": counts,
        "left_out": {direction: len(gallery.ids(direction)) - counts[direction] for direction in DIRECTIONS},
        "positives": gallery.positives,
        "several_positives": "the best-scored one counts; the others are neither positives nor negatives. In a "
        "c-way choice each is a question of its own, and the value of a query is the mean over its questions",
        "median_rank": "of ranks from 1; the mean of two middle ranks is rounded down, as in Karpathy's code",
        "figures_of_folds": "means over the folds, medians too; intervals resample the queries of all folds together",
        "intervals": {
            "level": LEVEL,
            "samples": protocol.bootstrap,
            "resampled": "images, each with its texts; a text of several images belongs to the first. Queries are "
            "resampled, candidates are not",
            "clusters": {
                direction: len(np.unique(gallery.clusters(direction)[queries[direction]])) for direction in DIRECTIONS
            },
            "fewest_clusters": FEWEST,
        },
        "units": "recall, mrr, c-way accuracy and tie_share in per cent; ranks from 1; nan_scores a count",
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of Python, Subtext, and the libraries that figures may depend on.

    Returns:
        Name -> version.
    """
    libraries = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {"python": platform.python_version(), "subtext": __version__, **libraries}


def notes(
    protocol: Mapping[str, Any],
    figures: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    recalls: Sequence[str],
    of_metrics: Sequence[str],
) -> tuple[str, ...]:
    """Sentences that a reader of the figures should know; none when there is nothing to explain.

    Args:
        protocol: As it is stated with the figures.
        figures: Name -> number.
        intervals: Name -> its 95 % interval.
        recalls: Figures whose missing interval is explained.
        of_metrics: What the metrics say of their figures.

    Returns:
        The sentences.
    """
    sentences: list[str] = []
    for direction in DIRECTIONS:
        if missing := protocol["left_out"][direction]:
            query = direction.split("_to_")[0]
            sentences.append(f"without a partner: {counted(missing, query)}, which are candidates but no queries")
    sentences += of_metrics
    if protocol["bootstrap"]:
        clusters = protocol["intervals"]["clusters"]
        if few := [direction for direction in DIRECTIONS if clusters[direction] < FEWEST]:
            which = "" if len(few) == len(DIRECTIONS) else f" {few[0].replace('_', ' ')}"
            sentences.append(
                f"no 95 % intervals{which}: the bootstrap resamples images and needs {FEWEST} of them; the queries "
                f"belong to {min(clusters[direction] for direction in few)}"
            )
        certain = [name for name in recalls if name not in intervals and name.split("/")[0] not in few]
        if labels := ", ".join(name.replace("_", " ").replace("/", " ") for name in certain):
            sentences.append(f"no 95 % interval of {labels}: all queries agree, so resampling shows no spread")
    if invalid := int(max(figures[f"{direction}/nan_scores"] for direction in DIRECTIONS)):
        sentences.append(f"not a number: {counted(invalid, 'score')}, ranked behind all others; the model is broken")
    return tuple(sentences)


def result_lines(result: Result) -> list[str]:
    """The figures for people: what was measured, a table with intervals and chance, and the notes.

    Args:
        result: Of an evaluation.

    Returns:
        Paragraphs.
    """
    protocol = result.protocol
    gallery, folds = protocol["gallery"], protocol["folds"]
    counts = f"{counted(gallery['images'], 'image')}, {counted(gallery['texts'], 'text')}"
    head = f"{counts}{f', {folds} folds' if folds > 1 else ''}; ties {protocol['ties']}"
    if "split" in result.about:
        data = result.about["data"].get("data")
        head = f"split {result.about['split']} of {'the data set' if data is None else Path(data).name}: {head}"
    intervals = result.intervals if protocol["bootstrap"] else None
    plain_names = dict.fromkeys(
        name.partition("/")[2] for name in result.figures if name.partition("/")[0] in DIRECTIONS
    )
    recalls = [name for name in plain_names if _RECALL.fullmatch(name)]
    names = [*recalls, *(name for name in SHOWN if "recall" not in name)]
    lines = [head, *figures_table(result.figures, result.chance, intervals, names=names, metrics=result.metrics)]
    numbers = dict.fromkeys(int(match[1]) for name in plain_names if (match := _CHOICE.fullmatch(name)))
    ends = ("@1", "@3", "_mean_rank", "_best@1", "_best@3")
    if choices := [name for c in numbers for end in ends if (name := f"{c}_way{end}") in plain_names]:
        lines += figures_table(
            result.figures, result.chance, intervals, names=choices, summed=False, metrics=result.metrics
        )
    shown = {*recalls, *SHOWN}
    # A table each for the figures of one relevance, truth or set of folds.
    tables: dict[str, list[str]] = {}
    for name in result.figures:
        direction, _, figure = name.partition("/")
        plain, _, label = figure.partition("(")
        if direction in DIRECTIONS and plain not in _HIDDEN and "_way" not in plain and (label or plain not in shown):
            tables.setdefault(label, []).append(figure)
    for figures in tables.values():
        names = list(dict.fromkeys(figures))
        lines += figures_table(
            result.figures,
            result.chance,
            intervals,
            names=names,
            summed=False,
            ceiling=result.ceiling,
            metrics=result.metrics,
        )
    if "words" in protocol:
        lines.append("texts by length: " + ", ".join(f"{name} {count:,}" for name, count in protocol["words"].items()))
    if sums := [f"{name} {value:.1f}" for name, value in result.figures.items() if name.startswith("rsum(")]:
        lines.append(" ".join(sums))
    lines += result.sections
    others = [n for n in result.figures if n.partition("/")[0] not in DIRECTIONS and not n.startswith("rsum")]
    if neighbours := [name for name in others if name in result.chance]:
        rows: list[list[Cell]] = [
            [f"{name.partition('/')[0]}s", result.figures[name], _interval(result.intervals, name), result.chance[name]]
            for name in neighbours
        ]
        lines.append(table(["semantic neighbours kept, %", "", "95 %", "chance"], rows))
    if others := [name for name in others if name not in result.chance]:
        lines.append(table(["", ""], [[name, f"{result.figures[name]:.3f}"] for name in others]))
    return [*lines, *(f"note: {note}" for note in result.notes)]


def figures_table(
    figures: Mapping[str, float],
    chance: Mapping[str, float] | None = None,
    intervals: Mapping[str, Sequence[float]] | None = None,
    *,
    names: Sequence[str] = SHOWN,
    summed: bool = True,
    ceiling: Mapping[str, float] | None = None,
    metrics: Mapping[str, Mapping[str, int]] | None = None,
) -> list[str]:
    """Both directions, with the chance line under each (and what the best order would give), and RSUM if `summed`.

    Args:
        figures: "<direction>/<name>" -> number.
        chance: Likewise; None for no such line.
        intervals: Of 95 %, on a line of their own, with a dash where there is none; None for no such line.
        names: Columns, without the direction; those without a figure are left out.
        summed: Add a line with the RSUM.
        ceiling: Likewise, what the best order would give; None for no such line.
        metrics: Metric -> its description, whose "digits" count; None for one digit each.

    Returns:
        The table, and the RSUM.
    """

    def cell(values: Mapping[str, float], name: str) -> Cell:
        digits = digits_of(name, metrics or {})
        value = values.get(name)
        return value if value is None or digits == 1 else f"{value:.{digits}f}"

    names = [name for name in names if any(f"{direction}/{name}" in figures for direction in DIRECTIONS)]
    rows: list[list[Cell]] = []
    for direction in DIRECTIONS:
        full_names = [f"{direction}/{name}" for name in names]
        if not any(name in figures for name in full_names):
            continue
        rows.append([direction.replace("_", " "), *[cell(figures, name) for name in full_names]])
        if intervals is not None:
            rows.append(["  95 %", *[_interval(intervals, name, metrics) for name in full_names]])
        if chance is not None:
            rows.append(["  chance", *[cell(chance, name) for name in full_names]])
        if ceiling is not None and any(name in ceiling for name in full_names):
            rows.append(["  best order", *[cell(ceiling, name) for name in full_names]])
    lines: list[str] = [table(["", *[name.replace("_", " ") for name in names]], rows)]
    if summed and "rsum" in figures:
        of_chance = f" (chance {chance['rsum']:.1f})" if chance and "rsum" in chance else ""
        lines.append(f"rsum {figures['rsum']:.1f}{of_chance}")
    return lines


def digits_of(name: str, metrics: Mapping[str, Mapping[str, int]]) -> int:
    """Digits of a figure behind the point.

    Args:
        name: Of the figure, with or without its direction.
        metrics: Metric -> its description.

    Returns:
        What its metric states; 1 where nothing is stated.
    """
    return int(metrics.get(name.split("/", 1)[-1].partition("(")[0], {}).get("digits", 1))


def _interval(
    intervals: Mapping[str, Sequence[float]], name: str, metrics: Mapping[str, Mapping[str, int]] | None = None
) -> str | None:
    if name not in intervals:
        return None
    digits, (low, high) = digits_of(name, metrics or {}), intervals[name]
    return f"{low:.{digits}f}{' to ' if min(low, high) < 0 else '-'}{high:.{digits}f}"
