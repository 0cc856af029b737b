"""Intervals by resampling pictures, each with the texts that go with it.

Whether one way of training is better than another, asked of the same queries and the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops import draw

_paired_TOGETHER = 32
"""Samples drawn at a time: a bound on memory, and part of what a seed means."""


@dataclass(frozen=True)
class Paired:
    """What a paired comparison found.

    difference  mean of mine minus theirs, in the values' unit
    low, high   95 % interval of it, resampling pictures and seeds together; NaN below 10 pictures
    p_value     two-sided, by changing the sign of whole pictures; NaN below 10 pictures
    pictures, seeds   how many there were; of seeds the fewer, where the two had not equally many
    """

    difference: float
    low: float
    high: float
    p_value: float
    pictures: int
    seeds: int


def paired(
    mine: Float[np.ndarray, "s q"],
    theirs: Float[np.ndarray, "t r"],
    clusters: Int[np.ndarray, "n"],
    *,
    samples: int = 2000,
    seed: int = 0,
    same_seeds: bool = True,
) -> Paired:
    """Compare two systems on the same Q queries, each trained with the same S seeds, in the same order.

    mine, theirs  (S Q) one value a seed and query; a query that is NaN anywhere is left out
    clusters      (Q) the picture of each query: its queries come, stay away and change sign as one
    same_seeds    False where the trainings of the two have nothing to do with each other: there may then be more of
                  one than of the other, and each side's are drawn on their own

    The interval draws pictures and seeds with replacement, so it is about other queries and other trainings; with one
    seed it is about other queries alone. The p-value asks of the mean over the seeds that there are: if nothing but
    chance told mine from theirs, each picture's difference could as well have the other sign.

    Raises ShapeError when the values are of different queries or seeds, or none is left.
    Cost   time O(samples x pictures x seeds), memory O(32 pictures).
    """
    alike = mine.shape[same_seeds ^ 1 :] == theirs.shape[same_seeds ^ 1 :]
    if not alike or mine.shape[1:] != clusters.shape or not mine.size or not theirs.size:
        raise ShapeError(
            f"a paired test needs values (seeds, queries) of the same seeds and queries, and a picture a query; it got "
            f"{mine.shape}, {theirs.shape} and {clusters.shape}"
        )
    present = ~(np.isnan(mine).any(axis=0) | np.isnan(theirs).any(axis=0))
    if not present.any():
        raise ShapeError("a paired test needs a query with a value in every seed of both; there is none")
    cluster_rows = np.unique(clusters[present], return_inverse=True)[1].reshape(-1)
    count = int(cluster_rows.max()) + 1
    sides = [mine - theirs] if same_seeds else [mine, -theirs]
    totals = [
        np.stack([np.bincount(cluster_rows, row, minlength=count) for row in side[:, present].astype(np.float64)])
        for side in sides
    ]
    sizes = np.bincount(cluster_rows, minlength=count).astype(np.float64)
    means = sum((side.mean(axis=0) for side in totals), np.zeros(count))
    seeds = min(len(mine), len(theirs))
    difference = float(means.sum() / sizes.sum())
    if count < FEWEST:
        return Paired(difference, np.nan, np.nan, np.nan, count, seeds)
    low, high = np.percentile(_resampled(totals, sizes, samples, seed), [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return Paired(difference, float(low), float(high), _p_value(means, samples, seed), count, seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for how many there are (Holm 1979); NaN stays NaN and counts for nothing.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    ordered = sorted((p, index) for index, p in enumerate(p_values) if not np.isnan(p))
    result = [float("nan")] * len(p_values)
    least = 0.0
    for rank, (p, index) in enumerate(ordered):
        least = max(least, min(1.0, p * (len(ordered) - rank)))
        result[index] = least
    return result


def _resampled(
    totals: Sequence[Float[np.ndarray, "_ g"]], sizes: Float[np.ndarray, "g"], samples: int, seed: int
) -> Float[np.ndarray, "n"]:
    """The difference in each sample; every side's trainings are drawn for themselves, the pictures once for all."""
    count = len(sizes)
    pictures = np.arange(count, dtype=np.int64)
    differences = np.empty(samples)
    for start in range(0, samples, _paired_TOGETHER):
        count_now = min(_paired_TOGETHER, samples - start)
        drawn = draw.integers(pictures, count, seed=seed, epoch=start, purpose="paired pictures", count=count_now)
        weights = np.stack([np.bincount(column, minlength=count) for column in drawn.T]).astype(np.float64)
        sums = np.zeros(count_now)
        for side, purpose in zip(totals, ("paired seeds", "paired other seeds"), strict=False):
            seeds = len(side)
            trainings = np.arange(seeds, dtype=np.int64)
            trained = draw.integers(trainings, seeds, seed=seed, epoch=start, purpose=purpose, count=count_now)
            shares = np.stack([np.bincount(column, minlength=seeds) for column in trained.T]) / seeds
            sums += ((shares @ side) * weights).sum(axis=1)
        differences[start : start + count_now] = sums / (weights @ sizes)
    return differences


