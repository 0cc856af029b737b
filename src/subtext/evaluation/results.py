"""Result: figures, how sure they are, what chance gives, and how all of it was measured.

What is said beside the figures: the protocol that they were measured under, and what to beware of.

Notes: sentences that a reader of the figures should know, none of them when all is plain.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
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
from subtext.evaluation.intervals import FEWEST, LEVEL, cluster_count
from subtext.evaluation.protocol import Protocol
from subtext.evaluation.values import RANK


@dataclass(frozen=True)
class Result:
    """What an evaluation found.

    figures    name -> number: "image_to_text/recall@10", "text_to_image/median_rank", "rsum" ... Shares are in per
               cent, ranks count from 1. A figure that the gallery is too small for is not there, and a note says so
    intervals  name -> (low, high), 95 % by resampling pictures; for means, not for medians, and only where there are
               pictures enough
    chance     name -> what a random order is expected to give
    ceiling    name -> what the best order is expected to give, where that is below 100
    protocol   how it was measured: gallery, truth, ties, folds, seed, versions, data
    per_query  name -> (Q) values behind each mean, "<direction>/id" (Q) names of the queries, and
               "text_to_image/picture" (Q) the name of the picture that each text goes with, empty where it has none
    notes      sentences that a reader of the figures should know
    about      what was measured, as JSON can hold it (model, data, split); whoever calls fills it in
    """

    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    chance: dict[str, float]
    protocol: dict[str, Any]
    per_query: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)
    ceiling: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything but the per-query values: figures on top by name; an interval that there is not is null."""
        means = [name for name in self.figures if name in self.per_query or name.startswith("rsum")]
        return {
            **self.figures,
            "intervals": {name: list(self.intervals[name]) if name in self.intervals else None for name in means},
            "chance": self.chance,
            **({"ceiling": self.ceiling} if self.ceiling else {}),
            "notes": list(self.notes),
            **self.about,
            "protocol": self.protocol,
        }

    def text(self) -> str:
        """The same as indented JSON."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False)

    def save(self, path: Path) -> None:
        """Write the JSON file, whole or not at all.

        Raises OutputError when it cannot be written.
        """
        write_text(path, self.text() + "\n")

    def save_queries(self, path: Path) -> None:
        """Write the per-query values as npz, by the names that they have here; whole or not at all.

        Raises OutputError when it cannot be written.
        """

        def fill(place: Path) -> None:
            with place.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **self.per_query)

        write_file(path, fill)


PerQuery = Mapping[str, NDArray[Any]]


def stated(protocol: Protocol, gallery: Gallery, per_query: PerQuery, sizes: list[list[int]]) -> dict[str, Any]:
    """The protocol as the JSON states it.

    sizes  pictures and texts of each fold
    """
    asked = {direction: int((~np.isnan(per_query[f"{direction}/{RANK}"])).sum()) for direction in DIRECTIONS}
    return {
        **asdict(protocol),
        "recall": list(protocol.recall),
        "c_way": list(protocol.c_way),
        "also_folds": list(protocol.also_folds),
        "split": gallery.split,
        "data": gallery.fingerprint,
        "gallery": {"pictures": len(gallery.image_ids), "texts": len(gallery.text_ids)},
        "candidates": "of a picture all texts of its fold, of a text all pictures; none is sampled, none left out",
        "fold_sizes": sizes,
        "queries": asked,
        "left_out": {direction: len(gallery.ids(direction)) - asked[direction] for direction in DIRECTIONS},
        "positives": gallery.positives,
        "several_positives": "the best-scored one counts; the others are neither right nor wrong",
        "median_rank": "of ranks from 1; the mean of two middle ranks is rounded down, as in Karpathy's code",
        "figures_of_folds": "means over the folds, medians too; intervals resample the queries of all folds together",
        "intervals": {
            "level": LEVEL,
            "samples": protocol.bootstrap,
            "resampled": "pictures, each with the texts that go with it; a text of several goes with the first; who "
            "asks is drawn, the gallery stays",
            "clusters": {direction: clusters(gallery, per_query, direction) for direction in DIRECTIONS},
            "fewest_clusters": FEWEST,
        },
        "units": "recall, mrr, c-way accuracy and tie_share in per cent; ranks from 1; nan_scores a count",
        "versions": versions(),
    }


def clusters(gallery: Gallery, per_query: PerQuery, direction: Direction) -> int:
    """How many pictures the queries of one direction that have a partner are of."""
    return cluster_count(per_query[f"{direction}/{RANK}"], gallery.clusters(direction))


def versions() -> dict[str, str]:
    """Of Python, Subtext, and the libraries that figures may depend on."""
    others = {name: version(name) for name in ("torch", "transformers", "numpy")}
    return {"python": platform.python_version(), "subtext": subtext.__version__, **others}


SIDES: dict[Direction, tuple[str, str]] = {
    "image_to_text": ("picture", "text"),
    "text_to_image": ("text", "picture"),
}
"""Who asks, and who answers."""


def notes(
    protocol: Mapping[str, Any],
    figures: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    pools: Mapping[Direction, tuple[int, int]],
) -> tuple[str, ...]:
    """What the figures leave out, why an interval is missing, and scores that are equal or no numbers.

    protocol  as it is stated with the figures
    pools     direction -> wrong candidates of the query that has fewest of them, and of the one that has most
    """
    found: list[str] = []
    for direction, (asking, _) in SIDES.items():
        if missing := protocol["left_out"][direction]:
            found.append(f"without a partner: {counted(missing, asking)}, among the candidates but not asking")
    for c in protocol["c_way"]:
        found += [_choice(c, direction, pools[direction]) for direction in DIRECTIONS if pools[direction][0] < c - 1]
    if protocol["bootstrap"]:
        found += _intervals(protocol["intervals"]["clusters"], figures, intervals)
    if ties := max(figures[f"{direction}/tie_share"] for direction in DIRECTIONS):
        found.append(f"ties: in up to {ties:.1f} % of queries a wrong candidate has the partner's score")
    if invalid := int(max(figures[f"{direction}/nan_scores"] for direction in DIRECTIONS)):
        found.append(f"not a number: {counted(invalid, 'score')}, ranked behind all others; the model is broken")
    return tuple(found)


def _choice(c: int, direction: Direction, pool: tuple[int, int]) -> str:
    """Why a c-way choice is left out, or left to some of the queries."""
    asking, answering = SIDES[direction]
    choice, needed = f"{c}-way choice of {asking}s among {answering}s", counted(c - 1, f"wrong {answering}")
    if pool[1] < c - 1:
        return f"{choice} is left out: it needs {needed}, and there are at most {pool[1]:,}"
    return f"{choice} leaves out queries with fewer than {needed}"


def _intervals(
    clusters: Mapping[str, int], figures: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]
) -> list[str]:
    """Why intervals are missing."""
    few = [direction for direction in DIRECTIONS if clusters[direction] < FEWEST]
    found: list[str] = []
    if few:
        where = "" if len(few) == len(DIRECTIONS) else f" {_spelt(few[0])}"
        found.append(
            f"no 95 % intervals{where}: pictures are resampled, which needs {FEWEST} of them; the queries are of "
            f"{min(clusters[direction] for direction in few)}"
        )
    certain = [
        name.replace("_", " ").replace("/", " ")
        for name in figures
        if "/recall@" in name and name not in intervals and name.split("/")[0] not in few
    ]
    if certain:
        found.append(f"no 95 % interval of {', '.join(certain)}: all queries agree, so resampling shows no spread")
    return found


def _spelt(direction: Direction) -> str:
    return direction.replace("_", " ")
