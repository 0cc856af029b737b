"""Planted noise on Flickr8k: which scores detect the corrupted pairs, and how well each system retrieves all the same.

    SUBTEXT_DATA=... python -m reproduce.studies.planted --out DIR --grid FILE [--shares 0.2 0.5]
        [--kinds neighbour mismatch] [--rows ...] [--seeds 0 1 2] [--epochs 12]

Data, selection set and systems are those of `studies.nonliteral` (its table is the share 0), all with the rate of its
"pvse". For each kind and share the pairs of train are corrupted, and apart from them those of val, and a graph of the
corrupted train is built. Each row is trained with each seed; every third epoch is saved. The tables show: recall on the
clean val; text-to-image R@10 on the corrupted val, where a planted pair is the right one, for its literal and its
corrupted texts; for every saved epoch the area under the ROC curve of each score that might tell corrupted pairs of
train from literal ones; and, over all kinds, shares and seeds, what DIVERSITY and DISCREPANCY gain beside how widely
their scores spread (the paper finds small spread good for the first, large for the second).
Everything is written below DIR, and the same call resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

import subtext as st
from reproduce.studies.common import HEAD, data_folder, line, measure, neighbours, options, selection
from reproduce.studies.flickr8k import with_grid
from reproduce.studies.nonliteral import HELD_OUT, RATES, ROWS as ALL
from subtext.data import noise
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
ROWS = {name: ALL[name].but(lr=RATES[0], save_every_epochs=EVERY) for name in NAMES}


def main() -> None:
    """Print a line for each row, kind and share when its last seed is done, and then what detects the noise."""
    parser = options(__doc__, rows=list(ROWS))
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.2, 0.5])
    kinds = ["neighbour", "mismatch", "mixed"]
    parser.add_argument("--kinds", nargs="+", choices=kinds, default=kinds[:2])
    parser.add_argument("--epochs", type=int, default=12)
    config = parser.parse_args()
    data = data_folder("flickr8k")
    config.out.mkdir(parents=True, exist_ok=True)
    captions = selection(data / "captions.jsonl", config.out / "chosen.jsonl", held_out=HELD_OUT)
    pooled = data / "mobilenet_pooled.npz"
    features = with_grid(pooled, config.grid, config.out)
    print(HEAD, flush=True)
    lines: list[str] = []
    sums: dict[tuple[Path, str], list[float]] = {}
    for kind, share in [(kind, share) for share in config.shares for kind in config.kinds]:
        folder = config.out / f"{kind}-{share:g}"
        folder.mkdir(exist_ok=True)
        train, val = (corrupted(captions, folder, kind, share, split) for split in ("train", "val"))
        graph = neighbours(train, folder / "graph", "lsa")
        for row in config.rows:
            results, areas, recalls = [], [], []
            for seed in config.seeds:
                run = folder / f"{row.replace(', ', '-').replace(' ', '-')}-{seed}"
                results.append(
                    measure(
                        run,
                        ROWS[row].of(graph=graph, features=pooled),
                        split="val",
                        evaluation={"data": captions},
                        data=train,
                        images=data / "images",
                        features=features,
                        epochs=config.epochs,
                        seed=seed,
                    )
                )
                areas.append(areas_by_epoch(run, folder / "train.labels.json", graph, config.epochs))
                recalls.append(recall_by_kind(run, val, folder / "val.labels.json"))
            name = f"{row}, {kind} {share:g}"
            print(line(name, results), flush=True)
            sums[folder, row] = [result["rsum"] for result in results]
            lines += by_seed(name, recalls, areas)
    print("\n".join(["", "| row | what | mean | by seed |", "|---|---|---|---|", *lines]))
    for score in ("diversity", "discrepancy"):
        print(gain_and_spread(score, sums, config.seeds))


def gain_and_spread(score: str, sums: Mapping[tuple[Path, str], Sequence[float]], seeds: Sequence[int]) -> str:
    """How the gain of a weighting over pvse goes with the spread of its score, over all kinds, shares and seeds."""
    points = [
        (deviation(folder / f"{score}-{seed}", score), value - baseline)
        for folder, row in sums
        if row == score and (folder, "pvse") in sums
        for seed, value, baseline in zip(seeds, sums[folder, row], sums[folder, "pvse"], strict=True)
    ]
    if len(points) < 2:
        return ""
    spreads, gains = np.array(points).T
    listed = ", ".join(f"{spread:.4f}: {gain:+.1f}" for spread, gain in sorted(points))
    return f"\n{score}, deviation in the last epoch: rsum above pvse: {listed}; Spearman {spearman(spreads, gains):.2f}"


def deviation(run: Path, score: str) -> float:
    """The standard deviation of a score, both modalities together, over the pairs of the last epoch's table.

    These are the pairs that the epoch read, a fifth or so; the others are NaN.
    """
    table = load_file(max((run / "tables").glob("epoch-*.safetensors")))
    return float(np.nanstd(np.concatenate([table[f"{score}/{side}"].numpy() for side in ("image", "text")])))


def corrupted(captions: Path, folder: Path, kind: str, share: float, split: str) -> Path:
    """The captions with noise in one split, and SPLIT.labels.json beside them; made once."""
    file, labels = folder / f"{split}.jsonl", folder / f"{split}.labels.json"
    if not labels.is_file():
        file.unlink(missing_ok=True)
        graph = None
        if kind != "mismatch":
            graph = neighbours(captions, folder.parent / f"{split}-graph", "lsa", split=split)
        arguments: dict[str, Any] = {"noise_type": kind, "noise_rate": share, "graph": graph, "split": (split,)}
        st.corrupt(captions, out=file, labels=labels, **arguments)
    return file


def areas_by_epoch(run: Path, labels: Path, graph: Path, epochs: int) -> dict[str, dict[str, float]]:
    """Saved epoch -> score -> area under the ROC curve on the pairs of train."""
    file = run.with_name(f"{run.name}-found.json")
    if not file.is_file():
        areas: dict[str, dict[str, float]] = {}
        for epoch in range(EVERY, epochs + 1, EVERY):
            detection = st.detect_noise(run / "epochs" / str(epoch), labels=labels, graph=graph, quiet=True)
            areas[str(epoch)] = {name: next(iter(tasks.values()))["auc"] for name, tasks in detection.auc.items()}
        file.write_text(json.dumps(areas, indent=2) + "\n", encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def recall_by_kind(run: Path, data: Path, labels: Path) -> dict[str, float]:
    """Text-to-image R@10 on the corrupted val, of its literal and of its corrupted texts."""
    values = run.with_name(f"{run.name}-parts.npz")
    if not values.is_file():
        st.evaluate(run, data, split="val", quiet=True).save_queries(values)
    corrupt = noise.read_labels(labels).kinds
    with np.load(values, allow_pickle=False) as file:
        hits, ids = file["text_to_image/recall@10"], file["text_to_image/id"]
    loose = np.array([str(name) in corrupt for name in ids])
    return {"literal": 100 * float(hits[~loose].mean()), "loose": 100 * float(hits[loose].mean())}


def by_seed(
    name: str, recalls: Sequence[Mapping[str, float]], areas: Sequence[Mapping[str, Mapping[str, float]]]
) -> list[str]:
    """Lines of a table: recall of both kinds of texts, and each score's area at each epoch; mean and seed by seed."""
    cells = [(f"R@10, {kind}", [recall[kind] for recall in recalls]) for kind in ("literal", "loose")]
    for epoch, scores in areas[0].items():
        cells += [(f"AUC of {score}, epoch {epoch}", [area[epoch][score] for area in areas]) for score in scores]
    return [
        f"| {name} | {what} | {sum(values) / len(values):.3f} | {', '.join(f'{value:.3f}' for value in values)} |"
        for what, values in cells
    ]


if __name__ == "__main__":
    main()
