"""Plausible-Match R-Precision (Chun et al. 2021): images of almost the same object classes count as right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.evaluation.metric import Metric
from subtext.ops.rank import PositiveRanks, Ties, rank_positives
from subtext.ops.sparse import CandidateLists
from subtext.ops.top_k import graded_relevance


@dataclass(frozen=True)
class PMRP(Metric):
    """R-Precision, averaged over several definitions of a plausible match (Chun et al. 2021, section 4.1).

        mean_zeta |first R_zeta and plausible_zeta| / R_zeta        plausible_zeta: label distance at most zeta

    Args:
        zeta: Largest number of labels in which a plausible image may differ; the paper's are 0, 1 and 2.
        ties: As for recall; "expected" is the mean over all orders.

    Raises:
        RequirementError: Without relevance, or without a zeta of 0 or more.

    Complexity:
        One sort of each row.

    Example:
        >>> from subtext.core import Truth
        >>> truth = Truth(torch.ones(1, 3, dtype=torch.bool), relevance=torch.tensor([[0.0, -1.0, -5.0]]),
        ...     scale="labels")
        >>> PMRP(zeta=(0, 1))(Comparison(torch.tensor([[0.1, 0.3, 0.2]]), truth)).tolist()  # (0 + 1/2) / 2
        [0.25]
    """

    zeta: tuple[int, ...] = (0, 1, 2)
    ties: Ties = "pessimistic"

    reads = ("label_ranks",)
    truth = "labels"
    sort_order = 90
    name = "pmrp"

    def __post_init__(self) -> None:
        if not self.zeta or min(self.zeta) < 0:
            raise RequirementError(f"{type(self).__name__} needs one zeta or more, each 0 or more; it got {self.zeta}")

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: Whose truth.relevance is minus the distance between label sets (0 for the same labels); ignored
                cells are left out: items without labels are to be taken out of queries and gallery alike.

        Returns:
            (Q) float64 in [0, 1]; NaN for a query to which nothing is plausible under some zeta.
        """
        relevance, ignored = graded_relevance(comparison, type(self).__name__), comparison.truth.ignored
        allowed = torch.ones_like(relevance, dtype=torch.bool) if ignored is None else ~ignored.cpu()
        truths = [CandidateLists.of_mask((relevance >= -zeta) & allowed) for zeta in self.zeta]
        left_out = None if ignored is None else CandidateLists.of_mask(ignored)
        ranks = rank_positives(comparison.scores, truths, left_out, stable=self.ties == "stable")
        return torch.from_numpy(self.of(dict(zip(self.zeta, ranks, strict=True))))

    def of(self, ranks: Mapping[int, PositiveRanks]) -> NDArray[np.float64]:
        """The same from ranks that are already there, by zeta.

        Args:
            ranks: Zeta -> `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return np.asarray(np.mean([ranks[zeta].precision(self.ties) for zeta in self.zeta], axis=0))

    def chance(self, ranks: Mapping[int, PositiveRanks]) -> NDArray[np.float64] | None:
        """The mean share of the candidates that are plausible.

        Args:
            ranks: Zeta -> `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN for a query without positives.
        """
        return np.asarray(np.mean([ranks[zeta].share_of_positives() for zeta in self.zeta], axis=0))


@dataclass(frozen=True)
class PMRecall(PMRP):
    """Recall at 1, mean over the same readings of what is plausible."""

    sort_order = 91
    name = "pm_recall@1"

    def of(self, ranks: Mapping[int, PositiveRanks]) -> NDArray[np.float64]:
        """The same from ranks that are already there, by zeta.

        Args:
            ranks: Zeta -> `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return np.asarray(np.mean([ranks[zeta].best().hits(1, self.ties) for zeta in self.zeta], axis=0))

    def chance(self, ranks: Mapping[int, PositiveRanks]) -> None:
        """None is reported.

        Args:
            ranks: Zeta -> `ops.rank.PositiveRanks` of Q queries.
        """
        return
