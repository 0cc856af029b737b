"""Literal, loose or mismatched: how well the kinds of planted pairs are detected on Flickr8k.

    SUBTEXT_DATA=... python -m reproduce.studies.curated RUN [RUN ...]
    SUBTEXT_DATA=... python -m reproduce.studies.curated --loosened DIR [--seeds 0 1 2] [--rows NUMBER ...]
        [--first N] [--epochs N]

Texts are exchanged, with those of neighbours (ranks 1 to 20 of a graph of their words) or with any, as `subtext data
corrupt` does it, in the shares of `PLANTED`. The table shows the shares that are estimated beside the true ones, the
calibration error of each probability, the area under the ROC curve of the mismatched against all others and of the
loose against the literal, and how many of the pairs that are called mismatched are so. Means of the runs, or the seeds.

RUN: each was trained on other images, with pairs as they are (`studies.flickr8k` leaves such runs); the pairs of val
are corrupted and judged.

--loosened: the case of an archive, of which no part is known to be clean. All pairs are corrupted, each split within
itself, with seed 0; `dual` as the README has it is trained on those of train with each seed, and chooses its epoch on
those of the selection set (the last 500 train images). Judged are the pairs of val, which it has not seen, and those of
train that it was trained on. Everything is written below DIR, and the same call resumes. --first uses only the first
so many train images.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import subtext as st
from reproduce.studies.common import data_folder, selection
from subtext.api.train import flat_arguments
from subtext.core import Embeddings
from subtext.curation.judged import kinds_of_pairs
from subtext.data.noise import Planted, TextNeighbours, plant
from subtext.data.write import write_dataset
from subtext.evaluation import embed_pairs
from subtext.graphs.build import GraphOptions, build_graph
from subtext.graphs.graph import Graph
from subtext.graphs.spaces import LsaSpace
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
    """Print a row for each way of planting, and in an archive for each split that is judged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    parser.add_argument("--loosened", type=Path, metavar="DIR")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, nargs="+", choices=range(len(PLANTED)), default=[*range(len(PLANTED))])
    parser.add_argument("--first", type=int)
    parser.add_argument("--epochs", type=int)
    config = parser.parse_args()
    if bool(config.runs) == (config.loosened is not None):
        parser.error("give runs that were trained on pairs as they are, or --loosened DIR to train some that were not")
    data = data_folder("flickr8k")
    print(f"| planted | judged | {' | '.join(FIGURES)} |\n|---|---|{'---|' * len(FIGURES)}")
    if config.runs:
        judge_clean_runs(config.runs, data, config.rows)
        return
    out = config.loosened
    out.mkdir(parents=True, exist_ok=True)
    captions = selection(data / "captions.jsonl", out / "chosen.jsonl", held_out=HELD_OUT, first=config.first)
    pairs = st.read(captions, need_images=False)
    for row in config.rows:
        judge_archive(pairs, PLANTED[row], data, out, config.seeds, config.epochs)


def judge_clean_runs(runs: Sequence[Path], data: Path, rows: Sequence[int]) -> None:
    """Judge val, corrupted, by runs that were trained on pairs as they are."""
    pairs = st.read(data / "captions.jsonl", need_images=False).split("val")
    graph = neighbours(pairs)
    embedded = [embed_pairs(st.load(run), pairs) for run in runs]
    for shares in (PLANTED[row] for row in rows):
        planted = corrupted(pairs, shares, ("val",))
        corrupt_graph = neighbours(planted.dataset) if shares else graph
        source = torch.from_numpy(planted.source)
        results = []
        for images, texts in embedded:
            moved = replace(texts, vectors=texts.vectors[source])
            results.append(figures(planted.dataset, planted.kinds, images, moved, corrupt_graph))
        print_row(shares, "val, by models of clean pairs", results)


