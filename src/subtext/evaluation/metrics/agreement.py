"""Whether scores of pairs order them as people do: correlation of ranks (Spearman 1904, Kendall 1945)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from subtext.errors import DataError, ShapeError
from subtext.evaluation.metric import GalleryMetric
from subtext.ops.roc import auc


@dataclass(frozen=True)
class HumanAgreement(GalleryMetric):
    """Spearman's and Kendall's correlation with people's ratings of pairs, and AUC of pairs that people rated high.

    Args:
        against: For `subtext.evaluate`, the table of ratings.
        positive_rating: From which rating a pair counts as positive; None for the middle between lowest and highest.
    """

    positive_rating: float | None = None

    reads = ("scores", "ratings")
    truth = "ratings"
    pattern = r"human"

    def figures(self, scores: Float[np.ndarray, "n"], ratings: Float[np.ndarray, "n"]) -> dict[str, float]:
        """The figures that have a meaning: none of these where all ratings are equal.

        Args:
            scores: (N) scores of the rated pairs.
            ratings: (N) people's ratings of them.

        Returns:
            Name -> number.

        Raises:
            DataError: For fewer than two rated pairs.
        """
        if len(ratings) < 2:
            raise DataError(f"agreement with people needs two rated pairs or more; it got {len(ratings)}")
        middle = (ratings.min() + ratings.max()) / 2 if self.positive_rating is None else self.positive_rating
        found = {
            "human/spearman": spearman(scores, ratings),
            "human/kendall": kendall(scores, ratings),
            "human/auc": auc(scores, ratings >= middle),
            "human/pairs": float(len(ratings)),
        }
        return {name: value for name, value in found.items() if not math.isnan(value)}


def spearman(left: Float[np.ndarray, "n"], right: Float[np.ndarray, "m"]) -> float:
    """Correlation of the ranks, those of equal values being their mean; NaN where all of a side are equal.

    A pair with a value that is no number is left out.

    Args:
        left: (N) values.
        right: (N) values.

    Returns:
        In [-1, 1]; NaN where all of a side are equal.

    Raises:
        ShapeError: If the two are not of one length.

    Example:
        >>> round(spearman(np.array([1.0, 2.0, 2.0, 9.0]), np.array([4.0, 3.0, 2.0, 1.0])), 6)
        -0.948683
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, left, right)


def kendall(left: Float[np.ndarray, "n"], right: Float[np.ndarray, "m"]) -> float:
    """Kendall's tau-b: pairs of pairs in the same order less those in the opposite one, corrected for ties.

        (P - Q) / sqrt((P + Q + ties left) (P + Q + ties right))

    NaN where all of a side are equal; a pair with a value that is no number is left out.

    Args:
        left: (N) values.
        right: (N) values.

    Returns:
        In [-1, 1]; NaN where all of a side are equal.

    Raises:
        ShapeError: Likewise.

    Example:
        >>> round(kendall(np.array([1.0, 2.0, 2.0, 9.0]), np.array([4.0, 3.0, 2.0, 1.0])), 6)
        -0.912871
    """
    from scipy.stats import kendalltau

    return _correlation(kendalltau, left, right)


def _correlation(statistic: Callable[..., Any], left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    if left.shape != right.shape:
        raise ShapeError(f"agreement needs two scores a pair; it got {len(left)} and {len(right)}")
    valid = ~(np.isnan(left) | np.isnan(right))
    sides = left[valid], right[valid]
    return float(statistic(*sides).statistic) if all(len(np.unique(side)) > 1 for side in sides) else math.nan
