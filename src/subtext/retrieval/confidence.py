"""The probability of each hit, and whether anything matches a query; and how both are calibrated.

Both are fitted on one half of held-out pairs and measured on the other. The pairs must be used neither for training nor
for model selection; the caller checks that. Halves are split by group, so no image is in both. The items of the pairs
count as items of the index: those that it holds as they are there, the others as if they had been added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from subtext.data.dataset import Dataset, Items
from subtext.errors import DataError, RequirementError
from subtext.ops import draw
from subtext.ops.roc import reliability
from subtext.retrieval.answer import Fit, Level
from subtext.retrieval.calibration import (
    STALE,
    Calibration,
    DirectionCalibration,
    calibration_mark,
    changed_since,
    stored_calibration,
)
from subtext.retrieval.stores.item import SIDES, Hits, Side, opposite
from subtext.retrieval.stores.store import Store, View
from subtext.version import __version__

if TYPE_CHECKING:
    from subtext.core import Embeddings

SAMPLES = 4096
"""Items of a side in a background; a smaller side is used in full."""
BEST = 10
"""Best hits that are summed exactly; the rest is estimated from the background."""
SOFTER = 2.0
"""Temperature of the familiarity sign, as a multiple of that of the matches."""

MIN_GROUPS = 100
"""Groups of pairs below which nothing can be fitted and measured."""
MAX_QUERIES = 4000
"""Queries of each modality; sampled where there are more."""
THRESHOLD = 0.05
"""Share of answerable queries for which Subtext wrongly reports that nothing matches."""
STRONG, FAIR = 0.7, 0.3
"""Least percentiles of a strong and of a fair hit, among the best hits of queries that have a match."""
PENALTY = 1e-3
"""L2 penalty of the logistic regression on standardised inputs, in units of one row."""
TEMPERATURES = np.geomspace(0.005, 0.5, 24)
_TOLERANCE = 1e-2
"""Largest difference of an item's vector from the index's of the same id, to count as the same item."""


def best_products(queries: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Best inner products over the views of queries and items.

    Args:
        queries: (Q L D) float32.
        vectors: (N K D) float32.

    Returns:
        (Q N) float32.
    """
    count, views, dim = queries.shape
    if not len(vectors):
        return np.zeros((count, 0), dtype=np.float32)
    products = vectors.reshape(-1, dim) @ queries.reshape(-1, dim).T
    return products.reshape(len(vectors), -1, count, views).max(axis=(1, 3)).T


def sample(view: View, side: Side, count: int, *, seed: int = 0) -> NDArray[np.int64]:
    """A sample of the items of a side. Items that come or go change few of its members.

    Items that come or go change few of them.

    Args:
        view: The index at one moment.
        side: "images" or "texts".
        count: Size of the sample; a smaller side is returned in full.
        seed: Of what is sampled; the same seed samples the same.

    Returns:
        At most `count` int64 keys, ascending.
    """
    keys, name = view.keys(side), f"sample of {count} {side} by {seed}"
    if len(keys) <= count:
        return keys
    if name not in view.cache:
        order = draw.uniform(keys, seed=seed, epoch=0, purpose="index: sample")[:, 0]
        view.cache[name] = np.sort(keys[np.argpartition(order, count)[:count]])
    found: NDArray[np.int64] = view.cache[name]
    return found