def judge_archive(
    pairs: st.Dataset, shares: Mapping[str, float], data: Path, out: Path, seeds: Sequence[int], epochs: int | None
) -> None:
    """Corrupt all pairs, train on those of train with each seed, and judge those of train and of val."""
    folder = out / ("-".join(f"{kind}-{share:g}" for kind, share in shares.items()) or "nothing")
    folder.mkdir(exist_ok=True)
    planted = corrupted(pairs, shares, SPLITS)
    file = folder / "captions.jsonl"
    if not file.is_file():
        write_dataset(planted.dataset, file)
    arguments: dict[str, Any] = {"data": file, "images": data / "images", "features": data / "mobilenet_pooled.npz"}
    arguments["text"] = "bag"
    if epochs is not None:
        arguments["epochs"] = epochs
    parts = {split: planted.dataset.split(split) for split in JUDGED}
    kinds = {split: planted.kinds[planted.dataset.texts.splits == split] for split in JUDGED}
    graphs: dict[str, Graph] = {}
    results: list[dict[str, dict[str, float]]] = []
    for seed in seeds:
        run = folder / f"dual-{seed}"
        saved = run.with_name(f"{run.name}.json")
        if not saved.is_file():
            running = {"val_split": "select", "seed": seed, "out": run, "resume": True, "quiet": True}
            st.train("dual", **flat_arguments("dual", {**arguments, **running}))
            model = st.load(run)
            graphs = graphs or {split: neighbours(part) for split, part in parts.items()}
            result = {
                split: figures(part, kinds[split], *embed_pairs(model, part), graphs[split])
                for split, part in parts.items()
            }
            saved.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        results.append(json.loads(saved.read_text(encoding="utf-8")))
    for split, name in JUDGED.items():
        print_row(shares, name, [result[split] for result in results])


def print_row(shares: Mapping[str, float], judged: str, rows: Sequence[Mapping[str, float]]) -> None:
    """A row of the table."""
    name = ", ".join(f"{kind} {share:g}" for kind, share in shares.items()) or "nothing"
    cells = [f"{np.mean([row[key] for row in rows]):.3f}" if key in rows[0] else "-" for key in FIGURES]
    print(f"| {name} | {judged} | {' | '.join(cells)} |", flush=True)


def neighbours(pairs: st.Dataset) -> Graph:
    """A graph of the words of all texts."""
    return build_graph(pairs, LsaSpace(), GraphOptions(neighbours=40, candidate_split="all"))


def corrupted(pairs: st.Dataset, shares: Mapping[str, float], splits: tuple[str, ...]) -> Planted:
    """The pairs with noise in shares of each split, within the split; the same for every call."""
    count = len(pairs.texts)
    if not shares:
        rows = np.arange(count, dtype=np.int64)
        return Planted(pairs, pairs, rows, np.full(count, "", dtype="<U9"), np.full(count, np.nan))
    lists = None
    if "neighbour" in shares:
        last = RANKS[1]
        nearest, distances = np.full((count, last), -1, dtype=np.int64), np.full((count, last), np.inf)
        for split in splits:
            rows = np.flatnonzero(pairs.texts.splits == split)
            graph = neighbours(pairs.split(split))
            in_split = graph.neighbours[:, :last]
            nearest[rows], distances[rows] = np.where(in_split >= 0, rows[in_split], -1), graph.distances[:, :last]
        lists = TextNeighbours(nearest, distances, *RANKS)
    return plant(pairs, shares, neighbours=lists, splits=splits)


def figures(
    pairs: st.Dataset, kinds: NDArray[Any], images: Embeddings, texts: Embeddings, graph: Graph
) -> dict[str, float]:
    """The figures of one run on pairs whose texts have these kinds (T), "" for literal ones."""
    columns, estimated, _ = kinds_of_pairs(pairs, images, texts, graph=graph)
    assert estimated is not None
    truth = kinds[pairs.links[:, 1]]
    wrong, loose = (np.array(columns[name]) for name in ("mismatched", "loose"))
    values = {f"share {name}": share for name, share in estimated.shares.items()}
    for name, likely, kind in (("mismatched", wrong, "mismatch"), ("loose", loose, "neighbour")):
        values[f"error {name}"] = reliability(np.clip(likely, 0, 1), truth == kind).error
    if "mismatch" in truth:
        values["auc mismatched"] = auc(wrong, truth == "mismatch")
        called = np.array([kind == "mismatched" for kind in columns["kind"]])
        values["right"] = float((truth[called] == "mismatch").mean()) if called.any() else float("nan")
    if "neighbour" in truth:
        matched = truth != "mismatch"
        values["auc loose"] = auc((loose + wrong)[matched], truth[matched] == "neighbour")
    return values


if __name__ == "__main__":
    main()
