"""Result: figures, how sure they are, what chance gives, and how all of it was measured."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.atomic import write_file


@dataclass(frozen=True)
class Result:
    """What an evaluation found.

    figures    name -> number: "image_to_text/recall@10", "text_to_image/median_rank", "rsum" ... Shares are in per
               cent, ranks count from 1; NaN where the gallery is too small for a figure
    intervals  name -> (low, high), 95 % by resampling pictures; for means, not for medians
    chance     name -> what a random order is expected to give
    protocol   how it was measured: gallery, truth, ties, folds, seed, versions, data
    per_query  name -> (Q) values behind each mean, and "<direction>/id" (Q) names of the queries
    """

    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    chance: dict[str, float]
    protocol: dict[str, Any]
    per_query: dict[str, NDArray[Any]]

    def to_json(self) -> dict[str, Any]:
        """Everything but the per-query values, as JSON can hold it: figures on top by name, null for NaN."""
        return {
            **_plain(self.figures),
            "intervals": _plain(self.intervals),
            "chance": _plain(self.chance),
            "protocol": self.protocol,
        }

    def save(self, path: Path, *, per_query: bool = False) -> None:
        """Write the JSON file, and with per_query an npz of the same name beside it; each is whole or not there."""
        text = json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n"
        write_file(path, lambda place: _write_text(place, text))
        if per_query:
            write_file(path.with_suffix(".npz"), self._write_arrays)

    def _write_arrays(self, place: Path) -> None:
        with place.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **self.per_query)


def _write_text(place: Path, text: str) -> None:
    place.write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
