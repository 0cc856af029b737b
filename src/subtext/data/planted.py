"""The labels of planted looseness: which pairs were loosened. Nothing that trains or weighs may import this module.

`tests/contract/test_planting.py` and a contract of import-linter hold that. Whoever measures reads the labels here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data import atomic
from subtext.data.dataset import Dataset
from subtext.data.fingerprint import fingerprint
from subtext.data.planting import Planted
from subtext.errors import DataError

FORMAT = 1
"""Raised when an older Subtext could no longer read what a newer one writes."""


@dataclass(frozen=True)
class Labels:
    """Which pairs are loose.

    data      fingerprint of the loosened data set
    settings  how it was loosened: shares, seed, splits, ranks, graph
    kinds     text id -> "neighbour" or "mismatch"; a text of the loosened splits that is not in it is as it was
    distances text id -> how far apart the words that went and came are; for neighbours
    """

    data: str
    settings: Mapping[str, Any]
    kinds: Mapping[str, str]
    distances: Mapping[str, float]

    def of(self, pairs: Dataset) -> NDArray[Any]:
        """(T) the kind of each text of a data set or of a split of it, "" for one that was not loosened.

        Raises DataError when none of its texts has a label, as those of another data set.
        """
        found = np.array([self.kinds.get(name, "") for name in pairs.texts.ids], dtype="<U9")
        if len(found) and not (found != "").any():
            raise DataError(
                f"the labels name {len(self.kinds):,} loose texts, and none of these {len(found):,}; give the labels "
                "that were written with this data set, and a split that was loosened"
            )
        return found

    def require(self, pairs: Dataset) -> None:
        """Raise DataError unless the pairs are those that the labels were written with, whole."""
        found = fingerprint(pairs)
        if found != self.data:
            raise DataError(
                f"the labels need the data set that they were written with ({self.data}); it got another ({found}); "
                "name the file that `subtext data loosen` wrote, as it wrote it"
            )


def write_labels(planted: Planted, path: Path, settings: Mapping[str, Any]) -> None:
    """Write the labels of a loosened data set as JSON.

    Raises OutputError where it cannot be written.
    """
    ids = planted.pairs.texts.ids
    rows = np.flatnonzero(planted.kinds != "")
    told = {
        "kind": "subtext planted looseness",
        "format": FORMAT,
        "data": fingerprint(planted.pairs),
        "settings": dict(settings),
        "loose": [
            {
                "text": ids[row],
                "kind": str(planted.kinds[row]),
                "from": ids[planted.came_from[row]],
                **({"distance": planted.distances[row]} if np.isfinite(planted.distances[row]) else {}),
            }
            for row in rows
        ],
    }
    text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"

    def fill(place: Path) -> None:
        place.write_text(text, encoding="utf-8")

    atomic.write_file(path, fill)


def read_labels(path: Path) -> Labels:
    """What `write_labels` wrote.

    Raises DataError when the file is something else, or of a newer Subtext.
    """
    if not path.is_file():
        raise DataError(f"labels need a file that `subtext data loosen` wrote; {path} is not there")
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(told, dict) or told.get("kind") != "subtext planted looseness":
            raise DataError(f"{path} holds no labels; name the file that `subtext data loosen --labels` wrote")
        if told["format"] > FORMAT:
            raise DataError(f"{path} has format {told['format']}; this Subtext reads up to {FORMAT}; use a newer one")
        loose = told["loose"]
        kinds = {str(one["text"]): str(one["kind"]) for one in loose}
        distances = {str(one["text"]): float(one["distance"]) for one in loose if "distance" in one}
        return Labels(str(told["data"]), told["settings"], kinds, distances)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} is damaged, or holds no labels: {error!r}; name the file that `subtext data loosen --labels` wrote"
        ) from error
