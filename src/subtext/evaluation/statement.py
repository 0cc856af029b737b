"""What is said beside the figures: the protocol that they were measured under, and what to beware of."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

import subtext
from subtext.core import DIRECTIONS, Direction
from subtext.evaluation.bootstrap import FEWEST, LEVEL, cluster_count
from subtext.evaluation.gallery import Gallery
from subtext.evaluation.protocol import Protocol
from subtext.evaluation.values import RANK

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
