"""R-Precision, average precision, PMRP and nDCG: values of the cards, oracles, and all orders of ties by hand."""

from __future__ import annotations

import itertools
from dataclasses import fields

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, ndcg_score

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.metric import readings_of
from subtext.evaluation.metrics.average_precision import AveragePrecision
from subtext.evaluation.metrics.best_rank import BestRank
from subtext.evaluation.metrics.graded_gain import NDCG
from subtext.evaluation.metrics.pmrp import PMRP
from subtext.evaluation.metrics.r_precision import RPrecision
from subtext.evaluation.metrics.recall import Recall
from subtext.ops.rank import PositiveRanks, rank_positives
from subtext.ops.sparse import CandidateLists
from subtext.ops.top_k import occurrences

pytestmark = pytest.mark.golden


def listed(retrieved: list[list[int]], right: list[set[int]], ids: list[int]) -> Comparison:
    """A comparison that ranks as the lists do; what a list leaves out comes last."""
    scores = torch.full((len(retrieved), len(ids)), -1.0)
    for row, names in enumerate(retrieved):
        for place, name in enumerate(names):
            scores[row, ids.index(name)] = 100.0 - place
    return Comparison(scores, Truth(torch.tensor([[name in names for name in ids] for names in right])))


def test_map_at_r_of_worked_example() -> None:
    retrieved = [list(range(10, 16)), list(range(20, 26)), [33, 30, 31, 32, 34, 35]]
    right = [{10, 12, 15}, {21, 25}, {30, 31, 32, 33}]
    comparison = listed(retrieved, right, [*range(10, 16), *range(20, 26), *range(30, 36)])
    assert AveragePrecision()(comparison).mean().item() == pytest.approx(0.6018518519)
    assert RPrecision()(comparison).mean().item() == pytest.approx(0.7222222222)
    assert Recall(1)(comparison).mean().item() == pytest.approx(0.6666666667)
    assert Recall(2)(comparison).mean().item() == 1


def test_pmrp_of_worked_example() -> None:
    codes = np.array([[1, 0, 0, 1], [1, 0, 0, 0], [0, 1, 1, 0], [1, 1, 0, 1]])
    lists = [[101, 100, 102, 103], [101, 103, 100, 102], [100, 102, 103, 101], [103, 100, 101, 102]]
    distance = (codes[:, None] != codes[None]).sum(axis=2)
    truth = Truth(torch.ones(4, 4, dtype=torch.bool), relevance=-torch.from_numpy(distance).double(), scale="labels")
    comparison = Comparison(listed(lists, [set()] * 4, [100, 101, 102, 103]).scores, truth)
    expected = [[0, 1, 0, 1], [2 / 3, 0.5, 0, 1], [2 / 3, 1, 0, 1]]
    for zeta, values in enumerate(expected):
        assert PMRP(zeta=(zeta,))(comparison).tolist() == pytest.approx(values)
    assert 100 * PMRP()(comparison).mean().item() == pytest.approx(56.944444)
    hits = [Recall(1)(Comparison(comparison.scores, Truth(-truth.relevance <= zeta))).numpy() for zeta in range(3)]
    assert 100 * np.mean(hits) == pytest.approx(66.666667)
    with pytest.raises(RequirementError, match="each 0 or more; it got"):
        PMRP(zeta=(-1,))


def made(ties: bool, seed: int = 0) -> Comparison:
    g = np.random.default_rng(seed)
    scores = g.standard_normal((8, 7))
    scores = np.round(scores) if ties else scores
    match = g.random((8, 7)) < 0.4
    match[0] = False
    match[1] = True
    relevance = np.round(g.random((8, 7)), 1)
    return Comparison(
        torch.from_numpy(scores), Truth(torch.from_numpy(match), relevance=torch.from_numpy(relevance), scale="made")
    )


def plain(scores: np.ndarray, match: np.ndarray, order: list[int]) -> tuple[float, float, float]:
    """R-Precision, mAP@R and AP of one order."""
    right = [bool(match[place]) for place in order]
    wanted = sum(right)
    found = [sum(right[: place + 1]) / (place + 1) * right[place] for place in range(len(right))]
    return sum(right[:wanted]) / wanted, sum(found[:wanted]) / wanted, sum(found) / wanted


METRICS = (RPrecision, lambda ties: AveragePrecision("r", ties), lambda ties: AveragePrecision("all", ties))


