"""The first few candidates of each query: what they are worth, and how often each candidate is among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from subtext.ops.rank import Ties


def gains(
    scores: Float[Tensor, "q c"], relevance: Float[Tensor, "q c"], k: int, ties: Ties = "pessimistic"
) -> Float[np.ndarray, "q k"]:
    """Relevance at each of the first k places; 0 at places that there are no candidates for.

    ties  which of several candidates of one score come first: those of least relevance ("pessimistic"), of most
          ("optimistic"), by column ("stable"), or the mean over all orders ("expected")

    A score that is not a number stands behind every number. The same to the bit for any order of candidates, but for
    "stable".
    Cost   finding the first k of each row; rows with ties are read one by one.

    >>> gains(torch.tensor([[0.2, 0.9, 0.2]]), torch.tensor([[1.0, 0.5, 0.0]]), 2, "expected").tolist()
    [[0.5, 0.5]]
    """
    found = np.zeros((len(scores), k))
    count = min(k, scores.shape[1])
    if not count:
        return found
    scores = torch.nan_to_num(scores.detach().cpu(), nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    relevance = relevance.detach().cpu().double()
    values, columns = scores.topk(count, dim=1)
    found[:, :count] = relevance.gather(1, columns).numpy()
    level = (values[:, 1:] == values[:, :-1]).any(dim=1) | ((scores >= values[:, -1:]).sum(dim=1) > count)
    for row in torch.nonzero(level)[:, 0].tolist():
        reached = scores[row] >= values[row, -1]
        found[row, :count] = _level(scores[row][reached].numpy(), relevance[row][reached].numpy(), ties)[:count]
    return found


def _level(values: NDArray[Any], worth: NDArray[np.float64], ties: Ties) -> NDArray[np.float64]:
    """What stands at each place, by falling value."""
    if ties != "expected":
        second = {"pessimistic": worth, "optimistic": -worth, "stable": np.arange(len(worth))}[ties]
        return worth[np.lexsort((second, -values))]
    order = np.argsort(-values, kind="stable")
    values, worth = values[order], worth[order].copy()
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    for start, stop in zip(starts, np.append(starts[1:], len(values)), strict=True):
        worth[start:stop] = math.fsum(worth[start:stop]) / (stop - start)
    return worth


def occurrences(scores: Float[Tensor, "q c"], k: int) -> Float[np.ndarray, "c"]:
    """How many of these queries have each candidate among their first k; candidates that tie for a place share it.

    Cost   finding the k-th best of each row, and one read.

    >>> occurrences(torch.tensor([[0.9, 0.5, 0.5], [0.9, 0.1, 0.2]]), 2).tolist()
    [2.0, 0.5, 1.5]
    """
    k = min(k, scores.shape[1])
    scores = torch.nan_to_num(scores.detach().cpu(), nan=-math.inf, posinf=math.inf, neginf=-math.inf)
    last = scores.topk(k, dim=1).values[:, -1:]
    above, level = scores > last, scores == last
    share = (k - above.sum(dim=1, keepdim=True)) / level.sum(dim=1, keepdim=True)
    found: NDArray[np.float64] = (above.sum(dim=0).double() + (level * share.double()).sum(dim=0)).numpy()
    return found
