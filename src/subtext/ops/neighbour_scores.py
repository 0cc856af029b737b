"""Diversity and discrepancy of the items of a data set in their semantic neighbourhoods, by sparse products.

A is the (N N) table of neighbours, A[i, j] = 1 where j is a neighbour of i, and E (N H) the embeddings. Both scores are
means of inner products, so the sums move inside (Thomas and Kovashka 2022, eq. 2 and 4):

    M = A E     diversity(i) = |M_i|^2 / n_i^2     discrepancy(i) = <E_i, (A M)_i> / sum of n_j over neighbours j of i

which costs N E H for each product; no pair is scored. Columns are taken in slabs that fit the processor's cache. The
mean over all pairs of views is the product of mean views; over aligned views it is that of all views side by side.

The best pair of views, s(a, b) = max over k, l of <a_k, b_l>, is no sum, so all pairs are scored, some rows at a time.
With S the (N N) scores, R = A S gives both: discrepancy(i) = sum over neighbours j of i of R[j, i], diversity(i) = sum
over neighbours a of i of R[i, a].
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import ShapeError
from subtext.ops import draw
from subtext.ops.numerics import precise

SLAB = 32
"""Columns summed at a time: a slab of 20,000 items is 2.5 MB. 27,500 items of width 256 with 200 neighbours took 0.53 s
with 32 columns, 0.77 s with 16 and 0.57 s with 128; and 0.39 s with each list in ascending order (`ascending`)."""
_UNIQUE = 2**24
"""Neighbours of neighbours listed at a time with second=unique."""

Second = Literal["multiset", "unique", "direct", "none"]
Average = Literal["pairs", "lists"]


@dataclass(frozen=True)
class Scoring:
    """What is averaged. The defaults are the paper's formulas as printed.

    Args:
        second: Items that discrepancy compares an item with: neighbours of its neighbours as often as they are listed,
            the item included ("multiset"), each of them once ("unique"), its neighbours ("direct"), or no items
            ("none"): no discrepancy, at half the cost.
        diagonal: Whether diversity compares a neighbour with itself too.
        average: Of lists of unequal length: over all listed items ("pairs"), or over the means of the lists ("lists").

    Raises:
        ShapeError: If average="lists" and second is not "multiset".
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
    """Both scores of N items.

    Args:
        diversity: (N); NaN for an item with too few neighbours.
        discrepancy: (N); NaN for an item without neighbours.
    """

    diversity: Float[Tensor, "n"]
    discrepancy: Float[Tensor, "n"]


class NeighbourLists:
    """The neighbours of N items as one row of numbers, and the start of each list in it.

    Args:
        neighbours: (N E) rows; below 0 is none.
    """

    def __init__(self, neighbours: Int[Tensor, "n e"]) -> None:
        self.neighbours = neighbours
        if neighbours.numel() and int(neighbours.min()) >= 0:
            # Full lists are the table itself.
            self.counts = neighbours.new_full((len(neighbours),), neighbours.shape[1], dtype=torch.int64)
            self.rows = neighbours.flatten().int()
        else:
            present = neighbours >= 0
            self.counts = present.sum(dim=1)
            self.rows = neighbours.masked_select(present).int()
        self.starts = (self.counts.cumsum(0) - self.counts).int()

    def over(self, rows: Int[Tensor, "n"]) -> NeighbourLists:
        """The same lists, by rows of a bank: several items may share a row.

        Args:
            rows: (N) the row of each item in the bank.

        Returns:
            Lists whose `sums` read the bank.
        """
        shared = copy(self)
        shared.rows = rows.int().index_select(0, self.rows)
        return shared

    def __len__(self) -> int:
        """N, how many items."""
        return len(self.counts)

    def sums(self, values: Float[Tensor, "m w"]) -> Float[Tensor, "n w"]:
        """The sum of values over the rows of each list, in at least float32.

        Args:
            values: (M W).

        Returns:
            (N W); 0 for an empty list.

        Complexity:
            N E W.
        """
        return precise(torch.nn.functional.embedding_bag(self.rows, values, self.starts, mode="sum"))


