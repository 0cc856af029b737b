"""How much of a semantic neighbourhood the joint space preserves (Thomas and Kovashka 2020, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subtext.evaluation.metric import Metric
from subtext.ops.rank import PositiveRanks


@dataclass(frozen=True)
class Preservation(Metric):
    """Share of the n relevant candidates of a query that are among its n best-scored candidates; averaged over queries.

        |first_E(scores) and match| / E        E the query's own number of positives

    R-Precision within one modality: queries and candidates are the same items, truth.match marks each item's neighbours
    in the semantic graph (`Graph.truth`), and truth.ignored the item itself. The paper's E is 200.

    Of equal scores it is the mean over all orders.

    The call takes `Comparison`; ignored cells are left out. It returns (Q) float64 in [0, 1]; NaN for a query without
    positives. A random order gives E / (candidates - ignored).

    Complexity:
        A sort of each query's scores.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> match = torch.tensor([[False, True, True, False]])
        >>> Preservation()(Comparison(torch.tensor([[0.1, 0.9, 0.2, 0.5]]), Truth(match))).tolist()
        [0.5]
    """

    reads = ("positive_ranks",)
    truth = "neighbours"
    name = "neighbours_kept"
    ties = "expected"

    def of(self, ranks: PositiveRanks) -> NDArray[np.float64]:
        """The same from ranks that are already there.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return ranks.precision("expected")

    def chance(self, ranks: PositiveRanks) -> NDArray[np.float64]:
        """(Q) share of the candidates that are neighbours.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN for a query without positives.
        """
        return ranks.share_of_positives()