@dataclass(frozen=True)
class Background:
    """A sample of one side of an index.

    Attributes:
        keys: (M) ascending.
        vectors: (M K D).
        total: Items of that side.
    """

    keys: NDArray[np.int64]
    vectors: NDArray[np.float32]
    total: int

    @staticmethod
    def of(view: View, side: Side) -> Background:
        """At most `SAMPLES` items of a side, sampled by their keys.

        Args:
            view: The index at one moment.
            side: "images" or "texts".

        Returns:
            At most `SAMPLES` items of the side.
        """
        keys = sample(view, side, SAMPLES)
        return Background(keys, view.vectors(side, keys), view.counts[side])

    def scores(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """(Q M) best scores over the views of (Q L D) queries and of the items.

        Args:
            queries: (Q L D) float32.

        Returns:
            (Q M) float32.
        """
        return best_products(queries, self.vectors)


@dataclass(frozen=True)
class Evidence:
    """The scores that an index gives one query.

    Attributes:
        keys: (T) the best hits, best first.
        scores: See `keys`.
        background: (M) scores of the sampled items, those of the best hits among them as NaN.
        same_side: (M') scores with sampled items of the query's own modality, NaN for those left out; may be empty.
        total: Items that could have been returned.
    """

    keys: NDArray[np.int64]
    scores: NDArray[np.float32]
    background: NDArray[np.float32]
    same_side: NDArray[np.float32]
    total: int

    @staticmethod
    def collect(
        keys: NDArray[np.int64],
        scores: NDArray[np.float32],
        sample: Background,
        background: NDArray[np.float32],
        same_side: NDArray[np.float32],
    ) -> Evidence:
        """The evidence of one query, with the best hits masked in the background.

        Args:
            keys: (T) keys of the best hits.
            scores: (T) scores of the best hits.
            sample: Sampled items of the side.
            background: (M) scores of the sampled items.
            same_side: (M') scores with sampled items of the query's own modality.

        Returns:
            The evidence.
        """
        masked = np.where(np.isin(sample.keys, keys), np.float32(np.nan), background)
        return Evidence(keys, scores, masked, same_side, max(sample.total, len(keys)))

    def level(self, temperature: float) -> float:
        """L = log sum_j exp(s_j / t) over the side: the best hits exactly, the rest estimated from the background.

        Args:
            temperature: t, above 0, in units of the score.

        Returns:
            The level; -inf for an empty side.
        """
        terms = [self.scores.astype(np.float64) / temperature]
        sampled = self.background[~np.isnan(self.background)].astype(np.float64) / temperature
        uncounted = self.total - len(self.scores)
        if uncounted > 0 and len(sampled):
            terms.append(sampled + np.log(uncounted / len(sampled)))
        return float(np.logaddexp.reduce(np.concatenate(terms), initial=-np.inf))

    def signals(self, temperature: float) -> dict[str, float]:
        """Numbers that are larger where the index has a match.

        level     t log sum exp(s / t) over all items: a soft maximum, which many fair matches raise, too
        familiar  2t log mean exp(s / 2t) over items of the query's own modality: whether the index is about such
                  things. Missing where it has none

        Args:
            temperature: t, above 0, in units of the score.

        Returns:
            "level" and, if there are items of the query's modality, "familiar".
        """
        same_side = self.same_side[~np.isnan(self.same_side)].astype(np.float64)
        signals = {"level": temperature * self.level(temperature)}
        if len(same_side):
            softer = SOFTER * temperature
            signals["familiar"] = float(softer * (np.logaddexp.reduce(same_side / softer) - np.log(len(same_side))))
        return signals

    def percentile(self, direction: DirectionCalibration) -> float:
        """Share of answerable queries for which the evidence was as weak as here, or weaker.

        Args:
            direction: The calibration of the direction of search.

        Returns:
            From 0 to 1.
        """
        return percentile_of(
            _weakest_percentile(self.signals(direction.temperature), direction.signal_quantiles), direction.quantiles
        )


def _weakest_percentile(signals: Mapping[str, float], quantiles: Mapping[str, Sequence[float]]) -> float:
    """The lowest percentile of the signals: a query is weak if it is unfamiliar, or if nothing matches it.

    Args:
        signals: Value by name.
        quantiles: Of each sign over answerable queries; signals without quantiles are ignored.

    Returns:
        In [0, 1]; 1 without signals.
    """
    return min(
        (percentile_of(value, quantiles[name]) for name, value in signals.items() if name in quantiles), default=1.0
    )


def percentile_of(value: float, quantiles: Sequence[float]) -> float:
    """Where a value lies in a distribution.

    Args:
        value: The value.
        quantiles: Of the distribution, evenly spaced and rising.

    Returns:
        Share of the distribution that is `value` or less, in [0, 1].
    """
    return float(np.interp(value, quantiles, np.linspace(0, 1, len(quantiles))))


def probabilities(scores: NDArray[np.float32], level: float, direction: DirectionCalibration) -> NDArray[np.float64]:
    """(T) probabilities that the hits of one query are true matches: a logistic, then an isotonic regression.

    Args:
        scores: (T) scores of the hits.
        level: Level of the query; see `Evidence.level`.
        direction: The calibration of the direction of search.

    Returns:
        (T) float64 from 0 to 1.
    """
    scaled = scores.astype(np.float64) / direction.temperature
    return direction.curve(direction.weights[0] * scaled + direction.weights[1] * level + direction.bias)


@dataclass(frozen=True)
class Judgement:
    """The judgement of a calibrated index on one query: its level, and whether anything matches.

    Attributes:
        direction: The calibration of the direction of search; None for a ranker that no given pairs have taught.
        level: Level of the query; see `Evidence.level`.
        fit: Whether there is a good match.
        stale: Fraction of items that changed since the calibration if it is too large; else None.
        best_scores: Quantiles, rising, of the best score of queries that have a match; empty where hits have no level.
    """

    direction: DirectionCalibration | None
    level: float
    fit: Fit
    stale: float | None
    best_scores: Sequence[float] = ()

    def levels(self, scores: NDArray[np.float32]) -> list[Level | None]:
        """How hits with these scores compare with the best hits of queries that have a match.

        Args:
            scores: (T) scores of hits.

        Returns:
            (T) levels; None for each where the judgement has none.
        """
        if not self.best_scores:
            return [None] * len(scores)
        shares = [percentile_of(float(score), self.best_scores) for score in scores]
        return ["strong" if share >= STRONG else "fair" if share >= FAIR else "weak" for share in shares]

    def probabilities(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """(T) probabilities of hits with these scores.

        Args:
            scores: (T) scores of hits.

        Returns:
            (T) float64 from 0 to 1.
        """
        assert self.direction is not None
        return probabilities(scores, self.level, self.direction)


class Confidence:
    """The calibration and the backgrounds of an index at one moment.

    Args:
        view: The index at one moment.
        calibration: None where it has none.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        document = f"calibration {calibration_mark(view)}"
        if document not in view.cache:
            view.cache[document] = stored_calibration(view)
        self.calibration: Calibration | None = view.cache[document]

    def background(self, side: Side) -> Background:
        """A sample of a side.

        Args:
            side: "images" or "texts".

        Returns:
            At most `SAMPLES` items of the side.
        """
        name = f"background of {side}"
        if name not in self.view.cache:
            self.view.cache[name] = Background.of(self.view, side)
        return self.view.cache[name]

    @property
    def stale(self) -> float | None:
        """Share of the items that changed since the calibration, where that is too much; else None."""
        changed = 0.0 if self.calibration is None else changed_since(self.view, self.calibration)
        return changed if changed > STALE else None

    def temperature(self, side: Side) -> float | None:
        """The temperature of the calibration of a side; None without one.

        Args:
            side: The side that is searched.

        Returns:
            In units of the cosine.
        """
        direction = None if self.calibration is None else self.calibration.directions.get(side)
        return None if direction is None else direction.temperature

    def judge(
        self, side: Side, modality: Side, queries: NDArray[np.float32], results: Sequence[Hits]
    ) -> Sequence[Judgement | None]:
        """Judge queries by their best hits.

        Args:
            side: The side that is searched.
            modality: The side that the queries are of.
            queries: (Q L D) float32.
            results: Their best hits of the full side; searched again where there are fewer than `BEST`, or none.

        Returns:
            A judgement per query; None if the index is not calibrated for this modality.
        """
        direction = None if self.calibration is None or side == modality else self.calibration.directions.get(side)
        if direction is None:
            return [None] * len(queries)
        if not results or any(len(result.keys) < min(BEST, self.view.counts[side]) for result in results):
            results = self.view.nearest(side, queries, top=BEST)
        sample, stale = self.background(side), self.stale
        rows = zip(results, sample.scores(queries), self.background(modality).scores(queries), strict=True)
        judgements = []
        for result, scores, same_side in rows:
            evidence = Evidence.collect(result.keys[:BEST], result.scores[:BEST], sample, scores, same_side)
            fit = Fit(evidence.percentile(direction), direction.threshold)
            judgements.append(Judgement(direction, evidence.level(direction.temperature), fit, stale))
        return judgements


@dataclass(frozen=True)
class HeldOutPairs:
    """Embedded pairs that were used neither for training nor for model selection.

    Attributes:
        pairs: The pairs.
        images: Embeddings of the images, in their order.
        texts: Embeddings of the texts, in their order.
    """

    pairs: Dataset
    images: Embeddings
    texts: Embeddings

    def side(self, side: Side) -> tuple[Items, NDArray[np.float32]]:
        """The items of a side with their vectors.

        Args:
            side: "images" or "texts".

        Returns:
            Items, and (N K D) float32 vectors.
        """
        images = side == SIDES[0]
        items, embedded = (self.pairs.images, self.images) if images else (self.pairs.texts, self.texts)
        return items, embedded.vectors.float().numpy()


@dataclass(frozen=True)
class Observations:
    """The hits of an index for Q queries of one modality.

    Attributes:
        evidence: Of each query.
        correct: (T) bool of each: whether a hit is a true match.
        truth: Scores of each with its true matches.
        fitted: (Q) bool: whether the query is in the half that is fitted on.
    """

    evidence: list[Evidence]
    correct: list[NDArray[np.bool_]]
    truth: list[NDArray[np.float64]]
    fitted: NDArray[np.bool_]


def fit_calibration(store: Store, held_out: HeldOutPairs, *, data: Mapping[str, Any], seed: int = 0) -> Calibration:
    """Calibrate an index by held-out pairs.

    Args:
        store: The index.
        held_out: The pairs with their embeddings.
        data: Where the pairs came from, as plain data.
        seed: Of the halves and of random pairs.

    Returns:
        The calibration. Its metrics per direction: "queries", "hits", "correct" (share of correct hits),
        "calibration_error" (also "_equal_counts" and "_first"), "brier", "brier_baseline", and "false_no_match" (share
        of answerable queries below the threshold).

    Raises:
        DataError: For fewer than `MIN_GROUPS` groups of pairs.
        RequirementError: If scores do not tell right from wrong at all.
    """
    pairs = held_out.pairs
    groups = len(np.intersect1d(pairs.images.groups, pairs.texts.groups))
    if groups < MIN_GROUPS:
        raise DataError(
            f"calibration needs {MIN_GROUPS} held-out images with texts, or more; it got {groups}; give more pairs"
        )
    with store.reading() as view:
        counts = {side: view.counts[side] for side in SIDES}
        last = {side: int(view.keys(side).max(initial=0)) for side in SIDES}
        directions = {side: fit_direction(observe(view, held_out, side, seed=seed)) for side in SIDES if counts[side]}
    return Calibration(
        directions=directions,
        pairs=fit_pair_curve(held_out, seed=seed),
        data={**data, "images": len(pairs.images), "texts": len(pairs.texts), "groups": groups},
        counts=counts,
        last=last,
        identity=store.manifest.identity,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def observe(view: View, held_out: HeldOutPairs, side: Side, *, seed: int = 0) -> Observations:
    """Search one side with the held-out items of the other that have a true match.

    Args:
        view: The index at one moment.
        held_out: The pairs with their embeddings.
        side: "images" or "texts".
        seed: Of the sampled queries and of the halves.

    Returns:
        Evidence and true matches of each query.
    """
    items, vectors = held_out.side(side)
    query_items, queries = held_out.side(opposite(side))
    rows = np.flatnonzero(np.isin(query_items.groups, items.groups)).astype(np.int64)
    order = draw.uniform(query_items.keys[rows], seed=seed, epoch=0, purpose="calibration: queries")[:, 0]
    rows = np.sort(rows[np.argsort(order, kind="stable")[:MAX_QUERIES]])
    keys = _index_keys(view, side, items, vectors)
    missing = np.flatnonzero(keys < 0)
    group_of = dict(zip(keys.tolist(), items.groups.tolist(), strict=True))
    sample, own_sample = Background.of(view, side), Background.of(view, opposite(side))
    # The items that the index lacks count as added to it.
    sample = replace(sample, total=sample.total + len(missing))
    groups = dict(zip(query_items.ids, query_items.groups.tolist(), strict=True))
    own_items = view.items(opposite(side), own_sample.keys)
    own_groups = np.array([groups.get(item.id, -1) for item in own_items], dtype=np.int64)
    results = view.nearest(side, queries[rows], top=BEST)
    observations = Observations([], [], [], _first_half(query_items.groups[rows], seed))
    for start in range(0, len(rows), 256):
        block = rows[start : start + 256]
        scores, own_scores = sample.scores(queries[block]), own_sample.scores(queries[block])
        missing_scores = best_products(queries[block], vectors[missing])
        for offset, row in enumerate(block.tolist()):
            hits, group = results[start + offset], query_items.groups[row]
            all_keys = np.concatenate([hits.keys, keys[missing]])
            all_scores = np.concatenate([hits.scores, missing_scores[offset]])
            best = np.argsort(-all_scores, kind="stable")[:BEST]
            # Captions of the query's own image do not show that the index knows such queries.
            own_scores[offset, own_groups == group] = np.nan
            observations.evidence.append(
                Evidence.collect(all_keys[best], all_scores[best], sample, scores[offset], own_scores[offset])
            )
            observations.correct.append(np.array([group_of.get(key) == group for key in all_keys[best].tolist()]))
            matches = vectors[items.groups == group]
            observations.truth.append(best_products(queries[row : row + 1], matches)[0].astype(np.float64))
    return observations


def _index_keys(view: View, side: Side, items: Items, vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """The key of each item in the index; a key below 0 for an item that is not there, or has another vector there."""
    keys_of = view.keys_of(side, items.ids)
    keys = np.array([keys_of.get(name, -1 - row) for row, name in enumerate(items.ids)], dtype=np.int64)
    stored = np.flatnonzero(keys >= 0)
    if len(stored):
        difference = np.abs(view.vectors(side, keys[stored]) - vectors[stored]).max(axis=(1, 2))
        changed = stored[difference > _TOLERANCE]
        keys[changed] = -1 - changed
    return keys


def fit_direction(observed: Observations, *, temperatures: NDArray[np.float64] = TEMPERATURES) -> DirectionCalibration:
    """The calibration of one direction of search, fitted on one half of the queries and measured on the other.

    Args:
        observed: The hits of the queries.
        temperatures: To choose from, in units of the scores.

    Returns:
        The calibration with its measurements.

    Raises:
        RequirementError: If scores do not tell right from wrong.
    """
    rows = np.flatnonzero(observed.fitted)
    evidence = [observed.evidence[row] for row in rows]
    truth = [observed.truth[row] for row in rows]
    # The temperature that makes the true matches likeliest: mean log of sum_true exp(s / t) / sum exp(s / t).
    likelihoods = [
        np.mean([
            np.logaddexp.reduce(scores / temperature) - query.level(temperature)
            for scores, query in zip(truth, evidence, strict=True)
        ])
        for temperature in temperatures
    ]  # fmt: skip
    temperature = float(temperatures[int(np.argmax(likelihoods))])
    signals = [query.signals(temperature) for query in evidence]
    steps = np.linspace(0, 1, 101)
    signal_quantiles = {name: np.quantile([values[name] for values in signals], steps).tolist() for name in signals[0]}
    quantiles = np.quantile([_weakest_percentile(values, signal_quantiles) for values in signals], steps).tolist()
    correct = np.concatenate([observed.correct[row] for row in rows])
    if correct.all() or not correct.any():
        raise RequirementError(
            "calibration needs hits that are right and hits that are wrong; of "
            f"{len(correct):,} among the first {BEST} {int(correct.sum()):,} are right; the "
            "index does not find what these pairs say, or holds nothing else"
        )
    levels = [np.full(len(query.scores), query.level(temperature)) for query in evidence]
    scores = np.concatenate([query.scores / temperature for query in evidence])
    inputs = np.stack([scores, np.concatenate(levels)], axis=1).astype(np.float64)
    weights, bias = fit_logistic(inputs, correct)
    if weights[0] <= 0:
        raise RequirementError(
            "calibration needs larger scores to be right more often; here they are not; train longer"
        )
    xs, ys = fit_isotonic(inputs @ weights + bias, correct)
    slopes = (float(weights[0]), float(weights[1]))
    direction = DirectionCalibration(
        temperature, slopes, bias, {"xs": xs, "ys": ys}, signal_quantiles, quantiles, THRESHOLD, {}
    )
    return _measured(observed, direction)


def fit_logistic(inputs: NDArray[np.float64], truth: NDArray[np.bool_]) -> tuple[NDArray[np.float64], float]:
    """Logistic regression with standardised inputs, by scikit-learn.

    The inputs are standardised; the small L2 penalty bounds the weights where the classes do not overlap.

    Args:
        inputs: (N F) float64.
        truth: (N) bool.

    Returns:
        (F) weights and the bias, for inputs that are not standardised.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(inputs)
    model = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky", tol=1e-9)
    model.fit(scaler.transform(inputs), truth)
    weights: NDArray[np.float64] = model.coef_[0] / scaler.scale_
    return weights, float(model.intercept_[0] - weights @ scaler.mean_)


def fit_isotonic(values: NDArray[np.float64], truth: NDArray[np.bool_]) -> tuple[list[float], list[float]]:
    """Isotonic regression (Zadrozny and Elkan 2002), by scikit-learn.

    Levels stay 1 / (n + 2) away from 0 and 1, where n of the values are true: so few cannot make certain.

    Args:
        values: (N) float64.
        truth: (N) bool.

    Returns:
        xs and ys, the points of a rising curve.
    """
    from sklearn.isotonic import IsotonicRegression

    curve = IsotonicRegression().fit(values, truth.astype(np.float64))
    least = 1 / (int(truth.sum()) + 2)
    return curve.X_thresholds_.tolist(), np.clip(curve.y_thresholds_, least, 1 - least).tolist()


def _measured(observed: Observations, direction: DirectionCalibration) -> DirectionCalibration:
    """The calibration with its figures, on the queries that it was not fitted on."""
    rows = np.flatnonzero(~observed.fitted)
    evidence, correct = [observed.evidence[row] for row in rows], [observed.correct[row] for row in rows]
    predicted = [probabilities(query.scores, query.level(direction.temperature), direction) for query in evidence]
    probability, truth = np.concatenate(predicted), np.concatenate(correct)
    first, first_truth = np.array([own[0] for own in predicted]), np.array([own[0] for own in correct])
    bins = reliability(probability, truth)
    figures = {
        "queries": float(len(rows)),
        "hits": float(len(truth)),
        "correct": float(truth.mean()),
        "calibration_error": bins.error,
        "calibration_error_equal_counts": reliability(probability, truth, equal="count").error,
        "calibration_error_first": reliability(first, first_truth).error,
        "brier": float(np.mean((probability - truth) ** 2)),
        "brier_baseline": float(truth.mean() * (1 - truth.mean())),
        "false_no_match": float(np.mean([query.percentile(direction) < direction.threshold for query in evidence])),
    }
    plot = {name: getattr(bins, name).astype(float).tolist() for name in ("predicted", "came_true", "counts")}
    return replace(direction, metrics=figures, bins=plot)


def fit_pair_curve(held_out: HeldOutPairs, *, seed: int = 0) -> dict[str, Any]:
    """A pair's cosine as the probability that it is right, where as many pairs are right as are random.

    A random pair is an image and the text of another group. The points "xs" and "ys" are fitted on one half of the
    groups; "calibration_error", "brier" and "pairs" are of the other.

    Args:
        held_out: The pairs with their embeddings.
        seed: Of the halves and of random pairs.

    Returns:
        "xs" and "ys", and the measurements "calibration_error", "brier" and "pairs".
    """
    links = held_out.pairs.links
    images, texts = held_out.side("images")[1], held_out.side("texts")[1]
    groups = held_out.pairs.images.groups[links[:, 0]]
    first = _first_half(groups, seed)
    order = np.argsort(draw.uniform(groups, seed=seed, epoch=0, purpose="calibration: chance")[:, 0], kind="stable")

    def half(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cosines of the right pairs of a half, then of as many random ones; and which are right."""
        rows = order[chosen[order]]
        shift = int(np.unique(groups[rows], return_counts=True)[1].max(initial=1))
        image_rows, text_rows = links[rows, 0], links[rows, 1]
        cosines = [
            np.einsum("nkd,nld->nkl", images[image_rows], texts[others]).max(axis=(1, 2))
            for others in (text_rows, np.roll(text_rows, shift))
        ]
        return np.concatenate(cosines).astype(np.float64), np.arange(2 * len(rows)) < len(rows)

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


def _first_half(groups: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """(N) whether each row is in the half that is fitted on; rows of a group stay together."""
    return draw.uniform(groups, seed=seed, epoch=0, purpose="calibration: half")[:, 0] < 0.5
