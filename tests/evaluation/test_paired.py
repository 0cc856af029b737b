"""Paired tests beside plain loops, and what they have to say when nothing or everything differs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

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
    assert found.p_value == pytest.approx(exact_p(mine, theirs, clusters), abs=0.01)
    assert found.difference == pytest.approx((mine - theirs).mean())
    assert (found.images, found.seeds) == (12, 3)


def test_interval_equals_plain_loop() -> None:
    mine, theirs, clusters = drawn()
    rng = np.random.default_rng(0)
    gaps, means = mine - theirs, []
    for _ in range(4000):
        pictures = rng.integers(0, 12, 12)
        seeds = rng.integers(0, 3, 3)
        queries = np.concatenate([np.flatnonzero(clusters == picture) for picture in pictures])
        means.append(gaps[np.ix_(seeds, queries)].mean())
    found = paired(mine, theirs, clusters, samples=4000)
    assert [found.low, found.high] == pytest.approx(np.percentile(means, [2.5, 97.5]).tolist(), abs=0.015)


def test_equal_values_have_p_value_one() -> None:
    _, theirs, clusters = drawn()
    found = paired(theirs, theirs, clusters, samples=200)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_constant_difference_is_significant() -> None:
    _, theirs, clusters = drawn(pictures=30)
    found = paired(theirs + 0.1, theirs, clusters)
    assert found.low == pytest.approx(0.1) and found.p_value == pytest.approx(1 / 2001)
    turned = paired(theirs, theirs + 0.1, clusters)
    assert turned.difference == -found.difference and turned.p_value == found.p_value


def test_queries_with_nan_are_dropped_on_both_sides() -> None:
    mine, theirs, clusters = drawn()
    mine[1, 3] = np.nan
    kept = np.arange(mine.shape[1]) != 3
    assert paired(mine, theirs, clusters) == paired(mine[:, kept], theirs[:, kept], clusters[kept])


def test_few_images_have_no_interval_or_p_value() -> None:
    mine, theirs, clusters = drawn(pictures=9)
    found = paired(mine, theirs, clusters)
    assert found.difference > 0 and np.isnan([found.low, found.high, found.p_value]).all()


def test_values_of_other_queries_raise() -> None:
    mine, theirs, clusters = drawn()
    with pytest.raises(ShapeError, match=r"same seeds and queries.*\(3, 24\), \(2, 24\) and \(24,\)"):
        paired(mine, theirs[:2], clusters)
    with pytest.raises(ShapeError, match="there is none"):
        paired(mine * np.nan, theirs, clusters)


def test_holm_ignores_nan_and_keeps_order() -> None:
    assert holm([0.01, 0.04, 0.03, float("nan")])[:3] == pytest.approx([0.03, 0.06, 0.06])
    assert np.isnan(holm([float("nan")])[0]) and holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]


def test_unpaired_trainings_are_resampled_independently() -> None:
    mine, theirs, clusters = drawn(seeds=4)
    theirs = theirs[:2]
    rng = np.random.default_rng(0)
    means = []
    for _ in range(4000):
        pictures, ours, others = rng.integers(0, 12, 12), rng.integers(0, 4, 4), rng.integers(0, 2, 2)
        queries = np.concatenate([np.flatnonzero(clusters == picture) for picture in pictures])
        means.append(mine[np.ix_(ours, queries)].mean() - theirs[np.ix_(others, queries)].mean())
    found = paired(mine, theirs, clusters, samples=4000, same_seeds=False)
    assert found.difference == pytest.approx(mine.mean() - theirs.mean()) and found.seeds == 2
    assert [found.low, found.high] == pytest.approx(np.percentile(means, [2.5, 97.5]).tolist(), abs=0.015)
    gaps = np.stack([mine.mean(axis=0)]), np.stack([theirs.mean(axis=0)])
    assert found.p_value == pytest.approx(exact_p(*gaps, clusters), abs=0.02)
    with pytest.raises(ShapeError, match="same seeds and queries"):
        paired(mine, theirs[:, 1:], clusters, same_seeds=False)


def test_single_trainings_are_equal_paired_or_unpaired() -> None:
    mine, theirs, clusters = drawn(seeds=1)
    apart, together = (paired(mine, theirs, clusters, same_seeds=same) for same in (False, True))
    assert [apart.low, apart.high, apart.p_value] == pytest.approx([together.low, together.high, together.p_value])
