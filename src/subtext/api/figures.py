"""Figures for people: each direction on a line, its interval and its chance below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from subtext.core import DIRECTIONS
from subtext.data.dataset import Dataset
from subtext.evaluation import Protocol
from subtext.evaluation.relevance import match as matching
from subtext.evaluation.values import chance
from subtext.ops.rank import Counts
from subtext.report.text_table import Cell, table

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


def chance_figures(pairs: Dataset) -> dict[str, float]:
    """What a random order of these pictures and texts is expected to give."""
    match = matching.of_pairs(pairs)
    found: dict[str, float] = {}
    for direction, candidates in zip(DIRECTIONS, (len(pairs.texts), len(pairs.images)), strict=True):
        positives = np.asarray(match.cells(direction).lengths, dtype=np.int64)
        none = np.zeros_like(positives)
        counts = Counts(
            greater=none, tied=none, level=none, positives=positives, negatives=candidates - positives, invalid=none
        )
        found |= {f"{direction}/{name}": value for name, value in chance(counts, Protocol(c_way=())).items()}
    found["rsum"] = sum(value for name, value in found.items() if "recall" in name)
    return found


def _interval(intervals: Mapping[str, Sequence[float]], name: str) -> str | None:
    return f"{intervals[name][0]:.1f}-{intervals[name][1]:.1f}" if name in intervals else None
