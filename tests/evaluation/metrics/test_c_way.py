"""Choice among c: values of the card, all draws of a small case, and the sampled way."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError
from subtext.evaluation.metrics.c_way import (
    CWay,
    CWayBest,
    CWayRank,
    SampledCWay,
    choice_probability,
    distractors_ahead,
)
from subtext.ops.rank import Counts

pytestmark = pytest.mark.golden

S3 = torch.tensor([[0.60, 0.50, 0.55], [0.30, 0.40, 0.45], [0.65, 0.35, 0.70]])


def counts(greater: list[int], tied: list[int], negatives: int) -> Counts:
    ones = np.ones(len(greater), dtype=np.int64)
    return Counts(np.array(greater), np.array(tied), ones, ones, ones * negatives, ones * 0)


def test_closed_form_of_worked_example() -> None:
    values = choice_probability(np.array([0, 1, 2, 5, 9]), np.full(5, 9), c=5)
    np.testing.assert_allclose(values, [1, 0.5555555556, 0.2777777778, 0.0079365079, 0], atol=1e-10)
    assert values.mean() == pytest.approx(0.3682539683, abs=1e-10)
    for c, value in ((5, 0.9604986915), (20, 0.8245635831), (100, 0.3504320351)):
        assert choice_probability(np.array([10]), np.array([999]), c=c)[0] == pytest.approx(value, abs=1e-10)


def test_replacement_form_of_worked_example() -> None:
    g = [0, 1, 2, 5, 9]
    values = CWay(5, again=True).of_questions(counts(g, [0] * 5, 9))
    assert values.mean() == pytest.approx(0.4058527663, abs=1e-10)
    np.testing.assert_allclose(values, [((9 - ahead) / 9) ** 4 for ahead in g], atol=1e-12)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_replacement_form_equals_all_draws(at: int) -> None:
    for ahead in range(5):
        draws = list(itertools.product(range(4), repeat=3))
        ranks = [1 + sum(number < ahead for number in draw) for draw in draws]
        values = CWay(4, at, again=True).of_questions(counts([ahead], [0], 4))
        assert values[0] == pytest.approx(sum(r <= at for r in ranks) / len(ranks))


def test_worked_example_in_both_directions() -> None:
    eye = Truth(torch.eye(3, dtype=torch.bool))
    for scores, expected in ((S3, (0.8333333333, 0.6666666667)), (S3.T, (0.6666666667, 0.3333333333))):
        for c, value in zip((2, 3), expected, strict=True):
            assert CWay(c)(Comparison(scores, eye)).mean().item() == pytest.approx(value, abs=1e-10)


@pytest.mark.parametrize("at", [1, 2, 3, 7])
@pytest.mark.parametrize("c", [2, 4, 6])
def test_closed_form_equals_all_draws(c: int, at: int) -> None:
    for ahead in range(7):
        draws = list(itertools.combinations(range(6), c - 1))
        ranks = [1 + sum(number < ahead for number in draw) for draw in draws]
        values = counts([ahead], [0], 6)
        assert CWay(c, at).of_questions(values)[0] == pytest.approx(sum(r <= at for r in ranks) / len(ranks))
        assert CWayRank(c).of_questions(values)[0] == pytest.approx(sum(ranks) / len(ranks))


def test_expected_ties_average_over_positions_of_positive() -> None:
    tied = counts([1], [2], 6)
    strict = [CWay(3).of_questions(counts([g], [0], 6))[0] for g in (1, 2, 3)]
    assert CWay(3, ties="expected").of_questions(tied)[0] == pytest.approx(sum(strict) / 3)
    assert CWay(3).of_questions(tied)[0] == pytest.approx(strict[2])
    assert CWay(3, ties="optimistic").of_questions(tied)[0] == pytest.approx(strict[0])
    ranks = [CWayRank(3).of_questions(counts([g], [0], 6))[0] for g in (1, 2, 3)]
    assert CWayRank(3, ties="expected").of_questions(tied)[0] == pytest.approx(sum(ranks) / 3)


def test_each_positive_is_a_separate_question() -> None:
    """Five texts an image: the papers ask with one of them; the best of the five is another, higher figure."""
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.normal(size=(40, 200)))
    groups = torch.arange(40), torch.arange(200) // 5
    scores[groups[0][:, None] == groups[1]] += 0.5
    comparison = Comparison(scores, Truth.from_groups(*groups))
    each, ranks, best, drawn = [], [], [], []
    for image, row in enumerate(scores.tolist()):
        own, others = row[5 * image : 5 * image + 5], row[: 5 * image] + row[5 * image + 5 :]
        ahead = [sum(other > score for other in others) for score in own]
        chances = [math.comb(195 - g, 4) / math.comb(195, 4) for g in ahead]
        each.append(sum(chances) / 5)
        best.append(max(chances))
        ranks.append(sum(1 + 4 * g / 195 for g in ahead) / 5)
        questions = counts(ahead, [0] * 5, 195)
        drawn.append(SampledCWay(5, seed=2).of_questions(questions, np.full(5, image)).mean())
    for metric, wanted in ((CWay(5), each), (CWayBest(5), best), (CWayRank(5), ranks), (SampledCWay(5, seed=2), drawn)):
        assert metric(comparison).tolist() == pytest.approx(wanted)
    assert sum(best) > 2 * sum(each)


def test_large_galleries_are_exact() -> None:
    exact = math.comb(46_000 - 300, 99) / math.comb(46_000, 99)
    assert choice_probability(np.array([300]), np.array([46_000]), c=100)[0] == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("at", [1, 3])
def test_sampled_choice_has_closed_form_mean(at: int) -> None:
    many = counts([10] * 20_000, [0] * 20_000, 99)
    sampled = SampledCWay(c=20, at=at, seed=3).of_questions(many, np.arange(20_000))
    closed = CWay(c=20, at=at).of_questions(many)[0]
    assert sampled.mean() == pytest.approx(closed, abs=4 * math.sqrt(closed * (1 - closed) / 20_000))
    assert set(sampled) == {0.0, 1.0}


def test_sample_depends_on_seed_and_query_alone() -> None:
    keys = np.array([5, 6, 7, 8] * 25)
    keys += np.arange(100) * 10
    some = counts([3] * 100, [0] * 100, 20)
    values = SampledCWay(seed=1).of_questions(some, keys)
    np.testing.assert_array_equal(values[::-1], SampledCWay(seed=1).of_questions(some, keys[::-1]))
    assert (values != SampledCWay(seed=2).of_questions(some, keys)).any()
    better = SampledCWay(seed=1).of_questions(counts([2] * 100, [0] * 100, 20), keys)
    assert (better >= values).all()


def test_sample_never_repeats_distractor() -> None:
    draws = np.random.default_rng(0).random((500, 6))
    assert (distractors_ahead(np.full(500, 4), np.full(500, 6), draws) == 4).all()
    assert (distractors_ahead(np.full(500, 0), np.full(500, 6), draws) == 0).all()


def test_too_few_distractors_give_nan() -> None:
    few = counts([1], [0], 3)
    assert math.isnan(CWay(5).of_questions(few)[0])
    assert math.isnan(CWayRank(5).of_questions(few)[0])
    assert math.isnan(SampledCWay(5).of_questions(few, np.arange(1))[0])
    assert CWay(4).of_questions(few)[0] == 0


def test_invalid_settings_raise() -> None:
    with pytest.raises(RequirementError, match="c of at least 2"):
        CWay(1)
    with pytest.raises(RequirementError, match="it got 1"):
        CWayRank(1)
    with pytest.raises(RequirementError, match="order of ties"):
        SampledCWay(ties="expected")
