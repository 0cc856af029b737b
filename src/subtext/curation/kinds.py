"""The probabilities that a pair is literal, loosely aligned or mismatched.

The alignment of a pair says how clearly its image and its text select each other among sampled items. Observed
alignments are compared with those of two constructed sets: images with random texts are mismatched, and images with
texts of semantic neighbours are loosely aligned. The share of each set is estimated from the low end of the observed
alignments (two-groups model: Efron 2008; estimation where the other group is rare: Storey 2002).

Also other scores of pairs, and how well scores separate planted noise: the measurements of `subtext data detect-noise`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.dataset import Dataset
from subtext.data.words import tokenise
from subtext.graphs.graph import Graph, image_of_text
from subtext.models.model import Model
from subtext.ops import draw
from subtext.ops.density import AS_READ, density
from subtext.ops.neighbour_scores import Scoring, neighbour_scores
from subtext.ops.roc import auc, auc_interval

CANDIDATES = 2048
"""Sampled texts and images that a pair is compared with."""
BLOCK = 1024
"""Pairs compared at a time."""
RANDOM_BLOCK = 256
"""Pairs of a random block, which are negatives of each other."""
MARGIN = 0.1
"""Margin of the triplet loss whose value is a baseline, in cosine."""
TEMPERATURES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2)
NEIGHBOURS = 20
"""Nearest neighbours whose texts make loosely aligned pairs."""
CONSTRUCTED = 20_000
"""Largest number of constructed pairs of one kind."""

Kind = Literal["literal", "loose", "mismatched"]
KINDS: tuple[Kind, Kind, Kind] = ("literal", "loose", "mismatched")
LOW = 0.2
"""Shares are estimated below this quantile of the constructed pairs that are most similar to literal ones."""
BINS = 10
ROUNDS = 10
EXCHANGED, FEWEST_EXCHANGED = 0.067, 10
"""Share, and least number, of pairs whose captions are exchanged to test what is said of kinds."""
CALLED = 0.5
"""Share of the exchanged captions that have to be called mismatched, for kinds to be named."""


@dataclass(frozen=True)
class Candidates:
    """The items that pairs are compared with, and the temperature of the softmax.

    Attributes:
        images: (M K D) vectors.
        texts: See `images`.
        image_groups: (M) their groups.
        text_groups: See `image_groups`.
        temperature: Of the softmax.
    """

    images: NDArray[np.float32]
    texts: NDArray[np.float32]
    image_groups: NDArray[np.int64]
    text_groups: NDArray[np.int64]
    temperature: float


def align(
    pairs: Dataset, images: Embeddings, texts: Embeddings, *, seed: int = 0, candidate_count: int = CANDIDATES
) -> tuple[NDArray[np.float64], Candidates]:
    """Compute the alignment of all links as `aligned` does.

    The temperature is the one with the highest mean alignment. Cost time L (M + M) D.

    Args:
        pairs: The data set.
        images: Embeddings of its items, in their order.
        texts: See `images`.
        seed: Seed of the samples.
        candidate_count: Sampled items of each modality; all where there are fewer.

    Returns:
        (2 L) cosine and alignment; and the candidates that links were compared with.
    """
    vectors = images.vectors.float().numpy(), texts.vectors.float().numpy()
    rows = [
        draw.permutation(len(items), seed=seed, epoch=0, purpose=f"curate: {name}")[:candidate_count]
        for name, items in (("images", pairs.images), ("texts", pairs.texts))
    ]
    candidates = Candidates(
        vectors[0][rows[0]], vectors[1][rows[1]], pairs.images.groups[rows[0]], pairs.texts.groups[rows[1]], 1.0
    )
    sample = draw.permutation(len(pairs.links), seed=seed, epoch=0, purpose="curate: temperature")[:BLOCK]
    choices = [replace(candidates, temperature=temperature) for temperature in TEMPERATURES]
    means = [aligned(choice, pairs, *vectors, pairs.links[sample])[1].mean() for choice in choices]
    best = choices[int(np.argmax(means))]
    return aligned(best, pairs, *vectors, pairs.links), best


def aligned(
    candidates: Candidates,
    pairs: Dataset,
    images: NDArray[np.float32],
    texts: NDArray[np.float32],
    links: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Compute the cosine and the alignment of links.

    The cosine is that of the two most similar views; the alignment is the mean of log p(text | image) and
    log p(image | text) among the candidates of other groups, at most 0.

    Args:
        candidates: Items to compare with.
        pairs: The data set.
        images: (I K D) vectors of its images.
        texts: (T K D) vectors of its texts.
        links: (L 2) image and text rows.

    Returns:
        (2 L) cosine and alignment.
    """
    results = np.zeros((2, len(links)))
    for start in range(0, len(links), BLOCK):
        rows = links[start : start + BLOCK]
        vectors = images[rows[:, 0]], texts[rows[:, 1]]
        groups = pairs.images.groups[rows[:, 0]], pairs.texts.groups[rows[:, 1]]
        cosine = np.einsum("nkd,nld->nkl", *vectors).max(axis=(1, 2)).astype(np.float64)
        scaled = cosine / candidates.temperature
        total = np.zeros(len(cosine))
        for queries, items, item_groups in (
            (vectors[0], candidates.texts, candidates.text_groups),
            (vectors[1], candidates.images, candidates.image_groups),
        ):
            count, views, width = queries.shape
            products = queries.reshape(-1, width) @ items.reshape(-1, width).T
            best = products.reshape(count, views, len(items), -1).max(axis=(1, 3))
            logits = best.astype(np.float64) / candidates.temperature
            excluded = np.logical_or(*(item_groups[None] == group[:, None] for group in groups))
            logits[excluded] = -np.inf
            # Scaled up to all candidates, since few are excluded.
            scale = np.log(logits.shape[1]) - np.log(np.maximum(1, (~excluded).sum(axis=1)))
            total += scaled - np.logaddexp(scaled, np.logaddexp.reduce(logits, axis=1, initial=-np.inf) + scale)
        results[:, start : start + BLOCK] = cosine, total / 2
    return results


