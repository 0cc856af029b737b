"""Planted looseness on Flickr8k: who finds the pairs that were loosened, and how well each retrieves all the same.

    SUBTEXT_DATA=... python -m reproduce.studies.planted --out DIR --grid FILE [--shares 0.2 0.5]
        [--kinds neighbour mismatch]
                                            [--rows ...] [--seeds 0 1 2] [--epochs 12]

Data, selection set and systems are those of `studies.nonliteral` (its table is the share 0), all with the rate of its
"pvse". For each kind and share the pairs of train are loosened, and apart from them those of val, and a graph of what
train became is built. Each row is trained with each seed; every third epoch is kept. Told are: recall on val as it was;
text-to-image R@10 on the loosened val, where a planted pair is the right one, for its literal and its loose texts; and
for every kept epoch the area under the curve of each score that might tell loose pairs of train from literal ones; and,
over all looseness and seeds, what DIVERSITY and DISCREPANCY gain beside how widely their scores spread (the paper finds
small spread good for the first, large for the second).
Everything is written below DIR, and the same call again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from reproduce.studies.common import HEAD, line, measured, neighbours, selection, subtext
from reproduce.studies.flickr8k import with_grid
from reproduce.studies.nonliteral import HELD_OUT, RATES
from reproduce.studies.nonliteral import ROWS as ALL
from subtext.evaluation.metrics.agreement import spearman

EVERY = 3
NAMES = (
    "pvse",
    "pvse, hardest negatives",
    "uniform",
    "random",
    "discrepancy",
    "diversity",
    "combined, beta 1, gamma 1",
    "combined, statistics",
    "hal",
    "mithun",
    "amrani",
    "pvse, angular",
    "thomas, angular",
)
ROWS = {name: f"{ALL[name]} --lr {RATES[0]:g} --save-every-epochs {EVERY}" for name in NAMES}


def main() -> None:
    """Print a row for each row of ROWS and each looseness, when its last seed is done, and what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.2, 0.5])
    kinds = ["neighbour", "mismatch", "mixed"]
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds[:2])
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW", help=str([*ROWS]))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=12)
    asked = parser.parse_args()
    data = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    asked.out.mkdir(parents=True, exist_ok=True)
    captions = selection(data / "captions.jsonl", asked.out / "chosen.jsonl", held_out=HELD_OUT)
    pooled = data / "mobilenet_pooled.npz"
    features = with_grid(pooled, asked.grid, asked.out)
    print(HEAD, flush=True)
    areas: list[str] = []
    gained: dict[tuple[Path, str], list[float]] = {}
    for kind, share in [(kind, share) for share in asked.shares for kind in asked.kinds]:
        folder = asked.out / f"{kind}-{share:g}"
        folder.mkdir(exist_ok=True)
        source, scored = (loosened(captions, folder, kind, share, split) for split in ("train", "val"))
        graph = neighbours(source, folder / "graph", "lsa")
        for row in asked.rows:
            more = [
                *ROWS[row].format(graph=graph, features=pooled).split(),
                "--epochs",
                str(asked.epochs),
                "--data",
                str(source),
            ]
            more += ["--images", str(data / "images"), "--features", str(features)]
            results, told = [], []
            for seed in asked.seeds:
                run = folder / f"{row.replace(', ', '-').replace(' ', '-')}-{seed}"
                results.append(measured(run, [*more, "--seed", str(seed)], split="val", data=captions))
                areas_ = found(run, folder / "train.labels.json", graph, asked.epochs)
                told.append({**areas_, "parts": parts(run, scored, folder / "val.labels.json")})
            print(line(f"{row}, {kind} {share:g}", results), flush=True)
            gained[folder, row] = [result["rsum"] for result in results]
            areas += of_seeds(f"{row}, {kind} {share:g}", told)
    print("\n".join(["", "| row | what | mean | by seed |", "|---|---|---|---|", *areas]))
    for score in ("diversity", "discrepancy"):
        print(of_spread(score, gained, asked.seeds))


