"""How each pair stands among its semantic neighbours: diversity, discrepancy, and whether their pictures agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.ops import draw
from subtext.ops.neighbour_scores import Scoring, neighbour_scores

NEAR = 20
"""Neighbours whose texts a picture may be given, to see what loose pairs look like."""


@dataclass(frozen=True)
class Surroundings:
    """Of each pair, by the neighbours of its text; NaN where there are none.

    diversity, discrepancy  modality -> (L); Thomas and Kovashka 2022, eq. 2 and 4
    agreement               (L) mean cosine of the picture with the pictures of its text's neighbours
    """

    diversity: dict[str, NDArray[np.float64]]
    discrepancy: dict[str, NDArray[np.float64]]
    agreement: NDArray[np.float64]


def surroundings(graph: Graph, pairs: Dataset, images: Embeddings, texts: Embeddings) -> Surroundings:
    """What a graph of the pairs' texts says of them. Items of several views count by the mean of these."""
    neighbours = torch.from_numpy(np.ascontiguousarray(graph.within(pairs.texts).neighbours)).long()
    rows = torch.from_numpy(np.maximum(pictures_of_texts(pairs), 0))
    of_link = pairs.links[:, 1]
    diversity, discrepancy = {}, {}
    for modality, items, item_rows in (("image", images, rows), ("text", texts, None)):
        scores = neighbour_scores(items.vectors.float().mean(dim=1), neighbours, rows=item_rows)
        diversity[modality] = scores.diversity.double().numpy()[of_link]
        discrepancy[modality] = scores.discrepancy.double().numpy()[of_link]
    direct = neighbour_scores(images.vectors.float().mean(dim=1), neighbours, Scoring(second="direct"), rows=rows)
    return Surroundings(diversity, discrepancy, direct.discrepancy.double().numpy()[of_link])


def chance_links(pairs: Dataset, *, seed: int = 0, most: int = 20_000) -> NDArray[np.int64]:
    """(C 2) pictures with texts of other groups, drawn: what mismatched pairs look like."""
    links = pairs.links
    order = draw.permutation(len(links), seed=seed, epoch=0, purpose="curate: chance")[:most]
    texts = draw.permutation(len(links), seed=seed, epoch=0, purpose="curate: chance texts")[: len(order)]
    sampled_links = np.stack([links[order, 0], links[texts, 1]], axis=1)
    return sampled_links[pairs.images.groups[sampled_links[:, 0]] != pairs.texts.groups[sampled_links[:, 1]]]


def near_links(graph: Graph, pairs: Dataset, *, seed: int = 0, most: int = 20_000) -> NDArray[np.int64]:
    """(N 2) pictures with the text of a drawn neighbour, of another group: what loose pairs look like."""
    neighbours = np.asarray(graph.within(pairs.texts).neighbours)[:, :NEAR]
    counts = (neighbours >= 0).sum(axis=1)
    order = draw.permutation(len(pairs.links), seed=seed, epoch=0, purpose="curate: near")[:most]
    links = pairs.links[order]
    links = links[counts[links[:, 1]] > 0]
    if not len(links):
        return np.zeros((0, 2), dtype=np.int64)
    columns = draw.integers(
        pairs.texts.keys[links[:, 1]], counts[links[:, 1]], seed=seed, epoch=0, purpose="curate: which neighbour"
    )[:, 0]
    sampled_links = np.stack([links[:, 0], neighbours[links[:, 1], columns].astype(np.int64)], axis=1)
    return sampled_links[pairs.images.groups[sampled_links[:, 0]] != pairs.texts.groups[sampled_links[:, 1]]]
