"""Literal, loose or mismatched: how well the kinds of planted pairs are told on Flickr8k.

    SUBTEXT_DATA=... python -m reproduce.studies.curated RUN [RUN ...]
    SUBTEXT_DATA=... python -m reproduce.studies.curated --loosened DIR [--seeds 0 1 2] [--rows NUMBER ...]
        [--first N] [--epochs N]

Texts change places, with those of neighbours (ranks 1 to 20 of a graph of their words) or with any, as `subtext data
loosen` does it, in the shares of `PLANTED`. Told are the shares that are estimated beside the true ones, the
calibration error of each probability, the area under the curve of the mismatched against all others and of the loose
against the literal, and of the pairs that are called mismatched how many are. Means of the runs, or of the seeds.

RUN: each was trained on other pictures, with pairs as they are (`studies.flickr8k` leaves such runs); the pairs of val
are loosened and judged.

--loosened: the case of an archive, of which no part is known to be clean. All pairs are loosened, each split within
itself, with seed 0; `dual` as the README has it is trained on those of train with each seed, and chooses its epoch on
those of the selection set (the last 500 train pictures). Judged are the pairs of val, which it has not seen, and those
of train that it has learnt from. Everything is written below DIR, and the same call again goes on where it was stopped.
--first keeps the first so many train pictures.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from reproduce.studies.common import selection, subtext
from subtext.api.load import open_run
from subtext.core import Embeddings
from subtext.curation.judged import kinds_of_pairs
from subtext.data.dataset import Dataset
from subtext.data.noise import NeighbourLists, Planted, plant
from subtext.data.read import read
from subtext.data.write import write_dataset
from subtext.evaluation import embed_pairs
from subtext.neighbours.build import GraphOptions, build_graph
from subtext.neighbours.graph import Graph
from subtext.neighbours.spaces import Lsa
from subtext.ops.roc import auc, reliability

PLANTED: tuple[dict[str, float], ...] = (
    {},
    {"mismatch": 0.2},
    {"neighbour": 0.2},
    {"neighbour": 0.1, "mismatch": 0.1},
    {"neighbour": 0.3, "mismatch": 0.2},
)
FIGURES = ("share loose", "share mismatched", "error loose", "error mismatched", "auc loose", "auc mismatched", "right")
SPLITS = ("train", "select", "val")
JUDGED = {"val": "val, not seen", "train": "train, learnt from"}
RANKS = (1, 20)
HELD_OUT = 500


def main() -> None:
    """Print a row for each way of planting, and in an archive for each part that is judged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    parser.add_argument("--loosened", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", choices=range(len(PLANTED)), default=[*range(len(PLANTED))])
    parser.add_argument("--first", type=int)
    parser.add_argument("--epochs", type=int)
    asked = parser.parse_args()
    if bool(asked.runs) == (asked.loosened is not None):
        parser.error("give runs that learnt from pairs as they are, or --loosened DIR to train some that did not")
    data = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    print(f"| planted | judged | {' | '.join(FIGURES)} |\n|---|---|{'---|' * len(FIGURES)}")
    if asked.runs:
        of_clean_runs(asked.runs, data, asked.rows)
        return
    asked.loosened.mkdir(parents=True, exist_ok=True)
    captions = selection(data / "captions.jsonl", asked.loosened / "chosen.jsonl", held_out=HELD_OUT, first=asked.first)
    pairs = read(captions, need_images=False)
    for row in asked.rows:
        of_an_archive(pairs, PLANTED[row], data, asked.loosened, asked.seeds, asked.epochs)


def of_clean_runs(runs: list[Path], data: Path, rows: list[int]) -> None:
    """Judge val, loosened, by runs that learnt from pairs as they are."""
    pairs = read(data / "captions.jsonl", need_images=False).split("val")
    graph = neighbours(pairs)
    embedded = [embed_pairs(open_run(run).model, pairs) for run in runs]
    for shares in (PLANTED[row] for row in rows):
        planted = loosened(pairs, shares, ("val",))
        own = neighbours(planted.dataset) if shares else graph
        moved = torch.from_numpy(planted.source)
        told = [
            figures(planted.dataset, planted.kinds, images, replace(texts, vectors=texts.vectors[moved]), own)
            for images, texts in embedded
        ]
        line(shares, "val, by models of clean pairs", told)


def of_an_archive(
    pairs: Dataset, shares: Mapping[str, float], data: Path, out: Path, seeds: list[int], epochs: int | None
) -> None:
    """Loosen all pairs, learn from those of train with each seed, and judge what was learnt from and what was not."""
    folder = out / ("-".join(f"{kind}-{share:g}" for kind, share in shares.items()) or "nothing")
    folder.mkdir(exist_ok=True)
    planted = loosened(pairs, shares, SPLITS)
    source = folder / "captions.jsonl"
    if not source.is_file():
        write_dataset(planted.dataset, source)
    words = ["--data", str(source), "--images", str(data / "images"), "--val-split", "select"]
    words += ["--features", str(data / "mobilenet_pooled.npz"), *([] if epochs is None else ["--epochs", str(epochs)])]
    parts = {split: planted.dataset.split(split) for split in JUDGED}
    kinds = {split: planted.kinds[planted.dataset.texts.splits == split] for split in JUDGED}
    graphs: dict[str, Graph] = {}
    told: list[dict[str, dict[str, float]]] = []
    for seed in seeds:
        run = folder / f"dual-{seed}"
        kept = run.with_name(f"{run.name}.json")
        if not kept.is_file():
            subtext(["train", "dual", *words, "--seed", str(seed), "--out", str(run), "--resume", "--quiet"])
            model = open_run(run).model
            graphs = graphs or {split: neighbours(part) for split, part in parts.items()}
            own = {s: figures(p, kinds[s], *embed_pairs(model, p), graphs[s]) for s, p in parts.items()}
            kept.write_text(json.dumps(own, indent=2) + "\n", encoding="utf-8")
        told.append(json.loads(kept.read_text(encoding="utf-8")))
    for split, name in JUDGED.items():
        line(shares, name, [each[split] for each in told])


def line(shares: Mapping[str, float], judged: str, rows: list[dict[str, float]]) -> None:
    """A row of the table."""
    name = ", ".join(f"{kind} {share:g}" for kind, share in shares.items()) or "nothing"
    cells = [f"{np.mean([row[key] for row in rows]):.3f}" if key in rows[0] else "-" for key in FIGURES]
    print(f"| {name} | {judged} | {' | '.join(cells)} |", flush=True)


def neighbours(pairs: Dataset) -> Graph:
    """A graph of the words of all texts."""
    return build_graph(pairs, Lsa(), GraphOptions(neighbours=40, candidate_split="all"))


def loosened(pairs: Dataset, shares: Mapping[str, float], splits: tuple[str, ...]) -> Planted:
    """The pairs with shares of those of each split loosened, within the split; the same for every call."""
    count = len(pairs.texts)
    if not shares:
        rows = np.arange(count, dtype=np.int64)
        return Planted(pairs, rows, np.full(count, "", dtype="<U9"), np.full(count, np.nan))
    near = None
    if "neighbour" in shares:
        last = RANKS[1]
        found, apart = np.full((count, last), -1, dtype=np.int64), np.full((count, last), np.inf)
        for split in splits:
            own = np.flatnonzero(pairs.texts.splits == split)
            graph = neighbours(pairs.split(split))
            near_rows = graph.neighbours[:, :last]
            found[own], apart[own] = np.where(near_rows >= 0, own[near_rows], -1), graph.distances[:, :last]
        near = NeighbourLists(found, apart, *RANKS)
    return plant(pairs, shares, neighbours=near, splits=splits)


def figures(
    pairs: Dataset, kinds: NDArray[Any], images: Embeddings, texts: Embeddings, graph: Graph
) -> dict[str, float]:
    """The figures of one run on pairs of which these texts (T) are loose."""
    columns, found = kinds_of_pairs(pairs, images, texts, graph=graph)
    assert found is not None
    truth = kinds[pairs.links[:, 1]]
    wrong, loose = (np.array(columns[name]) for name in ("mismatched", "loose"))
    told = {f"share {name}": share for name, share in found.shares.items()}
    for name, likely, kind in (("mismatched", wrong, "mismatch"), ("loose", loose, "neighbour")):
        told[f"error {name}"] = reliability(np.clip(likely, 0, 1), truth == kind).error
    if "mismatch" in truth:
        told["auc mismatched"] = auc(wrong, truth == "mismatch")
        called = np.array([kind == "mismatched" for kind in columns["kind"]])
        told["right"] = float((truth[called] == "mismatch").mean()) if called.any() else float("nan")
    if "neighbour" in truth:
        some = truth != "mismatch"
        told["auc loose"] = auc((loose + wrong)[some], truth[some] == "neighbour")
    return told


if __name__ == "__main__":
    main()
