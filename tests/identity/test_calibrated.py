"""What turns scores into probabilities and other orders, beside slow plain ways to the same numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from subtext.ops.isotonic import rising
from subtext.ops.logistic import logistic, sigmoid

from subtext.errors import ShapeError
from subtext.ops.reliability import reliability
from subtext.ops.reorder import fuse_ranks, inverted_softmax, local_scaling, spread_out


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
def test_isotonic_regression_is_the_minimax_formula(seed):
    random = np.random.default_rng(seed)
    values = random.integers(0, 15, 40).astype(float)
    seen, weights = random.random(40), random.random(40) + 0.1
    found = rising(values, seen, weights)
    wanted = plain_rising(values, seen, weights)
    np.testing.assert_allclose(found(np.array(list(wanted))), list(wanted.values()), atol=1e-12)
    assert (np.diff(found.ys) >= 0).all() and (np.diff(found.xs) >= 0).all()


def test_isotonic_regression_refuses_what_is_no_number():
    with pytest.raises(ShapeError, match="all finite; it got 2"):
        rising(np.array([0.0, np.nan]), np.array([0.0, 1.0]))


def test_logistic_regression_is_where_the_likelihood_is_level():
    random = np.random.default_rng(0)
    numbers = random.standard_normal((500, 2)) * [1, 30] + [5, 0]
    truth = random.random(500) < sigmoid(numbers @ np.array([1.5, -0.05]) - 7)
    found = logistic(numbers, truth, penalty=0.0)
    rest = truth - found(numbers)
    assert abs(rest.sum()) < 1e-6 and np.abs(numbers.T @ rest).max() < 1e-4
    np.testing.assert_allclose(found.weights, [1.5, -0.05], rtol=0.3)
    # Classes that do not overlap: held by the penalty, and still finite.
    split = logistic(np.array([[0.0], [1.0]]), np.array([False, True]))
    assert np.isfinite(split.weights).all() and split(np.array([[1.0]]))[0] > 0.9
    with pytest.raises(ShapeError, match="rows of both outcomes"):
        logistic(np.ones((3, 1)), np.array([True, True, True]))


@pytest.mark.parametrize("equal", ["width", "count"])
def test_calibration_error_is_the_plain_sum(equal):
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


def test_perfect_probabilities_have_little_error_and_sure_wrong_ones_all():
    said = np.linspace(0, 1, 20_000)
    truth = np.random.default_rng(2).random(20_000) < said
    assert reliability(said, truth).error < 0.02
    assert reliability(np.ones(5), np.zeros(5, bool)).error == 1.0
    with pytest.raises(ShapeError, match="from 0 to 1"):
        reliability(np.array([1.5]), np.array([True]))


def test_ranks_are_fused_as_the_sum_of_reciprocals():
    lists = [[3, 1, 2], [2, 9], []]
    fused = fuse_ranks(lists)
    for key in (1, 2, 3, 9):
        wanted = sum(1 / (60 + each.index(key) + 1) for each in lists if key in each)
        assert fused[key] == pytest.approx(wanted)


def test_hubs_are_held_back_by_what_a_loop_says():
    random = np.random.default_rng(3)
    scores, crowd = random.random(6), random.random((6, 30))
    wanted = [2 * s - sum(sorted(row)[-10:]) / 10 for s, row in zip(scores, crowd, strict=True)]
    np.testing.assert_allclose(local_scaling(scores, crowd), wanted)
    soft = [s / 0.1 - np.log(sum(np.exp(v / 0.1) for v in row)) for s, row in zip(scores, crowd, strict=True)]
    np.testing.assert_allclose(inverted_softmax(scores, crowd, temperature=0.1), soft)
    np.testing.assert_allclose(local_scaling(scores, np.zeros((6, 0))), 2 * scores)


@pytest.mark.parametrize("diversity", [0.0, 0.3, 1.0])
def test_spreading_out_is_the_plain_greedy_loop(diversity):
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
