"""What turns scores into probabilities and other orders, beside slow plain ways to the same numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from stored_items import made

from subtext.data.dataset import Items
from subtext.errors import RequirementError, ShapeError
from subtext.ops.roc import reliability
from subtext.retrieval.answer import Fit
from subtext.retrieval.calibration import DirectionCalibration
from subtext.retrieval.confidence import (
    FAIR,
    PENALTY,
    STRONG,
    Background,
    Evidence,
    Judgement,
    Observations,
    _index_keys,
    _measured,
    best_products,
    fit_direction,
    fit_isotonic,
    fit_logistic,
    probabilities,
)
from subtext.retrieval.query import inverted_softmax, local_scaling, spread_out

pytestmark = pytest.mark.identity


def plain_rising(values: np.ndarray, seen: np.ndarray, weights: np.ndarray) -> dict[float, float]:
    """The minimax formula: at the k-th value the greatest over starts of the least over ends of the mean between."""
    xs = np.unique(values)
    mass = [weights[values == x].sum() for x in xs]
    total = [(weights * seen)[values == x].sum() for x in xs]
    found = {}
    for k, x in enumerate(xs):
        means = [
            min(sum(total[start : end + 1]) / sum(mass[start : end + 1]) for end in range(k, len(xs)))
            for start in range(k + 1)
        ]
        found[float(x)] = max(means)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_isotonic_regression_equals_minimax_formula(seed):
    """Within 1e-12 of the formula, which our own pool of adjacent violators met before scikit-learn took its place."""
    random = np.random.default_rng(seed)
    values = random.integers(0, 15, 40).astype(float)
    seen = random.random(40) < 0.2 + values / 25
    xs, ys = fit_isotonic(values, seen)
    wanted = plain_rising(values, seen.astype(float), np.ones(40))
    least = 1 / (seen.sum() + 2)
    plain = np.clip(list(wanted.values()), least, 1 - least)
    np.testing.assert_allclose(np.interp(list(wanted), xs, ys), plain, atol=1e-12)
    assert (np.diff(ys) >= 0).all() and (np.diff(xs) >= 0).all()
    weights = random.random(40) + 0.1
    model = IsotonicRegression(out_of_bounds="clip").fit(values, seen, sample_weight=weights)
    wanted = plain_rising(values, seen.astype(float), weights)
    np.testing.assert_allclose(model.predict(list(wanted)), list(wanted.values()), atol=1e-12)


def test_logistic_regression_gradient_vanishes_at_fit():
    """The gradient vanishes; our own Newton's method gave the same weights within 3e-7 where classes overlap."""
    random = np.random.default_rng(0)
    numbers = random.standard_normal((500, 2)) * [1, 30] + [5, 0]
    truth = random.random(500) < 1 / (1 + np.exp(7 - numbers @ np.array([1.5, -0.05])))
    weights, bias = fit_logistic(numbers, truth)
    rest = truth - 1 / (1 + np.exp(-(numbers @ weights + bias)))
    spread = numbers.std(axis=0)
    slope = ((numbers - numbers.mean(axis=0)) / spread).T @ rest - PENALTY * weights * spread
    assert abs(rest.sum()) < 1e-5 and np.abs(slope).max() < 1e-5
    np.testing.assert_allclose(weights, [1.5, -0.05], rtol=0.3)
    # Classes that do not overlap: the penalty keeps the weights finite.
    weights, bias = fit_logistic(np.array([[0.0], [1.0]]), np.array([False, True]))
    assert np.isfinite(weights).all() and weights[0] + bias > 2


@pytest.mark.parametrize("equal", ["width", "count"])
def test_calibration_error_equals_plain_sum(equal):
    random = np.random.default_rng(1)
    said = random.random(999) ** 3
    truth = random.random(999) < said**1.5
    found = reliability(said, truth, bins=7, equal=equal)
    edges = np.linspace(0, 1, 8) if equal == "width" else np.quantile(said, np.linspace(0, 1, 8))
    total = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (said >= low) & (said < high) if equal == "width" else (said > low) & (said <= high)
        if equal == "count" and low == edges[0]:
            inside |= said == low
        total += inside.mean() * abs(said[inside].mean() - truth[inside].mean()) if inside.any() else 0.0
    assert found.error == pytest.approx(total, abs=1e-12)
    assert found.counts.sum() == 999


