"""Flickr8k under one protocol: the rows of the README, and what each setting is worth.

    SUBTEXT_DATA=... python -m reproduce.studies.flickr8k --out DIR [--rows dual pvse ...] [--seeds 0 1 2] [--grid FILE]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl (6,000 train and 1,000 val images) and
flickr8k/mobilenet_pooled.npz. The last 500 train images are the selection set: they choose the epoch, and chose the
settings. Rows of `SCORED` and `STARTERS` are evaluated on val as well, once a run; those of `MEANS` are ensembles of
two of them. Rows whose name ends in "+ grid" need --grid: an .npz with `names` and `grid` (images, cells, 768) of the
same network over the images in flickr8k/images; their pooled features stay those of mobilenet_pooled.npz. Rows with
starter images read what the starter's image tower gives for those images, from a file; a frozen text tower is run once,
into DIR/cache. MiniLM, the starter of texts, was trained on texts that include captions of Flickr30k and COCO, without
images. `dual` and the rows of `STARTERS` and `MEANS` also answer the queries of unseen_words.json, whose words no
training caption has. Everything is written below DIR, and the same call resumes. One to six minutes a run on two idle
cores, twenty where MiniLM learns, and ten more for the first one with starter images.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

import subtext as st
from reproduce.studies.common import (
    HEAD,
    Recipe,
    averaged,
    best,
    data_folder,
    file_name,
    line,
    measure,
    options,
    selection,
    starter_features,
)
from subtext.data.words import tokenise

HELD_OUT = 500
UNSEEN = Path(__file__).with_name("unseen_words.json")
FIRST = (1, 10)
_EASY: dict[str, Any] = {
    "loss": "softmax",
    "caption_sampling": "together",
    "positives": "group",
    "optimiser": "adamw",
    "amsgrad": False,
    "weight_decay": 1e-4,
    "schedule": "one_cycle",
    "warmup": 0.1,
    "lr": 2e-3,
    "text": "bag",
    "token_dropout": 0.0,
    "token_mask": 0.2,
    "min_count": 2,
    "feature_scaling": "unit",
    "feature_dropout": 0.1,
}
DUAL = Recipe("dual", text="bag")
VSE = Recipe("vse_infinity", **_EASY, word_dim=512, batch_size=1280, epochs=10)
PVSE = Recipe("pvse", **_EASY, word_dim=300, batch_size=640, epochs=8, views=2)
SCORED = {"dual": DUAL, "vse_infinity": VSE, "pvse": PVSE}
_STARTER_IMAGES = DUAL.but(feature_scaling="unit")
_LEARNS: dict[str, Any] = {
    "text": "starter",
    "freeze_epochs": 0,
    "backbone_lr_scale": 0.03,
    "caption_sampling": "one",
    "batch_size": 128,
    "epochs": 8,
}
"""MiniLM learns too: at 6e-5, from one text an image and epoch."""
STARTERS = {
    "dual, starter images": _STARTER_IMAGES,
    "dual, starter texts": DUAL.but(text="starter"),
    "dual, starter images and texts": _STARTER_IMAGES.but(text="starter"),
    "dual, starter texts that learn": DUAL.but(**_LEARNS),
    "dual, starter images, starter texts that learn": _STARTER_IMAGES.but(**_LEARNS),
}
ROWS = {
    **SCORED,
    "dual, temperature 0.03": DUAL.but(temperature=0.03),
    "dual, temperature 0.1": DUAL.but(temperature=0.1),
    "dual, temperature learnt": DUAL.but(learn_temperature=True),
    "dual, width 512": DUAL.but(embed_dim=512),
    "dual, width 2048": DUAL.but(embed_dim=2048),
    "dual, a map after the words' mean": DUAL.but(word_dim=1000),
    "dual, no perceptron": DUAL.but(mlp=False),
    "dual, no dropout, no masked words": DUAL.but(dropout=0.0, image_dropout=0.0, token_mask=0.0),
    "dual, constant rate": DUAL.but(schedule="constant", warmup=0.0, lr=1e-3),
    "dual, 8 epochs": DUAL.but(epochs=8),
    "dual, 8 epochs, generalised pooling of words": DUAL.but(epochs=8, pooling="learnt"),
    "dual, GRU": DUAL.but(text="gru", gru_dim=512, epochs=8),
    "dual, standardised features": DUAL.but(feature_scaling="standard"),
    "dual, bf16": DUAL.but(precision="bf16"),
    **STARTERS,
    "vse_infinity + grid": VSE,
    "vse_infinity, without the pooled vector + grid": VSE.but(append_pooled=False),
    "vse_infinity, hardest negatives": VSE.but(loss="triplet"),
    "vse_infinity, hardest negatives from the start": VSE.but(loss="triplet", all_negatives_epochs=0),
    "pvse, K = 1": PVSE.but(views=1),
    "pvse, K = 4": PVSE.but(views=4),
    "pvse, K = 2 + grid": PVSE,
    "pvse, hardest negatives": PVSE.but(loss="triplet"),
}
MEANS = {
    "dual, starter images, bag and starter texts": ("dual, starter images", "dual, starter images and texts"),
    "dual, starter images, bag and starter texts that learn": (
        "dual, starter images",
        "dual, starter images, starter texts that learn",
    ),
}
"""Ensembles of the runs of two rows; those are trained first."""


def with_grid(pooled: Path, grid: Path, out: Path) -> Path:
    """One feature file of the pooled vectors of one file and the cells of another, joined by name."""
    file = out / "pooled-and-grid.npz"
    if not file.is_file():
        vectors, cells = np.load(pooled), np.load(grid)
        row_of = {name: row for row, name in enumerate(cells["names"])}
        rows = [row_of[name] for name in vectors["names"]]
        np.savez(file, names=vectors["names"], pooled=vectors["pooled"], grid=cells["grid"][rows])
    return file


def unseen_ranks(run: Path, queries: Sequence[dict[str, Any]], names: Sequence[str], images: Path) -> list[int]:
    """Of each query the rank, from 1, of the best image that it accepts; 0 if the vocabulary has no word of the query.

    Every query without a known word has the same vector, that of the unknown word. Kept beside the run.

    names, images  files of the val images, and their folder
    """
    file = run.with_name(f"{run.name}-unseen.json")
    if not file.is_file():
        model = st.load(run)
        vectors = model.embed_images(names, root=images), model.embed_texts([row["query"] for row in queries])
        vocabulary = getattr(model.text.input_spec, "vocabulary", None)
        ranks = []
        for row, scores in zip(queries, model.compare(*vectors).numpy().T, strict=True):
            accepted = [names.index(name) for name in row["images"]]
            rank = 1 + int((np.delete(scores, accepted) >= scores[accepted].max()).sum())
            known = vocabulary is None or not set(tokenise(row["query"])).isdisjoint(vocabulary.tokens)
            ranks.append(rank if known else 0)
        file.write_text(json.dumps(ranks) + "\n", encoding="utf-8")
    return list(json.loads(file.read_text(encoding="utf-8")))


def unseen_table(ranks: Mapping[str, Sequence[Sequence[int]]], queries: Sequence[dict[str, Any]], count: int) -> str:
    """Shares of queries, by kind, with an accepted image first and among the first ten: means and ranges over seeds.

    ranks  of `unseen_ranks`, by row and seed        count  val images
    """
    sizes = [len(row["images"]) for row in queries]
    rows = {name: [[np.isin(run, range(1, k + 1)) for k in FIRST] for run in runs] for name, runs in ranks.items()}
    rows["chance"] = [[np.array([1 - comb(count - size, k) / comb(count, k) for size in sizes]) for k in FIRST]]
    kinds = np.array([row["kind"] for row in queries])
    parts = {"all": np.full(len(kinds), True)} | {kind: kinds == kind for kind in dict.fromkeys(kinds.tolist())}
    heads = [f"{kind} ({part.sum()})" for kind, part in parts.items()]
    lines = [["row", "seeds", *heads, "no known word"], ["---"] * (len(heads) + 3)]
    for name, hits in rows.items():
        cells = []
        for part in parts.values():
            first, ten = 100 * np.array(hits)[:, :, part].mean(axis=2).T
            cells.append(f"{first.mean():.1f} / {ten.mean():.1f} [{ten.min():.1f}-{ten.max():.1f}]")
        unknown = str(list(ranks[name][0]).count(0)) if name in ranks else "-"
        lines.append([name, str(len(hits)), *cells, unknown])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    """Train and evaluate the rows, and print the tables."""
    parser = options(__doc__, rows=[*ROWS, *MEANS], default=list(SCORED))
    parser.add_argument("--grid", type=Path)
    config = parser.parse_args()
    folder = data_folder("flickr8k")
    with_cells = [name for name in config.rows if name.endswith("+ grid")]
    if with_cells and config.grid is None:
        sys.exit(f"{with_cells[0]!r} needs features of cells: name them with --grid FILE")
    config.out.mkdir(parents=True, exist_ok=True)
    data = selection(folder / "captions.jsonl", config.out / "captions.jsonl", held_out=HELD_OUT)
    pooled = folder / "mobilenet_pooled.npz"
    names = list(st.read(data, need_images=False).split("val").images.ids)
    queries = json.loads(UNSEEN.read_text(encoding="utf-8"))["queries"]
    unseen: dict[str, list[list[int]]] = {}
    tables: dict[str, list[str]] = {"selection set": [], "val": []}

    def run_of(name: str, seed: int) -> Path:
        run: Path = config.out / f"{file_name(name)}-{seed}"
        return run

    def result_of(name: str, seed: int) -> dict[str, Any]:
        if name in MEANS:
            for member in MEANS[name]:
                result_of(member, seed)
            return averaged(run_of(name, seed), [run_of(member, seed) for member in MEANS[name]])
        features = with_grid(pooled, config.grid, config.out) if name in with_cells else pooled
        if "starter images" in name:
            features = starter_features(st.read(data, images=folder / "images"), config.out)
        sources: dict[str, Any] = {"data": data, "images": folder / "images", "features": features}
        sources["cache"] = config.out / "cache"
        split = "val" if name in (*SCORED, *STARTERS) else None
        return measure(run_of(name, seed), ROWS[name].but(val_split="select"), split=split, seed=seed, **sources)

    for name in config.rows:
        results = [result_of(name, seed) for seed in config.seeds]
        runs = [run_of(name, seed) for seed in config.seeds]
        if name in ROWS:
            selected = [{**result, **best(run)} for result, run in zip(results, runs, strict=True)]
            tables["selection set"].append(line(name, selected))
        if name in (*SCORED, *STARTERS, *MEANS):
            tables["val"].append(line(name, results))
        if name in ("dual", *STARTERS, *MEANS):
            unseen[name] = [unseen_ranks(run, queries, names, folder / "images") for run in runs]
    for split, lines in tables.items():
        print("\n".join([f"\n{split}\n", HEAD, *lines]))
    if unseen:
        print(f"\nunseen words, R@1 / 10 of val images\n\n{unseen_table(unseen, queries, len(names))}")


if __name__ == "__main__":
    main()
