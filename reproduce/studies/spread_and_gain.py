"""Over data sets and noise: how uneven the weights of DIVERSITY and DISCREPANCY are, and what they gain.

    python -m reproduce.studies.spread_and_gain --out DIR [--flickr8k DIR] [--planted DIR] [--wikipedia DIR]

The folders are those of `studies.nonliteral`, `studies.planted` and `studies.wikipedia`, whose runs are read; none
is trained. For each weighted run `reproduce.weights` reports the scores' deviation and the effective sample size of
the weights in that run's own space; the gain is over "pvse" with the same seed, in per cent of its sum of recalls (of
its mean average precision on Wikipedia). The tables show all points and Spearman's correlation over them. The paper
finds small variance good for DIVERSITY and the opposite for DISCREPANCY.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from reproduce.weights.scores_report import report
from subtext.core import DIRECTIONS
from subtext.evaluation.metrics.agreement import spearman

SCORES = ("diversity", "discrepancy")


class Point(NamedTuple):
    """One run: how far its scores spread, how many pairs of a batch count, and what it gains."""

    data: str
    seed: int
    deviation: float
    effective: float
    gain: float


def main() -> None:
    """Collect and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    for name in ("flickr8k", "planted", "wikipedia"):
        parser.add_argument(f"--{name}", type=Path)
    config = parser.parse_args()
    config.out.mkdir(parents=True, exist_ok=True)
    folders: list[tuple[str, Path]] = [("flickr8k", config.flickr8k)] if config.flickr8k else []
    if config.planted:
        folders += [(graph.parent.name, graph.parent) for graph in sorted(config.planted.glob("*-*/graph"))]
    if config.wikipedia:
        folders.append(("wikipedia", config.wikipedia))
    for score in SCORES:
        points = [point for data, folder in folders for point in points_of(score, data, folder, config.out)]
        print(f"\n| {score}: data | seed | deviation of the scores | effective sample size, % | gain, % |")
        print("|---|---|---|---|---|")
        for point in points:
            print(
                f"| {point.data} | {point.seed} | {point.deviation:.3f} | {point.effective:.1f} | {point.gain:+.1f} |"
            )
        gains = np.array([point.gain for point in points])
        for name in ("deviation", "effective"):
            values = np.array([getattr(point, name) for point in points])
            print(f"Spearman of the gain with the {name}: {spearman(values, gains):.2f} over {len(points)} runs")


def points_of(score: str, data: str, folder: Path, out: Path) -> list[Point]:
    """The points of one data set, for the seeds of both the weighted row and "pvse" at the rates that they chose."""
    weighted, plain = results_of(folder, score), results_of(folder, "pvse")
    points = []
    for seed in sorted(set(weighted) & set(plain)):
        file = out / f"{data}-{score}-{seed}.json"
        if not file.is_file():
            views: Literal["max", "mean"] = "max" if data == "wikipedia" else "mean"
            report(weighted[seed].with_suffix(""), graph=folder / "graph", views=views, json=file)
        weights = json.loads(file.read_text(encoding="utf-8"))
        spread = np.mean([weights["spreads"][f"{score}/{side}"]["deviation"] for side in ("image", "text")])
        before, after = total(plain[seed]), total(weighted[seed])
        effective = 100 * weights["effective"][score]
        points.append(Point(data, seed, float(spread), effective, 100 * (after - before) / before))
    return points


def results_of(folder: Path, row: str) -> dict[int, Path]:
    """Seed -> file of results of a row, at the rate that was chosen: the one with the most seeds."""
    by_rate: dict[str, dict[int, Path]] = {}
    for path in folder.glob(f"{row}-*.json"):
        rate, _, seed = path.stem.removeprefix(f"{row}-").rpartition("-")
        if seed.isdigit() and not rate.strip("0123456789."):
            by_rate.setdefault(rate, {})[int(seed)] = path
    return max(by_rate.values(), key=len, default={})


def total(file: Path) -> float:
    """The sum of recalls of a run on val, or its mean average precision by class where the results have that."""
    figures: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if "rsum" in figures:
        return float(figures["rsum"])
    return float(np.mean([figures[f"{direction}/map"] for direction in DIRECTIONS]))


if __name__ == "__main__":
    main()