def test_reliability_error_of_perfect_and_wrong_probabilities():
    said = np.linspace(0, 1, 20_000)
    truth = np.random.default_rng(2).random(20_000) < said
    assert reliability(said, truth).error < 0.02
    assert reliability(np.ones(5), np.zeros(5, bool)).error == 1.0
    with pytest.raises(ShapeError, match="from 0 to 1"):
        reliability(np.array([1.5]), np.array([True]))


def test_hubness_correction_equals_plain_loop():
    random = np.random.default_rng(3)
    scores, crowd = random.random(6), random.random((6, 30))
    wanted = [2 * s - sum(sorted(row)[-10:]) / 10 for s, row in zip(scores, crowd, strict=True)]
    np.testing.assert_allclose(local_scaling(scores, crowd), wanted)
    soft = [s / 0.1 - np.log(sum(np.exp(v / 0.1) for v in row)) for s, row in zip(scores, crowd, strict=True)]
    np.testing.assert_allclose(inverted_softmax(scores, crowd, temperature=0.1), soft)
    np.testing.assert_allclose(local_scaling(scores, np.zeros((6, 0))), 2 * scores)


@pytest.mark.parametrize("diversity", [0.0, 0.3, 1.0])
def test_diversification_equals_plain_greedy_loop(diversity):
    random = np.random.default_rng(4)
    vectors = random.standard_normal((12, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    worth, alike = random.random(12), vectors @ vectors.T
    scaled = (worth - worth.min()) / np.ptp(worth)
    chosen: list[int] = []
    while len(chosen) < 7:
        value = {
            place: (1 - diversity) * scaled[place]
            - (diversity * max(alike[place, other] for other in chosen) if chosen else 0)
            for place in range(12)
            if place not in chosen
        }
        chosen.append(max(value, key=value.__getitem__))
    assert spread_out(worth, alike, count=7, diversity=diversity).tolist() == chosen
    if diversity == 0:
        assert chosen == np.argsort(-worth)[:7].tolist()
    assert len(spread_out(np.zeros(0), np.zeros((0, 0)), count=3, diversity=0.5)) == 0


def evidence(total: int = 20, same_side: tuple[float, ...] = (0.2, np.nan, -0.1)) -> Evidence:
    """Two best hits; of a background of five the first of them, keys 3 and 5 being drawn into it."""
    sample = Background(np.array([1, 3, 5, 7, 9]), np.zeros((5, 1, 2), np.float32), total)
    scores = np.array([0.1, 0.9, 0.8, 0.3, -0.2], np.float32)
    same = np.array(same_side, np.float32)
    return Evidence.collect(np.array([3, 5]), np.array([0.9, 0.8], np.float32), sample, scores, same)


def test_evidence_level_equals_log_sum_with_background():
    for temperature in (0.05, 0.5):
        rest = np.mean([np.exp(s / temperature) for s in np.array([0.1, 0.3, -0.2], np.float32).astype(float)])
        best = sum(np.exp(s / temperature) for s in np.array([0.9, 0.8], np.float32).astype(float))
        assert evidence().level(temperature) == pytest.approx(np.log(best + 18 * rest), abs=1e-9)
        assert evidence(total=2).level(temperature) == pytest.approx(np.log(best), abs=1e-9), "there is no rest"
        assert evidence(total=1).level(temperature) == pytest.approx(np.log(best), abs=1e-9), "hits count in any case"
        assert evidence(total=3).level(temperature) == pytest.approx(np.log(best + rest), abs=1e-9)


def test_signals_and_probabilities_equal_plain_formulas():
    signs = evidence().signals(0.25)
    familiar = 0.5 * np.log((np.exp(np.float32(0.2) / 0.5) + np.exp(np.float32(-0.1) / 0.5)) / 2)
    assert signs == {"level": pytest.approx(0.25 * evidence().level(0.25)), "familiar": pytest.approx(familiar)}
    assert set(evidence(same_side=()).signals(0.25)) == {"level"}
    steps = {"xs": [-1.0, 1.0], "ys": [0.2, 0.6]}
    low, high = np.linspace(-9, 9, 101).tolist(), np.linspace(5, 6, 101).tolist()
    quantiles = np.linspace(0, 1, 101).tolist()
    direction = DirectionCalibration(
        0.25, (2.0, -0.5), 0.1, steps, {"level": low, "familiar": high}, quantiles, 0.05, {}
    )
    assert evidence().percentile(direction) == 0, "the weaker of both"
    alone = evidence(same_side=()).percentile(direction)
    assert alone == pytest.approx((evidence().signals(0.25)["level"] + 9) / 18, abs=1e-9)
    unknown = DirectionCalibration(0.25, (2.0, -0.5), 0.1, steps, {}, [0.0, 0.5, 1.0], 0.05, {})
    assert evidence().percentile(unknown) == 1
    scores = np.array([0.0, 0.1], np.float32)
    log_odds = [2.0 * float(score) / 0.25 - 0.5 * 0.4 + 0.1 for score in scores]
    wanted = [0.2 + 0.4 * (value + 1) / 2 for value in log_odds]
    assert probabilities(scores, 0.4, direction).tolist() == pytest.approx(wanted, abs=1e-7)


def test_levels_are_percentiles_among_best_scores_of_answered_queries():
    quantiles = np.linspace(0, 10, 101).tolist()
    judged = Judgement(None, 0.0, Fit(1.0, 0.05), None, quantiles)
    scores = np.array([12, 10 * STRONG, 6.9, 10 * FAIR, 2.9, -4], dtype=np.float32)
    assert judged.levels(scores) == ["strong", "strong", "fair", "fair", "weak", "weak"]
    assert Judgement(None, 0.0, Fit(1.0, 0.05), None).levels(scores) == [None] * 6


def test_best_products_use_best_views():
    random = np.random.default_rng(1)
    queries, vectors = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 2, 4), (5, 3, 4)))
    wanted = [[max(float(a @ b) for a in query for b in item) for item in vectors] for query in queries]
    np.testing.assert_allclose(best_products(queries, vectors), wanted, rtol=1e-5)
    assert best_products(queries, vectors[:0]).shape == (3, 0)