def neighbour_scores(
    bank: Float[Tensor, "m h"],
    neighbours: Int[Tensor, "n e"] | NeighbourLists,
    scoring: Scoring = AS_PRINTED,
    *,
    rows: Int[Tensor, "n"] | None = None,
    items: Int[Tensor, "d"] | None = None,
    storage: torch.dtype | None = None,
) -> Scores:
    """Diversity and discrepancy of every item under the inner product, exact.

    Args:
        bank: (M H) one vector per item.
        neighbours: (N E) items; below 0 is none. Or `NeighbourLists` of them.
        scoring: What is averaged.
        rows: (N) the row of each item in the bank; None where item i has row i.
        items: (D) the items to score; None for all. Diversity then costs D E H, and so does discrepancy after its first
            product, which is over all items.
        storage: Type of slabs while they are gathered; None for the bank's. Half precision is faster where the
            processor supports it; sums are float32 either way.

    Returns:
        (N) or (D) each; NaN for an item without neighbours (diversity without diagonal: fewer than two).

    Complexity:
        Time N E H for each of two products; memory of `SLAB` columns of the bank and of the sums.

    Example:
        >>> E = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> found = neighbour_scores(E, torch.tensor([[1, 2], [0, 2], [1, -1]]))
        >>> [round(value, 3) for value in found.diversity.tolist()]  # (1 + 1 + 2 * .8) / 4, (1 + 1) / 4, 1
        [0.9, 0.5, 1.0]
        >>> [round(value, 3) for value in found.discrepancy.tolist()]  # of the first: <E0, E0 + E2 + E1> / 3
        [0.533, 0.933, 0.5]
    """
    lists = neighbours if isinstance(neighbours, NeighbourLists) else NeighbourLists(neighbours)
    selected = lists if items is None else NeighbourLists(lists.neighbours[items])
    # The second product reads the first one's rows of all items; without it those of the selected items are enough.
    all_items = scoring.second == "multiset"
    # Gathered from the bank itself, which may be small enough for the cache, not from a copy for every item.
    gathered = lists if all_items else selected
    gathered = gathered if rows is None else gathered.over(rows)
    dtype = torch.promote_types(bank.dtype, torch.float32)
    squares, products = (torch.zeros(len(selected), dtype=dtype, device=bank.device) for _ in range(2))
    unique = list(_unique(lists, selected)) if scoring.second == "unique" else []
    bank_rows = items if rows is None else rows if items is None else rows[items]
    for slab in _slabs(bank, storage):
        first = gathered.sums(slab)
        squares += (first[items] if all_items and items is not None else first).square().sum(dim=1)
        if scoring.second == "none":
            continue
        vectors = (slab if bank_rows is None else slab[bank_rows]).to(dtype)
        if scoring.second == "unique":
            by_item = slab if rows is None else slab[rows]
            sums = torch.cat([second.sums(by_item) for second in unique])
        else:
            sums = _second(first, lists, selected, scoring)
        products += (vectors * sums.to(dtype)).sum(dim=1)
    counts = selected.counts.to(dtype)
    if not scoring.diagonal:
        norms = bank.to(storage or bank.dtype).to(dtype).square().sum(dim=1, keepdim=True)
        squares -= selected.sums(norms if rows is None else norms[rows])[:, 0]
    diversity = _ratio(squares, _pairs(counts, scoring))
    if scoring.second == "none":
        return Scores(diversity, torch.full_like(diversity, torch.nan))
    return Scores(diversity, _ratio(products, _second_counts(lists, selected, unique, scoring)))


