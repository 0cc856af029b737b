"""Do losses of whole lists lift ASP, recall, or both? DAA and Smooth-AP on Flickr8k beside the plain recipes.

    SUBTEXT_DATA=... python -m reproduce.studies.ranking --out DIR [--rows ...] [--seeds 0 1 2]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl and flickr8k/mobilenet_pooled.npz. Protocol of
`studies.flickr8k`: the last 500 train pictures choose the epoch, val is scored once a run. Told are recall and ASP
under two relevances (50 is a random order) on val, and ASP of the selection set after each so many-th epoch. Weights
are the methods' own where none is named (DAA's comes to 0.39 here). Everything is written below DIR, and the same call
again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from reproduce.studies.common import HEAD, line, measured, selection, subtext
from reproduce.studies.flickr8k import HELD_OUT, SCORED

EVERY = 6
RELEVANCES = ("tfidf1", "ciderd")
METHODS = {
    "": "",
    " + daa": " --with daa",
    " + smooth_ap": " --with smooth_ap",
    " + daa, weight 4": " --with daa:weight=4",
    " + daa, weight 40": " --with daa:weight=40",
}
ROWS = {f"{host}{name}": f"{SCORED[host]}{more}" for host in ("dual", "vse_infinity") for name, more in METHODS.items()}


def main() -> None:
    """Train and score what is asked for, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS)[:3], metavar="ROW")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds flickr8k/")
    folder = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", asked.out / "captions.jsonl", held_out=HELD_OUT)
    sources = ["--data", str(data), "--images", str(folder / "images"), "--val-split", "select"]
    sources += ["--features", str(folder / "mobilenet_pooled.npz"), "--save-every-epochs", str(EVERY)]
    print(HEAD)
    orders: list[str] = []
    for row in asked.rows:
        results = []
        for seed in asked.seeds:
            run = asked.out / f"{row.replace(' ', '').replace(',', '-')}-{seed}"
            found = measured(run, [*ROWS[row].split(), *sources, "--seed", str(seed)], split="val")
            results.append({**found, "orders": {"val": ordered(run, run, "val"), **epochs(run)}})
        print(line(row, results), flush=True)
        orders += told(row, results)
    print("\n".join(["", "| row | ASP | text to image: mean, by seed | image to text |", "|---|---|---|---|", *orders]))


def epochs(run: Path) -> dict[str, dict[str, float]]:
    """Epoch -> ASP of the selection set, of the epochs that were kept."""
    kept = sorted((run / "epochs").iterdir(), key=lambda folder: int(folder.name))
    return {f"select, epoch {place.name}": ordered(place, run, "select") for place in kept}


def ordered(place: Path, run: Path, split: str) -> dict[str, float]:
    """ASP of a split in both directions under each relevance, computed once."""
    figures = run.with_name(f"{run.name}-{place.name}-{split}-asp.json")
    if not figures.is_file():
        words = ["evaluate", str(place), "--split", split, "--relevance", ",".join(RELEVANCES), "--bootstrap", "0"]
        subtext([*words, "--cache", str(run.parent / "relevance"), "--json", str(figures), "--quiet"])
    found = json.loads(figures.read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if "/asp(" in name}


def told(row: str, results: list[dict[str, Any]]) -> list[str]:
    """Lines of a table: every relevance on val and, epoch by epoch, on the selection set."""
    lines = []
    for where in results[0]["orders"]:
        for name in RELEVANCES:
            cells = []
            for way in ("text_to_image", "image_to_text"):
                values = [each["orders"][where][f"{way}/asp({name})"] for each in results]
                cells.append(f"{sum(values) / len(values):.2f}: {', '.join(f'{value:.2f}' for value in values)}")
            lines.append(f"| {row} | {name}, {where} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    main()
