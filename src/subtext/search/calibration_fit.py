"""Fits what the scores of an index mean, on one half of held-out pairs, and measures it on the other.

The pairs must be used neither for training nor for model selection; the caller checks that. Halves are split by group,
so no image is in both. The items of the pairs count as items of the index: those that it holds as they are there, the
others as if they had been added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError, RequirementError
from subtext.ops import draw
from subtext.ops.reliability import reliability
from subtext.search.confidence import BEST, Background, Evidence, log_odds, weakest_percentile
from subtext.search.ranking import opposite
from subtext.search.stores.item import SIDES, Side
from subtext.search.stores.manifest import Calibration, Way
from subtext.search.stores.store import Store, View
from subtext.version import __version__

MIN_GROUPS = 100
"""Groups of pairs below which nothing can be fitted and measured."""
MAX_QUERIES = 4000
"""Queries of each modality; sampled where there are more."""
REFUSED = 0.05
"""Share of answerable queries that may wrongly be told that nothing matches."""
PENALTY = 1e-3
"""L2 penalty of the logistic regression on standardised inputs, in units of one row."""
TEMPERATURES = np.geomspace(0.005, 0.5, 24)
_TOLERANCE = 1e-2
"""Largest difference of an item's vector from the index's of the same id, to count as the same item."""


@dataclass(frozen=True)
class HeldOutPairs:
    """Embedded pairs that were used neither for training nor for model selection.

    images, texts  embeddings of the pairs' items, in their order
    """

    pairs: Dataset
    images: Embeddings
    texts: Embeddings

    def side(self, side: Side) -> tuple[Items, NDArray[np.float32]]:
        """Items and vectors (N K D) of a side."""
        images = side == SIDES[0]
        items, embedded = (self.pairs.images, self.images) if images else (self.pairs.texts, self.texts)
        return items, embedded.vectors.float().numpy()


@dataclass(frozen=True)
class Observations:
    """What the index returned for the queries of one modality, Q in number.

    evidence  of each query                       correct  (T) bool of each: whether a hit is a true match
    truth     scores of each with its true matches
    fitted    (Q) bool: whether the query is in the half that is fitted on
    """

    evidence: list[Evidence]
    correct: list[NDArray[np.bool_]]
    truth: list[NDArray[np.float64]]
    fitted: NDArray[np.bool_]


def fit_calibration(store: Store, held_out: HeldOutPairs, *, data: Mapping[str, Any], seed: int = 0) -> Calibration:
    """What the scores of an index mean, by held-out pairs.

    data  where the pairs came from, as plain data

    Raises DataError for fewer than `MIN_GROUPS` groups of pairs, RequirementError where scores do not tell right from
    wrong at all.
    """
    groups = np.intersect1d(held_out.pairs.images.groups, held_out.pairs.texts.groups)
    if len(groups) < MIN_GROUPS:
        raise DataError(
            f"calibration needs {MIN_GROUPS} held-out images with texts, or more; it got {len(groups)}; give more pairs"
        )
    with store.reading() as view:
        counts = {side: view.counts[side] for side in SIDES}
        last = {side: int(view.keys(side).max(initial=0)) for side in SIDES}
        ways = {side: _fit_way(observe(view, held_out, side, seed=seed)) for side in SIDES if counts[side]}
    return Calibration(
        ways=ways,
        pairs=fit_pair_curve(held_out.pairs, held_out.side("images")[1], held_out.side("texts")[1], seed=seed),
        data={
            **data,
            "pictures": len(held_out.pairs.images),
            "texts": len(held_out.pairs.texts),
            "groups": len(groups),
        },
        counts=counts,
        last=last,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def observe(view: View, held_out: HeldOutPairs, side: Side, *, seed: int = 0) -> Observations:
    """Search one side with the held-out items of the other that have a true match."""
    items, vectors = held_out.side(side)
    query_items, queries = held_out.side(opposite(side))
    rows = np.flatnonzero(np.isin(query_items.groups, items.groups)).astype(np.int64)
    order = draw.uniform(query_items.keys[rows], seed=seed, epoch=0, purpose="calibration: questions")[:, 0]
    rows = np.sort(rows[np.argsort(order, kind="stable")[:MAX_QUERIES]])
    keys = _index_keys(view, side, items, vectors)
    missing = np.flatnonzero(keys < 0)
    group_of = dict(zip(keys.tolist(), items.groups.tolist(), strict=True))
    sample, own_sample = (Background.of(view, name) for name in (side, opposite(side)))
    # The items that the index lacks count as added to it.
    sample = replace(sample, total=sample.total + len(missing))
    own_ids = (item.id for item in view.items(opposite(side), own_sample.keys))
    groups = dict(zip(query_items.ids, query_items.groups.tolist(), strict=True))
    own_groups = np.array([groups.get(name, -1) for name in own_ids], dtype=np.int64)
    results = view.nearest(side, queries[rows], top=BEST)
    observations = Observations([], [], [], first_half(query_items.groups[rows], seed))
    for start in range(0, len(rows), 256):
        block = rows[start : start + 256]
        scores, own_scores = sample.scores(queries[block]), own_sample.scores(queries[block])
        missing_scores = _best_products(queries[block], vectors[missing])
        for offset, row in enumerate(block.tolist()):
            hits = results[start + offset]
            all_keys = np.concatenate([hits.keys, keys[missing]])
            all_scores = np.concatenate([hits.scores, missing_scores[offset]])
            best = np.argsort(-all_scores, kind="stable")[:BEST]
            # Captions of the query's own image do not show that the index knows such queries.
            own_scores[offset, own_groups == query_items.groups[row]] = np.nan
            observations.evidence.append(
                Evidence.collect(all_keys[best], all_scores[best], sample, scores[offset], own_scores[offset])
            )
            observations.correct.append(
                np.array([group_of.get(key) == query_items.groups[row] for key in all_keys[best].tolist()])
            )
            matches = vectors[items.groups == query_items.groups[row]]
            observations.truth.append(_best_products(queries[row : row + 1], matches)[0].astype(np.float64))
    return observations


def _index_keys(view: View, side: Side, items: Items, vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """The key of each item in the index; a key below 0 for an item that is not there, or has another vector there."""
    known = view.keys_of(side, items.ids)
    keys = np.array([known.get(name, -1 - row) for row, name in enumerate(items.ids)], dtype=np.int64)
    stored = np.flatnonzero(keys >= 0)
    if len(stored):
        difference = np.abs(view.vectors(side, keys[stored]) - vectors[stored]).max(axis=(1, 2))
        keys[stored[difference > _TOLERANCE]] = -1 - stored[difference > _TOLERANCE]
    return keys


def _best_products(queries: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(Q N) best scores over the views of (Q L D) and (N K D)."""
    return Background(np.arange(len(vectors), dtype=np.int64), vectors, len(vectors)).scores(queries)


