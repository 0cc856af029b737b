"""Intervals and tests by resampling images, each with the texts that go with it.

Percentile intervals of figures, and whether one way of training is better than another on the same queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.stats import t as student

from subtext.errors import ShapeError
from subtext.ops import draw

LEVEL = 0.95
_EDGES = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
FEWEST_RUNS = 3
"""Trainings a side from which on a comparison is one of trainings: two say too little of how others spread."""
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
        low: Its 95 % interval: by trainings and images from three trainings on, else by images alone.
        high: NaN below 10 images.
        p_queries: Two-sided, of the trainings that there are: by changing the sign of all values of an image. NaN below
            10 images.
        p_runs: Two-sided, of other trainings and other images, from the distribution of the interval. NaN below three
            trainings a side, and below 10 images.
        images: How many there were.
        seeds: Of seeds the fewer, where the two had not equally many.
    """

    difference: float
    low: float
    high: float
    p_queries: float
    p_runs: float
    images: int
    seeds: int

    @property
    def p_value(self) -> float:
        """The p-value that goes with the interval: `p_runs` from three trainings on, else `p_queries`."""
        return self.p_queries if self.seeds < FEWEST_RUNS else self.p_runs


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

    From three trainings a side on, trainings and images are both taken for samples: the variance of the mean is that of
    crossed random effects, by mean squares (M_seeds + M_images - M_rest) / (S C), where no share of it is below 0, with
    Student's t and Satterthwaite's degrees of freedom. With fewer trainings the interval is about other images and the
    same trainings: it draws images with replacement. The p-value of queries asks of the mean over the trainings that
    there are: if nothing but chance told the first side from the second, each image's difference could as well have the
    other sign.

    Args:
        first: (S Q) one value a seed and query.
        second: A query that is NaN anywhere is left out.
        clusters: (Q) the image of each query: its queries come, stay away and change sign as one.
        samples: Resamplings of the interval by images and of the p-value of queries.
        seed: Of the resamplings.
        same_seeds: False where the trainings of the two have nothing to do with each other: there may then be more of
            one than of the other, and the variances of their seeds add up.

    Returns:
        The difference, its interval and its p-values.

    Raises:
        ShapeError: If the values are of different queries or seeds, or there are none.

    Complexity:
        Time O(images x (samples + seeds)), memory O(32 images).
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
        return Paired(difference, np.nan, np.nan, np.nan, np.nan, count, seeds)
    differences = np.empty(samples)
    # Sign changes whose sum is as far from 0 as the true one, which is counted among them.
    observed, as_far = abs(means.sum()) - 1e-12 * np.abs(means).sum(), 1
    for start, stop in _batches(samples):
        if seeds < FEWEST_RUNS:
            weights = _times_drawn(count, stop - start, seed=seed, epoch=start, purpose="paired images")
            differences[start:stop] = (weights @ means) / (weights @ sizes)
        images = np.arange(count, dtype=np.int64)
        signs = draw.integers(images, 2, seed=seed, epoch=start, purpose="paired signs", count=stop - start)
        as_far += int((np.abs((2 * signs.T - 1) @ means) >= observed).sum())
    p_queries = as_far / (samples + 1)
    if seeds < FEWEST_RUNS:
        low, high = np.percentile(differences, _EDGES)
        return Paired(difference, float(low), float(high), p_queries, np.nan, count, seeds)
    error, freedom = _crossed(totals, sizes)
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * error
    p_runs = 2 * float(student.sf(abs(difference) / error, freedom)) if error else float(difference == 0)
    return Paired(difference, difference - half, difference + half, p_queries, p_runs, count, seeds)


def _crossed(sides: Sequence[Float[np.ndarray, "_ n"]], sizes: Float[np.ndarray, "n"]) -> tuple[float, float]:
    """Standard error of a mean over trainings and images, both drawn, and its degrees of freedom.

    Args:
        sides: (S C) sum of the values of each image by training; the mean is that of one side, or the sum of those of
            two, whose trainings are drawn apart.
        sizes: (C) values an image.

    Returns:
        The error in the values' unit, and Satterthwaite's degrees of freedom.
    """
    count, total = len(sizes), sizes.sum()
    # The ratio of sums, made linear: values whose plain mean varies as it does where images have several queries.
    spread = [
        side * (count / total) - (side.sum() / (len(side) * total)) * (sizes * count / total - 1) for side in sides
    ]
    of_runs = rest = of_runs_freedom = rest_freedom = 0.0
    for side in spread:
        runs = len(side)
        by_run = float(side.mean(axis=1).var(ddof=1)) / runs
        inner = side - side.mean(axis=1, keepdims=True) - side.mean(axis=0) + side.mean()
        within = float((inner**2).sum()) / ((runs - 1) * (count - 1)) / (runs * count)
        of_runs, of_runs_freedom = of_runs + by_run, of_runs_freedom + by_run**2 / (runs - 1)
        rest, rest_freedom = rest + within, rest_freedom + within**2 / ((runs - 1) * (count - 1))
    of_images = float(sum(side.mean(axis=0) for side in spread).var(ddof=1)) / count
    of_images_freedom = of_images**2 / (count - 1)
    # A share of the variance is not below 0: where seeds or images add nothing, the rest stands for them.
    if of_runs < rest:
        of_runs, of_runs_freedom = rest, rest_freedom
    if of_images < rest:
        of_images, of_images_freedom = rest, rest_freedom
    variance = of_runs + of_images - rest
    if not variance:
        return 0.0, float(count - 1)
    return variance**0.5, variance**2 / (of_runs_freedom + of_images_freedom + rest_freedom)


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
