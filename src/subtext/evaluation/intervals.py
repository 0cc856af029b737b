"""Intervals and tests by resampling images, each with the texts that go with it.

Percentile intervals of figures, and whether one way of training is better than another on the same queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.errors import ShapeError
from subtext.ops import draw

LEVEL = 0.95
_EDGES = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
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

    Every figure sees the same samples, so the interval of a sum knows how its parts move together. A sample draws as
    many clusters as there are, with replacement; a figure of a sample is the mean over the queries drawn.

    A figure has no interval when its queries are of fewer than 10 clusters, nor when every sample gives the same (a
    recall of 0 or of 100): a point would claim to be certain. A sum has none when one of its parts has too few.

    Args:
        values: Name -> (Q) values, NaN for a query without one.
        clusters: Name -> (Q) what is drawn together: the queries of one cluster come or stay away as one.
        sums: Name -> names of values whose means it adds up (RSUM).
        samples: Resamplings; 0 for no intervals.
        seed: Of the resamplings.

    Returns:
        Name -> low and high end, for values and sums that have an interval.

    Complexity:
        Time O(samples x clusters x figures), memory O(32 clusters + clusters x figures).
    """
    present = {name: ~np.isnan(column) for name, column in values.items()}
    names = [name for name in values if len(np.unique(clusters[name][present[name]])) >= FEWEST]
    if not names or not samples:
        return {}
    cluster_ids = np.unique(np.concatenate([clusters[name][present[name]] for name in names]))
    totals, sizes = np.zeros((2, len(cluster_ids), len(names)))
    for column, name in enumerate(names):
        rows = np.searchsorted(cluster_ids, clusters[name][present[name]])
        totals[:, column] = np.bincount(rows, values[name][present[name]], minlength=len(cluster_ids))
        sizes[:, column] = np.bincount(rows, minlength=len(cluster_ids))
    means = np.empty((samples, len(names)))
    for start, stop in _batches(samples):
        weights = _times_drawn(len(cluster_ids), stop - start, seed=seed, epoch=start, purpose="bootstrap")
        counts = weights @ sizes
        means[start:stop] = np.divide(weights @ totals, counts, out=np.full_like(counts, np.nan), where=counts > 0)
    resampled = {name: means[:, column] for column, name in enumerate(names)}
    for name, parts in sums.items():
        if all(part in resampled for part in parts):
            resampled[name] = np.sum([resampled[part] for part in parts], axis=0)
    bounds = {name: np.nanpercentile(column, _EDGES).tolist() for name, column in resampled.items()}
    return {name: (low, high) for name, (low, high) in bounds.items() if high - low > _ROUNDING * abs(high)}


def _batches(samples: int) -> Iterator[tuple[int, int]]:
    for start in range(0, samples, _TOGETHER):
        yield start, min(start + _TOGETHER, samples)


def _times_drawn(count: int, samples: int, *, seed: int, epoch: int, purpose: str) -> Float[np.ndarray, "s n"]:
    """How often each of N items is in each sample of N, drawn with replacement."""
    items = np.arange(count, dtype=np.int64)
    drawn = draw.integers(items, count, seed=seed, epoch=epoch, purpose=purpose, count=samples)
    return np.stack([np.bincount(column, minlength=count) for column in drawn.T]).astype(np.float64)


@dataclass(frozen=True)
class Paired:
    """The result of a paired comparison.

    Attributes:
        difference: Mean of the first minus the second, in the values' unit.
        low: 95 % interval of it, resampling images and seeds together.
        high: NaN below 10 images.
        p_value: Two-sided, by changing the sign of all values of an image; NaN below 10 images.
        images: How many there were.
        seeds: Of seeds the fewer, where the two had not equally many.
    """

    difference: float
    low: float
    high: float
    p_value: float
    images: int
    seeds: int


def paired(
    first: Float[np.ndarray, "s q"],
    second: Float[np.ndarray, "t r"],
    clusters: Int[np.ndarray, "n"],
    *,
    samples: int = 2000,
    seed: int = 0,
    same_seeds: bool = True,
) -> Paired:
    """Compare two systems on the same Q queries, each trained with the same S seeds, in the same order.

    The interval draws images and seeds with replacement, so it is about other queries and other trainings; with one
    seed it is about other queries alone. The p-value asks of the mean over the seeds that there are: if nothing but
    chance told the first side from the second, each image's difference could as well have the other sign.

    Args:
        first: (S Q) one value a seed and query.
        second: A query that is NaN anywhere is left out.
        clusters: (Q) the image of each query: its queries come, stay away and change sign as one.
        samples: Resamplings of the interval and of the p-value.
        seed: Of the resamplings.
        same_seeds: False where the trainings of the two have nothing to do with each other: there may then be more of
            one than of the other, and each side's are drawn on their own.

    Returns:
        The difference, its interval and its p-value.

    Raises:
        ShapeError: If the values are of different queries or seeds, or there are none.

    Complexity:
        Time O(samples x images x seeds), memory O(32 images).
    """
    alike = first.shape[same_seeds ^ 1 :] == second.shape[same_seeds ^ 1 :]
    if not alike or first.shape[1:] != clusters.shape or not first.size or not second.size:
        raise ShapeError(
            f"a paired test needs values (seeds, queries) of the same seeds and queries, and an image a query; it got "
            f"{first.shape}, {second.shape} and {clusters.shape}"
        )
    present = ~(np.isnan(first).any(axis=0) | np.isnan(second).any(axis=0))
    if not present.any():
        raise ShapeError("a paired test needs a query with a value in every seed of both; there is none")
    rows = np.unique(clusters[present], return_inverse=True)[1].reshape(-1)
    count = int(rows.max()) + 1
    sides = [first - second] if same_seeds else [first, -second]
    totals = [
        np.stack([np.bincount(rows, values, minlength=count) for values in side[:, present].astype(np.float64)])
        for side in sides
    ]
    sizes = np.bincount(rows, minlength=count).astype(np.float64)
    means = sum((side.mean(axis=0) for side in totals), np.zeros(count))
    difference, seeds = float(means.sum() / sizes.sum()), min(len(first), len(second))
    if count < FEWEST:
        return Paired(difference, np.nan, np.nan, np.nan, count, seeds)
    differences = np.empty(samples)
    # Sign changes whose sum is as far from 0 as the true one, which is counted among them.
    observed, as_far = abs(means.sum()) - 1e-12 * np.abs(means).sum(), 1
    for start, stop in _batches(samples):
        weights = _times_drawn(count, stop - start, seed=seed, epoch=start, purpose="paired images")
        sums = np.zeros(stop - start)
        # The trainings of each side are drawn on their own, the images once for both.
        for side, purpose in zip(totals, ("paired seeds", "paired seeds of the second"), strict=False):
            shares = _times_drawn(len(side), stop - start, seed=seed, epoch=start, purpose=purpose) / len(side)
            sums += ((shares @ side) * weights).sum(axis=1)
        differences[start:stop] = sums / (weights @ sizes)
        images = np.arange(count, dtype=np.int64)
        signs = draw.integers(images, 2, seed=seed, epoch=start, purpose="paired signs", count=stop - start)
        as_far += int((np.abs((2 * signs.T - 1) @ means) >= observed).sum())
    low, high = np.percentile(differences, _EDGES)
    return Paired(difference, float(low), float(high), as_far / (samples + 1), count, seeds)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for how many there are (Holm 1979); NaN stays NaN and counts for nothing.

    Args:
        p_values: In [0, 1], or NaN.

    Returns:
        In [0, 1], in the same order.

    Example:
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