def surroundings(graph: Graph, pairs: Dataset, images: Embeddings, texts: Embeddings) -> dict[str, NDArray[np.float64]]:
    """Compute scores of all links by a graph of their texts.

    "diversity_image", "diversity_text", "discrepancy_image" and "discrepancy_text" as in Thomas and Kovashka 2022, eq.
    2 and 4; "agreement" is the mean cosine of the image with the images of its text's neighbours. Items of several
    views count by the mean of their views.

    Args:
        graph: The graph.
        pairs: The data set.
        images: Embeddings of its images.
        texts: Embeddings of its texts.

    Returns:
        Name -> (L); NaN where a text has no neighbours.
    """
    neighbours = torch.from_numpy(np.ascontiguousarray(graph.restrict_to(pairs.texts).neighbours)).long()
    image_rows = torch.from_numpy(np.maximum(image_of_text(pairs), 0))
    image_means, text_means = (items.vectors.float().mean(dim=1) for items in (images, texts))
    scores = {
        "image": neighbour_scores(image_means, neighbours, rows=image_rows),
        "text": neighbour_scores(text_means, neighbours),
    }
    direct = neighbour_scores(image_means, neighbours, Scoring(second="direct"), rows=image_rows)
    columns = {
        f"{name}_{modality}": getattr(score, name)
        for modality, score in scores.items()
        for name in ("diversity", "discrepancy")
    }
    columns["agreement"] = direct.discrepancy
    return {name: column.double().numpy()[pairs.links[:, 1]] for name, column in columns.items()}


def chance_links(pairs: Dataset, *, seed: int = 0) -> NDArray[np.int64]:
    """Sample images with random texts of other groups: mismatched pairs.

    Args:
        pairs: The data set.
        seed: Seed of the sample.

    Returns:
        (C 2) image and text rows.
    """
    links = pairs.links
    order = draw.permutation(len(links), seed=seed, epoch=0, purpose="curate: chance")[:CONSTRUCTED]
    texts = draw.permutation(len(links), seed=seed, epoch=0, purpose="curate: chance texts")[: len(order)]
    return _of_other_groups(pairs, links[order, 0], links[texts, 1])


def near_links(graph: Graph, pairs: Dataset, *, seed: int = 0) -> NDArray[np.int64]:
    """Sample images with the text of a neighbour of another group: loosely aligned pairs.

    Args:
        graph: Graph of the texts.
        pairs: The data set.
        seed: Seed of the sample.

    Returns:
        (N 2) image and text rows.
    """
    neighbours = np.asarray(graph.restrict_to(pairs.texts).neighbours)[:, :NEIGHBOURS]
    counts = (neighbours >= 0).sum(axis=1)
    order = draw.permutation(len(pairs.links), seed=seed, epoch=0, purpose="curate: nearest")[:CONSTRUCTED]
    images, texts = pairs.links[order][counts[pairs.links[order, 1]] > 0].T
    if not len(texts):
        return np.zeros((0, 2), dtype=np.int64)
    columns = draw.integers(pairs.texts.keys[texts], counts[texts], seed=seed, epoch=0, purpose="curate: neighbour")[
        :, 0
    ]
    return _of_other_groups(pairs, images, neighbours[texts, columns].astype(np.int64))


