"""Choice among c (Thomas and Kovashka 2020, section 4): the truth against c - 1 random distractors.

In closed form, as the mean rank of the truth, and as the papers did it: with one seeded draw of distractors a query.
The papers ask with a pair: where a query has several positives, each is a question of its own, the others are no
distractors, and the value of the query is the mean over its questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.core import DIRECTIONS, Direction
from subtext.errors import RequirementError
from subtext.evaluation.metric import Metric
from subtext.ops import draw
from subtext.ops.rank import Counts, PositiveRanks, Ties
from subtext.text_helpers import counted


@dataclass(frozen=True)
class _Choice(Metric):
    """Whether the truth is among the first `at` of c candidates."""

    c: int = 5
    at: int = 1
    ties: Ties = "pessimistic"

    sort_order = 40
    sampled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.c < 2 or self.at < 1 or (self.sampled and self.ties == "expected"):
            raise RequirementError(
                f"{type(self).__name__} needs c of at least 2, at of at least 1"
                f"{' and an order of ties' if self.sampled else ''}; "
                f"it got c = {self.c}, at = {self.at}, ties = '{self.ties}'"
            )

    @property
    def name(self) -> str:
        """With c, and how far the truth may be from the first place."""
        return f"{self.c}_way@{self.at}"

    def chance(self, *readings: Any) -> Fraction:
        """The same for every query."""
        return Fraction(self.at, self.c)

    def notes(self, figures: Mapping[str, float], negatives: Mapping[Direction, tuple[int, int]]) -> list[str]:
        """Which choices are left out, or leave out queries."""
        return too_few(self.c, negatives)


@dataclass(frozen=True)
class CWay(_Choice):
    """Probability that the positive is among the first `at` of c candidates: itself and c - 1 random negatives.

        P = sum_{x < at} C(g, x) C(M - g, c-1-x) / C(M, c-1)        M negatives, g of them ahead of the truth

    The expectation over all draws replaces the paper's single draw, so there is no seed and no noise of sampling.

    The call takes `Comparison`; ignored cells are left out. It returns (Q) float64 in [0, 1], means over the positives
    of a query; NaN for a query without positives or with fewer than c - 1 negatives.

    Args:
        c: Candidates a question has, the truth among them; the papers' are 5, 20 and 100.
        at: 1 for accuracy; 3 for being among the first three.
        ties: Negatives that tie with the truth are ahead of it ("pessimistic"), behind ("optimistic"), in a random
            order ("expected"), or as their columns stand ("stable").
        again: With replacement: a negative that is drawn may be drawn again. The paper does not say; never by default.

    Raises:
        RequirementError: For c below 2 or `at` below 1.

    Complexity:
        One sort of each row, and O(P c at) for P positives.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> CWay(c=2)(Comparison(torch.tensor([[0.3, 0.4, 0.45]]),
        ...     Truth(torch.tensor([[False, True, False]])))).tolist()
        [0.5]
    """

    again: bool = False

    reads: ClassVar[tuple[str, ...]] = ("positive_ranks",)
    pattern: ClassVar[str] = r"(?P<c>\d+)_way(@(?P<at>\d+))?"

    def of(self, ranks: Any) -> NDArray[np.float64]:
        """The same from ranks that are already there.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        positives: PositiveRanks = ranks
        return positives.mean_over_positives(self.of_questions(positives.each()))

    def of_questions(self, counts: Counts) -> NDArray[np.float64]:
        """Of questions that have one truth each, from its counts.

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (N) float64, one value per question; NaN where there are too few negatives.
        """
        probability = partial(choice_probability, c=self.c, at=self.at, replacement=self.again)
        queries, pool = counts.positives > 0, counts.negatives
        if self.ties != "expected":
            ahead = np.where(queries, counts.rank(self.ties), 0).astype(np.int64)
            return np.where(queries, probability(ahead, pool), np.nan)
        values = probability(counts.greater, pool)
        for query in np.flatnonzero(counts.tied):
            ahead = counts.greater[query] + np.arange(counts.tied[query] + 1)
            values[query] = probability(ahead, np.full(len(ahead), pool[query])).mean()
        return np.where(queries, values, np.nan)


