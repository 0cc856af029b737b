"""Do losses of whole lists lift ASP, recall, or both? DAA and Smooth-AP on Flickr8k beside the plain recipes.

    SUBTEXT_DATA=... python -m reproduce.studies.ranking --out DIR [--rows ...] [--seeds 0 1 2]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl and flickr8k/mobilenet_pooled.npz. Protocol of
`studies.flickr8k`: the last 500 train images choose the epoch, val is evaluated once a run. The tables show recall and
ASP under two relevances (50 is a random order) on val, and ASP of the selection set after every sixth epoch. Weights
are the methods' own where none is named (DAA's comes to 0.39 here). Everything is written below DIR, and the same call
resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import subtext as st
from reproduce.studies.common import HEAD, data_folder, line, measure, options, selection
from reproduce.studies.flickr8k import HELD_OUT, SCORED
from subtext.core import DIRECTIONS
from subtext.evaluation.metrics import ASP, default_metrics

EVERY = 6
RELEVANCES = ("tfidf1", "ciderd")
ASP_HEAD = ("", "| row | ASP | text to image: mean, by seed | image to text |", "|---|---|---|---|")
METHODS: dict[str, list[str]] = {
    "": [],
    " + daa": ["daa"],
    " + smooth_ap": ["smooth_ap"],
    " + daa, weight 4": ["daa:weight=4"],
    " + daa, weight 40": ["daa:weight=40"],
}
ROWS = {
    f"{model}{name}": SCORED[model].but(methods=methods, save_every_epochs=EVERY)
    for model in ("dual", "vse_infinity")
    for name, methods in METHODS.items()
}


def main() -> None:
    """Train and evaluate the rows, and print the tables."""
    config = options(__doc__, rows=list(ROWS), default=list(ROWS)[:3]).parse_args()
    folder = data_folder("flickr8k")
    config.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", config.out / "captions.jsonl", held_out=HELD_OUT)
    sources: dict[str, Any] = {"data": data, "images": folder / "images", "features": folder / "mobilenet_pooled.npz"}
    print(HEAD)
    lines: list[str] = []
    for row in config.rows:
        results, figures = [], []
        for seed in config.seeds:
            run = config.out / f"{row.replace(' ', '').replace(',', '-')}-{seed}"
            results.append(measure(run, ROWS[row], split="val", val_split="select", seed=seed, **sources))
            figures.append({"val": asp(run, run, "val"), **by_epoch(run)})
        print(line(row, results), flush=True)
        lines += asp_lines(row, figures)
    print("\n".join([*ASP_HEAD, *lines]))


def by_epoch(run: Path) -> dict[str, dict[str, float]]:
    """Saved epoch -> ASP of the selection set."""
    epochs = sorted((run / "epochs").iterdir(), key=lambda folder: int(folder.name))
    return {f"select, epoch {epoch.name}": asp(epoch, run, "select") for epoch in epochs}


def asp(epoch: Path, run: Path, split: str) -> dict[str, float]:
    """ASP of a split in both directions under each relevance, computed once. `epoch`: the run, or one of its epochs."""
    file = run.with_name(f"{run.name}-{epoch.name}-{split}-asp.json")
    if not file.is_file():
        cache = run.parent / "relevance"
        metrics = [*default_metrics(), *(ASP(name) for name in RELEVANCES)]
        protocol, config = st.Protocol(bootstrap=0), st.ComputeConfig(cache=cache)
        result = st.evaluate(epoch, split=split, metrics=metrics, protocol=protocol, config=config, quiet=True)
        result.save(file)
    figures = json.loads(file.read_text(encoding="utf-8"))
    return {name: value for name, value in figures.items() if "/asp(" in name}


def asp_lines(row: str, figures: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Lines of a table: every relevance on val and, epoch by epoch, on the selection set."""
    lines = []
    for split in figures[0]:
        for name in RELEVANCES:
            cells = []
            for direction in reversed(DIRECTIONS):
                values = [by_split[split][f"{direction}/asp({name})"] for by_split in figures]
                cells.append(f"{sum(values) / len(values):.2f}: {', '.join(f'{value:.2f}' for value in values)}")
            lines.append(f"| {row} | {name}, {split} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
