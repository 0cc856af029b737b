"""Diversity and discrepancy where the best pair of views decides: s(a, b) = max over k, l of <a_k, b_l>.

A maximum does not move out of a sum, so pairs have to be scored. With S the (N N) scores and A the neighbours, R = A S
gives both again: discrepancy(i) = sum over neighbours j of i of R[j, i], diversity(i) = sum over neighbours a of i of
R[i, a]. S is made and forgotten some rows at a time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from subtext.errors import ShapeError
from subtext.ops import draw
from subtext.ops.neighbour_scores import AS_PRINTED, Lists, Scores, Scoring, pairs_of

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


def _ratio(total: Tensor, count: Tensor) -> Tensor:
    return torch.where(count > 0, total / count.clamp_min(1), torch.nan)
