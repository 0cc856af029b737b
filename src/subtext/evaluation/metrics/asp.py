"""Average Semantic Precision (Li et al. 2022): whether a model orders a full gallery as its meaning does.

Also its two reference lines: what a random order is expected to give, and the best that scores can.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.evaluation.metric import Metric, SemanticRanks
from subtext.ops.compiled.semantic_rank import RankTies, agreement
from subtext.ops.rank import Ties
from subtext.ops.top_k import graded_relevance


@dataclass(frozen=True)
class ASP(Metric):
    """Average Semantic Precision (Li et al. 2022, eq. 8-9): agreement of the rankings by score and by relevance.

        ASP_q = mean_i min(R_C(i), R_S(i)) / max(R_C(i), R_S(i))        R_C by relevance, R_S by score

    A random order is expected to give (C + 1) / 2C, about one half, whatever the relevance; the reverse order 0.386. It
    is a mean over the bulk of a gallery: a model that finds every partner first and orders the rest at random is at one
    half too. Relevance with ties keeps scores below 1: `ceiling` says how far. Equal scores have no order: they count
    as the mean over all orders of them, so that equal scores for all candidates are at chance.

    Args:
        against: The relevance by name, such as "tfidf1"; of no importance where the metric is called with a Comparison.
        ties: Of equal relevance: "ordinal" (by column, as in the published code), "min" (eq. 8: they share the best
            rank) or "average". It often ties: 15 % of COCO's are exactly 0.
        top: N for the candidates of relevance rank up to N alone; 0 for all. With "min" and "average" those that tie
            for the last rank stay together, and none may be meant where more than N share the first.
        within: Rank scores among those N alone, else keep their ranks among all candidates.

    Raises:
        RequirementError: Without relevance, for one that is not finite, and for a negative top.

    Complexity:
        Two sorts of each row.

    Example:
        >>> from subtext.core import Truth
        >>> truth = Truth(torch.ones(1, 3, dtype=torch.bool), relevance=torch.tensor([[4.0, 3.0, 2.0]]), scale="made")
        >>> ASP()(Comparison(torch.tensor([[0.1, 0.3, 0.2]]), truth)).tolist()
        [0.5]
    """

    against: str = ""
    ties: RankTies = "ordinal"
    top: int = 0
    within: bool = True

    truth = "relevance"
    sort_order = 70
    pattern = r"asp(@(?P<top>\d+))?"

    def __post_init__(self) -> None:
        if self.top < 0:
            raise RequirementError(f"ASP needs top of 0 (all candidates) or more; it got {self.top}")

    @property
    def reads(self) -> tuple[str, ...]:  # type: ignore[override]
        """The ranks under its rule for ties of the relevance."""
        return (f"semantic_ranks_{self.ties}",)

    def with_ties(self, ties: Ties) -> ASP:
        """Itself: its rule is for ties of the relevance, and equal scores count as the mean over their orders.

        Args:
            ties: The rule for ties.

        Returns:
            Itself.
        """
        return self

    @property
    def name(self) -> str:
        """With its N."""
        return f"asp@{self.top}" if self.top else "asp"

    def __call__(self, comparison: Comparison) -> Float[Tensor, "q"]:
        """One value per query.

        Args:
            comparison: With truth.relevance, finite; the name of its scale belongs to the figure's name. Ignored cells
                are left out. A score that is not a number ranks last.

        Returns:
            (Q) float64 in (0, 1]; NaN for a query without such candidates.
        """
        relevance, ignored = graded_relevance(comparison, "ASP").numpy(), comparison.truth.ignored
        if ignored is None or not bool(ignored.any()):
            return torch.from_numpy(self.of(SemanticRanks.of(comparison.scores, relevance, self.ties)))
        values = torch.full((len(relevance),), torch.nan, dtype=torch.float64)
        for row, included in enumerate(~ignored.cpu()):
            if included.any():
                scores = comparison.scores[row : row + 1, included]
                graded = relevance[row : row + 1, included.numpy()]
                values[row] = self.of(SemanticRanks.of(scores, graded, self.ties))[0]
        return values

    def of(self, ranks: SemanticRanks) -> Float[np.ndarray, "q"]:
        """The same from ranks of the relevance that are already there, with the same ties.

        Args:
            ranks: `SemanticRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        top = (self.top,) if self.top else ()
        shares = agreement(
            ranks.scores, ranks.by_relevance, self.ties, top=top, within=self.within, kernel=ranks.kernel
        )
        return shares[:, 0]

    def chance(self, ranks: SemanticRanks) -> Float[np.ndarray, "q"] | None:
        """Of a random order; None for ranks that are not within the top.

        Args:
            ranks: `SemanticRanks` of Q queries.

        Returns:
            (Q) float64; None for ranks that are not within the top.
        """
        return self._reference(ranks, 0)

    def ceiling(self, ranks: SemanticRanks) -> Float[np.ndarray, "q"] | None:
        """Of the best order; None likewise.

        Args:
            ranks: `SemanticRanks` of Q queries.

        Returns:
            (Q) float64; None for ranks that are not within the top.
        """
        return self._reference(ranks, 1)

    def _reference(self, ranks: SemanticRanks, line: int) -> Float[np.ndarray, "q"] | None:
        if self.top and not self.within:
            return None
        return among_first(ranks.best, (self.top or ranks.best.shape[1],), self.ties)[line][:, 0]


Numbers = NDArray[np.float64]
Whole = NDArray[np.int64]


def among_first(
    best: UInt[np.ndarray, "q c"], tops: Sequence[int], ties: RankTies = "ordinal"
) -> tuple[Float[np.ndarray, "q k"], Float[np.ndarray, "q k"]]:
    """Two lines of reference of ASP over the N most relevant candidates alone (`ASP(top=N)`); N = C is over all.

    The first is expected of a random order: (C + 1) / 2C with ordinal ranks, and dependent on ties where these share a
    rank. The second is expected of scores that put every candidate where its relevance does, and equal ones in any
    order: 1 where relevance has no ties. Scores that tie where the relevance does are at it.

    The most relevant are a beginning of the list: among them everybody keeps the rank that they had among all. NaN for
    a query of which no N are meant, as ASP has it.

    Args:
        best: `ops.compiled.semantic_rank.ranks(relevance, "min")`.
        tops: Each N, a column of both results.
        ties: As in `ASP`.

    Returns:
        (Q K) each: expected of a random order, and of the best order.

    Raises:
        RequirementError: If the N is below 1.

    Complexity:
        One read of the ranks, and O(C + K) a query.

    Example:
        >>> among_first(np.array([[1, 2, 2]], dtype=np.uint16), (2,))
        (array([[0.75]]), array([[1.]]))
        >>> among_first(np.array([[1, 2, 2]], dtype=np.uint16),
        ...     (3,))[1].round(6).tolist()  # (1 + (1 + 4/3 + 1) / 2) / 3
        [[0.888889]]
    """
    cutoffs = np.asarray(tops, dtype=np.int64)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, best.shape[1] + 1))])
    if cutoffs.min(initial=1) < 1:
        raise RequirementError(f"the first N in relevance need N of 1 or more; it got {cutoffs.min()}")

    def both(row: NDArray[np.unsignedinteger]) -> tuple[Numbers, Numbers]:
        sizes = np.bincount(row)
        starts = np.flatnonzero(sizes)
        if ties == "ordinal":
            return _ordinal(starts, sizes[starts], cutoffs, harmonic)
        return _shared(starts, sizes[starts], cutoffs, harmonic, ties)

    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        sums = np.array(list(pool.map(both, best)), dtype=np.float64).reshape(-1, 2, len(cutoffs))
    return sums[:, 0], sums[:, 1]


def _ordinal(starts: Whole, sizes: Whole, tops: Whole, harmonic: Numbers) -> tuple[Numbers, Numbers]:
    """Of one query, whose runs of equal relevance begin at these places: a run may be cut by N."""
    stops = starts + sizes - 1
    before = np.concatenate([[0.0], np.cumsum(_pairs(starts, stops, harmonic))])
    last = np.searchsorted(starts, tops, side="right") - 1
    ends = np.minimum(tops, stops[-1])
    full_pairs = before[last] + _pairs(starts[last], np.minimum(stops[last], tops), harmonic)
    return (ends + 1) / (2 * ends), full_pairs / ends


def _pairs(lows: Whole, highs: Whole, harmonic: Numbers) -> Numbers:
    """Mean over places of a run of the sum of min/max with all its places: what it adds in any order of its own."""
    sizes = highs - lows + 1
    # 1 for each place with itself, twice the pairs below it.
    sums = (highs * (highs + 1) - lows * (lows - 1)) / 2 - lows * (lows - 1) * (harmonic[highs] - harmonic[lows - 1])
    return np.where(sizes == 1, 1.0, sums / sizes)


def _shared(starts: Whole, sizes: Whole, tops: Whole, harmonic: Numbers, ties: RankTies) -> tuple[Numbers, Numbers]:
    """Where a run shares its best or its mean rank: it is among the N as a whole, or not at all."""
    rank = starts.astype(np.float64) if ties == "min" else starts + (sizes - 1) / 2
    middle = np.floor(rank).astype(np.int64)
    highs = starts + sizes - 1
    lower = (middle * (middle + 1) - starts * (starts - 1)) / 2 / rank
    upper = rank * (harmonic[highs] - harmonic[middle])
    runs = np.searchsorted(rank, tops, side="right")

    def summed(values: NDArray[np.number]) -> Numbers:
        return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])[runs]

    block_sums = summed(sizes)
    # Below a rank all places from 1 count, above it those up to the last of the N.
    below = summed(sizes * (middle * (middle + 1) / 2 / rank))
    above = harmonic[block_sums.astype(np.int64)] * summed(sizes * rank) - summed(sizes * rank * harmonic[middle])
    with np.errstate(invalid="ignore"):
        return (below + above) / block_sums**2, summed(lower + upper) / block_sums
