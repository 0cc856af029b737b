"""Over data sets and looseness: how uneven the weights of DIVERSITY and DISCREPANCY are, and what they gain.

    SUBTEXT_DATA=... python -m reproduce.studies.spread_and_gain --out DIR [--flickr8k DIR] [--planted DIR]
        [--wikipedia DIR]

The folders are those of `studies.nonliteral`, `studies.planted` and `studies.wikipedia`, whose runs are read; none
is trained. For each weighted run `weights report` tells the scores' deviation and the effective sample size of
the weights in that run's own space; the gain is over "pvse" with the same seed, in per cent of its sum of recalls (of
its mean average precision on Wikipedia). Told are all points and Spearman's correlation over them. The paper finds
small variance good for DIVERSITY and the opposite for DISCREPANCY.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    folders: list[tuple[str, Path, Path]] = []
    if asked.flickr8k:
        folders.append(("flickr8k", asked.flickr8k, asked.flickr8k / "graph"))
    if asked.planted:
        folders += [(each.parent.name, each.parent, each) for each in sorted(asked.planted.glob("*-*/graph"))]
    if asked.wikipedia:
        folders.append(("wikipedia", asked.wikipedia, asked.wikipedia / "graph"))
    for score in SCORES:
        points = [point for data, folder, graph in folders for point in of(score, data, folder, graph, asked.out)]
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


def of(score: str, data: str, folder: Path, graph: Path, out: Path) -> list[Point]:
    """The points of one data set, for the seeds that both the weighted row and "pvse" have at the rates they chose."""
    mine, theirs = chosen(folder, score), chosen(folder, "pvse")
    points = []
    for seed in sorted(set(mine) & set(theirs)):
        told = out / f"{data}-{score}-{seed}.json"
        if not told.is_file():
            views = [] if data == "wikipedia" else ["--views", "mean"]
            words = ["report", str(mine[seed].with_suffix("")), "--graph", str(graph), *views, "--json", str(told)]
            subprocess.run([sys.executable, "-m", "reproduce.weights", *words], check=True, stdout=subprocess.DEVNULL)
        report = json.loads(told.read_text(encoding="utf-8"))
        spread = np.mean([report["spreads"][f"{score}/{side}"]["deviation"] for side in ("image", "text")])
        before, after = worth(theirs[seed]), worth(mine[seed])
        effective = 100 * report["effective"][score]
        points.append(Point(data, seed, float(spread), effective, 100 * (after - before) / before))
    return points


def chosen(folder: Path, row: str) -> dict[int, Path]:
    """Seed -> figures of a row: of the rate that was gone on with, which has the most seeds."""
    by_rate: dict[str, dict[int, Path]] = {}
    for path in folder.glob(f"{row}-*.json"):
        rate, _, seed = path.stem.removeprefix(f"{row}-").rpartition("-")
        if seed.isdigit() and not rate.strip("0123456789."):
            by_rate.setdefault(rate, {})[int(seed)] = path
    return max(by_rate.values(), key=len, default={})


def worth(figures: Path) -> float:
    """The sum of recalls of a run on val, or its mean average precision by class where that is told."""
    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8"))
    if "rsum" in found:
        return float(found["rsum"])
    return float(np.mean([found[f"{way}/map"] for way in ("text_to_image", "image_to_text")]))


if __name__ == "__main__":
    main()
