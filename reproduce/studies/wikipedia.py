"""Sample weights where pairs are loose: Wikipedia's featured articles, a section's topics and the picture beside it.

    SUBTEXT_DATA=... python -m reproduce.studies.wikipedia --out DIR [--rows ...] [--seeds 0 1 2 3 4]

SUBTEXT_DATA points at a folder with wikipedia/ of Rasiwasia et al. 2010: 2,173 train and 693 test pairs as 128 SIFT
words and 10 LDA topics, each of one of ten classes. A model is two linear maps. The last 300 train pairs choose the
epoch, by recall; every row tries the same two rates with its first seed and takes the better by that. Told on test,
once a run: mean average precision over the whole list, where what is of one class belongs together (mAP, as this data
set is reported), and recall of the pair itself; and, seed by seed, what each row gains over its controls. Neighbours
are the nearest topics. Everything is written below DIR, and the same call again goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import torch

from reproduce.studies.common import subtext
from subtext.core import Comparison, Truth
from subtext.evaluation.metrics.average_precision import AveragePrecision
from subtext.evaluation.metrics.recall import Recall

HELD_OUT = 300
RATES = (1e-2, 2e-3)
WIDTHS = {"": 200, ", N = 50": 50}
HOST = (
    "pvse --views 1 --negatives all --caption-sampling one --positives pair --max-grad-norm 0 --embed-dim 64 "
    "--batch-size 32 --epochs 20 "
    "--feature-scaling standard --schedule one_cycle --warmup 0.1 --weight-decay 1e-5 --no-amsgrad --val-split select"
)
ROWS = {
    "pvse": HOST,
    "pvse, hardest negatives": HOST.replace("negatives all", "negatives hardest"),
    "uniform": f"{HOST} --with uniform",
    "random": f"{HOST} --with random",
    **{f"discrepancy{name}": f"{HOST} --with discrepancy:graph={{graph}},neighbours={n}" for name, n in WIDTHS.items()},
    **{f"diversity{name}": f"{HOST} --with diversity:graph={{graph}},neighbours={n}" for name, n in WIDTHS.items()},
    "combined, beta 1, gamma 1": f"{HOST} --with combined:graph={{graph}},beta=1,gamma=1",
    "combined, statistics": f"{HOST} --with combined:graph={{graph}},mode=stats",
    "hal": f"{HOST} --with hal",
    "mithun": f"{HOST} --with mithun",
}
CONTROLS = ("pvse", "uniform")
WAYS = ("text_to_image", "image_to_text")


def main() -> None:
    """Train and score what is asked for, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="ROW", help=str([*ROWS]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds wikipedia/")
    asked.out.mkdir(parents=True, exist_ok=True)
    sources = written(Path(os.environ["SUBTEXT_DATA"]) / "wikipedia", asked.out)
    graph = asked.out / "graph"
    if not graph.is_dir():
        subtext(
            ["neighbours", "build", str(graph), *sources[:2], "--space", f"text-features:{asked.out / 'topics.npz'}"]
        )
    results: dict[str, list[dict[str, float]]] = {}
    print("| row | mAP by class: text to image, image to text | recall@10 of the pair, likewise |\n|---|---|---|")
    for row in asked.rows:
        words = [*ROWS[row].format(graph=graph).split(), *sources]
        trials = {rate: measured(asked.out, row, rate, asked.seeds[0], words) for rate in RATES}
        rate = max(trials, key=lambda one: trials[one]["selection"])
        results[row] = [measured(asked.out, row, rate, seed, words) for seed in asked.seeds]
        cells = [", ".join(spread(results[row], f"{way}/{name}") for way in WAYS) for name in ("map", "recall@10")]
        print(f"| {row} (rate {rate:g}) | {' | '.join(cells)} |", flush=True)
    print("\n".join(gains(results)))


def written(source: Path, out: Path) -> list[str]:
    """The options that name data and features, which are written where they are not."""
    data, looks, topics = out / "pairs.jsonl", out / "looks.npz", out / "topics.npz"
    if not data.is_file():
        arrays = scipy.io.loadmat(source / "raw_features.mat")
        classes = (source / "categories.list").read_text(encoding="utf-8").split()
        rows, images, texts = [], [], []
        for split, part in (("train", "tr"), ("test", "te")):
            lines = (source / f"{split}set_txt_img_cat.list").read_text(encoding="utf-8").split("\n")
            names = [line.split("\t") for line in lines if line]
            for place, (text, image, number) in enumerate(names):
                kept = "select" if split == "train" and place >= len(names) - HELD_OUT else split
                rows.append({"image": image, "text_id": text, "labels": [classes[int(number) - 1]], "split": kept})
            images.append(arrays[f"I_{part}"])
            texts.append(arrays[f"T_{part}"])
        for file, column, parts in ((looks, "image", images), (topics, "text_id", texts)):
            np.savez(file, names=[row[column] for row in rows], pooled=np.concatenate(parts).astype(np.float32))
        data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return ["--data", str(data), "--features", str(looks), "--text-features", str(topics)]


def measured(out: Path, row: str, rate: float, seed: int, words: list[str]) -> dict[str, Any]:
    """Figures of one run on test; trained and scored, or read where they are."""
    name = "".join(letter if letter.isalnum() else "-" for letter in row)
    run = out / f"{name}-{rate:g}-{seed}"
    figures = run.with_name(f"{run.name}.json")
    if not figures.is_file():
        subtext(["train", *words, "--lr", f"{rate:g}", "--seed", str(seed), "--out", str(run), "--resume", "--quiet"])
        vectors = run.with_name(f"{run.name}.npz")
        subtext(["embed", str(run), "--split", "test", "--out", str(vectors), "--quiet"])
        figures.write_text(json.dumps(scored(vectors, out / "pairs.jsonl")), encoding="utf-8")
    best = json.loads((run / "run.json").read_text(encoding="utf-8"))["best"]["rsum"]
    return {**json.loads(figures.read_text(encoding="utf-8")), "selection": best}


def scored(vectors: Path, data: Path) -> dict[str, float]:
    """Mean average precision by class and recall@10 of the pair in both directions, per cent."""
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    with np.load(vectors, allow_pickle=False) as file:
        texts = {name: row["labels"][0] for row in rows if (name := row["text_id"])}
        images = {row["image"]: row["labels"][0] for row in rows}
        scores = torch.from_numpy(file["image_vectors"] @ file["text_vectors"].T)
        classes = [np.array([images[str(name)] for name in file["image_ids"]])]
        classes.append(np.array([texts[str(name)] for name in file["text_ids"]]))
        own = torch.from_numpy(file["image_groups"][:, None] == file["text_groups"])
    alike = torch.from_numpy(classes[0][:, None] == classes[1])
    found = {}
    for way, one, same, pair in (("image_to_text", scores, alike, own), ("text_to_image", scores.T, alike.T, own.T)):
        found[f"{way}/map"] = 100 * float(AveragePrecision("all")(Comparison(one, Truth(same))).mean())
        found[f"{way}/recall@10"] = 100 * float(Recall(10)(Comparison(one, Truth(pair))).mean())
    return found


def spread(results: list[dict[str, float]], key: str) -> str:
    """Mean and range over seeds."""
    values = [result[key] for result in results]
    return f"{sum(values) / len(values):.2f} [{min(values):.2f}-{max(values):.2f}]"


def gains(results: dict[str, list[dict[str, float]]]) -> list[str]:
    """How far the mean mAP of both directions lies above that of the controls, seed by seed."""
    told = ["", "| row | control | mAP above it: mean | by seed |", "|---|---|---|---|"]
    sums = {row: [sum(one[f"{way}/map"] for way in WAYS) / 2 for one in found] for row, found in results.items()}
    for row, mine in sums.items():
        for control in CONTROLS:
            if control in sums and control != row:
                by_seed = [own - theirs for own, theirs in zip(mine, sums[control], strict=True)]
                seeds = ", ".join(f"{gain:+.2f}" for gain in by_seed)
                told.append(f"| {row} | {control} | {sum(by_seed) / len(by_seed):+.2f} | {seeds} |")
    return told


if __name__ == "__main__":
    main()
