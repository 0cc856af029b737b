"""Planted looseness: a known share of the pairs of a captioned set gets texts that belong elsewhere.

Texts change places, and none is lost or doubled: over the pairs that were loosened, the texts are the same as before,
so neither a text's length nor any other thing about texts alone tells them. Which pairs are loosened, and which texts
they get, are pure functions of the seed and the texts' names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from subtext.data.dataset import Dataset
from subtext.errors import DataError
from subtext.ops import draw


@dataclass(frozen=True)
class Near:
    """Neighbours of the texts of the same Dataset, nearest first, as `neighbours.graph.Graph` holds them.

    rows       (T E) text rows, -1 fills up
    distances  (T E) to them
    first, last  ranks from 1, both included: how near a text has to be to be given
    """

    rows: Int[np.ndarray, "t e"]
    distances: Float[np.ndarray, "t e"]
    first: int
    last: int


@dataclass(frozen=True)
class Planted:
    """A loosened data set.

    pairs      the same items under the same names; some texts have another's words
    came_from  (T) the row whose words a text has now; its own where nothing was changed
    kinds      (T) "" | "neighbour" | "mismatch"
    distances  (T) between the words that went and those that came; NaN but for neighbours
    """

    pairs: Dataset
    came_from: NDArray[np.int64]
    kinds: NDArray[Any]
    distances: NDArray[np.float64]


def plant(
    pairs: Dataset,
    shares: Mapping[str, float],
    *,
    near: Near | None = None,
    splits: tuple[str, ...] = ("train",),
    seed: int = 0,
) -> Planted:
    """Loosen shares of the pairs of some splits; texts never leave their split.

    shares  "neighbour" and "mismatch" -> of the pairs of each split, in all at most 1

    A neighbour's text is swapped for one's own. Who begins a swap is drawn evenly; with whom, among those within the
    ranks, in inverse proportion to how many could have them, else texts that are near to many would be loosened more
    often than others. A mismatch is a derangement: each of the drawn pairs gets the text of another group.

    Texts of several pictures stay as they are, and so do those known by features alone.

    Raises DataError when so many pairs cannot be loosened.
    """
    total = sum(shares.values())
    if not shares or min(shares.values()) < 0 or not 0 < total <= 1 or set(shares) - {"neighbour", "mismatch"}:
        raise DataError(
            f"looseness needs shares of 'neighbour' and 'mismatch' above 0, together at most 1; got {shares}"
        )
    came_from = np.arange(len(pairs.texts), dtype=np.int64)
    kinds = np.full(len(pairs.texts), "", dtype="<U9")
    distances = np.full(len(pairs.texts), np.nan)
    for split in splits:
        rows = _loosable(pairs, split)
        swapped, wrong = (round(shares.get(kind, 0) * len(rows)) for kind in ("neighbour", "mismatch"))
        if swapped:
            if near is None:
                raise DataError("texts of neighbours need to know whose they are; give a graph (--graph)")
            ones, others, apart = _swaps(pairs, rows, near, max(swapped // 2, 1), seed)
            came_from[ones], came_from[others] = others, ones
            kinds[ones] = kinds[others] = "neighbour"
            distances[ones] = distances[others] = apart
        rows = rows[kinds[rows] == ""]
        if wrong:
            chosen = rows[np.argsort(_uniform(pairs, rows, seed, "loosen: which mismatch"), kind="stable")[:wrong]]
            came_from[chosen] = _deranged(pairs, chosen, seed)
            kinds[chosen] = "mismatch"
    values = [pairs.texts.values[row] for row in came_from]
    more = {
        name: [column[row] for row in came_from] for name, column in pairs.texts.metadata.items() if name == "language"
    }
    texts = replace(pairs.texts, values=values, metadata={**pairs.texts.metadata, **more})
    return Planted(replace(pairs, texts=texts), came_from, kinds, distances)


def _loosable(pairs: Dataset, split: str) -> NDArray[np.int64]:
    """The texts of a split that have words and one picture, in the order of their keys."""
    pictures = np.bincount(pairs.links[:, 1], minlength=len(pairs.texts))
    words = np.array([isinstance(value, str) for value in pairs.texts.values], dtype=bool)
    rows = np.flatnonzero((pairs.texts.splits == split) & (pictures == 1) & words)
    if not len(rows):
        raise DataError(
            f"loosening the split '{split}' needs texts with words, of one picture each; it has none; name another"
        )
    found: NDArray[np.int64] = rows[np.argsort(pairs.texts.keys[rows], kind="stable")]
    return found


def _uniform(pairs: Dataset, rows: NDArray[np.int64], seed: int, purpose: str) -> NDArray[np.float64]:
    return draw.uniform(pairs.texts.keys[rows], seed=seed, epoch=0, purpose=purpose)[:, 0]


def _swaps(
    pairs: Dataset, rows: NDArray[np.int64], near: Near, wanted: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(S) texts, (S) those with which they change places, and (S) their distances; S is `wanted`."""
    partners = _partners(pairs, rows, near)
    counts = np.array([len(found) for found in partners], dtype=np.float64)
    place = np.full(len(pairs.texts), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    free = np.ones(len(rows), dtype=bool)
    swaps: list[tuple[int, int, float]] = []
    for one in np.argsort(_uniform(pairs, rows, seed, "loosen: which"), kind="stable"):
        if len(swaps) == wanted:
            break
        open_ = [(other, apart) for other, apart in partners[one].items() if free[place[other]]] if free[one] else []
        if not open_:
            continue
        others = np.array([other for other, _ in open_], dtype=np.int64)
        mixed = pairs.texts.keys[others] ^ pairs.texts.keys[rows[one]]
        drawn = draw.uniform(mixed, seed=seed, epoch=0, purpose="loosen: with whom")[:, 0]
        # The least of exponential times, each with its rate: a draw with weights, whatever the order.
        chosen = int(np.argmin(-np.log1p(-drawn) * counts[place[others]]))
        swaps.append((int(rows[one]), *open_[chosen]))
        free[one] = free[place[others[chosen]]] = False
    if len(swaps) < wanted:
        raise DataError(
            f"{2 * wanted:,} pairs cannot get a neighbour's text: within ranks {near.first} to {near.last} "
            f"{2 * len(swaps):,} of them can; ask for a smaller share or for more ranks"
        )
    ones, others = (np.array([swap[side] for swap in swaps], dtype=np.int64) for side in (0, 1))
    return ones, others, np.array([apart for _, _, apart in swaps])


def _partners(pairs: Dataset, rows: NDArray[np.int64], near: Near) -> list[dict[int, float]]:
    """Whom each of the rows may swap with (either has the other within the ranks), and how far they are apart."""
    place = {int(row): number for number, row in enumerate(rows)}
    groups, words = pairs.texts.groups, pairs.texts.values
    found: list[dict[int, float]] = [{} for _ in rows]
    band = slice(near.first - 1, near.last)
    for number, one in enumerate(rows):
        for other, apart in zip(near.rows[one, band].tolist(), near.distances[one, band].tolist(), strict=True):
            if other in place and groups[other] != groups[one] and words[other] != words[one]:
                found[number][other] = apart
                found[place[other]].setdefault(int(one), apart)
    return found


def _deranged(pairs: Dataset, chosen: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """For each chosen text another chosen one, each once, of another group and with other words."""
    groups = pairs.texts.groups[chosen]
    keys = pairs.texts.keys[chosen]
    # A group is ordered by a draw of its least key, so that neither rows nor numbers of groups matter.
    _, number = np.unique(groups, return_inverse=True)
    least = np.full(number.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, number, keys)
    of_group = draw.uniform(least, seed=seed, epoch=0, purpose="loosen: groups")[:, 0][number]
    order = np.lexsort((draw.uniform(keys, seed=seed, epoch=0, purpose="loosen: texts")[:, 0], of_group))
    largest = int(np.bincount(number).max())
    if 2 * largest > len(chosen):
        raise DataError(
            f"a derangement of {len(chosen):,} pairs needs no group of more than half of them; one has {largest:,}; "
            "ask for a larger share"
        )
    given = np.empty_like(chosen)
    given[order] = np.roll(chosen[order], -largest)
    _repair(pairs, chosen, given, order)
    return given


def _repair(pairs: Dataset, chosen: NDArray[np.int64], given: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    """Where a text would get words like its own, let it change with the next for which that mends both."""
    groups, words = pairs.texts.groups, pairs.texts.values

    def fits(place: int, taken_from: int) -> bool:
        old, new = chosen[place], given[taken_from]
        return bool(groups[old] != groups[new]) and words[old] != words[new]

    places = order.tolist()
    for number, place in enumerate(places):
        if fits(place, place):
            continue
        for other in places[number + 1 :] + places[:number]:
            if fits(place, other) and fits(other, place):
                given[place], given[other] = given[other], given[place]
                break
        else:
            raise DataError(
                f"a derangement of {len(chosen):,} pairs needs texts that differ; too many are the same; ask for a "
                "larger share, or take copies out first (subtext data dedup)"
            )
