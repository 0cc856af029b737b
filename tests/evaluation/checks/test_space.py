"""Summaries of a space, of hubs, and of agreement with people: SciPy and plain loops as oracles."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
import torch

from subtext.errors import DataError, ShapeError
from subtext.evaluation.checks import space as spaces
from subtext.evaluation.checks.space import alignment, uniformity
from subtext.evaluation.metrics.agreement import HumanAgreement, kendall, spearman
from subtext.evaluation.metrics.hubness import skewness, unfound

pytestmark = pytest.mark.golden


@pytest.mark.parametrize("count", [6, 40, 301])
def test_rank_correlations_equal_plain_loop(count: int) -> None:
    g = np.random.default_rng(count)
    left = g.integers(0, count // 2, count).astype(float)
    right = left + g.integers(0, 6, count)
    orders = np.array([np.sign(side[:, None] - side[None, :])[np.triu_indices(count, 1)] for side in (left, right)])
    tau = (orders[0] * orders[1]).sum() / math.sqrt(np.prod((orders != 0).sum(axis=1)))
    ranks = [[(side < value).sum() + (side <= value).sum() for value in side] for side in (left, right)]
    assert kendall(left, right) == pytest.approx(tau)
    assert spearman(left, right) == pytest.approx(np.corrcoef(ranks)[0, 1])
    torn = np.append(left, np.nan), np.append(right, 1.0)
    assert (kendall(*torn), spearman(*torn)) == (kendall(left, right), spearman(left, right))


def test_rank_correlations_without_order_are_nan() -> None:
    same, other = np.ones(5), np.arange(5.0)
    assert math.isnan(kendall(same, other)) and math.isnan(spearman(same, other))
    assert math.isnan(kendall(np.empty(0), np.empty(0))) and math.isnan(spearman(np.empty(0), np.empty(0)))
    with pytest.raises(ShapeError, match="two scores a pair; it got 5 and 2"):
        kendall(same, np.ones(2))


def test_hubness_equals_scipy_skewness() -> None:
    counts = np.random.default_rng(0).poisson(3, 500).astype(float)
    assert skewness(counts) == pytest.approx(scipy.stats.skew(counts))
    assert math.isnan(skewness(np.full(4, 2.0))) and math.isnan(skewness(np.empty(0)))
    assert unfound(counts) == np.mean(counts == 0)


def test_uniformity_equals_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    vectors, groups = torch.randn(30, 5, generator=g), torch.arange(30) // 4
    unit = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    gaps = np.array(
        [(unit[a] - unit[b]).norm() for a, b in itertools.combinations(range(30), 2) if groups[a] != groups[b]]
    )
    monkeypatch.setattr(spaces, "_UNIFORMITY_ROWS", 7)
    found = uniformity(vectors, groups)
    assert found["pairs"] == len(gaps)
    assert found["mean"] == pytest.approx(gaps.mean(), abs=1e-6)
    assert found["variance"] == pytest.approx(gaps.var(), abs=1e-6)
    assert found["potential"] == pytest.approx(math.log(np.exp(-2 * gaps**2).mean()), abs=1e-6)
    assert alignment(vectors[:10], vectors[10:20]) == pytest.approx(
        float((unit[:10] - unit[10:20]).norm(dim=1).mean()), abs=1e-6
    )
    assert math.isnan(uniformity(vectors, torch.zeros(30, dtype=torch.int64))["mean"])
    assert math.isnan(alignment(vectors[:0], vectors[:0]))


def test_pairs_rated_at_or_above_midpoint_are_positive():
    """Of the lowest and the highest rating; two rated pairs are enough."""
    ratings, scores = np.array([1.0, 2.1, 3.0, 5.0]), np.array([0.4, 0.9, 0.3, 0.8])
    for limit, positives in ((None, [2, 3]), (3.5, [3]), (2.1, [1, 2, 3])):
        figures = HumanAgreement(limit).figures(scores, ratings)
        wins = [scores[p] > scores[n] for p in positives for n in set(range(4)) - set(positives)]
        assert figures["human/auc"] == pytest.approx(np.mean(wins)) and figures["human/pairs"] == 4
    assert HumanAgreement().figures(scores[:2], ratings[:2])["human/spearman"] == pytest.approx(1)
    assert HumanAgreement().figures(scores[:2], ratings[:1].repeat(2)) == {"human/pairs": 2}
    with pytest.raises(DataError, match="needs two rated pairs or more; it got 1"):
        HumanAgreement().figures(scores[:1], ratings[:1])