def _p_value(totals: Float[np.ndarray, "g"], samples: int, seed: int) -> float:
    """Share of sign changes whose sum is as far from 0 as the one seen, which is counted among them."""
    pictures = np.arange(len(totals), dtype=np.int64)
    observed = abs(totals.sum()) - 1e-12 * np.abs(totals).sum()
    as_far = 1
    for start in range(0, samples, _paired_TOGETHER):
        count_now = min(_paired_TOGETHER, samples - start)
        drawn = draw.integers(pictures, 2, seed=seed, epoch=start, purpose="paired signs", count=count_now)
        as_far += int((np.abs((2 * drawn.T - 1) @ totals) >= observed).sum())
    return as_far / (samples + 1)


LEVEL = 0.95
FEWEST = 10
"""Clusters below which a figure has no interval: so few samples hardly differ, and promise more than is known."""
_TOGETHER = 32
"""Samples drawn at a time: a bound on memory, and part of what a seed means."""
_ROUNDING = 1e-9
"""Width of an interval, relative to its end, that rounding alone can make."""


def intervals(
    values: Mapping[str, NDArray[np.float64]],
    clusters: Mapping[str, NDArray[np.int64]],
    sums: Mapping[str, list[str]],
    *,
    samples: int,
    seed: int,
) -> dict[str, tuple[float, float]]:
    """Percentile intervals at 95 % of means of values, and of sums of such means.

    values    name -> (Q) values, NaN for a query without one
    clusters  name -> (Q) what is drawn together: the queries of one cluster come or stay away as one
    sums      name -> names of values whose means it adds up (RSUM)

    Every figure sees the same samples, so the interval of a sum knows how its parts move together. A sample draws as
    many clusters as there are, with replacement; a figure of a sample is the mean over the queries drawn.

    A figure has no interval when its queries are of fewer than 10 clusters, nor when every sample gives the same (a
    recall of 0 or of 100): a point would claim to be certain. A sum has none when one of its parts has too few.

    Cost   time O(samples x clusters x figures), memory O(32 clusters + clusters x figures).
    """
    names = [name for name in values if cluster_count(values[name], clusters[name]) >= FEWEST]
    if not names or not samples:
        return {}
    cluster_ids = np.unique(np.concatenate([clusters[name][~np.isnan(values[name])] for name in names]))
    totals, sizes = np.zeros((2, len(cluster_ids), len(names)))
    for column, name in enumerate(names):
        present = ~np.isnan(values[name])
        cluster_rows = np.searchsorted(cluster_ids, clusters[name][present])
        totals[:, column] = np.bincount(cluster_rows, values[name][present], minlength=len(cluster_ids))
        sizes[:, column] = np.bincount(cluster_rows, minlength=len(cluster_ids))
    means = _means(totals, sizes, samples, seed)
    resampled = {name: means[:, column] for column, name in enumerate(names)}
    for name, parts in sums.items():
        if all(part in resampled for part in parts):
            resampled[name] = np.sum([resampled[part] for part in parts], axis=0)
    edges = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    bounds = {name: np.nanpercentile(column, edges).tolist() for name, column in resampled.items()}
    return {name: (low, high) for name, (low, high) in bounds.items() if high - low > _ROUNDING * abs(high)}


def cluster_count(values: NDArray[np.float64], clusters: NDArray[np.int64]) -> int:
    """How many clusters the queries with a value are of."""
    return len(np.unique(clusters[~np.isnan(values)]))


def _means(totals: NDArray[np.float64], sizes: NDArray[np.float64], samples: int, seed: int) -> NDArray[np.float64]:
    """(samples, figures): the mean of each figure in each sample."""
    count = len(totals)
    keys = np.arange(count, dtype=np.int64)
    means = np.empty((samples, totals.shape[1]))
    for start in range(0, samples, _TOGETHER):
        stop = min(start + _TOGETHER, samples)
        chosen = draw.integers(keys, count, seed=seed, epoch=start, purpose="bootstrap", count=stop - start)
        weights = np.stack([np.bincount(column, minlength=count) for column in chosen.T]).astype(np.float64)
        sums = weights @ sizes
        means[start:stop] = np.divide(weights @ totals, sums, out=np.full_like(sums, np.nan), where=sums > 0)
    return means