def of_spread(score: str, sums: dict[tuple[Path, str], list[float]], seeds: list[int]) -> str:
    """How the gain of a weighting over pvse goes with the spread of its score, over all looseness and seeds."""
    points = [
        (deviation(folder / f"{score}-{seed}", score), mine - theirs)
        for folder, row in sums
        if row == score and (folder, "pvse") in sums
        for seed, mine, theirs in zip(seeds, sums[folder, row], sums[folder, "pvse"], strict=True)
    ]
    if len(points) < 2:
        return ""
    left, right = np.array(points).T
    told = ", ".join(f"{spread:.4f}: {gain:+.1f}" for spread, gain in sorted(points))
    return f"\n{score}, deviation in the last epoch: rsum above pvse: {told}; Spearman {spearman(left, right):.2f}"


def deviation(run: Path, score: str) -> float:
    """The standard deviation of a score, both modalities together, over the pairs of the last epoch's table.

    That has the pairs that the epoch read, a drawn fifth or so; the others are NaN.
    """
    table = load_file(max((run / "tables").glob("epoch-*.safetensors")))
    return float(np.nanstd(np.concatenate([table[f"{score}/{side}"].numpy() for side in ("image", "text")])))


def loosened(captions: Path, folder: Path, kind: str, share: float, split: str) -> Path:
    """The captions with a share of the pairs of one split loosened, and SPLIT.labels.json beside; made once."""
    made, labels = folder / f"{split}.jsonl", folder / f"{split}.labels.json"
    if not labels.is_file():
        made.unlink(missing_ok=True)
        near: list[str] = []
        if kind != "mismatch":
            graph = folder.parent / f"{split}-graph"
            near = ["--graph", str(neighbours(captions, graph, "lsa", split=split))]
        files = ["--out", str(made), "--labels", str(labels), "--split", split]
        subtext(["data", "loosen", str(captions), *files, "--kind", kind, "--share", f"{share:g}", *near])
    return made


def found(run: Path, labels: Path, graph: Path, epochs: int) -> dict[str, dict[str, float]]:
    """Epoch -> score -> area under the curve on the pairs of train, as `subtext data found` tells it of kept epochs."""
    kept = run.with_name(f"{run.name}-found.json")
    if not kept.is_file():
        areas: dict[str, dict[str, float]] = {}
        for epoch in range(EVERY, epochs + 1, EVERY):
            words = ["data", "found", str(run / "epochs" / str(epoch)), "--labels", str(labels), "--graph", str(graph)]
            command = [sys.executable, "-m", "subtext", *words, "--json", "--quiet"]
            done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE)
            auc = json.loads(done.stdout)["auc"]
            areas[str(epoch)] = {name: next(iter(tasks.values()))["auc"] for name, tasks in auc.items()}
        kept.write_text(json.dumps(areas, indent=2) + "\n", encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def parts(run: Path, scored: Path, labels: Path) -> dict[str, float]:
    """Text-to-image R@10 on the loosened val, of its literal and of its loose texts."""
    values = run.with_name(f"{run.name}-parts.npz")
    if not values.is_file():
        words = ["evaluate", str(run), "--data", str(scored), "--split", "val", "--per-query", str(values), "--quiet"]
        subtext(words)
    named = {one["text"] for one in json.loads(labels.read_text(encoding="utf-8"))["loose"]}
    with np.load(values, allow_pickle=False) as file:
        hits, ids = file["text_to_image/recall@10"], file["text_to_image/id"]
    loose = np.array([str(name) in named for name in ids])
    return {"literal": 100 * float(hits[~loose].mean()), "loose": 100 * float(hits[loose].mean())}


def of_seeds(name: str, told: list[dict[str, Any]]) -> list[str]:
    """Lines of a table: both parts of val, and each score's area at each kept epoch; mean and seed by seed."""
    wanted = [("R@10, " + part, [each["parts"][part] for each in told]) for part in ("literal", "loose")]
    for epoch in [key for key in told[0] if key != "parts"]:
        for score in told[0][epoch]:
            wanted.append((f"AUC of {score}, epoch {epoch}", [each[epoch][score] for each in told]))
    return [
        f"| {name} | {what} | {sum(values) / len(values):.3f} | {', '.join(f'{value:.3f}' for value in values)} |"
        for what, values in wanted
    ]


if __name__ == "__main__":
    main()