@pytest.fixture(scope="module")
def observed() -> Observations:
    """Ninety questions at 200 items, two of three fitted on; the better a hit scores, the oftener it is right."""
    random = np.random.default_rng(5)
    evidences, correct, truth = [], [], []
    for _ in range(90):
        scores = np.sort(random.normal(0.4, 0.2, 4).astype(np.float32))[::-1].copy()
        rest, same = random.normal(0, 0.15, 30).astype(np.float32), random.normal(0.1, 0.2, 9).astype(np.float32)
        evidences.append(Evidence(np.arange(4), scores, rest, same, 200))
        correct.append(random.random(4) < 1 / (1 + np.exp(4 - 10 * scores)))
        truth.append(random.normal(0.5, 0.1, 2))
    return Observations(evidences, correct, truth, np.arange(90) % 3 > 0)


def test_calibration_fit_equals_plain_formulas(observed: Observations):
    direction = fit_direction(observed)
    rows = [row for row in range(90) if row % 3]
    gains = []
    temperatures = np.geomspace(0.005, 0.5, 24)
    for temperature in temperatures:
        of_rows = [
            np.log(np.exp(observed.truth[row] / temperature).sum()) - observed.evidence[row].level(temperature)
            for row in rows
        ]
        gains.append(sum(of_rows))
    assert direction.temperature == temperatures[int(np.argmax(gains))] and 0 < np.argmax(gains) < len(gains) - 1
    signs = [observed.evidence[row].signals(direction.temperature) for row in rows]
    for name in ("level", "familiar"):
        values = sorted(sign[name] for sign in signs)
        np.testing.assert_allclose(direction.signal_quantiles[name], np.quantile(values, np.arange(101) / 100))
    weakest = [
        min(float(np.interp(sign[name], direction.signal_quantiles[name], np.arange(101) / 100)) for name in sign)
        for sign in signs
    ]
    np.testing.assert_allclose(direction.quantiles, np.quantile(weakest, np.arange(101) / 100), atol=1e-12)
    inputs = np.array([
        [score / direction.temperature, observed.evidence[row].level(direction.temperature)]
        for row in rows for score in observed.evidence[row].scores
    ], np.float64)  # fmt: skip
    right = np.concatenate([observed.correct[row] for row in rows])
    weights, bias = fit_logistic(inputs, right)
    assert direction.weights == pytest.approx(tuple(weights), rel=1e-4) and direction.bias == pytest.approx(
        bias, rel=1e-3
    )
    xs, ys = fit_isotonic(inputs @ weights + bias, right)
    np.testing.assert_allclose(direction.curve(np.array(xs)), ys, atol=1e-3)
    assert direction.threshold == 0.05


