"""Literal, loose or mismatched: how well the kinds of planted pairs are told on Flickr8k's validation split.

    SUBTEXT_DATA=... python runs/curated.py RUN [RUN ...]

Each RUN was trained on other pictures, as they are (`runs/flickr8k.py` leaves such runs). Texts of `val` change places,
with those of neighbours (ranks 1 to 20 of a graph of their words) or with any, as `subtext data loosen` does it. Told
are the shares that are estimated beside the true ones, the calibration error of each probability, the area under the
curve of the mismatched against all others and of the loose against the literal, and of the pairs that are called
mismatched how many are. Means of the runs.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from subtext.core import Embeddings
from subtext.curate.judged import kinds_of_pairs
from subtext.data.pairs import Pairs
from subtext.data.planting import Near, plant
from subtext.data.readers import read_pairs
from subtext.evaluate import embed_pairs
from subtext.metrics.detection import auc
from subtext.neighbours.build import Choice, build_graph
from subtext.neighbours.graph import Graph
from subtext.neighbours.lsa import Lsa
from subtext.opening import open_run
from subtext.ops.reliability import reliability

PLANTED: tuple[dict[str, float], ...] = (
    {},
    {"mismatch": 0.2},
    {"neighbour": 0.2},
    {"neighbour": 0.1, "mismatch": 0.1},
    {"neighbour": 0.3, "mismatch": 0.2},
)
FIGURES = ("share loose", "share mismatched", "error loose", "error mismatched", "auc loose", "auc mismatched", "right")


def main() -> None:
    """Print a row for each way of planting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    asked = parser.parse_args()
    captions = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k" / "captions.jsonl"
    pairs = read_pairs(captions, need_pictures=False).pairs.split("val")
    graph = neighbours(pairs)
    embedded = [embed_pairs(open_run(run).model, pairs) for run in asked.runs]
    print(f"| planted | {' | '.join(FIGURES)} |\n|---|{'---|' * len(FIGURES)}")
    for shares in PLANTED:
        rows = [told(pairs, graph, shares, *each) for each in embedded]
        name = ", ".join(f"{kind} {share:g}" for kind, share in shares.items()) or "nothing"
        cells = [f"{np.mean([row[key] for row in rows]):.3f}" if key in rows[0] else "-" for key in FIGURES]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def neighbours(pairs: Pairs) -> Graph:
    """A graph of the words of all texts."""
    return build_graph(pairs, Lsa(), Choice(neighbours=40, among="all"))


def told(
    pairs: Pairs, graph: Graph, shares: dict[str, float], images: Embeddings, texts: Embeddings
) -> dict[str, float]:
    """The figures of one run on pairs that were loosened."""
    kinds = np.full(len(pairs.texts), "", dtype="<U9")
    if shares:
        near = Near(graph.neighbours.astype(np.int64), graph.distances.astype(np.float64), 1, 20)
        planted = plant(pairs, shares, near=near, splits=("val",))
        kinds, pairs = planted.kinds, planted.pairs
        texts = replace(texts, vectors=texts.vectors[torch.from_numpy(planted.came_from)])
    columns, found = kinds_of_pairs(pairs, images, texts, graph=neighbours(pairs) if shares else graph)
    assert found is not None
    truth = kinds[pairs.links[:, 1]]
    wrong, loose = (np.array(columns[name]) for name in ("mismatched", "loose"))
    figures = {f"share {name}": share for name, share in found.shares.items()}
    for name, likely, kind in (("mismatched", wrong, "mismatch"), ("loose", loose, "neighbour")):
        figures[f"error {name}"] = reliability(np.clip(likely, 0, 1), truth == kind).error
    if "mismatch" in shares:
        figures["auc mismatched"] = auc(wrong, truth == "mismatch")
        called = np.array([kind == "mismatched" for kind in columns["kind"]])
        figures["right"] = float((truth[called] == "mismatch").mean())
    if "neighbour" in shares:
        some = truth != "mismatch"
        figures["auc loose"] = auc((loose + wrong)[some], truth[some] == "neighbour")
    return figures


if __name__ == "__main__":
    main()
