"""What the scores of an index are worth, fitted on one half of held-out pairs and measured on the other.

Neither half may have been trained on or selected by; whoever calls sees to that. Halves are drawn by group, so that no
picture is in both. The pairs' items stand among those of the index: those that are in it as they are there, the others
as if they had been added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext import __version__
from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError, RequirementError
from subtext.ops import draw
from subtext.ops.isotonic import rising
from subtext.ops.logistic import logistic
from subtext.ops.reliability import reliability
from subtext.search.answering import other
from subtext.search.background import NEAR, Background, Seen, log_odds, weakest
from subtext.search.confidence import stands
from subtext.search.pair_curve import first_half, held_off, pair_curve
from subtext.search.stores.calibration import Calibration, Way
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.store import Store, StoreView

FEWEST = 100
"""Groups of pairs below which nothing can be fitted and measured."""
MOST = 4000
"""Questions of each kind that are asked, drawn where there are more."""
REFUSED = 0.05
"""Share of questions with an answer that may be told that nothing fits."""
TEMPERATURES = np.geomspace(0.005, 0.5, 24)
_SAME = 1e-2
"""How far an item's vector may be from the index's of the same id, to be the same item."""


@dataclass(frozen=True)
class Held:
    """Held-out pairs, embedded.

    pairs      neither trained on nor selected by
    images, texts  their embeddings, in their order
    """

    pairs: Dataset
    images: Embeddings
    texts: Embeddings

    def side(self, side: Side) -> tuple[Items, NDArray[np.float32]]:
        """Items and vectors (N K D) of a side."""
        items, found = (self.pairs.images, self.images) if side == SIDES[0] else (self.pairs.texts, self.texts)
        return items, found.vectors.float().numpy()


@dataclass(frozen=True)
class Asked:
    """Questions of one kind, and what the index showed for them.

    seen     of each question        right   (T) bool of each: whether a hit is a true match
    truth    of each its scores with its true matches        fitted  (Q) bool: in the half that is fitted on
    """

    seen: list[Seen]
    right: list[NDArray[np.bool_]]
    truth: list[NDArray[np.float64]]
    fitted: NDArray[np.bool_]


def calibrate(folder: Store, held: Held, *, data: Mapping[str, Any], seed: int = 0) -> Calibration:
    """What the scores of an index are worth, by held-out pairs.

    data  where the pairs came from, as plain data

    Raises DataError for fewer than `FEWEST` groups of pairs, RequirementError where scores do not tell right from
    wrong at all.
    """
    groups = np.intersect1d(held.pairs.images.groups, held.pairs.texts.groups)
    if len(groups) < FEWEST:
        raise DataError(
            f"calibration needs {FEWEST} held-out pictures with texts, or more; it got {len(groups)}; give more pairs"
        )
    with folder.reading() as view:
        counts = {side: view.shelves[side].count for side in SIDES}
        last = {side: int(view.shelves[side].live.max(initial=0)) for side in SIDES}
        ways = {side: _way(ask(view, held, side, seed=seed)) for side in SIDES if counts[side]}
    return Calibration(
        ways=ways,
        pairs=pair_curve(held.pairs, held.side("images")[1], held.side("texts")[1], seed=seed),
        data={**data, "pictures": len(held.pairs.images), "texts": len(held.pairs.texts), "groups": len(groups)},
        counts=counts,
        last=last,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def ask(view: StoreView, held: Held, side: Side, *, seed: int = 0) -> Asked:
    """Ask for items of one side with the held-out items of the other that have a true match."""
    items, vectors = held.side(side)
    askers, queries = held.side(other(side))
    rows = np.flatnonzero(np.isin(askers.groups, items.groups)).astype(np.int64)
    order = draw.uniform(askers.keys[rows], seed=seed, epoch=0, purpose="calibration: questions")[:, 0]
    rows = np.sort(rows[np.argsort(order, kind="stable")[:MOST]])
    keys = _keys(view, side, items, vectors)
    further = np.flatnonzero(keys < 0)
    group_of = dict(zip(keys.tolist(), items.groups.tolist(), strict=True))
    background, own = (Background.of(view.shelves[each]) for each in (side, other(side)))
    total = background.total + len(further)
    mine = _groups(view, own, other(side), askers)
    found = view.shelves[side].nearest(queries[rows], top=NEAR)
    asked = Asked([], [], [], first_half(askers.groups[rows], seed))
    for start in range(0, len(rows), 256):
        some = rows[start : start + 256]
        crowds, owns = background.scores(queries[some]), own.scores(queries[some])
        added = _products(queries[some], vectors[further])
        for place, row in enumerate(some.tolist()):
            hits = found[start + place]
            every = np.concatenate([hits.keys, keys[further]])
            scores = np.concatenate([hits.scores, added[place]])
            best = np.argsort(-scores, kind="stable")[:NEAR]
            # Captions of one's own picture are no sign that such questions are known here.
            owns[place, mine == askers.groups[row]] = np.nan
            shown = Background(background.keys, background.vectors, total)
            asked.seen.append(Seen.among(every[best], scores[best], shown, crowds[place], owns[place]))
            asked.right.append(np.array([group_of.get(key) == askers.groups[row] for key in every[best].tolist()]))
            matches = vectors[items.groups == askers.groups[row]]
            asked.truth.append(_products(queries[row : row + 1], matches)[0].astype(np.float64))
    return asked


def _keys(view: StoreView, side: Side, items: Items, vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """The key of each item in the index; one of its own, below 0, for an item that is not there, or is another."""
    known = view.keys_of(side, items.ids)
    keys = np.array([known.get(name, -1 - row) for row, name in enumerate(items.ids)], dtype=np.int64)
    there = np.flatnonzero(keys >= 0)
    if len(there):
        apart = np.abs(view.shelves[side].vectors_of(keys[there]) - vectors[there]).max(axis=(1, 2))
        keys[there[apart > _SAME]] = -1 - there[apart > _SAME]
    return keys


def _groups(view: StoreView, own: Background, side: Side, items: Items) -> NDArray[np.int64]:
    """The group of each of a background's items, by its id; -1 for one that is none of these items."""
    groups = dict(zip(items.ids, items.groups.tolist(), strict=True))
    return np.array([groups.get(item.id, -1) for item in view.items(side, own.keys)], dtype=np.int64)