@dataclass(frozen=True)
class CWayBest(CWay):
    """As `CWay`, but a query is one question, and the truth is its best-scored positive: the best of several texts.

    Higher than the papers' figure wherever a query has several positives.

    The call takes `Comparison`; ignored cells are left out. It returns (Q) float64 in [0, 1]; NaN as for `CWay`.

    Raises:
        RequirementError: For c below 2 or `at` below 1.

    Complexity:
        One read of the scores, and O(Q c at).

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> comparison = Comparison(torch.tensor([[0.3, 0.4, 0.45]]), Truth(torch.tensor([[True, False, True]])))
        >>> CWay(c=2)(comparison).tolist(), CWayBest(c=2)(comparison).tolist()
        ([0.5], [1.0])
    """

    reads = ("best_rank",)
    pattern = r"(?P<c>\d+)_way_best(@(?P<at>\d+))?"

    @property
    def name(self) -> str:
        """With c, and how far the truth may be from the first place."""
        return f"{self.c}_way_best@{self.at}"

    def of(self, counts: Any) -> NDArray[np.float64]:
        """The same from counts that are already there.

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return self.of_questions(counts)


@dataclass(frozen=True)
class CWayRank(Metric):
    """Expected rank of the truth among itself and c - 1 negatives drawn without replacement, counted from 1.

        1 + (c - 1) g / M        M negatives, g of them ahead of the truth

    The call takes `Comparison`. It returns (Q) float64 in [1, c], means over the positives of a query; NaN for a query
    without positives or with fewer than c - 1 negatives.

    Args:
        c: Candidates a question has, the truth among them.
        ties: As for recall; "expected" counts half of the tied negatives as ahead.

    Raises:
        RequirementError: For c below 2.

    Complexity:
        One sort of each row.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.tensor([[False, True, False]]))
        >>> CWayRank(c=2)(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), truth)).tolist()
        [1.5]
    """

    c: int = 5
    ties: Ties = "pessimistic"

    reads = ("positive_ranks",)
    sort_order = 41
    pattern = r"(?P<c>\d+)_way_mean_rank"
    percent = False
    lower_is_better = True
    compared = False

    def __post_init__(self) -> None:
        if self.c < 2:
            raise RequirementError(f"CWayRank needs c of at least 2; it got {self.c}")

    @property
    def name(self) -> str:
        """With c."""
        return f"{self.c}_way_mean_rank"

    def of(self, ranks: PositiveRanks) -> NDArray[np.float64]:
        """The same from ranks that are already there.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return ranks.mean_over_positives(self.of_questions(ranks.each()))

    def of_questions(self, counts: Counts) -> NDArray[np.float64]:
        """Of questions that have one truth each, from its counts.

        Args:
            counts: `ops.rank.Counts` of Q queries.

        Returns:
            (N) float64, one value per question; NaN where there are too few negatives.
        """
        ahead = counts.greater + counts.tied / 2 if self.ties == "expected" else counts.rank(self.ties)
        rank = 1 + (self.c - 1) * ahead / np.maximum(counts.negatives, 1)
        return np.where((counts.positives > 0) & (counts.negatives >= self.c - 1), rank, np.nan)

    def chance(self, ranks: PositiveRanks) -> float:
        """The same for every query.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.

        Returns:
            The same number for every query.
        """
        return (self.c + 1) / 2

    def notes(self, figures: Mapping[str, float], negatives: Mapping[Direction, tuple[int, int]]) -> list[str]:
        """Which choices are left out, or leave out queries.

        Args:
            figures: Name -> number, of all metrics.
            negatives: Direction -> fewest and most negatives of a query.

        Returns:
            The sentences.
        """
        return too_few(self.c, negatives)


