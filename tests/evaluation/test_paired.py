"""Paired tests beside plain loops, and what they have to say when nothing or everything differs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import t as student, ttest_ind

from subtext.errors import ShapeError
from subtext.evaluation.intervals import holm, paired

pytestmark = pytest.mark.identity


def exact_p(mine: np.ndarray, theirs: np.ndarray, clusters: np.ndarray) -> float:
    """The same question asked of every sign change there is."""
    gaps = (mine - theirs).mean(axis=0)
    sums = [gaps[clusters == name].sum() for name in np.unique(clusters)]
    seen = abs(sum(sums))
    found = [
        abs(sum(sign * value for sign, value in zip(signs, sums, strict=True))) >= seen - 1e-9
        for signs in itertools.product((-1, 1), repeat=len(sums))
    ]
    return float(np.mean(found))


def drawn(seeds: int = 3, pictures: int = 12, lift: float = 0.2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(pictures), 2)
    theirs = rng.random((seeds, len(clusters)))
    return theirs + lift * rng.normal(0.5, 1, theirs.shape), theirs, clusters


def test_p_value_equals_all_sign_changes() -> None:
    mine, theirs, clusters = drawn()
    found = paired(mine, theirs, clusters, samples=20_000)
    assert found.p_queries == pytest.approx(exact_p(mine, theirs, clusters), abs=0.01)
    assert found.difference == pytest.approx((mine - theirs).mean())
    assert (found.images, found.seeds) == (12, 3)


def test_interval_of_two_trainings_draws_images_alone() -> None:
    mine, theirs, clusters = drawn(seeds=2)
    rng = np.random.default_rng(0)
    gaps = (mine - theirs).mean(axis=0)
    means = []
    for _ in range(4000):
        queries = np.concatenate([np.flatnonzero(clusters == picture) for picture in rng.integers(0, 12, 12)])
        means.append(gaps[queries].mean())
    found = paired(mine, theirs, clusters, samples=4000)
    assert [found.low, found.high] == pytest.approx(np.percentile(means, [2.5, 97.5]).tolist(), abs=0.015)
    assert np.isnan(found.p_runs) and found.p_value == found.p_queries


def crossed(table: np.ndarray) -> tuple[float, float]:
    """Error of the mean of a table of trainings and images, and its degrees of freedom, by the textbook's sums."""
    runs, images = table.shape
    grand, by_run, by_image = table.mean(), table.mean(axis=1), table.mean(axis=0)
    of_runs = sum(images * (by_run[s] - grand) ** 2 for s in range(runs)) / (runs - 1)
    of_images = sum(runs * (by_image[c] - grand) ** 2 for c in range(images)) / (images - 1)
    rest = sum(
        (table[s, c] - by_run[s] - by_image[c] + grand) ** 2 for s, c in itertools.product(range(runs), range(images))
    ) / ((runs - 1) * (images - 1))
    freedom = [runs - 1, images - 1, (runs - 1) * (images - 1)]
    if of_runs < rest:
        of_runs, freedom[0] = rest, freedom[2]
    if of_images < rest:
        of_images, freedom[1] = rest, freedom[2]
    squares = [of_runs, of_images, rest]
    variance = (of_runs + of_images - rest) / (runs * images)
    bottom = sum((square / (runs * images)) ** 2 / each for square, each in zip(squares, freedom, strict=True))
    return variance**0.5, variance**2 / bottom


@pytest.mark.parametrize("run_spread", [0.0, 0.5])
def test_interval_of_three_trainings_equals_crossed_random_effects(run_spread: float) -> None:
    rng = np.random.default_rng(1)
    table = 0.3 + run_spread * rng.normal(size=(3, 1)) + rng.normal(size=(1, 14)) + rng.normal(size=(3, 14))
    mine, clusters = np.repeat(table, 2, axis=1), np.repeat(np.arange(14), 2)
    found = paired(mine, np.zeros_like(mine), clusters)
    error, freedom = crossed(table)
    half = student.ppf(0.975, freedom) * error
    assert [found.low, found.high] == pytest.approx([table.mean() - half, table.mean() + half])
    assert found.p_value == found.p_runs == pytest.approx(2 * student.sf(abs(table.mean()) / error, freedom))