@pytest.mark.parametrize("seed", range(3))
def test_tie_rules_equal_all_orders(seed: int) -> None:
    """Each tie rule is one order, or the mean over all orders, of the candidates that share a score."""
    whole = made(ties=True, seed=seed)
    found = {ties: [metric(ties)(whole).numpy() for metric in METRICS] for ties in
             ("pessimistic", "optimistic", "stable", "expected")}  # fmt: skip
    for query, (scores, match) in enumerate(zip(whole.scores.numpy(), whole.truth.match.numpy(), strict=True)):
        if not match.any():
            assert np.isnan([values[query] for each in found.values() for values in each]).all()
            continue
        orders = [
            [place for run in runs for place in run]
            for runs in itertools.product(
                *[
                    list(itertools.permutations(np.flatnonzero(scores == level).tolist()))
                    for level in sorted(set(scores.tolist()), reverse=True)
                ]
            )
        ]
        values = np.array([plain(scores, match, order) for order in orders])
        for which in range(3):
            assert found["expected"][which][query] == pytest.approx(values[:, which].mean())
            assert found["pessimistic"][which][query] == pytest.approx(values[:, which].min())
            assert found["optimistic"][which][query] == pytest.approx(values[:, which].max())
        stable = sorted(range(7), key=lambda place: -scores[place])
        assert [each[query] for each in found["stable"]] == pytest.approx(plain(scores, match, stable))


def test_average_precision_and_ndcg_equal_scikit_learn() -> None:
    whole = made(ties=False)
    for query, (scores, truth) in enumerate(zip(whole.scores.numpy(), whole.truth.match.numpy(), strict=True)):
        if truth.any():
            expected = average_precision_score(truth, scores)
            assert AveragePrecision("all")(whole)[query].item() == pytest.approx(expected)
    rounded = made(ties=True)
    relevance = rounded.truth.relevance.numpy()
    for k in (1, 3, 10):
        each = [ndcg_score(r[None], s[None], k=k) for r, s in zip(relevance, rounded.scores.numpy(), strict=True)]
        np.testing.assert_allclose(NDCG(k, ties="expected")(rounded), each, atol=1e-12)
        worth = np.exp2(relevance) - 1
        each = [ndcg_score(r[None], s[None], k=k) for r, s in zip(worth, rounded.scores.numpy(), strict=True)]
        np.testing.assert_allclose(NDCG(k, "exponential", "expected")(rounded), each, atol=1e-12)


@pytest.mark.parametrize("ties", ["pessimistic", "optimistic", "expected", "stable"])
def test_best_positive_of_ranks_equals_counting(ties: str) -> None:
    for seed in range(4):
        whole = made(ties=True, seed=seed)
        whole.scores[2:4, 1:3] = torch.nan
        best = readings_of(whole, stable=True).take(["positive_ranks"])[0].best()
        np.testing.assert_array_equal(BestRank(ties).of(best), BestRank(ties)(whole))
        np.testing.assert_array_equal(Recall(2, ties=ties).of(best), Recall(2, ties=ties)(whole))


def test_blocks_and_several_truths_in_one_pass() -> None:
    whole, other = made(ties=True), made(ties=True, seed=9)
    truths = [CandidateLists.of_mask(part.truth.match) for part in (whole, other)]
    both = rank_positives(whole.scores, truths, stable=True)
    for truth, part, found in zip(truths, (whole, other), both, strict=True):
        alone = readings_of(Comparison(whole.scores, part.truth), stable=True).take(["positive_ranks"])[0]
        pieces = [rank_positives(whole.scores[s : s + 3], [truth[s : s + 3]], stable=True)[0] for s in range(0, 8, 3)]
        for name in (field.name for field in fields(PositiveRanks)):
            columns = [getattr(piece, name) for piece in pieces]
            if name == "queries":
                columns = [column + start for column, start in zip(columns, range(0, 8, 3), strict=True)]
            for same in (getattr(alone, name), np.concatenate(columns)):
                np.testing.assert_array_equal(same, getattr(found, name), err_msg=name)
    with pytest.raises(ShapeError, match="truth for each of 8 queries; it got 3"):
        rank_positives(whole.scores, [truths[0][:3]])


def test_nan_loses_even_to_minus_infinity() -> None:
    scores = torch.tensor([[-torch.inf, torch.nan, -torch.inf, 0.0]])
    truth = CandidateLists.of_pairs(np.array([0, 0]), np.array([1, 2]), queries=1)
    found = rank_positives(scores, [truth])[0]
    assert (found.greater.tolist(), found.tied.tolist()) == ([1, 2], [1, 0])


def test_occurrences_share_position_among_ties() -> None:
    scores = torch.tensor([[3.0, 2.0, 2.0, 2.0], [torch.nan, 1.0, 0.0, 5.0]])
    np.testing.assert_allclose(occurrences(scores, 2), [1, 1 / 3 + 1, 1 / 3, 1 / 3 + 1], atol=1e-6)
    assert occurrences(scores, 9).tolist() == [2.0] * 4
