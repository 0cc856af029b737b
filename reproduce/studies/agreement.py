"""Which relevance agrees best with the others? Flickr8k's validation captions, ranked by one and judged by another.

    SUBTEXT_DATA=... python -m reproduce.studies.agreement [--split val]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl and flickr8k/mobilenet_pooled.npz. Relevance of a picture
and a caption: the words that they share (tfidf1, ciderd, cider: the picture's captions are its references), their
places in a space of words (lsa: the mean of the picture's captions, learnt from train), and, knowing no words, how
alike the picture and the caption's own picture are (visual: features of an ImageNet network). Told is ASP of lists
ordered by the row under the relevance of the column, mean of both directions, 50 is a random order; and Spearman's
correlation, mean over pictures. Cells of a picture's own captions count; they are 5 of 5,000.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.data.read import read
from subtext.evaluation.metrics.agreement import spearman
from subtext.evaluation.relevance import cider, tfidf
from subtext.neighbours.spaces import Lsa
from subtext.ops.semantic_rank import agreement, ranks

Matrix = NDArray[np.float32]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="val")
    asked = parser.parse_args()
    if "SUBTEXT_DATA" not in os.environ:
        sys.exit("this needs the data: set SUBTEXT_DATA to the folder that holds flickr8k/")
    folder = Path(os.environ["SUBTEXT_DATA"]) / "flickr8k"
    found = relevances(read(folder / "captions.jsonl"), asked.split, folder / "mobilenet_pooled.npz")
    lists = {name: [ranks(np.ascontiguousarray(one)) for one in (matrix, matrix.T)] for name, matrix in found.items()}
    told(
        "ASP of the row's order under the column's relevance",
        {one: {other: asp(found[one], lists[other]) for other in found} for one in found},
    )
    values = {one: {other: correlations(found[one], found[other]) for other in found} for one in found}
    widest = max(float(cell.std() / len(cell) ** 0.5) for row in values.values() for cell in row.values())
    told(
        f"Spearman x 100, mean over pictures (standard error at most {widest:.2f})",
        {one: {other: float(cell.mean()) for other, cell in row.items()} for one, row in values.items()},
    )


def relevances(pairs: Dataset, split: str, features: Path) -> dict[str, Matrix]:
    """Name -> (I T) of a split's pictures and captions."""
    chosen = pairs.split(split)
    texts = [str(value) for value in chosen.texts.values]
    every, places = np.unique(np.concatenate([chosen.images.groups, chosen.texts.groups]), return_inverse=True)
    rows, groups = places[: len(chosen.images)], places[len(chosen.images) :]
    found = {"tfidf1": tfidf.products(texts, groups, texts, count=len(every)).all()[rows]}
    for variant in ("ciderd", "cider"):
        found[variant] = cider.products(texts, groups, texts, variant=variant, count=len(every)).all()[rows]
    known = set(pairs.split("train").texts.ids)
    row_of = {name: row for row, name in enumerate(pairs.texts.ids)}
    space = Lsa()(pairs, np.array([name in known for name in pairs.texts.ids]))
    vectors = space.vectors[[row_of[name] for name in chosen.texts.ids]]
    of_pictures = np.stack([vectors[groups == row].mean(axis=0) for row in rows])
    found["lsa"] = (of_pictures @ vectors.T).astype(np.float32)
    with np.load(features, allow_pickle=False) as file:
        place = {name: row for row, name in enumerate(file["names"].tolist())}
        looks = file["pooled"][[place[Path(str(value)).name] for value in chosen.images.values]].astype(np.float32)
    looks /= np.linalg.norm(looks, axis=1, keepdims=True)
    owner = {group: row for row, group in enumerate(rows.tolist())}
    found["visual"] = looks @ looks[[owner[group] for group in groups.tolist()]].T
    return found


def asp(scores: Matrix, lists: list[NDArray[np.uint16]]) -> float:
    """Mean of both directions, per cent."""
    sides = (np.ascontiguousarray(one) for one in (scores, scores.T))
    return 50 * sum(float(agreement(one, mine).mean()) for one, mine in zip(sides, lists, strict=True))


def correlations(left: Matrix, right: Matrix) -> NDArray[np.float64]:
    """(I) Spearman's x 100 of every picture's texts."""
    sides = zip(left.astype(np.float64), right.astype(np.float64), strict=True)
    return 100 * np.array([spearman(*side) for side in sides])


def told(title: str, cells: dict[str, dict[str, float]]) -> None:
    """A table with the mean over the other columns last."""
    names = list(cells)
    print(f"\n{title}\n\n| | {' | '.join(names)} | mean of the others |\n|---|{'---|' * (len(names) + 1)}")
    for name, row in cells.items():
        mean = sum(value for other, value in row.items() if other != name) / (len(names) - 1)
        print(f"| {name} | {' | '.join(f'{row[other]:.1f}' for other in names)} | {mean:.1f} |")


if __name__ == "__main__":
    main()