@dataclass(frozen=True)
class SampledCWay(_Choice):
    """Whether the truth is among the first `at` of c, for one draw of c - 1 negatives without replacement.

    Kept for parity with published numbers, which are one draw each; the closed form is its mean over all draws. What
    is drawn is how many of the distractors are ahead of the truth (the rest of a draw changes nothing). The numbers
    behind a draw depend on seed and query alone, so two models get the same draws; all questions of a query
    share them.

    The call takes `Comparison`; queries are known by their ids, or by their position where there are no embeddings. It
    returns (Q) float64, means of 0 and 1 over the positives of a query; NaN for a query without positives or with fewer
    than c - 1 negatives.

    Args:
        c: As in the closed form.
        at: See `c`.
        ties: "pessimistic", "optimistic" or "stable"; for the expectation over orders take the closed form.
        seed: Of the draw.

    Raises:
        RequirementError: For c below 2, `at` below 1, or "expected" ties.

    Complexity:
        One sort of each row, and O(P c) for P positives.

    Example:
        >>> import torch
        >>> from subtext.core import Comparison, Truth
        >>> truth = Truth(torch.tensor([[False, True, False]]))
        >>> SampledCWay(c=3)(Comparison(torch.tensor([[0.3, 0.4, 0.45]]), truth)).tolist()
        [0.0]
    """

    seed: int = 0

    reads = ("positive_ranks", "query_keys")
    sampled = True
    pattern = r"(?P<c>\d+)_way_sampled(@(?P<at>\d+))?"

    def of(self, ranks: PositiveRanks, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same from ranks that are already there; keys (Q) name the queries.

        Args:
            ranks: `ops.rank.PositiveRanks` of Q queries.
            keys: (Q) int64 keys of the queries.

        Returns:
            (Q) float64; NaN where it is undefined.
        """
        return ranks.mean_over_positives(self.of_questions(ranks.each(), keys[ranks.queries]))

    def of_questions(self, counts: Counts, keys: NDArray[np.int64]) -> NDArray[np.float64]:
        """Of questions that have one truth each, from its counts, under these keys.

        Args:
            counts: `ops.rank.Counts` of Q queries.
            keys: (Q) int64 keys of the queries.

        Returns:
            (N) float64, one value per question; NaN where there are too few negatives.
        """
        usable = (counts.positives > 0) & (counts.negatives >= self.c - 1)
        ahead = np.where(usable, counts.rank(self.ties), 0).astype(np.int64)
        draws = draw.uniform(keys, seed=self.seed, epoch=0, purpose=f"{self.c}-way", count=self.c - 1)
        return np.where(usable, distractors_ahead(ahead, counts.negatives, draws) < self.at, np.nan)


def too_few(c: int, negatives: Mapping[Direction, tuple[int, int]]) -> list[str]:
    """Sentences on choices that are left out, or leave out queries, because there are too few negatives.

    Args:
        c: Candidates of a question.
        negatives: Direction -> fewest and most negatives of a query.

    Returns:
        At most one sentence for each direction.

    Example:
        >>> too_few(3, {"image_to_text": (4, 4), "text_to_image": (1, 1)})
        ['3-way choice of texts among images is left out: it needs 2 wrong images, and there are at most 1']
    """
    sentences = []
    for direction in DIRECTIONS:
        fewest, most = negatives[direction]
        query, candidate = direction.split("_to_")
        choice, needed = f"{c}-way choice of {query}s among {candidate}s", counted(c - 1, f"wrong {candidate}")
        if most < c - 1:
            sentences.append(f"{choice} is left out: it needs {needed}, and there are at most {most:,}")
        elif fewest < c - 1:
            sentences.append(f"{choice} leaves out queries with fewer than {needed}")
    return sentences


def choice_probability(
    ahead: Int[np.ndarray, "q"], pool: Int[np.ndarray, "q"], *, c: int, at: int = 1, replacement: bool = False
) -> Float[np.ndarray, "q"]:
    """(Q) probability that the truth is among the first `at` of c, where `ahead` of its `pool` distractors beat it.

    c - 1 distractors are sampled without replacement. The number x of them that beat the truth is hypergeometric:

        sum_{x < at} C(c-1, x) prod_{t < x} (g - t) / (M - t) prod_{t < c-1-x} (M - g - t) / (M - x - t)

    with g = ahead and M = pool. Each factor is in [0, 1], so that large M cannot overflow. NaN where the pool has fewer
    than c - 1.

    Args:
        ahead: (Q) int64, distractors that beat the truth.
        pool: (Q) int64, distractors of each query.
        c: Candidates of a question, 2 or more.
        at: The truth is to be among so many first ones.
        replacement: Sample with replacement: x is binomial; ((M - g) / M)^(c-1) for at = 1.

    Returns:
        (Q) float64 in [0, 1]; NaN where the pool is too small.

    Example:
        >>> choice_probability(np.array([1]), np.array([9]), c=5).round(4).tolist()
        [0.5556]
    """
    g, m = ahead.astype(np.float64), pool.astype(np.float64)
    draws = c - 1
    usable = pool >= draws
    m = np.where(usable, m, max(draws, 1))
    total = np.zeros(len(g))
    for x in range(min(at, c)):
        chance = np.full(len(g), float(math.comb(draws, x)))
        for t in range(x):
            removed = 0 if replacement else t
            chance *= np.clip(g - removed, 0, None) / (m - removed)
        for t in range(draws - x):
            removed, removed_ahead = (0, 0) if replacement else (t, x)
            chance *= np.clip(m - g - removed, 0, None) / (m - removed_ahead - removed)
        total += chance
    return np.where(usable, np.minimum(total, 1.0), np.nan)


def distractors_ahead(
    ahead: Int[np.ndarray, "q"], pool: Int[np.ndarray, "q"], draws: Float[np.ndarray, "q n"]
) -> Int[np.ndarray, "q"]:
    """(Q) how many of n distractors sampled without replacement beat the truth: one hypergeometric sample per query.

    Args:
        ahead: (Q) int64, distractors that beat the truth.
        pool: (Q) int64, distractors of each query.
        draws: (Q n) uniform numbers. Distractor t beats the truth where its number is below the share of the remaining
            pool that is ahead. With the same numbers, a better rank never does worse.

    Returns:
        (Q) int64 in [0, n].
    """
    count = np.zeros(len(ahead), dtype=np.int64)
    for t in range(draws.shape[1]):
        count += draws[:, t] * np.maximum(pool - t, 1) < ahead - count
    return count
