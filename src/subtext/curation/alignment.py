"""How much a picture and a text choose each other among others of their data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.ops import draw

OTHERS = 2048
"""Texts, and pictures, that a pair is held against."""
BLOCK = 1024
"""Pairs at a time."""
TEMPERATURES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2)


@dataclass(frozen=True)
class Alignment:
    """Of pairs of a picture and a text.

    cosine      (L) of the views that fit best
    alignment   (L) mean of log p(text | picture) and log p(picture | text) among drawn others, at most 0
    """

    cosine: NDArray[np.float64]
    alignment: NDArray[np.float64]


@dataclass(frozen=True)
class Crowd:
    """What pairs are held against: drawn items of both sides, and the temperature.

    images, texts    (M K D) vectors            image_groups, text_groups  (M) their groups
    """

    images: NDArray[np.float32]
    texts: NDArray[np.float32]
    image_groups: NDArray[np.int64]
    text_groups: NDArray[np.int64]
    temperature: float

    def of(
        self, images: NDArray[np.float32], texts: NDArray[np.float32], image_groups: NDArray[np.int64],
        text_groups: NDArray[np.int64],
    ) -> Alignment:  # fmt: skip
        """The alignment of (L K D) pictures with (L K D) texts, row by row; items of their own groups do not count."""
        paired_score = np.einsum("nkd,nld->nkl", images, texts).max(axis=(1, 2)).astype(np.float64)
        scaled = paired_score / self.temperature
        weight_totals = np.zeros(len(paired_score))
        for vectors, candidates, groups in (
            (images, self.texts, self.text_groups),
            (texts, self.images, self.image_groups),
        ):
            crowd = best_products(vectors, candidates).astype(np.float64) / self.temperature
            same = (groups[None] == image_groups[:, None]) | (groups[None] == text_groups[:, None])
            crowd[same] = -np.inf
            # As if a whole crowd had been there: those that do not count are few.
            fewer = np.log(crowd.shape[1]) - np.log(np.maximum(1, (~same).sum(axis=1)))
            remainder = np.logaddexp.reduce(crowd, axis=1, initial=-np.inf) + fewer
            weight_totals += scaled - np.logaddexp(scaled, remainder)
        return Alignment(paired_score, weight_totals / 2)


def align(
    pairs: Dataset, images: Embeddings, texts: Embeddings, *, seed: int = 0, other_count: int = OTHERS
) -> tuple[Alignment, Crowd]:
    """The alignment of all links of a data set, and the crowd that they were held against.

    images, texts  embeddings of its items, in their order
    other_count         drawn items of each side; all where there are fewer

    The temperature is that under which the pairs choose each other most surely. Cost time L (M + M) D.
    """
    pictures, words = (alignment.vectors.float().numpy() for alignment in (images, texts))
    chosen = [
        draw.permutation(len(items), seed=seed, epoch=0, purpose=f"curate: {name}")[:other_count]
        for name, items in (("pictures", pairs.images), ("texts", pairs.texts))
    ]
    crowd = Crowd(
        pictures[chosen[0]], words[chosen[1]], pairs.images.groups[chosen[0]], pairs.texts.groups[chosen[1]], 1.0
    )
    some = draw.permutation(len(pairs.links), seed=seed, epoch=0, purpose="curate: temperature")[:BLOCK]
    worth = []
    for temperature in TEMPERATURES:
        alignment = aligned(_at(crowd, temperature), pairs, pictures, words, pairs.links[some])
        worth.append(float(alignment.alignment.mean()))
    crowd = _at(crowd, TEMPERATURES[int(np.argmax(worth))])
    return aligned(crowd, pairs, pictures, words, pairs.links), crowd


def aligned(
    crowd: Crowd,
    pairs: Dataset,
    images: NDArray[np.float32],
    texts: NDArray[np.float32],
    links: NDArray[np.int64],
) -> Alignment:
    """The alignment of any (L 2) picture and text rows, block by block."""
    alignments: Sequence[Alignment] = [
        crowd.of(images[some[:, 0]], texts[some[:, 1]], pairs.images.groups[some[:, 0]], pairs.texts.groups[some[:, 1]])
        for some in (links[start : start + BLOCK] for start in range(0, len(links), BLOCK))
    ]
    return Alignment(
        np.concatenate([np.zeros(0), *(alignment.cosine for alignment in alignments)]),
        np.concatenate([np.zeros(0), *(alignment.alignment for alignment in alignments)]),
    )


def best_products(queries: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(Q N) best scores over the views of (Q L D) and (N K D)."""
    count, views, width = queries.shape
    flat = queries.reshape(-1, width) @ vectors.reshape(-1, width).T
    products: NDArray[np.float32] = flat.reshape(count, views, len(vectors), -1).max(axis=(1, 3))
    return products


def _at(crowd: Crowd, temperature: float) -> Crowd:
    return Crowd(crowd.images, crowd.texts, crowd.image_groups, crowd.text_groups, temperature)