def test_calibration_metrics_equal_plain_formulas_on_held_out_half(observed: Observations):
    direction, rows = fit_direction(observed), [row for row in range(90) if row % 3 == 0]
    of_rows = [(observed.evidence[row], observed.correct[row]) for row in rows]
    told = [probabilities(each.scores, each.level(direction.temperature), direction) for each, _ in of_rows]
    said, right = np.concatenate(told), np.concatenate([own for _, own in of_rows]).astype(float)
    share = right.sum() / len(right)
    gaps = [each.percentile(direction) < 0.05 for each, _ in of_rows]
    plot = reliability(said, right > 0)
    assert direction.metrics == pytest.approx({
        "queries": 30, "hits": 120, "correct": share, "calibration_error": plot.error,
        "calibration_error_equal_counts": reliability(said, right > 0, equal="count").error,
        "calibration_error_first": reliability(
            np.array([own[0] for own in told]), np.array([own[0] for _, own in of_rows])
        ).error,
        "brier": sum((said - right) ** 2) / 120, "brier_baseline": share - share**2, "false_no_match": sum(gaps) / 30,
    })  # fmt: skip
    for limit in {each.percentile(direction) for each, _ in of_rows}:
        below = [each.percentile(direction) < limit for each, _ in of_rows]
        assert _measured(observed, replace(direction, threshold=limit)).metrics["false_no_match"] == sum(below) / 30
    assert {name: len(values) for name, values in direction.bins.items()} == dict.fromkeys(
        direction.bins, len(plot.counts)
    )
    assert set(direction.bins) == {"predicted", "came_true", "counts"} and sum(direction.bins["counts"]) == 120


def test_degenerate_hits_raise_instead_of_fitting(observed: Observations):
    for correct, told in (
        ([np.ones(4, bool)] * 90, "of 240 among the first 10 240 are right"),
        ([np.zeros(4, bool)] * 90, "of 240 among the first 10 0 are right"),
        ([~own for own in observed.correct], "needs larger scores to be right more often"),
    ):
        with pytest.raises(RequirementError, match=told):
            fit_direction(replace(observed, correct=correct))


def test_index_item_matches_vector_within_0_01(tmp_path):
    names = ["p0", "p1", "x", "p2"]
    items = Items(names, [None] * 4, np.arange(4), np.array(["held"] * 4))
    with made(tmp_path / "index", pictures=3, words=0).reading() as view:
        keys = view.keys_of("images", names)
        vectors = view.vectors("images", np.array([keys[name] for name in ("p0", "p1", "p1", "p2")]))
        vectors[0, 1, 2] += 0.009
        vectors[1, 0, 0] += 0.011
        assert _index_keys(view, "images", items, vectors).tolist() == [keys["p0"], -2, -3, keys["p2"]]
