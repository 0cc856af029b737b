"""Whether a pair is literal, loose or mismatched, as probabilities, from how its alignment lies beside made pairs.

What a mismatch looks like is known: pictures with texts drawn by chance. What a loose pair looks like, too: pictures
with the texts of neighbours. Only how many of either there are is not; that is read from the low end of what is seen
(the two-groups model: Efron 2008; reading a share where the other group hardly lies: Storey 2002).

How much a picture and a text choose each other among others of their data set.

How each pair stands among its semantic neighbours: diversity, discrepancy, and whether their pictures agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.neighbours.graph import Graph, pictures_of_texts
from subtext.ops import draw
from subtext.ops.neighbour_scores import Scoring, neighbour_scores

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


Kind = Literal["literal", "loose", "mismatched"]
KINDS: tuple[Kind, Kind, Kind] = ("literal", "loose", "mismatched")
LOW = 0.2
"""Share of the made pairs that are nearest to literal ones in whose low part shares are read."""
BINS = 10
ROUNDS = 10


@dataclass(frozen=True)
class Kinds:
    """Of each pair its probabilities, and of all the shares.

    literal, loose, mismatched  (L), which add up to 1
    shares                      of the loose and the mismatched among all pairs, as they were estimated
    """

    literal: Float[np.ndarray, "l"]
    loose: Float[np.ndarray, "l"]
    mismatched: Float[np.ndarray, "l"]
    shares: dict[str, float]

    @property
    def likeliest(self) -> list[Kind]:
        """(L) the kind of the greatest probability."""
        table = np.stack([self.literal, self.loose, self.mismatched])
        return [KINDS[row] for row in table.argmax(axis=0)]


def kinds_of(
    observed: Float[np.ndarray, "l"],
    chance: Float[np.ndarray, "c"],
    neighbour_scores: Float[np.ndarray, "n"] | None = None,
) -> Kinds:
    """Probabilities of the pairs from their alignments.

    observed    of the pairs themselves; larger is better
    chance  of pictures with texts that were drawn by chance
    neighbour_scores    of pictures with texts of neighbours; None calls nothing loose

    P(mismatched | a) = share * f_chance(a) / f_seen(a), the ratio by isotonic regression, and alike for the loose, to
    whom falls what the mismatched leave. Shares are those under which chance and near pairs together give the low end
    of what is seen, as if no literal pair lay there: where some do, the share of the loose comes out too large.

    >>> seen, chance = np.array([0.0] * 10 + [9.0] * 90), np.array([0.0] * 100)
    >>> found = kinds_of(seen, chance)
    >>> round(found.shares["mismatched"], 6), round(float(found.mismatched[0]), 6), float(found.mismatched[-1])
    (0.1, 1.0, 0.0)
    """
    if neighbour_scores is None or not len(neighbour_scores):
        (wrong,) = _shares(observed, [chance])
        mismatched = np.minimum(1.0, wrong * _ratio(observed, chance))
        return Kinds(1 - mismatched, np.zeros(len(observed)), mismatched, {"loose": 0.0, "mismatched": wrong})
    chosen, taken = _shares(observed, [chance, neighbour_scores])
    # A mismatched text's neighbours are mismatched, too: as large a part of the near is chance as of the seen.
    wrong = min(1.0, chosen / max(1 - taken, 1e-12))
    by_chance = _ratio(observed, chance)
    mismatched = np.minimum(1.0, wrong * by_chance)
    loose = np.clip(taken * (_ratio(observed, neighbour_scores) - wrong * by_chance), 0.0, 1 - mismatched)
    return Kinds(1 - mismatched - loose, loose, mismatched, {"loose": taken * (1 - wrong), "mismatched": wrong})


def _shares(observed: NDArray[np.float64], mixtures: list[NDArray[np.float64]]) -> list[float]:
    """How many of the seen are like each of the made, by least squares over bins of their low end, none below 0."""
    limit = float(np.quantile(mixtures[-1], LOW))
    low = np.concatenate([mixture[mixture <= limit] for mixture in mixtures])
    edges = np.unique(np.quantile(low, np.linspace(0, 1, BINS + 1)[1:]))
    target = _in_bins(observed, edges)
    parts = np.stack([_in_bins(mixture, edges) for mixture in mixtures], axis=1)
    # A bin counts by how sure it is: by the inverse of what is expected there.
    expected = np.maximum(target, 1 / len(observed))
    shares = np.zeros(len(mixtures))
    for _ in range(ROUNDS):
        shares = _not_negative(parts, target, 1 / expected)
        expected = np.maximum(parts @ shares, 1 / len(observed))
    return [float(mixture) for mixture in np.abs(shares) / max(1.0, float(shares.sum()))]


def _in_bins(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of the values up to the first edge, from there to the second, and so on; the rest is left out."""
    bins = np.searchsorted(edges, values, side="left")
    shares: NDArray[np.float64] = np.bincount(bins, minlength=len(edges) + 1)[: len(edges)] / len(values)
    return shares


def _not_negative(
    parts: NDArray[np.float64], target: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted least squares of one or two parts, none below 0."""
    best, least = np.zeros(parts.shape[1]), np.inf
    for chosen in ([0], [1], [0, 1]) if parts.shape[1] > 1 else ([0],):
        some = parts[:, chosen] * np.sqrt(weights)[:, None]
        solved = np.linalg.lstsq(some, target * np.sqrt(weights), rcond=None)[0]
        apart = float(np.square(some @ solved - target * np.sqrt(weights)).sum())
        if (solved >= 0).all() and apart < least:
            best, least = np.zeros(parts.shape[1]), apart
            best[chosen] = solved
    return best


def _ratio(observed: NDArray[np.float64], mixture: NDArray[np.float64]) -> NDArray[np.float64]:
    """(L) how much denser the made pairs are than the seen at each of the seen, never rising with the alignment."""
    from sklearn.isotonic import IsotonicRegression

    values = np.concatenate([observed, mixture])
    truth = np.concatenate([np.zeros(len(observed)), np.ones(len(mixture))])
    # Both count alike as a whole, so that the odds are the ratio of the densities.
    weights = np.concatenate(
        [np.full(len(observed), 1 / max(1, len(observed))), np.full(len(mixture), 1 / max(1, len(mixture)))]
    )
    model = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(values, truth, sample_weight=weights)
    likely = model.predict(observed)
    ratios: NDArray[np.float64] = likely / np.maximum(1 - likely, 1e-12)
    return ratios


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
