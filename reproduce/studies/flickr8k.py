"""Flickr8k under one protocol: the rows of the README, and what each setting is worth.

    SUBTEXT_DATA=... python -m reproduce.studies.flickr8k --out DIR [--rows dual pvse ...] [--seeds 0 1 2] [--grid FILE]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl (6,000 train and 1,000 val pictures) and
flickr8k/mobilenet_pooled.npz. The last 500 train pictures are the selection set: they choose the epoch, and chose the
settings. Rows of `SCORED` score val as well, once a run. Rows whose name ends in
"+ grid" need --grid: an .npz with `names` and `grid` (pictures, cells, 768) of the same network over the pictures in
flickr8k/images; their pooled features stay those of mobilenet_pooled.npz. Everything is written below DIR, and the same
call again goes on where it was stopped. One to six minutes a run on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.studies.common import HEAD, line, measured, selection

HELD_OUT = 500
BAG = "--text bag --token-dropout 0 --token-mask 0.2 --min-count 2 --feature-scaling unit --feature-dropout 0.1"
EASY = (
    "--loss softmax --caption-sampling together --positives group --optimiser adamw --no-amsgrad --weight-decay 1e-4 "
    f"--schedule one_cycle --warmup 0.1 --lr 2e-3 {BAG}"
)
VSE = f"vse_infinity {EASY} --word-dim 512 --batch-size 1280 --epochs 10"
PVSE = f"pvse {EASY} --word-dim 300 --batch-size 640 --epochs 8"
SCORED = {"dual": "dual", "vse_infinity": VSE, "pvse": f"{PVSE} --views 2"}
ROWS = {
    **SCORED,
    "dual, temperature 0.03": "dual --temperature 0.03",
    "dual, temperature 0.1": "dual --temperature 0.1",
    "dual, temperature learnt": "dual --learn-temperature",
    "dual, width 512": "dual --embed-dim 512",
    "dual, width 2048": "dual --embed-dim 2048",
    "dual, a map after the words' mean": "dual --word-dim 1000",
    "dual, no perceptron": "dual --no-mlp",
    "dual, no dropout, no masked words": "dual --dropout 0 --image-dropout 0 --token-mask 0",
    "dual, constant rate": "dual --schedule constant --warmup 0 --lr 1e-3",
    "dual, 8 epochs": "dual --epochs 8",
    "dual, 8 epochs, generalised pooling of words": "dual --epochs 8 --pooling learnt",
    "dual, GRU": "dual --text gru --gru-dim 512 --epochs 8",
    "dual, standardised features": "dual --feature-scaling standard",
    "dual, bf16": "dual --precision bf16",
    "vse_infinity + grid": VSE,
    "vse_infinity, without the pooled vector + grid": f"{VSE} --no-append-pooled",
    "vse_infinity, hardest negatives": VSE.replace("--loss softmax", "--loss triplet"),
    "vse_infinity, hardest negatives from the start": VSE.replace(
        "--loss softmax", "--loss triplet --all-negatives-epochs 0"
    ),
    "pvse, K = 1": f"{PVSE} --views 1",
    "pvse, K = 4": f"{PVSE} --views 4",
    "pvse, K = 2 + grid": f"{PVSE} --views 2",
    "pvse, hardest negatives": f"{PVSE.replace('--loss softmax', '--loss triplet')} --views 2",
}


def with_grid(pooled: Path, grid: Path, out: Path) -> Path:
    """One feature file of the pooled vectors of one file and the cells of another, joined by name."""
    made = out / "pooled-and-grid.npz"
    if not made.is_file():
        vectors, cells = np.load(pooled), np.load(grid)
        place = {name: row for row, name in enumerate(cells["names"])}
        rows = [place[name] for name in vectors["names"]]
        np.savez(made, names=vectors["names"], pooled=vectors["pooled"], grid=cells["grid"][rows])
    return made


def measure(name: str, seed: int, sources: list[str], out: Path) -> list[dict[str, Any]]:
    """Train one row with one seed, or go on: its figures on the selection set and, where it is scored, on val."""
    folder = "".join(letter if letter.isalnum() else "-" for letter in name)
    run = out / f"{folder}-{seed}"
    found = measured(run, [*ROWS[name].split(), *sources, "--seed", str(seed)], split="val" if name in SCORED else None)
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    return [{**found, **record["best"]}, *([found] if name in SCORED else [])]


def main() -> None:
    """Train and score what is asked for, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(SCORED), metavar="ROW", help=str([*ROWS]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--grid", type=Path)
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds flickr8k/")
    gridded = [name for name in asked.rows if name.endswith("+ grid")]
    if gridded and asked.grid is None:
        sys.exit(f"{gridded[0]!r} needs features of cells: give them with --grid FILE")
    folder = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", asked.out / "captions.jsonl", held_out=HELD_OUT)
    pooled = folder / "mobilenet_pooled.npz"
    tables: dict[str, list[str]] = {"selection set": [], "val": []}
    for name in asked.rows:
        features = with_grid(pooled, asked.grid, asked.out) if name in gridded else pooled
        sources = ["--data", str(data), "--images", str(folder / "images"), "--features", str(features)]
        sources += ["--val-split", "select"]
        by_seed = [measure(name, seed, sources, asked.out) for seed in asked.seeds]
        for rows, results in zip(tables.values(), zip(*by_seed, strict=True), strict=False):
            rows.append(line(name, list(results)))
    for split, rows in tables.items():
        print("\n".join([f"\n{split}\n", HEAD, *rows]))


if __name__ == "__main__":
    main()
