"""Result: figures, how sure they are, what chance gives, and how all of it was measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_file, write_text


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
