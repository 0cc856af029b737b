"""Single cells of metrics by plain formulas: what each declares, gains, chance, choices, and what it says of itself."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
import torch
from find_parts import classes

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError
from subtext.evaluation.metric import Metric
from subtext.evaluation.metrics.best_rank import BestRank
from subtext.evaluation.metrics.c_way import CWay, CWayRank, SampledCWay
from subtext.evaluation.metrics.graded_gain import NDCG, SemanticGain
from subtext.evaluation.metrics.hubness import Hubness, skewness
from subtext.evaluation.metrics.pmrp import PMRP, PMRecall
from subtext.evaluation.metrics.preservation import Preservation
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.metrics.ties import TieShare
from subtext.ops import draw
from subtext.ops.rank import Counts, rank_positives
from subtext.ops.sparse import CandidateLists

pytestmark = pytest.mark.golden

DECLARED = {
    "recall@1": "compared", "mean_rank": "lower numbers", "mrr": "compared", "5_way@1": "compared",
    "5_way_mean_rank": "lower numbers", "tie_share": "lower", "r_precision": "compared", "map@r": "compared",
    "asp": "compared", "gain@5": "compared", "ndcg@10": "compared", "pmrp": "compared", "pm_recall@1": "compared",
}  # fmt: skip


def test_metric_declares_its_display():
    """In the order of a table: which are better lower, no share of queries, or compared between runs."""
    found = {}
    for part in sorted(classes("evaluation.metrics"), key=lambda part: part.sort_order):
        if issubclass(part, Metric) and part.__name__ not in ("CWayBest", "SampledCWay", "Preservation"):
            words = ["lower"] * part.lower_is_better + ["numbers"] * (not part.percent) + ["compared"] * part.compared
            found[part().name] = " ".join(words)
    assert [(name, words) for name, words in found.items() if name in DECLARED] == list(DECLARED.items())
    assert set(Hubness().figures(np.ones(3))) == {"hubness@10", "unfound@10"} and np.isnan(skewness(np.zeros(0)))


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_gains_equal_plain_sums(k: int):
    random = np.random.default_rng(k)
    scores, relevance = random.random((6, 5)), random.random((6, 5))
    relevance[2] = 0
    truth = Truth(torch.ones(6, 5, dtype=torch.bool), relevance=torch.from_numpy(relevance), scale="made")
    comparison = Comparison(torch.from_numpy(scores), truth)
    for metric, discount in ((SemanticGain(k), lambda place: 1), (NDCG(k), lambda place: np.log2(place + 2))):
        values = metric(comparison).tolist()
        for query, value in enumerate(values):
            orders = np.argsort(-scores[query]), np.argsort(-relevance[query])
            got, best = (
                sum(relevance[query, it] / discount(place) for place, it in enumerate(order[:k])) for order in orders
            )
            assert np.isnan(value) if query == 2 else value == pytest.approx(got / best)


def counts(positives: list[int], negatives: list[int], greater: list[int]) -> Counts:
    made = (np.array(values) for values in (greater, [0] * len(greater), positives, positives, negatives))
    return Counts(*made, np.zeros(len(greater), np.int64))


def test_query_without_positive_has_no_chance():
    chance = BestRank().chance(counts([0, 1, 3], [4, 4, 4], [0, 0, 0]))
    np.testing.assert_array_equal(chance, [np.nan, 3, 2])


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_recall_chance_counts_draws_without_positive(k: int):
    """k draws out of P positives and M negatives; also where k is above M, and above all candidates."""
    positives, negatives = [1, 3, 1, 2, 1, 0], [4, 4, 0, 1, 1, 4]
    wanted = [1 - comb(m, k) / comb(p + m, min(k, p + m)) for p, m in zip(positives, negatives, strict=True)]
    chance = Recall(k).chance(counts(positives, negatives, [0] * 6))
    np.testing.assert_allclose(chance, [*wanted[:-1], np.nan])


def test_plausible_match_metrics_equal_worked_values():
    """Three readings, two queries: the best plausible image is first under the widest of each, and by chance."""
    relevance = torch.tensor([[0.0, -1, -3, -2], [-1, 0, 0, -1]])
    scores = torch.tensor([[0.4, 0.6, 0.8, 0.2], [0.1, 0.7, 0.3, 0.9]])
    comparison = Comparison(scores, Truth(torch.ones(2, 4, dtype=torch.bool), relevance=relevance, scale="labels"))
    assert PMRecall()(comparison).tolist() == pytest.approx([0, 2 / 3])
    ranks = {zeta: rank_positives(scores, [CandidateLists.of_mask(relevance >= -zeta)])[0] for zeta in (0, 1, 2)}
    assert PMRP().chance(ranks).tolist() == pytest.approx([(1 + 2 + 3) / 12, (2 + 4 + 4) / 12])


def test_preservation_by_chance():
    match = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
    ignored = CandidateLists.of_mask(torch.eye(4, dtype=torch.bool) & ~match)
    ranks = rank_positives(torch.rand(4, 4), [CandidateLists.of_mask(match)], ignored)[0]
    np.testing.assert_allclose(Preservation().chance(ranks), [2 / 4, np.nan, 3 / 4, 1 / 3])


def test_tie_share_and_its_note():
    several = Counts(*(np.array(values) for values in ([0, 1, 0], [0, 2, 1], [1, 1, 0], [1, 1, 0], [3] * 3, [0] * 3)))
    np.testing.assert_array_equal(TieShare().of(several), [0, 1, np.nan])
    shares = {"image_to_text/tie_share": 0.0, "text_to_image/tie_share": 2.5}
    told = "ties: in up to 2.5 % of queries a wrong candidate has the partner's score"
    assert TieShare().notes(shares, {}) == [told]
    assert TieShare().notes(dict.fromkeys(shares, 0.0), {}) == []


def test_sampled_choice_is_one_draw_per_key():
    several, keys = counts([1] * 40, [9] * 40, [n % 10 for n in range(40)]), np.arange(40)
    drawn = draw.uniform(keys, seed=3, epoch=0, purpose="4-way", count=3)
    for at in (1, 2):
        wanted = []
        for row in range(40):
            ahead = 0
            for t in range(3):
                ahead += drawn[row, t] < (row % 10 - ahead) / (9 - t)
            wanted.append(float(ahead < at))
        assert SampledCWay(4, at, seed=3).of_questions(several, keys).tolist() == wanted


def test_choice_notes_count_excluded_queries():
    with pytest.raises(RequirementError, match="at of at least 1; it got c = 5, at = 0"):
        CWay(at=0)
    for fewest, most, told in (
        (1, 3, "5-way choice of images among texts is left out: it needs 4 wrong texts, and there are at most 3"),
        (3, 9, "5-way choice of images among texts leaves out queries with fewer than 4 wrong texts"),
        (4, 9, None),
    ):
        negatives = {"image_to_text": (fewest, most), "text_to_image": (9, 9)}
        for metric in (CWay(5), CWayRank(5)):
            assert metric.notes({}, negatives) == ([told] if told else [])
