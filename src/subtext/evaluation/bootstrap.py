"""Intervals by resampling pictures, each with the texts that go with it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from subtext.ops import draw

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
    known = np.unique(np.concatenate([clusters[name][~np.isnan(values[name])] for name in names]))
    totals, sizes = np.zeros((2, len(known), len(names)))
    for column, name in enumerate(names):
        present = ~np.isnan(values[name])
        places = np.searchsorted(known, clusters[name][present])
        totals[:, column] = np.bincount(places, values[name][present], minlength=len(known))
        sizes[:, column] = np.bincount(places, minlength=len(known))
    means = _means(totals, sizes, samples, seed)
    drawn = {name: means[:, column] for column, name in enumerate(names)}
    for name, parts in sums.items():
        if all(part in drawn for part in parts):
            drawn[name] = np.sum([drawn[part] for part in parts], axis=0)
    edges = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    found = {name: np.nanpercentile(column, edges).tolist() for name, column in drawn.items()}
    return {name: (low, high) for name, (low, high) in found.items() if high - low > _ROUNDING * abs(high)}


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
        drawn = weights @ sizes
        means[start:stop] = np.divide(weights @ totals, drawn, out=np.full_like(drawn, np.nan), where=drawn > 0)
    return means
