"""How an item stands in its semantic neighbourhood: diversity and discrepancy of a whole data set, by sparse products.

A is the (N N) table of neighbours, A[i, j] = 1 where j is a neighbour of i, and E (N H) the embeddings. Both scores are
means of inner products, so the sums move inside (Thomas and Kovashka 2022, eq. 2 and 4):

    M = A E     diversity(i) = |M_i|^2 / n_i^2     discrepancy(i) = <E_i, (A M)_i> / sum of n_j over neighbours j of i

which costs N E H for each product and no score of a pair is ever computed. Columns are taken in slabs that stay in the
processor's cache. A mean over all pairs of views is the product of mean views, and a mean over aligned views that of
all views side by side; the best pair of views is no sum, and stands in `pooled_scores`.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from subtext.errors import ShapeError

SLAB = 32
"""Columns summed at a time: a slab of 20,000 items is 2.5 MB. 27,500 items of width 256 with 200 neighbours took 0.53 s
with 32 columns, 0.77 s with 16 and 0.57 s with 128; and 0.39 s with each list in ascending order (`ascending`)."""
_UNIQUE = 2**24
"""Neighbours of neighbours listed at a time where each counts once."""

Second = Literal["multiset", "unique", "direct", "none"]
Average = Literal["pairs", "lists"]


@dataclass(frozen=True)
class Scoring:
    """What is averaged; the defaults are the paper's formulas as printed.

    second    what an item is compared with for its discrepancy: neighbours of its neighbours, as often as they are
              listed and itself among them (multiset), each of them once (unique), or its neighbours (direct); with
              none there is no discrepancy, at half the cost
    diagonal  whether a neighbour is compared with itself, too, for diversity
    average   of lists of unequal length: over all listed (pairs), or over the lists' means (lists)
    """

    second: Second = "multiset"
    diagonal: bool = True
    average: Average = "pairs"

    def __post_init__(self) -> None:
        if self.average == "lists" and self.second != "multiset":
            raise ShapeError(
                f"a mean of lists' means needs second=multiset; it got {self.second}, which is one list; "
                "take average=pairs"
            )


AS_PRINTED = Scoring()
"""The paper's formulas."""


class Scores(NamedTuple):
    """(N) of both, NaN for an item that has too few neighbours."""

    diversity: Float[Tensor, "n"]
    discrepancy: Float[Tensor, "n"]


class Lists:
    """The neighbours of N items as one row of numbers and where each list begins.

    neighbours  (N E) rows; below 0 there is none
    """

    def __init__(self, neighbours: Int[Tensor, "n e"]) -> None:
        self.neighbours = neighbours
        if neighbours.numel() and int(neighbours.min()) >= 0:
            # Lists without holes are the table itself.
            self.counts = neighbours.new_full((len(neighbours),), neighbours.shape[1], dtype=torch.int64)
            self.rows = neighbours.flatten().int()
        else:
            present = neighbours >= 0
            self.counts = present.sum(dim=1)
            self.rows = neighbours.masked_select(present).int()
        self.starts = (self.counts.cumsum(0) - self.counts).int()

    def over(self, rows: Int[Tensor, "n"]) -> Lists:
        """The same lists, naming of each item the row of a bank that several items may share."""
        found = copy(self)
        found.rows = rows.int().index_select(0, self.rows)
        return found

    def of(self, items: Int[Tensor, "d"]) -> Lists:
        """The lists of some items."""
        return Lists(self.neighbours[items])

    def __len__(self) -> int:
        """N, how many items."""
        return len(self.counts)

    def sums(self, values: Float[Tensor, "m w"]) -> Float[Tensor, "n w"]:
        """Of each list the sum of its rows of `values`, in at least float32."""
        found = torch.nn.functional.embedding_bag(self.rows, values, self.starts, mode="sum")
        return found if found.dtype == torch.float64 else found.float()


def neighbour_scores(
    bank: Float[Tensor, "m h"],
    neighbours: Int[Tensor, "n e"] | Lists,
    scoring: Scoring = AS_PRINTED,
    *,
    rows: Int[Tensor, "n"] | None = None,
    items: Int[Tensor, "d"] | None = None,
    storage: torch.dtype | None = None,
) -> Scores:
    """Diversity and discrepancy of every item under the inner product, exact.

    bank        one vector an item
    neighbours  items; below 0 there is none. `Lists` of them spare making these again
    rows        of the bank for each item, where several items share one; None where item i has row i
    items       the D items whose scores are wanted; None for all. Diversity then costs D E H, discrepancy as much
                beyond its first product, which is of all
    storage     what slabs are held in while they are gathered; None for the bank's own. Half precision is faster
                where the processor has it, sums are float32 all the same

    Gives (N), or (D), of both, NaN where an item has no neighbour (for diversity without its diagonal, fewer than two).

    >>> E = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> found = neighbour_scores(E, torch.tensor([[1, 2], [0, 2], [1, -1]]))
    >>> [round(value, 3) for value in found.diversity.tolist()]  # (1 + 1 + 2 * .8) / 4, (1 + 1) / 4, 1
    [0.9, 0.5, 1.0]
    >>> [round(value, 3) for value in found.discrepancy.tolist()]  # of the first: <E0, E0 + E2 + E1> / 3
    [0.533, 0.933, 0.5]
    """
    lists = neighbours if isinstance(neighbours, Lists) else Lists(neighbours)
    some = lists if items is None else lists.of(items)
    # The second product reads the first one's rows of all; without it those of what is wanted do.
    whole = scoring.second == "multiset"
    # What few rows hold is gathered from there, where it stays in a cache, and not from a copy for every item.
    near = lists if whole else some
    near = near if rows is None else near.over(rows)
    dtype = torch.promote_types(bank.dtype, torch.float32)
    squares, products = (torch.zeros(len(some), dtype=dtype, device=bank.device) for _ in range(2))
    unique = list(_once(lists, some)) if scoring.second == "unique" else []
    # Of what is wanted, the rows of the bank.
    places = items if rows is None else rows if items is None else rows[items]
    for slab in _slabs(bank, storage):
        first = near.sums(slab)
        squares += (first[items] if whole and items is not None else first).square().sum(dim=1)
        if scoring.second == "none":
            continue
        own = (slab if places is None else slab[places]).to(dtype)
        if scoring.second == "unique":
            every = slab if rows is None else slab[rows]
            products += _dots(own, torch.cat([further.sums(every) for further in unique]).to(dtype))
        else:
            products += _dots(own, _further(first, lists, some, scoring).to(dtype))
    counts = some.counts.to(dtype)
    if not scoring.diagonal:
        alone = bank.to(storage or bank.dtype).to(dtype).square().sum(dim=1, keepdim=True)
        squares -= some.sums(alone if rows is None else alone[rows])[:, 0]
    diversity = _ratio(squares, pairs_of(counts, scoring))
    if scoring.second == "none":
        return Scores(diversity, torch.full_like(diversity, torch.nan))
    return Scores(diversity, _ratio(products, _listed(lists, some, unique, scoring)))


