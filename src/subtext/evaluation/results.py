"""Result: figures with intervals, what chance gives, the protocol that they were measured under, and notes.

Figures for people: each direction on a line, its interval and its chance below.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import subtext
from subtext.core import DIRECTIONS, Direction
from subtext.data.atomic import write_file, write_text
from subtext.errors import counted
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.intervals import FEWEST, LEVEL
from subtext.evaluation.protocol import Protocol
from subtext.report.text_table import Cell, table


@dataclass(frozen=True)
class Result:
    """What an evaluation measured.

    figures    name -> number: "image_to_text/recall@10", "text_to_image/median_rank", "rsum" ... Shares are in per
               cent, ranks count from 1. A figure that needs a larger gallery is missing, and a note says so
    intervals  name -> (low, high), 95 % by resampling images; for means, not for medians, and only for enough images
    chance     name -> expected value for a random order
    ceiling    name -> expected value for the best order, where that is below 100
    protocol   how it was measured: gallery, truth, ties, folds, seed, versions, data
    per_query  name -> (Q) values behind each mean, "<direction>/id" (Q) names of the queries, and
               "text_to_image/image" (Q) the name of each text's image, empty where it has none
    notes      sentences that a reader of the figures should know
    about      what was measured, as JSON can hold it (model, data, split); the caller sets it
    metrics    name of a metric -> whether it is in per cent, whether lower is better, whether `compare` tests it
    """

    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    chance: dict[str, float]
    protocol: dict[str, Any]
    per_query: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, dict[str, bool]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything but the per-query values: figures by name at the top level; a missing interval is null."""
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
        }

    def text(self) -> str:
        """The same as indented JSON."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False)

    def save(self, path: Path) -> None:
        """Write the JSON file atomically.

        Raises OutputError when it cannot be written.
        """
        write_text(path, self.text() + "\n")

    def save_queries(self, path: Path) -> None:
        """Write the per-query values as npz, by their names here, atomically.

        Raises OutputError when it cannot be written.
        """

        def fill(temporary: Path) -> None:
            with temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **self.per_query)

        write_file(path, fill)


def stated(
    protocol: Protocol, gallery: Gallery, queries: Mapping[Direction, NDArray[np.bool_]], sizes: list[list[int]]
) -> dict[str, Any]:
    """The protocol as the JSON states it.

    queries  direction -> (Q) whether an item has a positive        sizes  images and texts of each fold
    """
    counts = {direction: int(queries[direction].sum()) for direction in DIRECTIONS}
    return {
        **asdict(protocol),
        "recall": list(protocol.recall),
        "c_way": list(protocol.c_way),
        "also_folds": list(protocol.also_folds),
        "split": gallery.split,
        "data": gallery.fingerprint,
        "gallery": {"images": len(gallery.image_ids), "texts": len(gallery.text_ids)},
        "candidates": "for an image all texts of its fold, for a text all images of its fold",
        "fold_sizes": sizes,
        "queries": counts,
        "left_out": {direction: len(gallery.ids(direction)) - counts[direction] for direction in DIRECTIONS},
        "positives": gallery.positives,
        "several_positives": "the best-scored one counts; the others are neither positives nor negatives",
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
    """Of Python, Subtext, and the libraries that figures may depend on."""
    others = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {"python": platform.python_version(), "subtext": subtext.__version__, **others}


def notes(
    protocol: Mapping[str, Any],
    figures: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    recalls: Sequence[str],
    of_metrics: Sequence[str],
) -> tuple[str, ...]:
    """Sentences that a reader of the figures should know; none when there is nothing to explain.

    protocol  as it is stated with the figures        recalls     figures whose missing interval is explained
    of_metrics  what the metrics say of their figures
    """
    found: list[str] = []
    for direction in DIRECTIONS:
        if missing := protocol["left_out"][direction]:
            query = direction.split("_to_")[0]
            found.append(f"without a partner: {counted(missing, query)}, which are candidates but no queries")
    found += of_metrics
    if protocol["bootstrap"]:
        found += _missing_intervals(protocol["intervals"]["clusters"], recalls, intervals)
    if invalid := int(max(figures[f"{direction}/nan_scores"] for direction in DIRECTIONS)):
        found.append(f"not a number: {counted(invalid, 'score')}, ranked behind all others; the model is broken")
    return tuple(found)


def _missing_intervals(
    clusters: Mapping[str, int], recalls: Sequence[str], intervals: Mapping[str, tuple[float, float]]
) -> list[str]:
    few = [direction for direction in DIRECTIONS if clusters[direction] < FEWEST]
    found: list[str] = []
    if few:
        where = "" if len(few) == len(DIRECTIONS) else f" {few[0].replace('_', ' ')}"
        found.append(
            f"no 95 % intervals{where}: the bootstrap resamples images and needs {FEWEST} of them; the queries belong "
            f"to {min(clusters[direction] for direction in few)}"
        )
    certain = [
        name.replace("_", " ").replace("/", " ")
        for name in recalls
        if name not in intervals and name.split("/")[0] not in few
    ]
    if certain:
        found.append(f"no 95 % interval of {', '.join(certain)}: all queries agree, so resampling shows no spread")
    return found


SHOWN = ("recall@1", "recall@5", "recall@10", "median_rank", "mean_rank")


def figures_table(
    figures: Mapping[str, float],
    chance: Mapping[str, float],
    intervals: Mapping[str, Sequence[float]] | None = None,
    *,
    names: Sequence[str] = SHOWN,
    summed: bool = True,
    ceiling: Mapping[str, float] | None = None,
) -> str:
    """Both directions, with the chance line under each (and what the best order would give), and RSUM if `summed`.

    intervals  of 95 %, on a line of their own, with a dash where there is none; None for no such line
    """
    names = [name for name in names if any(f"{direction}/{name}" in figures for direction in DIRECTIONS)]
    rows: list[list[Cell]] = []
    for direction in DIRECTIONS:
        whole = [f"{direction}/{name}" for name in names]
        if not any(name in figures for name in whole):
            continue
        rows.append([direction.replace("_", " "), *[figures.get(name) for name in whole]])
        if intervals is not None:
            rows.append(["  95 %", *[_interval(intervals, name) for name in whole]])
        rows.append(["  chance", *[chance.get(name) for name in whole]])
        if ceiling is not None and any(name in ceiling for name in whole):
            rows.append(["  best order", *[ceiling.get(name) for name in whole]])
    text = table(["", *[name.replace("_", " ") for name in names]], rows)
    if summed and "rsum" in figures:
        text += f"\nrsum {figures['rsum']:.1f}" + (f" (chance {chance['rsum']:.1f})" if "rsum" in chance else "")
    return text


def _interval(intervals: Mapping[str, Sequence[float]], name: str) -> str | None:
    return f"{intervals[name][0]:.1f}-{intervals[name][1]:.1f}" if name in intervals else None
