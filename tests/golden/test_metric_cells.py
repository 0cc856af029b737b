"""Single cells of metrics by plain formulas: what each declares, gains, chance, choices, and what it says of itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from walk import classes

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError
from subtext.evaluation import Protocol
from subtext.evaluation.metric import Metric, Outcome
from subtext.evaluation.metrics.best_rank import BestRank
from subtext.evaluation.metrics.c_way import CWay, CWayRank, SampledCWay
from subtext.evaluation.metrics.graded_gain import NDCG, SemanticGain
from subtext.evaluation.metrics.hubness import Hubness, skewness
from subtext.ops import draw
from subtext.ops.rank import Counts

DECLARED = {
    "recall@1": "compared", "mean_rank": "lower numbers", "mrr": "compared", "5_way@1": "compared",
    "5_way_mean_rank": "lower numbers", "tie_share": "lower", "r_precision": "compared", "map@r": "compared",
    "asp": "compared", "gain@5": "compared", "ndcg@10": "compared", "pmrp": "compared", "pm_recall@1": "compared",
}  # fmt: skip


def test_a_metric_declares_how_it_is_shown():
    """In the order of a table: which are better lower, no share of queries, or compared between runs."""
    found = {}
    for part in sorted(classes("evaluation.metrics"), key=lambda part: part.position):
        if issubclass(part, Metric) and part.__name__ not in ("CWayBest", "SampledCWay", "Preservation"):
            words = ["lower"] * part.lower_is_better + ["numbers"] * (not part.percent) + ["compared"] * part.compared
            found[part().name] = " ".join(words)
    assert list(found.items()) == list(DECLARED.items())
    assert set(Hubness().figures(np.ones(3))) == {"hubness@10", "unfound@10"} and np.isnan(skewness(np.zeros(0)))


@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_gains_are_plain_sums(k: int):
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


def test_a_query_without_a_positive_has_no_chance():
    chance = BestRank().chance(counts([0, 1, 3], [4, 4, 4], [0, 0, 0]))
    np.testing.assert_array_equal(chance, [np.nan, 3, 2])


def test_a_sampled_choice_is_one_draw_under_its_key():
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


def test_choices_of_a_protocol_and_what_is_left_out():
    with pytest.raises(RequirementError, match="at of at least 1; it got c = 5, at = 0"):
        CWay(at=0)
    protocol = Protocol(c_way=(2, 5))
    for fewest, most, told in (
        (1, 3, "5-way choice of images among texts is left out: it needs 4 wrong texts, and there are at most 3"),
        (3, 9, "5-way choice of images among texts leaves out queries with fewer than 4 wrong texts"),
        (4, 9, None),
    ):
        outcome = Outcome(protocol, {}, {"image_to_text": (fewest, most), "text_to_image": (9, 9)})
        assert CWayRank.notes(outcome) == ([told] if told else [])