def _fit_way(observed: Observations) -> Way:
    """The calibration of one side, fitted on one half of the queries and measured on the other."""
    fitted, measured = (np.flatnonzero(half) for half in (observed.fitted, ~observed.fitted))
    temperature = _fit_temperature(observed, fitted)
    signs, quantiles = _sign_quantiles(observed, fitted, temperature)
    inputs, correct = _hits(observed, fitted, temperature)
    if correct.all() or not correct.any():
        raise RequirementError(
            "calibration needs hits that are right and hits that are wrong; of "
            f"{len(correct):,} among the first {BEST} {int(correct.sum()):,} are right; the "
            "index does not find what these pairs say, or holds nothing else"
        )
    weights, bias = fit_logistic(inputs, correct)
    if weights[0] <= 0:
        raise RequirementError(
            "calibration needs larger scores to be right more often; here they are not; train longer"
        )
    xs, ys = fit_isotonic(inputs @ weights + bias, correct)
    way = Way(
        temperature, (float(weights[0]), float(weights[1])), bias, {"xs": xs, "ys": ys}, signs, quantiles, REFUSED, {}
    )
    return _measured(observed, measured, way)


def fit_logistic(inputs: NDArray[np.float64], truth: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """(F) weights and the bias of a logistic regression of `truth` (N) on `inputs` (N F), by scikit-learn.

    The inputs are standardised; the small L2 penalty bounds the weights where the classes do not overlap.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(inputs)
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky", tol=1e-9)
    model.fit(scaler.transform(inputs), truth)
    weights: NDArray[np.float64] = model.coef_[0] / scaler.scale_
    return weights, float(model.intercept_[0] - weights @ scaler.mean_)


def fit_isotonic(values: NDArray[np.float64], truth: NDArray[np.bool_]) -> tuple[list[float], list[float]]:
    """Points (xs, ys) of the isotonic regression of `truth` on `values` (Zadrozny and Elkan 2002), by scikit-learn.

    Levels stay 1 / (n + 2) away from 0 and 1, where n of the values are true: so few cannot make certain.
    """
    from sklearn.isotonic import IsotonicRegression

    curve = IsotonicRegression().fit(values, truth.astype(np.float64))
    least = 1 / (int(truth.sum()) + 2)
    return curve.X_thresholds_.tolist(), np.clip(curve.y_thresholds_, least, 1 - least).tolist()


def _fit_temperature(observed: Observations, rows: NDArray[np.int64]) -> float:
    """The temperature that makes the true matches likeliest: mean log of sum_true exp(s / t) / sum exp(s / t)."""
    likelihoods = [
        np.mean([
            np.logaddexp.reduce(observed.truth[row] / temperature) - observed.evidence[row].level(temperature)
            for row in rows
        ])
        for temperature in TEMPERATURES
    ]  # fmt: skip
    return float(TEMPERATURES[int(np.argmax(likelihoods))])


def _sign_quantiles(
    observed: Observations, rows: NDArray[np.int64], temperature: float
) -> tuple[dict[str, list[float]], list[float]]:
    """Quantiles of each sign over queries, and of the weakest percentile among the signs."""
    values = [observed.evidence[row].signs(temperature) for row in rows]
    steps = np.linspace(0, 1, 101)
    signs = {name: np.quantile([signs[name] for signs in values], steps).tolist() for name in values[0]}
    return signs, np.quantile([weakest_percentile(own, signs) for own in values], steps).tolist()


def _hits(
    observed: Observations, rows: NDArray[np.int64], temperature: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(H 2) score over temperature and level of every hit of some queries, and (H) whether it is correct."""
    inputs = [
        np.stack([evidence.scores / temperature, np.full(len(evidence.scores), evidence.level(temperature))], axis=1)
        for evidence in (observed.evidence[row] for row in rows)
    ]
    return np.concatenate(inputs).astype(np.float64), np.concatenate([observed.correct[row] for row in rows])


def _measured(observed: Observations, rows: NDArray[np.int64], way: Way) -> Way:
    """The calibration with its figures, on queries that it was not fitted on."""
    evidence, correct = ([values[row] for row in rows] for values in (observed.evidence, observed.correct))
    predicted = [way.curve(log_odds(own.scores, own.level(way.temperature), way)) for own in evidence]
    probability, truth = np.concatenate(predicted), np.concatenate(correct)
    first, first_truth = (np.array([row[0] for row in rows]) for rows in (predicted, correct))
    bins = reliability(probability, truth)
    percentiles = np.array([own.percentile(way) for own in evidence])
    figures = {
        "questions": float(len(rows)),
        "hits": float(len(truth)),
        "right": float(truth.mean()),
        "calibration_error": bins.error,
        "calibration_error_equal_counts": reliability(probability, truth, equal="count").error,
        "calibration_error_first": reliability(first, first_truth).error,
        "brier": float(np.mean((probability - truth) ** 2)),
        "brier_of_the_share": float(truth.mean() * (1 - truth.mean())),
        "refused": float(np.mean(percentiles < way.refused)),
    }
    plot = {
        "predicted": bins.predicted.tolist(),
        "came_true": bins.came_true.tolist(),
        "counts": bins.counts.astype(float).tolist(),
    }
    return replace(way, measured=figures, bins=plot)


def fit_pair_curve(
    pairs: Dataset, images: NDArray[np.float32], texts: NDArray[np.float32], *, seed: int = 0
) -> dict[str, Any]:
    """A pair's cosine as the probability that it is right, where as many pairs are right as are random.

    images, texts  (I K D) and (T L D) vectors of the pairs' items

    A random pair is an image and the text of another group. The points "xs" and "ys" are fitted on one half of the
    groups; "calibration_error", "brier" and "pairs" are of the other.
    """
    links = pairs.links
    groups = pairs.images.groups[links[:, 0]]
    first = first_half(groups, seed)
    order = np.argsort(draw.uniform(groups, seed=seed, epoch=0, purpose="calibration: chance")[:, 0], kind="stable")

    def half(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cosines of the right pairs of a half, then of as many random ones; and which are right."""
        rows = order[chosen[order]]
        shift = int(np.unique(groups[rows], return_counts=True)[1].max(initial=1))
        image_rows, text_rows = links[rows, 0], links[rows, 1]
        cosines = [_pair_cosines(images[image_rows], texts[other]) for other in (text_rows, np.roll(text_rows, shift))]
        return np.concatenate(cosines), np.arange(2 * len(rows)) < len(rows)

    xs, ys = fit_isotonic(*half(first))
    scores, truth = half(~first)
    probability = np.interp(scores, xs, ys)
    return {
        "xs": xs,
        "ys": ys,
        "calibration_error": reliability(probability, truth).error,
        "brier": float(np.mean((probability - truth) ** 2)),
        "pairs": len(truth) // 2,
    }


def _pair_cosines(images: NDArray[np.float32], texts: NDArray[np.float32]) -> NDArray[np.float64]:
    """(N) scores of images with texts, row by row, of the best matching views."""
    scores: NDArray[np.float64] = np.einsum("nkd,nld->nkl", images, texts).max(axis=(1, 2)).astype(np.float64)
    return scores


def first_half(groups: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """(N) whether each row is in the half that is fitted on; rows of a group stay together."""
    return draw.uniform(groups, seed=seed, epoch=0, purpose="calibration: half")[:, 0] < 0.5
