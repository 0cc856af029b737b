"""Which relevance agrees best with the others? Flickr8k's validation captions, ordered by one and judged by another.

    SUBTEXT_DATA=... python -m reproduce.studies.agreement [--split val]

SUBTEXT_DATA points at a folder with flickr8k/captions.jsonl and flickr8k/mobilenet_pooled.npz. Relevance of an image
and a caption: the words that they share (tfidf1, ciderd, cider: the image's captions are its references), their
positions in a space of words (lsa: the mean of the image's captions, fitted on train), and, without words, how similar
the image and the caption's own image are (visual: features of an ImageNet network). The tables show ASP of lists
ordered by the row under the relevance of the column, mean of both directions, 50 is a random order; and Spearman's
correlation, mean over images. Cells of an image's own captions count; they are 5 of 5,000.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import subtext as st
from reproduce.studies.common import data_folder
from subtext.evaluation.metrics.agreement import spearman
from subtext.evaluation.relevance import cider, tfidf
from subtext.graphs.spaces import LsaSpace
from subtext.ops.compiled.semantic_rank import agreement, ranks

Matrix = NDArray[np.float32]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="val")
    config = parser.parse_args()
    folder = data_folder("flickr8k")
    matrices = relevances(
        st.read(folder / "captions.jsonl", need_images=False), config.split, folder / "mobilenet_pooled.npz"
    )
    lists = {name: [ranks(np.ascontiguousarray(side)) for side in (m, m.T)] for name, m in matrices.items()}
    show(
        "ASP of the row's order under the column's relevance",
        {row: {column: asp(matrices[row], lists[column]) for column in matrices} for row in matrices},
    )
    values = {row: {column: correlations(matrices[row], matrices[column]) for column in matrices} for row in matrices}
    widest = max(float(cell.std() / len(cell) ** 0.5) for cells in values.values() for cell in cells.values())
    show(
        f"Spearman x 100, mean over images (standard error at most {widest:.2f})",
        {row: {column: float(cell.mean()) for column, cell in cells.items()} for row, cells in values.items()},
    )


def relevances(dataset: st.Dataset, split: str, features: Path) -> dict[str, Matrix]:
    """Name -> (I T) of a split's images and captions."""
    pairs = dataset.split(split)
    texts = [str(value) for value in pairs.texts.values]
    group_ids, indices = np.unique(np.concatenate([pairs.images.groups, pairs.texts.groups]), return_inverse=True)
    rows, groups = indices[: len(pairs.images)], indices[len(pairs.images) :]
    matrices = {"tfidf1": tfidf.products(texts, groups, texts, count=len(group_ids)).all()[rows]}
    matrices["ciderd"] = cider.products(texts, groups, texts, variant="ciderd", count=len(group_ids)).all()[rows]
    matrices["cider"] = cider.products(texts, groups, texts, variant="cider", count=len(group_ids)).all()[rows]
    train = set(dataset.split("train").texts.ids)
    row_of = {name: row for row, name in enumerate(dataset.texts.ids)}
    space = LsaSpace()(dataset, np.array([name in train for name in dataset.texts.ids]))
    vectors = space.vectors[[row_of[name] for name in pairs.texts.ids]]
    of_images = np.stack([vectors[groups == row].mean(axis=0) for row in rows])
    matrices["lsa"] = (of_images @ vectors.T).astype(np.float32)
    with np.load(features, allow_pickle=False) as file:
        feature_row = {name: row for row, name in enumerate(file["names"].tolist())}
        names = [Path(str(value)).name for value in pairs.images.values]
        visual = file["pooled"][[feature_row[name] for name in names]].astype(np.float32)
    visual /= np.linalg.norm(visual, axis=1, keepdims=True)
    image_of = {group: row for row, group in enumerate(rows.tolist())}
    matrices["visual"] = visual @ visual[[image_of[group] for group in groups.tolist()]].T
    return matrices


def asp(scores: Matrix, lists: Sequence[NDArray[np.uint16]]) -> float:
    """Mean of both directions, per cent."""
    sides = (np.ascontiguousarray(side) for side in (scores, scores.T))
    return 50 * sum(float(agreement(side, ranked).mean()) for side, ranked in zip(sides, lists, strict=True))


def correlations(first: Matrix, second: Matrix) -> NDArray[np.float64]:
    """(I) Spearman's x 100 of every image's texts."""
    rows = zip(first.astype(np.float64), second.astype(np.float64), strict=True)
    return 100 * np.array([spearman(*row) for row in rows])


def show(title: str, cells: Mapping[str, Mapping[str, float]]) -> None:
    """A table with the mean over the other columns last."""
    names = list(cells)
    print(f"\n{title}\n\n| | {' | '.join(names)} | mean of the others |\n|---|{'---|' * (len(names) + 1)}")
    for name, row in cells.items():
        mean = sum(value for column, value in row.items() if column != name) / (len(names) - 1)
        print(f"| {name} | {' | '.join(f'{row[column]:.1f}' for column in names)} | {mean:.1f} |")


if __name__ == "__main__":
    main()
