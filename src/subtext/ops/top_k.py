"""The top k candidates of each query: their graded relevance, and how often each candidate is among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.core import Comparison
from subtext.errors import RequirementError
from subtext.ops.rank import Ties


def graded_relevance(comparison: Comparison, metric: str, *, least: float | None = None) -> Tensor:
    """The graded relevance of a comparison, checked.

    Args:
        comparison: With truth.relevance.
        metric: Named in errors.
        least: Minimum that every value must have; None for none.

    Returns:
        (Q C) on the CPU, float32 or float64.

    Raises:
        RequirementError: If there is none, or a value is not finite or below the minimum.
    """
    relevance = comparison.truth.relevance
    if relevance is None:
        raise RequirementError(
            f"{metric} needs graded relevance in its truth; it got none; build the truth with one (relevance.tfidf, "
            "relevance.cider ...)"
        )
    if not relevance.isfinite().all():
        raise RequirementError(
            f"{metric} needs finite relevance; {int((~relevance.isfinite()).sum())} of {comparison.truth.scale} are not"
        )
    if least is not None and relevance.numel() and float(relevance.min()) < least:
        raise RequirementError(
            f"{metric} needs relevance of {least:g} or more; the least of '{comparison.truth.scale}' is "
            f"{float(relevance.min()):g}"
        )
    return relevance.detach().cpu().to(torch.float64 if relevance.dtype == torch.float64 else torch.float32)


def gains(
    scores: Float[Tensor, "q c"], relevance: Float[Tensor, "q c"], k: int, ties: Ties = "pessimistic"
) -> Float[np.ndarray, "q k"]:
    """Relevance at each of the first k ranks.

    A NaN score ranks behind every number. The order of candidates counts for "stable" only. Scores are read in double.

    Args:
        scores: (Q C).
        relevance: (Q C).
        k: How many ranks.
        ties: Order of candidates with equal scores: least relevant first ("pessimistic"), most relevant first
            ("optimistic"), by column ("stable"), or the mean over all orders ("expected").

    Returns:
        (Q k); 0 at ranks beyond the last candidate.

    Complexity:
        The top k of each row; rows with ties are read one by one.

    Example:
        >>> gains(torch.tensor([[0.2, 0.9, 0.2]]), torch.tensor([[1.0, 0.5, 0.0]]), 2, "expected").tolist()
        [[0.5, 0.5]]
    """
    result = np.zeros((len(scores), k))
    count = min(k, scores.shape[1])
    if not count:
        return result
    scores = torch.nan_to_num(scores.detach().cpu().double(), nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    relevance = relevance.detach().cpu().double()
    values, columns = scores.topk(count, dim=1)
    result[:, :count] = relevance.gather(1, columns).numpy()
    level = (values[:, 1:] == values[:, :-1]).any(dim=1) | ((scores >= values[:, -1:]).sum(dim=1) > count)
    for row in torch.nonzero(level)[:, 0].tolist():
        reached = scores[row] >= values[row, -1]
        result[row, :count] = _by_rank(scores[row][reached].numpy(), relevance[row][reached].numpy(), ties)[:count]
    return result


def _by_rank(values: NDArray[Any], relevance: NDArray[np.float64], ties: Ties) -> NDArray[np.float64]:
    """Relevance at each rank, by falling value."""
    if ties != "expected":
        second = {"pessimistic": relevance, "optimistic": -relevance, "stable": np.arange(len(relevance))}[ties]
        return relevance[np.lexsort((second, -values))]
    order = np.argsort(-values, kind="stable")
    values, relevance = values[order], relevance[order].copy()
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    for start, stop in zip(starts, np.append(starts[1:], len(values)), strict=True):
        relevance[start:stop] = math.fsum(relevance[start:stop]) / (stop - start)
    return relevance


def occurrences(scores: Float[Tensor, "q c"], k: int) -> Float[np.ndarray, "c"]:
    """For each candidate the number of queries that have it in their top k; candidates that tie for a rank share it.

    Args:
        scores: (Q C); NaN ranks behind every number.
        k: How many ranks; at most C count.

    Returns:
        (C), which sums to Q k.

    Complexity:
        The k-th best of each row, and one read.

    Example:
        >>> occurrences(torch.tensor([[0.9, 0.5, 0.5], [0.9, 0.1, 0.2]]), 2).tolist()
        [2.0, 0.5, 1.5]
    """
    k = min(k, scores.shape[1])
    scores = torch.nan_to_num(scores.detach().cpu(), nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    last = scores.topk(k, dim=1).values[:, -1:]
    above, level = scores > last, scores == last
    share = (k - above.sum(dim=1, keepdim=True)) / level.sum(dim=1, keepdim=True)
    return (above.sum(dim=0).double() + (level * share.double()).sum(dim=0)).numpy()
