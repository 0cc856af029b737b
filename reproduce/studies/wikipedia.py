"""Sample weights where pairs are loose: Wikipedia's featured articles, a section's topics and the image beside it.

    SUBTEXT_DATA=... python -m reproduce.studies.wikipedia --out DIR [--rows ...] [--seeds 0 1 2 3 4]

SUBTEXT_DATA points at a folder with wikipedia/ of Rasiwasia et al. 2010: 2,173 train and 693 test pairs as 128 SIFT
words and 10 LDA topics, each of one of ten classes. A model is two linear maps. The last 300 train pairs choose the
epoch, by recall; every row tries the same two rates with its first seed and takes the better by that. The tables show
on test, once a run: mean average precision over the complete list, where items of one class belong together (mAP, as
this data set is reported), and recall of the pair itself; and, seed by seed, what each row gains over its controls.
Neighbours are the nearest topics. Everything is written below DIR, and the same call resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy.io
import torch

import subtext as st
from reproduce.studies.common import Recipe, best, data_folder, file_name, gains, options
from subtext.api.train import flat_arguments
from subtext.core import DIRECTIONS, Comparison, Truth
from subtext.evaluation.metrics.average_precision import AveragePrecision
from subtext.evaluation.metrics.recall import Recall

HELD_OUT = 300
RATES = (1e-2, 2e-3)
WIDTHS = {"": 200, ", N = 50": 50}
PVSE = Recipe(
    "pvse",
    views=1,
    negatives="all",
    caption_sampling="one",
    positives="pair",
    max_grad_norm=0.0,
    embed_dim=64,
    batch_size=32,
    epochs=20,
    feature_scaling="standard",
    schedule="one_cycle",
    warmup=0.1,
    weight_decay=1e-5,
    amsgrad=False,
    val_split="select",
)
ROWS = {
    "pvse": PVSE,
    "pvse, hardest negatives": PVSE.but(negatives="hardest"),
    "uniform": PVSE.but(methods=["uniform"]),
    "random": PVSE.but(methods=["random"]),
    **{
        f"{score}{name}": PVSE.but(methods=[f"{score}:graph={{graph}},neighbours={count}"])
        for score in ("discrepancy", "diversity")
        for name, count in WIDTHS.items()
    },
    "combined, beta 1, gamma 1": PVSE.but(methods=["combined:graph={graph},beta=1,gamma=1"]),
    "combined, statistics": PVSE.but(methods=["combined:graph={graph},mode=stats"]),
    "hal": PVSE.but(negatives="hardest", methods=["hal"]),
    "mithun": PVSE.but(negatives="hardest", methods=["mithun"]),
}
CONTROLS = dict.fromkeys(ROWS, ("pvse", "uniform"))


def main() -> None:
    """Train and evaluate the rows, and print both tables."""
    config = options(__doc__, rows=list(ROWS), seeds=range(5)).parse_args()
    folder = data_folder("wikipedia")
    config.out.mkdir(parents=True, exist_ok=True)
    sources = write_pairs(folder, config.out)
    graph = config.out / "graph"
    if not graph.is_dir():
        st.build_neighbours(graph, data=sources["data"], space=f"text-features:{sources['text_features']}")
    results: dict[str, list[dict[str, float]]] = {}
    print("| row | mAP by class: text to image, image to text | recall@10 of the pair, likewise |\n|---|---|---|")
    for row, recipe in ((row, ROWS[row].of(graph=graph)) for row in config.rows):
        trials = {rate: measure(config.out, row, recipe, rate, config.seeds[0], sources) for rate in RATES}
        rate = max(trials, key=lambda rate: trials[rate]["selection"])
        results[row] = [measure(config.out, row, recipe, rate, seed, sources) for seed in config.seeds]
        cells = [
            ", ".join(spread(results[row], f"{direction}/{name}") for direction in reversed(DIRECTIONS))
            for name in ("map", "recall@10")
        ]
        print(f"| {row} (rate {rate:g}) | {' | '.join(cells)} |", flush=True)
    means = {
        row: [sum(result[f"{direction}/map"] for direction in DIRECTIONS) / 2 for result in by_seed]
        for row, by_seed in results.items()
    }
    print("\n| row | control | mAP above it: mean | by seed |\n|---|---|---|---|")
    print("\n".join(gains(means, CONTROLS, digits=2)))


def write_pairs(source: Path, out: Path) -> dict[str, Path]:
    """Write pairs and features, once; the arguments of `subtext.train` that name them."""
    data, images, topics = out / "pairs.jsonl", out / "looks.npz", out / "topics.npz"
    if not data.is_file():
        arrays = scipy.io.loadmat(source / "raw_features.mat")
        classes = (source / "categories.list").read_text(encoding="utf-8").split()
        rows, image_features, text_features = [], [], []
        for split, suffix in (("train", "tr"), ("test", "te")):
            lines = (source / f"{split}set_txt_img_cat.list").read_text(encoding="utf-8").split("\n")
            names = [line.split("\t") for line in lines if line]
            for index, (text, image, number) in enumerate(names):
                role = "select" if split == "train" and index >= len(names) - HELD_OUT else split
                rows.append({"image": image, "text_id": text, "labels": [classes[int(number) - 1]], "split": role})
            image_features.append(arrays[f"I_{suffix}"])
            text_features.append(arrays[f"T_{suffix}"])
        for file, column, parts in ((images, "image", image_features), (topics, "text_id", text_features)):
            np.savez(file, names=[row[column] for row in rows], pooled=np.concatenate(parts).astype(np.float32))
        data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"data": data, "features": images, "text_features": topics}


def measure(
    out: Path, row: str, recipe: Recipe, rate: float, seed: int, sources: Mapping[str, Path]
) -> dict[str, float]:
    """Results of one run on test; trained and evaluated once."""
    run = out / f"{file_name(row)}-{rate:g}-{seed}"
    file = run.with_name(f"{run.name}.json")
    if not file.is_file():
        running = {"lr": rate, "seed": seed, "out": run, "resume": True, "quiet": True}
        st.train(recipe.model, **flat_arguments(recipe.model, {**recipe.options, **sources, **running}))
        file.write_text(json.dumps(evaluate(run, sources["data"])), encoding="utf-8")
    return {**json.loads(file.read_text(encoding="utf-8")), "selection": best(run)["rsum"]}


def evaluate(run: Path, data: Path) -> dict[str, float]:
    """Mean average precision by class and recall@10 of the pair in both directions on test, per cent."""
    embedded = st.embed(run, split="test", quiet=True)
    images, texts = embedded.images, embedded.texts
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    classes = []
    for column, items in (("image", images), ("text_id", texts)):
        class_of = {row[column]: row["labels"][0] for row in rows}
        classes.append(np.array([class_of[name] for name in items.ids]))
    vectors = [items.vectors.numpy()[:, 0] for items in (embedded.image_vectors, embedded.text_vectors)]
    scores = torch.from_numpy(vectors[0] @ vectors[1].T)
    same_class = Comparison(scores, Truth(torch.from_numpy(classes[0][:, None] == classes[1])))
    pairs = Comparison(scores, Truth(torch.from_numpy(images.groups[:, None] == texts.groups)))
    figures = {}
    sides = (same_class, pairs), (same_class.flip(), pairs.flip())
    for direction, (by_class, by_pair) in zip(DIRECTIONS, sides, strict=True):
        figures[f"{direction}/map"] = 100 * float(AveragePrecision("all")(by_class).mean())
        figures[f"{direction}/recall@10"] = 100 * float(Recall(10)(by_pair).mean())
    return figures


def spread(results: Sequence[Mapping[str, float]], key: str) -> str:
    """Mean and range over seeds."""
    values = [result[key] for result in results]
    return f"{sum(values) / len(values):.2f} [{min(values):.2f}-{max(values):.2f}]"


if __name__ == "__main__":
    main()