def _of_other_groups(pairs: Dataset, images: NDArray[np.int64], texts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([images, texts], axis=1)[pairs.images.groups[images] != pairs.texts.groups[texts]]


@dataclass(frozen=True)
class Kinds:
    """The probabilities of each pair, and the estimated shares of all pairs.

    Attributes:
        literal: (L), which add up to 1.
        loose: See `literal`.
        mismatched: See `literal`.
        shares: Of "loose" and "mismatched" pairs.
        test: What captions that were exchanged as a test are called; None where that was not tested.
    """

    literal: Float[np.ndarray, "l"]
    loose: Float[np.ndarray, "l"]
    mismatched: Float[np.ndarray, "l"]
    shares: dict[str, float]
    test: ExchangeTest | None = None

    @property
    def likeliest(self) -> NDArray[np.int64]:
        """(L) places in `KINDS`."""
        return np.stack([getattr(self, name) for name in KINDS]).argmax(axis=0)


@dataclass(frozen=True)
class ExchangeTest:
    """How well kinds and the order of pairs tell captions that were exchanged as a test.

    Attributes:
        exchanged: Pairs whose captions were exchanged.
        called: Those of them that are called mismatched.
        in_worst_fifth: Those of them that stand in the fifth of all pairs that fits worst.
        area: Area under the curve of the order, of exchanged against other pairs.
    """

    exchanged: int
    called: int
    in_worst_fifth: int
    area: float

    @property
    def names_kinds(self) -> bool:
        """Whether kinds can be named: most of the exchanged captions are called mismatched."""
        return self.called >= CALLED * self.exchanged


def kinds_of(
    observed: Float[np.ndarray, "l"],
    chance: Float[np.ndarray, "c"],
    neighbour_scores: Float[np.ndarray, "n"] | None = None,
) -> Kinds:
    """Estimate the probabilities of pairs from their alignments; larger alignments are better.

    P(mismatched | a) = share * f_chance(a) / f_observed(a), with the ratio by isotonic regression, and likewise for
    loose pairs, after mismatched ones. The shares are those under which both constructed sets together explain the low
    end of the observed alignments, as if no literal pair lay there; where some do, the share of loose pairs is too
    large.

    Args:
        observed: Of the pairs themselves.
        chance: Of images with random texts.
        neighbour_scores: Of images with texts of neighbours; without them no pair is called loose.

    Returns:
        The probabilities and the estimated shares.

    Example:
        >>> observed, chance = np.array([0.0] * 10 + [9.0] * 90), np.array([0.0] * 100)
        >>> kinds = kinds_of(observed, chance)
        >>> round(kinds.shares["mismatched"], 6), round(float(kinds.mismatched[0]), 6), float(kinds.mismatched[-1])
        (0.1, 1.0, 0.0)
    """
    by_chance = by_neighbours = _density_ratio(observed, chance)
    if neighbour_scores is None or not len(neighbour_scores):
        chance_share, neighbour_share = *_shares(observed, [chance]), 0.0
    else:
        chance_share, neighbour_share = _shares(observed, [chance, neighbour_scores])
        by_neighbours = _density_ratio(observed, neighbour_scores)
    # The neighbours of a mismatched text are mismatched, too: mismatched pairs are as frequent among their pairs.
    wrong = min(1.0, chance_share / max(1 - neighbour_share, 1e-12))
    mismatched = np.minimum(1.0, wrong * by_chance)
    loose = np.clip(neighbour_share * (by_neighbours - wrong * by_chance), 0.0, 1 - mismatched)
    shares = {"loose": neighbour_share * (1 - wrong), "mismatched": wrong}
    return Kinds(1 - mismatched - loose, loose, mismatched, shares)


def exchange_test(
    observed: Float[np.ndarray, "l"],
    chance: Float[np.ndarray, "c"],
    neighbour_scores: Float[np.ndarray, "n"] | None = None,
    *,
    seed: int = 0,
) -> ExchangeTest:
    """Exchange the captions of some pairs, and see what becomes of them.

    The other pairs count as right, some of which may not be: the figures are lower bounds.

    Args:
        observed: As of `kinds_of`.
        chance: As of `kinds_of`; a part of it takes the place of the exchanged pairs, the rest stays.
        neighbour_scores: As of `kinds_of`.
        seed: Seed of the sample.

    Returns:
        The result.
    """
    count = min(max(FEWEST_EXCHANGED, round(EXCHANGED * len(observed))), len(chance) // 2, len(observed) // 2)
    rows = draw.permutation(len(observed), seed=seed, epoch=0, purpose="curate: exchanged")[:count]
    used = draw.permutation(len(chance), seed=seed, epoch=0, purpose="curate: exchanged texts")
    mixed = observed.copy()
    mixed[rows] = chance[used[:count]]
    kinds = kinds_of(mixed, chance[used[count:]], neighbour_scores)
    exchanged = np.zeros(len(mixed), dtype=np.bool_)
    exchanged[rows] = True
    worst = np.argsort(mixed, kind="stable")[: len(mixed) // 5]
    called = kinds.likeliest[rows] == KINDS.index("mismatched")
    return ExchangeTest(count, int(called.sum()), int(exchanged[worst].sum()), auc(-mixed, exchanged))


def _shares(observed: NDArray[np.float64], mixtures: list[NDArray[np.float64]]) -> list[float]:
    """The share of each constructed set, by non-negative least squares over bins of the low end."""
    from sklearn.linear_model import LinearRegression

    limit = float(np.quantile(mixtures[-1], LOW))
    low = np.concatenate([mixture[mixture <= limit] for mixture in mixtures])
    edges = np.unique(np.quantile(low, np.linspace(0, 1, BINS + 1)[1:]))
    # Shares of the values in each bin; values above the last edge are in none.
    target, *columns = (
        np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)[: len(edges)] / len(values)
        for values in (observed, *mixtures)
    )
    # The weight of a bin is the inverse of its expected count.
    expected = target
    for _ in range(ROUNDS):
        model = LinearRegression(fit_intercept=False, positive=True)
        weights = 1 / np.maximum(expected, 1 / len(observed))
        shares = model.fit(np.stack(columns, axis=1), target, sample_weight=weights).coef_
        expected = np.stack(columns, axis=1) @ shares
    return [float(share) for share in shares / max(1.0, float(shares.sum()))]


def _density_ratio(observed: NDArray[np.float64], mixture: NDArray[np.float64]) -> NDArray[np.float64]:
    """(L) the density of a constructed set over that of the observed pairs; it never rises with the alignment."""
    from sklearn.isotonic import IsotonicRegression

    sizes = [len(observed), len(mixture)]
    truth = np.repeat([0.0, 1.0], sizes)
    # Both sets have the same total weight, so that the odds are the ratio of the densities.
    weights = np.repeat([1 / max(1, size) for size in sizes], sizes)
    model = IsotonicRegression(increasing=False, out_of_bounds="clip")
    share = model.fit(np.concatenate([observed, mixture]), truth, sample_weight=weights).predict(observed)
    return share / np.maximum(1 - share, 1e-12)


def baseline_scores(
    model: Model, pairs: Dataset, images: Embeddings, texts: Embeddings, *, seed: int
) -> dict[str, NDArray[np.float64]]:
    """Compute scores of the pairs without neighbours: cosine, loss value, rank weight, words.

    "cosine"        of image and text, of their best views
    "triplet loss"  mean over the negatives of a random block of pairs, both directions; texts and images of the same
                    group are no negatives
    "rank weight"   Mithun's, by the partner's rank in the same block: the mean of both directions
    "words"         the number of words of the text

    Args:
        model: The model.
        pairs: The data set.
        images: Embeddings of its images.
        texts: Embeddings of its texts.
        seed: Seed of the blocks.

    Returns:
        Name -> (L).
    """
    order = draw.permutation(len(pairs.links), seed=seed, epoch=0, purpose="detect noise: blocks")
    cosine, loss, rank = (np.empty(len(order)) for _ in range(3))
    measure = getattr(model.similarity, "cosine", model.similarity)
    for start in range(0, len(order), RANDOM_BLOCK):
        chosen = order[start : start + RANDOM_BLOCK]
        of_image, of_text = (torch.from_numpy(pairs.links[chosen, side]) for side in (0, 1))
        with torch.inference_mode():
            table = measure(images[of_image], texts[of_text]).float()
        positives = table.diagonal()
        groups = torch.from_numpy(pairs.images.groups[pairs.links[chosen, 0]])
        negatives = (groups[:, None] != groups[None, :]).float()
        hinge = (MARGIN + table - positives[:, None]).relu() + (MARGIN + table - positives[None, :]).relu().T
        # Negatives that rank behind the partner, with images and with texts as queries.
        behind = [(negatives * (scores <= positives[:, None])).sum(dim=1) for scores in (table, table.T)]
        rank[chosen] = 1 + (sum(1 / (count + 1) for count in behind) / 2).numpy()
        cosine[chosen] = positives.numpy()
        loss[chosen] = ((hinge * negatives).sum(dim=1) / negatives.sum(dim=1).clamp_min(1)).numpy()
    words = [len(tokenise(text)) if isinstance(text, str) else np.nan for text in pairs.texts.values]
    counts = np.array(words, dtype=np.float64)[pairs.links[:, 1]]
    return {"cosine": cosine, "triplet loss": loss, "rank weight": rank, "words": counts}


def density_scores(pairs: Dataset, images: Embeddings, texts: Embeddings) -> dict[str, NDArray[np.float64]]:
    """Compute Amrani's density of the pairs, in the run's own space.

    Pairs of the same image do not count for each other. Items of several views count by the mean of their views.

    Args:
        pairs: The data set.
        images: Embeddings of its images.
        texts: Embeddings of its texts.

    Returns:
        Name -> (L); empty if a pair has too few other pairs.
    """
    groups = pairs.images.groups[pairs.links[:, 0]]
    if len(groups) - int(np.unique(groups, return_counts=True)[1].max(initial=0)) < AS_READ.neighbours:
        return {}
    first, second = (
        items.vectors.float().mean(dim=1)[torch.from_numpy(pairs.links[:, side])]
        for side, items in enumerate((images, texts))
    )
    return {"density": density(first, second, groups=torch.from_numpy(groups)).double().numpy()}


def graph_scores(
    graph: Path, beta: float, gamma: float, pairs: Dataset, images: Embeddings, texts: Embeddings
) -> dict[str, NDArray[np.float64]]:
    """Compute diversity and discrepancy of the pairs in both modalities, their difference, and both combined.

    Combined as in COMBINED-VAL and COMBINED-STATS: the mean of both modalities, weighted by beta and gamma, or by their
    own mean times deviation. Items of several views count by the mean of their views.

    Args:
        graph: Folder of the graph.
        beta: Weight of diversity.
        gamma: Weight of discrepancy.
        pairs: The data set.
        images: Embeddings of its images.
        texts: Embeddings of its texts.

    Returns:
        Name -> (L).
    """
    scores = surroundings(Graph.load(graph), pairs, images, texts)
    columns = {name.replace("_", ", "): column for name, column in scores.items() if name != "agreement"}
    means, statistics = {}, {}
    for name in ("diversity", "discrepancy"):
        both = np.stack([scores[f"{name}_image"], scores[f"{name}_text"]])
        difference = both[0] - both[1]
        columns[f"{name}, modalities apart"] = np.abs(difference - np.nanmean(difference))
        means[name], statistics[name] = both.mean(axis=0), float(np.nanmean(both) * np.nanstd(both))
    weights = {
        f"combined {beta:g}:{gamma:g}": {"diversity": beta, "discrepancy": gamma},
        "combined by statistics": statistics,
    }
    return columns | {name: sum(shares[score] * means[score] for score in shares) for name, shares in weights.items()}


def detection_areas(
    scores: dict[str, NDArray[np.float64]], kinds: NDArray[Any], clusters: NDArray[np.int64], samples: int
) -> dict[str, dict[str, Any]]:
    """Compute the area under the ROC curve of each score and kind, with its interval.

    Args:
        scores: Score -> (L).
        kinds: (L) noise labels.
        clusters: (L) number of each pair's cluster, for the bootstrap.
        samples: Number of bootstrap samples.

    Returns:
        Score -> what it separates -> area and interval.
    """
    noise = sorted(set(map(str, kinds)) - {""})
    tasks = {f"{kind} from literal": (kinds == kind, (kinds == kind) | (kinds == "")) for kind in noise}
    if len(tasks) == 2:
        tasks["mismatch from neighbour"] = (kinds == "mismatch", kinds != "")
    rows: dict[str, dict[str, Any]] = {}
    for name, values in scores.items():
        for task, (positive, subset) in tasks.items():
            area = auc(values[subset], positive[subset])
            interval = auc_interval(values[subset], positive[subset], clusters[subset], samples=samples)
            rows.setdefault(name, {})[task] = {"auc": area, "interval": interval}
    return rows