def second_sums(
    bank: Float[Tensor, "m h"],
    neighbours: Int[Tensor, "n e"] | Lists,
    scoring: Scoring = AS_PRINTED,
    *,
    rows: Int[Tensor, "n"] | None = None,
) -> Float[Tensor, "n h"]:
    """Of each item what its own embedding has to be multiplied by to give its discrepancy, whatever it is by then.

    NaN where it has no neighbours. Needs second=multiset or direct.
    """
    if scoring.second in ("unique", "none"):
        raise ShapeError(f"second_sums needs second=multiset or direct; it got {scoring.second}")
    lists = neighbours if isinstance(neighbours, Lists) else Lists(neighbours)
    near = lists if rows is None else lists.over(rows)
    pieces = [_further(near.sums(slab), lists, lists, scoring) for slab in _slabs(bank, None)]
    return _ratio(torch.cat(pieces, dim=1), _listed(lists, lists, [], scoring)[:, None])


def pairs_of(counts: Float[Tensor, "n"], scoring: Scoring) -> Float[Tensor, "n"]:
    """(N) how many pairs of neighbours diversity is the mean of."""
    return counts.square() if scoring.diagonal else counts * (counts - 1)


def _further(first: Tensor, lists: Lists, some: Lists, scoring: Scoring) -> Tensor:
    """From sums over neighbours to sums over what some of the items are compared with."""
    if scoring.second == "direct":
        return first
    if scoring.average == "lists":
        first = first / lists.counts.clamp_min(1).to(first.dtype)[:, None]
    return some.sums(first)


def _listed(lists: Lists, some: Lists, unique: list[Lists], scoring: Scoring) -> Tensor:
    """(D) how many values the discrepancy of some of the items is the mean of."""
    if scoring.second == "unique":
        return torch.cat([further.counts for further in unique]).float()
    if scoring.second == "direct":
        return some.counts.float()
    each = (lists.counts > 0) if scoring.average == "lists" else lists.counts
    return some.sums(each.float()[:, None])[:, 0]


def _once(lists: Lists, some: Lists) -> Iterator[Lists]:
    """Neighbours of neighbours, each once, a part of `some` at a time."""
    neighbours = lists.neighbours
    step = max(1, _UNIQUE // max(1, neighbours.shape[1] ** 2))
    for start in range(0, len(some), step):
        near = some.neighbours[start : start + step].long()
        found = torch.where((near >= 0)[:, :, None], neighbours[near.clamp_min(0)].long(), -1).flatten(1)
        ordered = found.sort(dim=1).values
        again = torch.zeros_like(ordered, dtype=torch.bool)
        again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        yield Lists(ordered.masked_fill(again, -1))


def _slabs(bank: Tensor, storage: torch.dtype | None) -> Iterator[Tensor]:
    """Columns of the bank, `SLAB` at a time, each contiguous."""
    for start in range(0, bank.shape[1], SLAB):
        yield bank[:, start : start + SLAB].to(storage or bank.dtype).contiguous()


def _dots(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(dim=1)


def _ratio(total: Tensor, count: Tensor) -> Tensor:
    return torch.where(count > 0, total / count.clamp_min(1), torch.nan)


def ascending(neighbours: Int[Tensor, "n e"]) -> Int[Tensor, "n e"]:
    """The same lists, each in the order of the rows: sums are equal to rounding, and what is gathered lies closer.

    >>> ascending(torch.tensor([[3, 1, 2], [2, -1, 0]])).tolist()
    [[1, 2, 3], [-1, 0, 2]]
    """
    return neighbours.sort(dim=1).values


def known_neighbours(neighbours: Int[Tensor, "n e"], known: Bool[Tensor, "n"]) -> Int[Tensor, "n e"]:
    """The neighbours without those of which nothing is known; their places become -1."""
    there = known.index_select(0, neighbours.clamp_min(0).flatten()).view_as(neighbours)
    return neighbours.masked_fill(~(there & (neighbours >= 0)), -1)