def second_sums(
    bank: Float[Tensor, "m h"],
    neighbours: Int[Tensor, "n e"] | NeighbourLists,
    scoring: Scoring = AS_PRINTED,
    *,
    rows: Int[Tensor, "n"] | None = None,
) -> Float[Tensor, "n h"]:
    """The vector of each item whose product with the item's embedding, present or later, is its discrepancy.

    Args:
        bank: (M H) one vector per item.
        neighbours: (N E) items; below 0 is none. Or `NeighbourLists` of them.
        scoring: With second="multiset" or "direct".
        rows: (N) the row of each item in the bank; None where item i has row i.

    Returns:
        (N H); NaN for an item without neighbours.

    Raises:
        ShapeError: If second is "unique" or "none".

    Complexity:
        Time N E H for each of two products.
    """
    if scoring.second in ("unique", "none"):
        raise ShapeError(f"second_sums needs second=multiset or direct; it got {scoring.second}")
    lists = neighbours if isinstance(neighbours, NeighbourLists) else NeighbourLists(neighbours)
    gathered = lists if rows is None else lists.over(rows)
    slabs = [_second(gathered.sums(slab), lists, lists, scoring) for slab in _slabs(bank, None)]
    return _ratio(torch.cat(slabs, dim=1), _second_counts(lists, lists, [], scoring)[:, None])


def _pairs(counts: Float[Tensor, "n"], scoring: Scoring) -> Float[Tensor, "n"]:
    """(N) the number of pairs of neighbours that diversity averages."""
    return counts.square() if scoring.diagonal else counts * (counts - 1)


def _second(first: Tensor, lists: NeighbourLists, selected: NeighbourLists, scoring: Scoring) -> Tensor:
    """From sums over neighbours to sums over the items that discrepancy compares the selected ones with."""
    if scoring.second == "direct":
        return first
    if scoring.average == "lists":
        first = first / lists.counts.clamp_min(1).to(first.dtype)[:, None]
    return selected.sums(first)


def _second_counts(
    lists: NeighbourLists, selected: NeighbourLists, unique: list[NeighbourLists], scoring: Scoring
) -> Tensor:
    """(D) the number of values that the discrepancy of each selected item averages."""
    if scoring.second == "unique":
        return torch.cat([second.counts for second in unique]).float()
    if scoring.second == "direct":
        return selected.counts.float()
    counts = (lists.counts > 0) if scoring.average == "lists" else lists.counts
    return selected.sums(counts.float()[:, None])[:, 0]