@pytest.mark.parametrize("spreads", [(1.0, 0.1, 0.5), (0.1, 1.0, 0.5), (0.0, 0.0, 1.0)])
def test_interval_covers_true_difference_in_95_percent(spreads: tuple[float, float, float]) -> None:
    of_runs, of_images, rest = spreads
    rng, inside = np.random.default_rng(2), []
    clusters = np.repeat(np.arange(20), rng.integers(1, 4, 20))
    for _ in range(400):
        image = of_images * rng.normal(size=20)
        mine = of_runs * rng.normal(size=(5, 1)) + image[clusters] + rest * rng.normal(size=(5, len(clusters)))
        found = paired(mine, np.zeros_like(mine), clusters, samples=1)
        inside.append(found.low <= 0 <= found.high)
    assert np.mean(inside) > 0.92


def test_equal_values_have_p_value_one() -> None:
    _, theirs, clusters = drawn()
    found = paired(theirs, theirs, clusters, samples=200)
    assert (found.difference, found.low, found.high, found.p_queries, found.p_runs) == (0, 0, 0, 1, 1)


def test_constant_difference_is_significant() -> None:
    _, theirs, clusters = drawn(pictures=30)
    found = paired(theirs + 0.1, theirs, clusters)
    assert found.low == pytest.approx(0.1) and found.p_queries == pytest.approx(1 / 2001) and found.p_runs < 1e-9
    turned = paired(theirs, theirs + 0.1, clusters)
    assert turned.difference == -found.difference and turned.p_queries == found.p_queries


def test_queries_with_nan_are_dropped_on_both_sides() -> None:
    mine, theirs, clusters = drawn()
    mine[1, 3] = np.nan
    kept = np.arange(mine.shape[1]) != 3
    assert paired(mine, theirs, clusters) == paired(mine[:, kept], theirs[:, kept], clusters[kept])


def test_few_images_have_no_interval_or_p_value() -> None:
    mine, theirs, clusters = drawn(pictures=9)
    found = paired(mine, theirs, clusters)
    assert found.difference > 0 and np.isnan([found.low, found.high, found.p_queries, found.p_runs]).all()


def test_values_of_other_queries_raise() -> None:
    mine, theirs, clusters = drawn()
    with pytest.raises(ShapeError, match=r"same seeds and queries.*\(3, 24\), \(2, 24\) and \(24,\)"):
        paired(mine, theirs[:2], clusters)
    with pytest.raises(ShapeError, match="there is none"):
        paired(mine * np.nan, theirs, clusters)


def test_holm_ignores_nan_and_keeps_order() -> None:
    assert holm([0.01, 0.04, 0.03, float("nan")])[:3] == pytest.approx([0.03, 0.06, 0.06])
    assert np.isnan(holm([float("nan")])[0]) and holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]


def test_variances_of_unpaired_trainings_add_up() -> None:
    rng = np.random.default_rng(3)
    mine, theirs = 0.2 + rng.normal(size=(4, 1)) + rng.random((4, 12)), rng.normal(size=(3, 1)) + rng.random((3, 12))
    found = paired(mine, theirs, np.arange(12), same_seeds=False)
    assert found.difference == pytest.approx(mine.mean() - theirs.mean()) and found.seeds == 3
    gaps = np.stack([mine.mean(axis=0)]), np.stack([theirs.mean(axis=0)])
    assert found.p_queries == pytest.approx(exact_p(*gaps, np.arange(12)), abs=0.02)
    # Trainings differ far more than images do, so the interval is Welch's.
    welch = ttest_ind(mine.mean(axis=1), theirs.mean(axis=1), equal_var=False)
    assert [found.low, found.high] == pytest.approx(welch.confidence_interval(), rel=0.05)
    assert found.p_runs == pytest.approx(welch.pvalue, rel=0.05)
    with pytest.raises(ShapeError, match="same seeds and queries"):
        paired(mine, theirs[:, 1:], np.arange(12), same_seeds=False)


def test_single_trainings_are_equal_paired_or_unpaired() -> None:
    mine, theirs, clusters = drawn(seeds=1)
    apart, together = (paired(mine, theirs, clusters, same_seeds=same) for same in (False, True))
    assert [apart.low, apart.high, apart.p_queries] == pytest.approx([together.low, together.high, together.p_queries])