def _products(queries: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(Q N) best scores over the views of (Q L D) and (N K D)."""
    return Background(np.arange(len(vectors), dtype=np.int64), vectors, len(vectors)).scores(queries)


def _way(asked: Asked) -> Way:
    """Fit on the one half, measure on the other."""
    halves = [np.flatnonzero(half) for half in (asked.fitted, ~asked.fitted)]
    temperature = _temperature(asked, halves[0])
    signs, quantiles = _signs(asked, halves[0], temperature)
    bare = Way(temperature, (1.0, -1.0), 0.0, {"xs": [], "ys": []}, signs, quantiles, REFUSED, {})
    numbers, right = _hits(asked, halves[0], temperature)
    if right.all() or not right.any():
        raise RequirementError(
            f"calibration needs hits that are right and hits that are wrong; of {len(right):,} among the first {NEAR} "
            f"{int(right.sum()):,} are right; the index does not find what these pairs say, or holds nothing else"
        )
    fitted = logistic(numbers, right)
    if fitted.weights[0] <= 0:
        raise RequirementError(
            "calibration needs larger scores to be right more often; here they are not; train longer"
        )
    weights = (float(fitted.weights[0]), float(fitted.weights[1]))
    bent = held_off(rising(fitted.log_odds(numbers), right.astype(np.float64)), int(right.sum()))
    steps = {"xs": bent.xs.tolist(), "ys": bent.ys.tolist()}
    return _measured(asked, halves[1], replace(bare, weights=weights, bias=float(fitted.bias), steps=steps))


def _temperature(asked: Asked, rows: NDArray[np.int64]) -> float:
    """That under which true matches are likeliest: mean log of sum_true exp(s / t) / sum exp(s / t)."""
    found = []
    for temperature in TEMPERATURES:
        told = [
            np.logaddexp.reduce(asked.truth[row] / temperature) - asked.seen[row].level(temperature) for row in rows
        ]
        found.append(float(np.mean(told)))
    return float(TEMPERATURES[int(np.argmax(found))])


def _signs(asked: Asked, rows: NDArray[np.int64], temperature: float) -> tuple[dict[str, list[float]], list[float]]:
    """Quantiles of each sign over questions, and of the weakest standing among them."""
    told = [asked.seen[row].signs(temperature) for row in rows]
    steps = np.linspace(0, 1, 101)
    signs = {name: np.quantile([each[name] for each in told], steps).tolist() for name in told[0]}
    return signs, np.quantile([weakest(each, signs) for each in told], steps).tolist()


def _hits(asked: Asked, rows: NDArray[np.int64], temperature: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(H 2) score over temperature and level of every hit of some questions, and (H) whether it is right."""
    numbers = [
        np.stack([seen.scores / temperature, np.full(len(seen.scores), seen.level(temperature))], axis=1)
        for seen in (asked.seen[row] for row in rows)
    ]
    return np.concatenate(numbers).astype(np.float64), np.concatenate([asked.right[row] for row in rows])


def _measured(asked: Asked, rows: NDArray[np.int64], way: Way) -> Way:
    """With what was measured on questions that nothing was fitted on."""
    curve = way.curve
    told = [curve(log_odds(seen.scores, seen.level(way.temperature), way)) for seen in (asked.seen[r] for r in rows)]
    likely, right = np.concatenate(told), np.concatenate([asked.right[row] for row in rows])
    first, first_right = (np.array([each[0] for each in some]) for some in (told, [asked.right[row] for row in rows]))
    bins = reliability(likely, right)
    stand = [stands(asked.seen[row], way) for row in rows]
    figures = {
        "questions": float(len(rows)),
        "hits": float(len(right)),
        "right": float(right.mean()),
        "calibration_error": bins.error,
        "calibration_error_equal_counts": reliability(likely, right, equal="count").error,
        "calibration_error_first": reliability(first, first_right).error,
        "brier": float(np.mean((likely - right) ** 2)),
        "brier_of_the_share": float(right.mean() * (1 - right.mean())),
        "refused": float(np.mean(np.array(stand) < way.refused)),
    }
    told_bins = {
        "predicted": bins.predicted.tolist(),
        "came_true": bins.came_true.tolist(),
        "counts": bins.counts.astype(float).tolist(),
    }
    return replace(way, measured=figures, bins=told_bins)