def _unique(lists: NeighbourLists, selected: NeighbourLists) -> Iterator[NeighbourLists]:
    """Neighbours of neighbours, each once, some of the selected items at a time."""
    neighbours = lists.neighbours
    step = max(1, _UNIQUE // max(1, neighbours.shape[1] ** 2))
    for start in range(0, len(selected), step):
        first = selected.neighbours[start : start + step].long()
        second = torch.where((first >= 0)[:, :, None], neighbours[first.clamp_min(0)].long(), -1).flatten(1)
        ordered = second.sort(dim=1).values
        repeated = torch.nn.functional.pad(ordered[:, 1:] == ordered[:, :-1], (1, 0))
        yield NeighbourLists(ordered.masked_fill(repeated, -1))


def _slabs(bank: Tensor, storage: torch.dtype | None) -> Iterator[Tensor]:
    """Columns of the bank, `SLAB` at a time, each contiguous."""
    for start in range(0, bank.shape[1], SLAB):
        yield bank[:, start : start + SLAB].to(storage or bank.dtype).contiguous()


def _ratio(total: Tensor, count: Tensor) -> Tensor:
    return torch.where(count > 0, total / count.clamp_min(1), torch.nan)


def ascending(neighbours: Int[Tensor, "n e"]) -> Int[Tensor, "n e"]:
    """The same lists, each sorted by row: sums are the same to rounding, and gathering reads memory in order.

    Args:
        neighbours: (N E) rows; below 0 is none.

    Returns:
        (N E).

    Example:
        >>> ascending(torch.tensor([[3, 1, 2], [2, -1, 0]])).tolist()
        [[1, 2, 3], [-1, 0, 2]]
    """
    return neighbours.sort(dim=1).values


def select_neighbours(neighbours: Int[Tensor, "n e"], selected: Bool[Tensor, "n"]) -> Int[Tensor, "n e"]:
    """The selected neighbours; -1 in place of the others.

    Args:
        neighbours: (N E) rows; below 0 is none.
        selected: (N) which items may stay.

    Returns:
        (N E).
    """
    present = selected.index_select(0, neighbours.clamp_min(0).flatten()).view_as(neighbours)
    return neighbours.masked_fill(~(present & (neighbours >= 0)), -1)


_CELLS = 2**24
"""Scores of pairs of views held at a time, 64 MB."""
_DENSE = 32
"""Scores of all items are cheaper than gathered views, where there are at most this many times the samples: by 1,000
samples 3.5 times cheaper among 8,000 items, 3 times among 16,000, and 1 to 2.3 times among 29,000."""
_LARGE = 8
"""Sampling with replacement hardly repeats itself from a set that is this many times the sample."""


def pooled(left: Float[Tensor, "*some q k h"], right: Float[Tensor, "*some c l h"]) -> Float[Tensor, "*some q c"]:
    """Scores of the best pair of views.

    One product a pair of views: a maximum over the last dimensions of a single product takes about twice the time.

    Args:
        left: (... Q K H), K views of each item.
        right: (... C L H), L views of each item.

    Returns:
        (... Q C).

    Complexity:
        Time Q C K L H, memory 2 Q C.
    """
    products = (
        left[..., mine, :] @ right[..., theirs, :].mT
        for mine in range(left.shape[-2])
        for theirs in range(right.shape[-2])
    )
    best = next(products)
    for scores in products:
        best = torch.maximum(best, scores)
    return best


def exact_scores(bank: Float[Tensor, "n k h"], neighbours: Int[Tensor, "n e"], scoring: Scoring = AS_PRINTED) -> Scores:
    """Both scores of every item by the best pair of views, exact.

    Args:
        bank: (N K H), K views of each item.
        neighbours: (N E) rows; below 0 is none.
        scoring: With second="multiset" or "direct", and average="pairs".

    Returns:
        (N) each; NaN for an item with too few neighbours.

    Raises:
        ShapeError: If the scoring is another.

    Complexity:
        Time N^2 (K^2 H + E), memory of some rows of N.
    """
    if scoring.second == "none":
        raise ShapeError("exact_scores needs second=multiset or direct; it got none; take pooled_scores")
    _require_pairs(scoring)
    count, views = bank.shape[:2]
    lists, columns = NeighbourLists(neighbours), neighbours.long().clamp_min(0)
    present = neighbours >= 0
    diversity, discrepancy = (torch.zeros(count, dtype=torch.float64, device=bank.device) for _ in range(2))
    step = max(1, _CELLS // (count * views * views))
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        scores = pooled(bank[rows], bank)
        sums = lists.sums(scores.T.contiguous())
        inside = present & (columns >= rows.start) & (columns < rows.stop)
        gathered = sums.gather(1, (columns - rows.start).clamp(0, sums.shape[1] - 1))
        diversity += (gathered * inside).sum(dim=1)
        block_columns, block_present = columns[rows], present[rows]
        values = scores.gather(1, block_columns) if scoring.second == "direct" else sums.T.gather(1, block_columns)
        discrepancy[rows] = (values * block_present).sum(dim=1).double()
    counts = lists.counts.double()
    if not scoring.diagonal:
        of_self = (bank @ bank.mT).amax(dim=(1, 2))
        diversity -= lists.sums(of_self.double()[:, None])[:, 0]
    listed = counts if scoring.second == "direct" else lists.sums(counts[:, None])[:, 0]
    return Scores(_ratio(diversity, _pairs(counts, scoring)).float(), _ratio(discrepancy, listed).float())


def gram_diversity(
    bank: Float[Tensor, "n k h"], neighbours: Int[Tensor, "d e"], scoring: Scoring = AS_PRINTED
) -> Float[Tensor, "d"]:
    """Diversity of the items that have these neighbours, exact, from the scores among these alone.

    Args:
        bank: (N K H), K views of each item.
        neighbours: (D E) rows; below 0 is none.
        scoring: Whether a neighbour is compared with itself.

    Returns:
        (D); NaN for an item with too few neighbours.

    Complexity:
        Time D E^2 K^2 H, less than `exact_scores` where D E^2 < N^2.
    """
    width, views = neighbours.shape[1], bank.shape[1]
    step = max(1, _CELLS // (width * views) ** 2)
    blocks = []
    for start in range(0, len(neighbours), step):
        block = neighbours[start : start + step]
        present = (block >= 0).to(bank.dtype)
        views_of_neighbours = bank[block.long().clamp_min(0)]
        scores = pooled(views_of_neighbours, views_of_neighbours) * present[:, :, None] * present[:, None, :]
        if not scoring.diagonal:
            scores = scores - torch.diag_embed(scores.diagonal(dim1=1, dim2=2))
        blocks.append(_ratio(scores.sum(dim=(1, 2)), _pairs(present.sum(dim=1), scoring)))
    return torch.cat(blocks)


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
    """Discrepancy of items from a sample of the neighbours of their neighbours (the paper: 1000).

    Samples come from the multiset without replacement: all of it where it has no more than `samples`.

    Args:
        bank: (N K H), K views of each item.
        neighbours: (N E) rows; below 0 is none.
        keys: (N) of the items (`draw.key`): a sample depends on (seed, epoch, item) alone.
        samples: Neighbours of neighbours of each item at most.
        seed: The seed of the run.
        epoch: The epoch, from 0.
        items: (D) the items to score; None for all.

    Returns:
        (D); NaN for an item without neighbours.

    Complexity:
        Time and gathered memory D samples K^2 H. Of a small bank (N <= 32 samples) time D N K^2 H, and nothing is
        gathered.
    """
    count, views, dim = bank.shape
    dense = count <= _DENSE * samples
    step = max(1, _CELLS // (count * views * views if dense else samples * views * dim))
    lists = NeighbourLists(neighbours)
    counts, rows, starts = (values.cpu().numpy() for values in (lists.counts, lists.rows, lists.starts))
    items = torch.arange(len(neighbours), device=bank.device) if items is None else items
    blocks = []
    for start in range(0, len(items), step):
        chunk = items[start : start + step]
        block = neighbours[chunk].cpu().numpy()
        listed = np.maximum(block, 0)
        weights = np.where(block >= 0, counts[listed], 0)
        ends = weights.cumsum(axis=1)
        total = ends[:, -1]
        positions = _positions(keys[chunk.cpu().numpy()], total, samples, seed=seed, epoch=epoch)
        none = positions < 0
        positions = np.maximum(positions, 0)
        # One search for all rows: each row's ends are moved above those of the row before.
        shift = np.concatenate([[0], total.cumsum()[:-1]])[:, None]
        columns = np.searchsorted((ends + shift).ravel(), (positions + shift).ravel(), side="right")
        columns = columns.reshape(positions.shape) - np.arange(len(block))[:, None] * block.shape[1]
        columns = columns.clip(0, block.shape[1] - 1)
        first = np.take_along_axis(listed, columns, axis=1)
        inner = positions - np.take_along_axis(ends - weights, columns, axis=1)
        sampled = rows[np.minimum(starts[first] + inner, len(rows) - 1)] if len(rows) else first
        # (D, samples) rows of neighbours of neighbours; -1 behind the last.
        chosen = np.where(none, -1, sampled).astype(np.int64)
        # Short lists fill the first columns alone.
        longest = np.flatnonzero((chosen >= 0).any(axis=0)).max(initial=0) + 1
        rows_of_samples = torch.from_numpy(chosen[:, :longest]).to(bank.device)
        block_views = bank[chunk]
        if dense:
            scores = pooled(block_views, bank).gather(1, rows_of_samples.clamp_min(0))
        else:
            scores = torch.einsum("qkh,qslh->qskl", block_views, bank[rows_of_samples.clamp_min(0)]).amax(dim=(2, 3))
        valid = (rows_of_samples >= 0).to(scores.dtype)
        blocks.append(_ratio((scores * valid).sum(dim=1), valid.sum(dim=1)))
    return torch.cat(blocks)


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
    """Both scores by the best pair of views in the cheapest way; diversity is always exact.

    Args:
        bank: (N K H), K views of each item.
        neighbours: (N E) rows; below 0 is none.
        scoring: With average="pairs", and second not "unique".
        keys: (N) of the items (`draw.key`).
        samples: Neighbours of neighbours of each item for discrepancy; 0 for all.
        seed: The seed of the run.
        epoch: The epoch, from 0.
        items: (D) the items to score; None for all.

    Returns:
        (N) or (D) each; NaN for an item with too few neighbours.

    Raises:
        ShapeError: If the scoring is another.

    Complexity:
        That of `exact_scores`, or of `gram_diversity` and `sampled_discrepancy` where this is less.
    """
    if scoring.second in ("direct", "unique") or (not samples and scoring.second == "multiset"):
        scores = exact_scores(bank, neighbours, scoring)
        return scores if items is None else Scores(scores.diversity[items], scores.discrepancy[items])
    _require_pairs(scoring)
    selected = neighbours if items is None else neighbours[items]
    if len(selected) * neighbours.shape[1] ** 2 < len(bank) ** 2:
        diversity = gram_diversity(bank, selected, scoring)
    else:
        diversity = exact_scores(bank, neighbours, replace(scoring, second="direct")).diversity
        diversity = diversity if items is None else diversity[items]
    if scoring.second == "none":
        return Scores(diversity, torch.full_like(diversity, torch.nan))
    discrepancy = sampled_discrepancy(bank, neighbours, keys, samples=samples, seed=seed, epoch=epoch, items=items)
    return Scores(diversity, discrepancy)


def _positions(
    keys: NDArray[np.int64], total: NDArray[np.int64], samples: int, *, seed: int, epoch: int
) -> NDArray[np.int64]:
    """(Q, samples) different positions below `total`, ascending but for -1 where none is left.

    All positions where `total` is at most `samples`. Where it is much larger, repeats are few and left out: the sample
    is then about a sixteenth smaller. In between, the first different ones of a longer sequence; or the complement of
    such a sample, where that would be over half of all positions.
    """
    integers = partial(draw.integers, seed=seed, epoch=epoch, purpose="neighbours of neighbours")
    positions = np.full((len(keys), samples), -1, dtype=np.int64)
    large = total >= _LARGE * samples
    samples_of_large = integers(keys[large], total[large], count=samples)
    samples_of_large.sort(axis=1)
    positions[large] = np.where(_repeats(samples_of_large), -1, samples_of_large)
    small = np.flatnonzero(~large & (total > 0))
    if not len(small):
        return positions
    total = total[small]
    complement = total <= 2 * samples
    sizes = np.where(complement, np.maximum(total - samples, 0), samples)
    sequence = integers(keys[small], total, count=2 * samples + 32)
    order = sequence.argsort(axis=1, kind="stable")
    first = np.empty(sequence.shape, dtype=bool)
    np.put_along_axis(first, order, ~_repeats(np.take_along_axis(sequence, order, axis=1)), axis=1)
    chosen = first & (first.cumsum(axis=1) <= sizes[:, None])
    selected = np.zeros((len(small), int(total.max())), dtype=bool)
    rows, columns = np.nonzero(chosen)
    selected[rows, sequence[rows, columns]] = True
    selected[complement] = ~selected[complement]
    selected &= np.arange(selected.shape[1]) < total[:, None]
    rows, columns = np.nonzero(selected)
    begin = np.searchsorted(rows, np.arange(len(small)))
    positions[small[rows], np.arange(len(rows)) - begin[rows]] = columns
    return positions


def _repeats(ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether a number equals the one before it in its row."""
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return repeated


def _require_pairs(scoring: Scoring) -> None:
    if scoring.second == "unique" or scoring.average == "lists":
        raise ShapeError(
            "the best pair of views (views=max) needs second=multiset or direct and average=pairs; it got "
            f"{scoring.second} and {scoring.average}; take views=mean or aligned"
        )
