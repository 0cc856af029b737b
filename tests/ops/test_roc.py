"""The area under the curve is the plain count over all couples, ties and weights of samples included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from subtext.ops.roc import _auc, auc, auc_interval

pytestmark = pytest.mark.golden


def plain(scores: np.ndarray, marked: np.ndarray) -> float:
    couples = [(a > b) + 0.5 * (a == b) for a in scores[marked] for b in scores[~marked]]
    return float(np.mean(couples))


@pytest.mark.parametrize("seed", range(4))
def test_auc_equals_plain_count(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 6, size=70).astype(np.float64)
    marked = rng.random(70) < 0.3
    assert auc(scores, marked) == pytest.approx(plain(scores, marked), abs=1e-12)
    assert auc(-scores, marked) == pytest.approx(1 - plain(scores, marked), abs=1e-12)


def test_auc_skips_nan_and_needs_both_classes() -> None:
    scores = np.array([0.0, math.nan, 1.0, 2.0])
    assert auc(scores, np.array([False, True, False, True])) == 1.0
    assert math.isnan(auc(scores, np.zeros(4, dtype=bool)))
    assert math.isnan(auc(np.empty(0), np.zeros(0, dtype=bool)))


def test_auc_interval_covers_value_and_respects_clusters() -> None:
    rng = np.random.default_rng(0)
    marked = np.arange(400) % 5 == 0
    scores = rng.normal(size=400) + marked
    each = auc_interval(scores, marked, np.arange(400), samples=400)
    assert each is not None
    assert each[0] < auc(scores, marked) < each[1]
    assert 0.05 < each[1] - each[0] < 0.2
    # Five copies of each pair are no more evidence than one.
    copies = auc_interval(np.repeat(scores, 5), np.repeat(marked, 5), np.repeat(np.arange(400), 5), samples=400)
    assert copies is not None
    assert copies[1] - copies[0] == pytest.approx(each[1] - each[0], rel=0.25)


def test_few_clusters_give_no_interval() -> None:
    marked = np.arange(40) < 9
    assert auc_interval(np.arange(40.0), marked, np.arange(40)) is None


def test_weighted_auc_equals_scikit_learn_except_infinite_scores() -> None:
    rng = np.random.default_rng(0)
    codes, marked, times = rng.integers(0, 9, 200), rng.random(200) < 0.3, rng.integers(0, 4, 200).astype(float)
    assert _auc(codes, marked, times) == pytest.approx(roc_auc_score(marked, codes, sample_weight=times), abs=1e-12)
    assert auc(np.array([-np.inf, 0.0, np.inf]), np.array([False, True, True])) == 1.0
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="infinity"):
        roc_auc_score([False, True, True], [-np.inf, 0.0, np.inf])
