"""Cumulative gain of graded relevance, with a discount by rank (nDCG, Järvelin and Kekäläinen 2002) or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from subtext.evaluation.metric import GainMetric, Gains
from subtext.ops.rank import Ties


@dataclass(frozen=True)
class NDCG(GainMetric):
    """Gain of the first k candidates, discounted by rank, divided by the gain of the best order (Järvelin 2002).

        DCG = sum_{r <= k} g(rel_r) / log2(r + 1)        nDCG = DCG / DCG of the candidates by falling relevance

    The call takes `Comparison` with truth.relevance of 0 or more; ignored cells are left out. It returns (Q) float64 in
    [0, 1]; NaN for a query to which nothing is relevant.

    Args:
        k: How many candidates are looked at.
        ties: As for recall; "expected" is the mean over all orders of the tied.
        gain: "linear", g(x) = x (trec_eval, MTEB), or "exponential", g(x) = 2^x - 1.

    Raises:
        RequirementError: Without relevance, for one below 0 or not finite, and for k below 1.

    Complexity:
        Finding the first k of each row.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.ones(1, 3, dtype=torch.bool), relevance=torch.tensor([[0.0, 1.0, 0.0]]), scale="made")
        >>> round(NDCG(k=3)(Comparison(torch.tensor([[0.3, 0.2, 0.1]]), truth)).item(), 6)  # 1 / log2(3)
        0.63093
    """

    k: int = 10
    gain: Literal["linear", "exponential"] = "linear"
    ties: Ties = "pessimistic"

    sort_order = 81
    label = "ndcg"
    pattern = r"ndcg@(?P<k>\d+)"

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """Gains of the relevance as this metric counts it."""
        return ("gains" if self.gain == "linear" else "gains_exponential",)

    def worth(self, relevance: Tensor) -> Tensor:
        """What a candidate of this relevance counts, in float64.

        Args:
            relevance: (Q C), 0 or more.

        Returns:
            (Q C) float64.
        """
        relevance = relevance.double()
        return relevance if self.gain == "linear" else torch.exp2(relevance) - 1

    def of(self, gains: Gains) -> Float[np.ndarray, "q"]:
        """The same from gains of k places or more that are already there, with the same ties.

        Args:
            gains: `Gains` of Q queries, at least k places deep.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        got, best = gains.by_score, gains.by_relevance
        discounts = 1 / np.log2(np.arange(min(self.k, got.shape[1])) + 2)
        total = (best[:, : self.k] * discounts).sum(axis=1)
        return np.where(total > 0, (got[:, : self.k] * discounts).sum(axis=1) / np.where(total > 0, total, 1), np.nan)


@dataclass(frozen=True)
class SemanticGain(GainMetric):
    """Relevance of the first k candidates, divided by that of the best k candidates (Li et al. 2022, released code).

        sum_{i in first k by score} C_i / sum_{i in first k by relevance} C_i

    The code calls it ASP at k, which it is not: it is a cumulative gain without discount, and no ranks are compared.

    The call takes `Comparison` with truth.relevance of 0 or more; ignored cells are left out. It returns (Q) float64 in
    [0, 1]; NaN for a query to which nothing is relevant.

    Args:
        k: How many candidates are looked at; all where there are fewer.
        ties: As for recall: least relevance first ("pessimistic"), most first, the mean over all orders, or by column.

    Raises:
        RequirementError: Without relevance, for one below 0 or not finite, and for k below 1.

    Complexity:
        Finding the first k of each row.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.ones(1, 3, dtype=torch.bool), relevance=torch.tensor([[1.0, 0.5, 0.5]]), scale="made")
        >>> SemanticGain(k=1)(Comparison(torch.tensor([[0.1, 0.3, 0.2]]), truth)).tolist()
        [0.5]
    """

    k: int = 5
    ties: Ties = "pessimistic"

    sort_order = 80
    label = "gain"
    pattern = r"gain@(?P<k>\d+)"

    def of(self, gains: Gains) -> Float[np.ndarray, "q"]:
        """The same from gains of k places or more that are already there, with the same ties.

        Args:
            gains: `Gains` of Q queries, at least k places deep.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        got, best = gains.by_score, gains.by_relevance
        total = best[:, : self.k].sum(axis=1)
        return np.where(total > 0, got[:, : self.k].sum(axis=1) / np.where(total > 0, total, 1), np.nan)
