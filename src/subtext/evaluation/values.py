"""From counts to values: every metric of a protocol, for each query of one direction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.metrics.best_rank import BestRank
from subtext.evaluation.metrics.c_way import CWay, CWayRank, SampledCWay
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.metrics.reciprocal_rank import ReciprocalRank
from subtext.evaluation.metrics.summary import chance_rank, chance_recall, mean, median_rank
from subtext.evaluation.protocol import Protocol
from subtext.ops.rank import Counts

RANK = "mean_rank"
"""The values that the median is made of too."""


def unit(name: str) -> float:
    """What a mean of these values is multiplied by: shares are told in per cent, ranks as they are.

    >>> unit("text_to_image/mean_rank(1k)"), unit("asp(tfidf1)")
    (1.0, 100.0)
    """
    return 1.0 if name.partition("(")[0].endswith("rank") else 100.0


def query_values(counts: Counts, keys: NDArray[np.int64], protocol: Protocol) -> dict[str, NDArray[np.float64]]:
    """Name of a figure -> (Q) values whose mean it is; NaN for a query without a value."""
    ties = protocol.ties
    values = {f"recall@{k}": Recall(k, ties).of(counts) for k in protocol.recall}
    values[RANK] = BestRank(ties).of(counts)
    values["mrr"] = ReciprocalRank(ties).of(counts)
    for c in protocol.c_way:
        for at in (1, 3):
            if at < c:
                values[f"{c}_way@{at}"] = (
                    SampledCWay(c, at, protocol.seed, ties).of(counts, keys)
                    if protocol.sampled
                    else CWay(c, at, ties).of(counts)
                )
        values[f"{c}_way_mean_rank"] = CWayRank(c, ties).of(counts)
    values["tie_share"] = np.where(counts.positives > 0, counts.tied > 0, np.nan)
    return values


def figures(values: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """Means of the values in their units, and the median rank."""
    found = {name: unit(name) * mean(column) for name, column in values.items()}
    found["median_rank"] = median_rank(values[RANK])
    return found


def pool(counts: Counts) -> tuple[int, int]:
    """Wrong candidates of the query that has fewest and of the one that has most, among queries with a partner."""
    negatives = counts.negatives[counts.positives > 0]
    return (int(negatives.min()), int(negatives.max())) if len(negatives) else (0, 0)


def chance(counts: Counts, protocol: Protocol) -> dict[str, float]:
    """What a random order of the same candidates would be expected to give."""
    found = {f"recall@{k}": 100 * mean(chance_recall(counts, k)) for k in protocol.recall}
    found[RANK] = mean(chance_rank(counts))
    for c in protocol.c_way:
        found |= {f"{c}_way@{at}": 100 * at / c for at in (1, 3) if at < c}
        found[f"{c}_way_mean_rank"] = (c + 1) / 2
    return found
