"""How an item stands in its semantic neighbourhood: diversity and discrepancy of a whole data set, by sparse products.

A is the (N N) table of neighbours, A[i, j] = 1 where j is a neighbour of i, and E (N H) the embeddings. Both scores are
means of inner products, so the sums move inside (Thomas and Kovashka 2022, eq. 2 and 4):

    M = A E     diversity(i) = |M_i|^2 / n_i^2     discrepancy(i) = <E_i, (A M)_i> / sum of n_j over neighbours j of i

which costs N E H for each product and no score of a pair is ever computed. Columns are taken in slabs that stay in the
processor's cache. A mean over all pairs of views is the product of mean views, and a mean over aligned views that of
all views side by side; the best pair of views is no sum, and stands in `pooled_scores`.

Diversity and discrepancy where the best pair of views decides: s(a, b) = max over k, l of <a_k, b_l>.

A maximum does not move out of a sum, so pairs have to be scored. With S the (N N) scores and A the neighbours, R = A S
gives both again: discrepancy(i) = sum over neighbours j of i of R[j, i], diversity(i) = sum over neighbours a of i of
R[i, a]. S is made and forgotten some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import ShapeError
from subtext.ops import draw

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


_CELLS = 2**24
"""Scores of pairs of views held at a time, 64 MB."""
_MANY = 8
"""From so many times the sample on, drawing with replacement repeats itself hardly."""


def pooled(left: Float[Tensor, "*some q k h"], right: Float[Tensor, "*some c l h"]) -> Float[Tensor, "*some q c"]:
    """Scores of the pair of views that fits best."""
    scores = left.flatten(-3, -2) @ right.flatten(-3, -2).mT
    shape = (*scores.shape[:-2], left.shape[-3], left.shape[-2], right.shape[-3], right.shape[-2])
    return scores.reshape(shape).amax(dim=(-3, -1))


def exact_scores(bank: Float[Tensor, "n k h"], neighbours: Int[Tensor, "n e"], scoring: Scoring = AS_PRINTED) -> Scores:
    """Both scores of every item, exact.

    Cost: time N^2 (K^2 H + E), memory of some rows of N. Needs second=multiset or direct, and average=pairs.
    """
    if scoring.second == "none":
        raise ShapeError("exact_scores needs second=multiset or direct; it got none; take pooled_scores")
    _require(scoring)
    count, views = bank.shape[:2]
    lists, place = Lists(neighbours), neighbours.long().clamp_min(0)
    present = neighbours >= 0
    near, far = (torch.zeros(count, dtype=torch.float64, device=bank.device) for _ in range(2))
    step = max(1, _CELLS // (count * views * views))
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        scores = pooled(bank[rows], bank)
        sums = lists.sums(scores.T.contiguous())
        inside = present & (place >= rows.start) & (place < rows.stop)
        found = sums.gather(1, (place - rows.start).clamp(0, sums.shape[1] - 1))
        near += (found * inside).sum(dim=1)
        own, some = place[rows], present[rows]
        values = scores.gather(1, own) if scoring.second == "direct" else sums.T.gather(1, own)
        far[rows] = (values * some).sum(dim=1).double()
    counts = lists.counts.double()
    if not scoring.diagonal:
        near -= lists.sums(_self(bank).double()[:, None])[:, 0]
    listed = counts if scoring.second == "direct" else lists.sums(counts[:, None])[:, 0]
    return Scores(_ratio(near, pairs_of(counts, scoring)).float(), _ratio(far, listed).float())


def gram_diversity(
    bank: Float[Tensor, "n k h"], neighbours: Int[Tensor, "d e"], scoring: Scoring = AS_PRINTED
) -> Float[Tensor, "d"]:
    """Diversity of the items that have these neighbours, exact, from the scores among these alone.

    Cost: time D E^2 K^2 H, less than `exact_scores` where D E^2 < N^2.
    """
    width, views = neighbours.shape[1], bank.shape[1]
    step = max(1, _CELLS // (width * views) ** 2)
    pieces = []
    for start in range(0, len(neighbours), step):
        some = neighbours[start : start + step]
        present = (some >= 0).to(bank.dtype)
        near = bank[some.long().clamp_min(0)]
        scores = pooled(near, near) * present[:, :, None] * present[:, None, :]
        if not scoring.diagonal:
            scores = scores - torch.diag_embed(scores.diagonal(dim1=1, dim2=2))
        pieces.append(_ratio(scores.sum(dim=(1, 2)), pairs_of(present.sum(dim=1), scoring)))
    return torch.cat(pieces)


def sampled_discrepancy(
    bank: Float[Tensor, "n k h"],
    neighbours: Int[Tensor, "n e"],
    keys: NDArray[np.int64],
    *,
    samples: int,
    seed: int,
    epoch: int,
    items: Int[Tensor, "d"] | None = None,
) -> Float[Tensor, "d"]:
    """Discrepancy of every item, or of these, from at most `samples` neighbours of its neighbours (the paper: 1000).

    keys  (N) of the items: what is drawn is a function of (seed, epoch, item) and of nothing else

    They are drawn from the multiset without replacement: all of them where it has no more than `samples`.
    Cost: time and gathered memory D samples K^2 H.
    """
    step = max(1, _CELLS // (samples * bank.shape[1] * bank.shape[2]))
    lists = Lists(neighbours)
    host, rows, starts = lists.counts.cpu().numpy(), lists.rows.cpu().numpy(), lists.starts.cpu().numpy()
    items = torch.arange(len(neighbours), device=bank.device) if items is None else items
    pieces = []
    for start in range(0, len(items), step):
        chunk = items[start : start + step]
        some = neighbours[chunk].cpu().numpy()
        chosen = _drawn(some, (host, rows, starts), keys[chunk.cpu().numpy()], samples, seed, epoch)
        # Short lists fill the first columns alone.
        filled = np.flatnonzero((chosen >= 0).any(axis=0)).max(initial=0) + 1
        place = torch.from_numpy(chosen[:, :filled]).to(bank.device)
        own = bank[chunk]
        scores = torch.einsum("qkh,qslh->qskl", own, bank[place.clamp_min(0)]).amax(dim=(2, 3))
        known = (place >= 0).to(scores.dtype)
        pieces.append(_ratio((scores * known).sum(dim=1), known.sum(dim=1)))
    return torch.cat(pieces)


def pooled_scores(
    bank: Float[Tensor, "n k h"],
    neighbours: Int[Tensor, "n e"],
    scoring: Scoring,
    *,
    keys: NDArray[np.int64],
    samples: int,
    seed: int,
    epoch: int,
    items: Int[Tensor, "d"] | None = None,
) -> Scores:
    """Both scores in the cheapest way: discrepancy from `samples` draws (0: exact), diversity always exact.

    items  those whose scores are wanted; None for all
    """

    def exactly(how: Scoring) -> Scores:
        found = exact_scores(bank, neighbours, how)
        return found if items is None else Scores(found.diversity[items], found.discrepancy[items])

    if scoring.second in ("direct", "unique") or (not samples and scoring.second == "multiset"):
        return exactly(scoring)
    _require(scoring)
    wanted = neighbours if items is None else neighbours[items]
    if len(wanted) * neighbours.shape[1] ** 2 < len(bank) ** 2:
        diversity = gram_diversity(bank, wanted, scoring)
    else:
        diversity = exactly(replace(scoring, second="direct")).diversity
    if scoring.second == "none":
        return Scores(diversity, torch.full_like(diversity, torch.nan))
    far = sampled_discrepancy(bank, neighbours, keys, samples=samples, seed=seed, epoch=epoch, items=items)
    return Scores(diversity, far)


def _drawn(
    some: NDArray[np.int32],
    lists: tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]],
    keys: NDArray[np.int64],
    samples: int,
    seed: int,
    epoch: int,
) -> NDArray[np.int64]:
    """(Q, samples) rows of neighbours of neighbours; -1 where there is none more."""
    counts, rows, starts = lists
    weights = np.where(some >= 0, counts[np.maximum(some, 0)], 0)
    ends = weights.cumsum(axis=1)
    total = ends[:, -1]
    places = _places(keys, total, samples, seed=seed, epoch=epoch)
    none = places < 0
    places = np.maximum(places, 0)
    # One search for all rows: each row's ends are moved above those of the row before.
    shift = np.concatenate([[0], total.cumsum()[:-1]])[:, None]
    which = np.searchsorted((ends + shift).ravel(), (places + shift).ravel(), side="right").reshape(places.shape)
    which = np.minimum(which - np.arange(len(some))[:, None] * some.shape[1], some.shape[1] - 1).clip(0)
    first = np.take_along_axis(np.maximum(some, 0), which, axis=1)
    inner = places - np.take_along_axis(ends - weights, which, axis=1)
    found = rows[np.minimum(starts[first] + inner, len(rows) - 1)] if len(rows) else first
    return np.where(none, -1, found).astype(np.int64)


def _places(
    keys: NDArray[np.int64], total: NDArray[np.int64], samples: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """(Q, samples) different places below `total`, ascending but for -1 where there is none more.

    All of them where there are no more than `samples`. Among many more, repeats are few and left out: the sample is
    then smaller by a sixteenth or so.
    """
    found = np.full((len(keys), samples), -1, dtype=np.int64)
    many = total >= _MANY * samples
    drawn = _integers(keys[many], total[many], samples, seed=seed, epoch=epoch)
    drawn.sort(axis=1)
    found[many] = np.where(_repeats(drawn), -1, drawn)
    few = ~many & (total > 0)
    if few.any():
        found[few] = _different(keys[few], total[few], samples, seed=seed, epoch=epoch)
    return found


def _different(
    keys: NDArray[np.int64], total: NDArray[np.int64], samples: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """(Q, samples) as `_places`, of totals that are not far above `samples`.

    The first different ones of a longer sequence; where these would be more than half of all, those that are left out.
    """
    leaving = total <= 2 * samples
    wanted = np.where(leaving, np.maximum(total - samples, 0), samples)
    drawn = _integers(keys, total, 2 * samples + 32, seed=seed, epoch=epoch)
    order = drawn.argsort(axis=1, kind="stable")
    first = np.empty(drawn.shape, dtype=bool)
    np.put_along_axis(first, order, ~_repeats(np.take_along_axis(drawn, order, axis=1)), axis=1)
    chosen = first & (first.cumsum(axis=1) <= wanted[:, None])
    taken = np.zeros((len(keys), int(total.max())), dtype=bool)
    rows, columns = np.nonzero(chosen)
    taken[rows, drawn[rows, columns]] = True
    taken[leaving] = ~taken[leaving]
    taken &= np.arange(taken.shape[1]) < total[:, None]
    found = np.full((len(keys), samples), -1, dtype=np.int64)
    rows, columns = np.nonzero(taken)
    begin = np.searchsorted(rows, np.arange(len(keys)))
    found[rows, np.arange(len(rows)) - begin[rows]] = columns
    return found


def _integers(
    keys: NDArray[np.int64], total: NDArray[np.int64], count: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    return draw.integers(keys, total, seed=seed, epoch=epoch, purpose="neighbours of neighbours", count=count)


def _repeats(ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a number is that before it in its row."""
    again = np.zeros(ordered.shape, dtype=bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return again


def _self(bank: Tensor) -> Tensor:
    """(N) score of every item with itself."""
    return (bank @ bank.mT).amax(dim=(1, 2))


def _require(scoring: Scoring) -> None:
    if scoring.second == "unique" or scoring.average == "lists":
        raise ShapeError(
            "the best pair of views (views=max) needs second=multiset or direct and average=pairs; it got "
            f"{scoring.second} and {scoring.average}; take views=mean or aligned"
        )
