"""ASP and the semantic gain: values of the cards, ties, identities, and a plain loop beside the fast paths."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.metrics.asp import ASP, among_first
from subtext.evaluation.metrics.graded_gain import SemanticGain
from subtext.ops.compiled.semantic_rank import agreement, ranks

pytestmark = pytest.mark.golden

TIES = ("ordinal", "min", "average")
C_K = np.array(
    [
        [0.64177986, 0.64177986, 0, 0, 0.36111128, 0],
        [0, 0, 0.69743613, 0.69743613, 0.04715379, 0.04142439],
        [0.17185327, 0.18925801, 0, 0.08857818, 0.62724041, 0.62724041],
    ]
)
S_K = np.sin(0.3 + 0.7 * np.arange(18)).reshape(3, 6)


def compare(scores: np.ndarray, relevance: np.ndarray) -> Comparison:
    match = torch.ones(scores.shape, dtype=torch.bool)
    truth = Truth(match, relevance=torch.from_numpy(np.ascontiguousarray(relevance)), scale="made")
    return Comparison(torch.from_numpy(np.ascontiguousarray(scores)), truth)


@pytest.mark.parametrize(
    ("ties", "forward", "backward"),
    [("ordinal", 58.240741, 67.592593), ("min", 51.666667, 65.740741), ("average", 56.624579, 66.111111)],
)
def test_asp_of_worked_corpus(ties: str, forward: float, backward: float) -> None:
    assert 100 * ASP(ties=ties)(compare(S_K, C_K)).mean().item() == pytest.approx(forward, abs=1e-6)
    assert 100 * ASP(ties=ties)(compare(S_K.T, C_K.T)).mean().item() == pytest.approx(backward, abs=1e-6)


@pytest.mark.parametrize(("ties", "value"), [("ordinal", 0.67589286), ("min", 0.71532738), ("average", 0.66390797)])
def test_asp_of_worked_ties(ties: str, value: float) -> None:
    relevance, scores = (
        np.array([[0.9, 0.5, 0.5, 0.2, 0, 0, 0, 0]]),
        np.array([[0.1, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2]]),
    )
    assert ASP(ties=ties)(compare(scores, relevance)).item() == pytest.approx(value, abs=1e-8)


def made(rows: int = 20, columns: int = 130, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores and relevance with many ties, zeros of both signs, infinities and numbers that are none."""
    g = np.random.default_rng(seed)
    relevance = np.round(g.random((rows, columns)), 1).astype(np.float32)
    scores = np.round(g.standard_normal((rows, columns)), 1).astype(np.float32)
    scores[0, :3], scores[1, :2], scores[2, 5:7], scores[3, 4] = np.nan, (0.0, -0.0), (np.inf, -np.inf), np.nan
    return scores, relevance


def plain_ranks(values: np.ndarray, ties: str) -> list[float]:
    """Ranks of one row in plain Python; what is no number is behind -inf."""
    keys = [(1, 0.0) if math.isnan(value) else (0, -value) for value in values.tolist()]
    found = []
    for place, key in enumerate(keys):
        ahead, same = sum(other < key for other in keys), sum(other == key for other in keys)
        earlier = sum(other == key for other in keys[:place])
        found.append(ahead + {"ordinal": earlier + 1, "min": 1, "average": (same + 1) / 2}[ties])
    return found


def places(values: np.ndarray) -> list[range]:
    """The places from 1 that each score of a row may have, over all orders of equal ones."""
    keys = ["nan" if math.isnan(value) else value for value in values.tolist()]
    firsts = plain_ranks(values, "min")
    return [range(int(first), int(first) + keys.count(key)) for first, key in zip(firsts, keys, strict=True)]


def plain(scores: np.ndarray, relevance: np.ndarray, ties: str, top: int, within: bool) -> float:
    semantic = plain_ranks(relevance, ties)
    inside = [place for place, rank in enumerate(semantic) if rank <= top]
    mine = places(scores[inside]) if within else places(scores)
    if not within:
        mine = [mine[place] for place in inside]
    if not inside:
        return math.nan
    each = [[min(r, semantic[p]) / max(r, semantic[p]) for r in run] for run, p in zip(mine, inside, strict=True)]
    return float(np.mean([np.mean(values) for values in each]))


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("kernel", [True, False])
def test_equal_scores_count_as_the_mean_over_all_orders(ties: str, within: bool, kernel: bool) -> None:
    """Every order of tied scores, by scores without ties: 3! x 2! of them, and all 6! of equal ones."""
    relevance = np.array([[0.9, 0.5, 0.5, 0.2, 0.2, 0.0]])
    for scores in (np.array([2.0, 1, 2, 0, 1, 2]), np.array([1.0, np.nan, 1, np.nan, np.nan, 2]), np.ones(6)):
        keys = np.where(np.isnan(scores), -1, scores)
        orders = [order for order in itertools.permutations(range(6)) if (np.diff(keys[list(order)]) <= 0).all()]
        assert len(orders) == {2.0: 12, 1.0: 720}.get(float(keys.max()), 12)
        untied = np.array([[-order.index(column) for column in range(6)] for order in orders], dtype=np.float32)
        for tops in ((), (1, 2, 3, 4, 6)):
            each = agreement(
                untied, ranks(relevance.repeat(len(orders), 0), ties), ties, top=tops, within=within, kernel=kernel
            )
            found = agreement(scores[None], ranks(relevance, ties), ties, top=tops, within=within, kernel=kernel)
            np.testing.assert_allclose(found[0], each.mean(axis=0), rtol=0, atol=1e-11)


@pytest.mark.parametrize("ties", TIES)
def test_equal_scores_are_at_chance_and_those_of_the_relevance_at_the_ceiling(ties: str) -> None:
    relevance = np.round(np.random.default_rng(5).random((9, 40)), 1)
    best, tops = ranks(relevance, "min"), (1, 5, 39, 40)
    chance, ceiling = among_first(best, tops, ties)
    for scores, line in ((np.full((9, 40), 0.5), chance), (np.full((9, 40), np.nan), chance), (relevance, ceiling)):
        found = agreement(scores, ranks(relevance, ties), ties, top=tops)
        np.testing.assert_allclose(found, line, rtol=0, atol=1e-11)


def test_the_order_of_a_file_means_nothing_where_scores_tie() -> None:
    """Relevance without ties; the columns of scores and relevance in another order, in every rule and metric object."""
    g = np.random.default_rng(6)
    relevance, scores = g.permuted(np.tile(np.arange(60.0), (8, 1)), axis=1), np.round(g.standard_normal((8, 60)), 0)
    order = g.permutation(60)
    for ties in TIES:
        for top in (0, 10):
            metric = ASP(ties=ties, top=top)
            first, second = (
                metric(compare(s, r)) for s, r in ((scores, relevance), (scores[:, order], relevance[:, order]))
            )
            torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("within", [True, False])
def test_plain_loop_kernel_and_sort_agree(ties: str, within: bool) -> None:
    scores, relevance = made()
    tops = (1, 10, 60, 130)
    found = [
        agreement(scores, ranks(relevance, ties, kernel=kernel), ties, top=tops, within=within, kernel=kernel)
        for kernel in (False, True)
    ]
    np.testing.assert_array_equal(*found)
    loop = [[plain(s, c, ties, top, within) for top in tops] for s, c in zip(scores, relevance, strict=True)]
    np.testing.assert_allclose(found[0], loop, atol=1e-11)
    whole = [agreement(scores, ranks(relevance, ties), ties, kernel=kernel) for kernel in (False, True)]
    np.testing.assert_array_equal(whole[0], whole[1])
    np.testing.assert_array_equal(whole[0][:, 0], found[0][:, -1])


@pytest.mark.parametrize("ties", TIES)
def test_blocks_and_float64_are_bit_identical(ties: str) -> None:
    scores, relevance = made()
    whole = agreement(scores, ranks(relevance, ties), ties)
    for rows in (1, 7):
        pieces = [
            agreement(scores[s : s + rows], ranks(relevance[s : s + rows], ties), ties) for s in range(0, 20, rows)
        ]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    np.testing.assert_array_equal(
        agreement(scores.astype(np.float64), ranks(relevance.astype(np.float64), ties), ties), whole
    )


@pytest.mark.parametrize("ties", ["min", "average"])
def test_asp_is_invariant_to_gallery_order(ties: str) -> None:
    scores, relevance = made()
    order = np.random.default_rng(1).permutation(130)
    np.testing.assert_array_equal(
        agreement(scores[:, order], ranks(relevance[:, order], ties), ties),
        agreement(scores, ranks(relevance, ties), ties),
    )


def test_ordinal_ties_change_asp_by_less_than_0_0001() -> None:
    """A gallery with the ties of COCO: 15 % of the relevances are 0."""
    g = np.random.default_rng(2)
    relevance = np.maximum(g.random((200, 1000), dtype=np.float32) - 0.15, 0)
    scores = relevance + g.standard_normal((200, 1000)).astype(np.float32) / 3
    order = g.permutation(1000)
    first = agreement(scores, ranks(relevance)).mean()
    assert abs(agreement(scores[:, order], ranks(relevance[:, order])).mean() - first) < 1e-4


def test_asp_of_perfect_reversed_and_random_orders() -> None:
    g = np.random.default_rng(3)
    relevance = g.permuted(np.tile(np.arange(4000.0), (20, 1)), axis=1)
    lines = {"perfect": relevance, "reversed": -relevance, "random": g.random((20, 4000))}
    found = {name: 100 * agreement(scores, ranks(relevance)).mean() for name, scores in lines.items()}
    assert found["perfect"] == 100
    assert found["reversed"] == pytest.approx(100 * (2 * math.log(2) - 1), abs=0.03)
    assert found["random"] == pytest.approx(50, abs=0.3)
    best = ranks(relevance, "min")
    assert 100 * among_first(best, (best.shape[1],))[0].mean() == pytest.approx(50.0125)
    assert among_first(best, (best.shape[1],))[1][:, 0].tolist() == [1.0] * 20


@pytest.mark.parametrize("ties", TIES)
def test_chance_and_ceiling_are_means_over_orders(ties: str) -> None:
    g = np.random.default_rng(4)
    relevance = np.round(g.random((2, 25)), 1)
    semantic, best = ranks(relevance, ties), ranks(relevance, "min")
    drawn = [agreement(g.random((2, 25)), semantic, ties)[:, 0] for _ in range(3000)]
    np.testing.assert_allclose(among_first(best, (best.shape[1],), ties)[0][:, 0], np.mean(drawn, axis=0), atol=0.005)
    nearly = [agreement(relevance + 1e-6 * g.random((2, 25)), semantic, ties)[:, 0] for _ in range(1000)]
    np.testing.assert_allclose(among_first(best, (best.shape[1],), ties)[1][:, 0], np.mean(nearly, axis=0), atol=0.005)
    assert (among_first(best, (best.shape[1],), ties)[1][:, 0] < 0.97).all()


def test_single_candidate_has_asp_one() -> None:
    assert ASP()(compare(np.array([[0.3]]), np.array([[0.0]]))).tolist() == [1.0]


def test_ignored_candidates_are_excluded_from_gallery() -> None:
    scores, relevance = made(rows=4, columns=12)
    whole = compare(scores, relevance)
    ignored = torch.zeros(4, 12, dtype=torch.bool)
    ignored[:, 3] = ignored[3] = True
    match = torch.zeros(4, 12, dtype=torch.bool)
    left = Comparison(whole.scores, Truth(match, ignored, whole.truth.relevance, "made"))
    kept = np.delete(np.arange(12), 3)
    expected = ASP()(compare(scores[:3, kept], relevance[:3, kept]))
    np.testing.assert_array_equal(ASP()(left)[:3], expected)
    assert ASP()(left)[3].isnan()


def test_invalid_relevance_raises() -> None:
    scores, relevance = S_K, C_K.copy()
    with pytest.raises(RequirementError, match="ASP needs graded relevance in its truth; it got none"):
        ASP()(Comparison(torch.from_numpy(scores), Truth(torch.ones(3, 6, dtype=torch.bool))))
    relevance[0, 0] = np.inf
    with pytest.raises(RequirementError, match="ASP needs finite relevance; 1 of made are not"):
        ASP()(compare(scores, relevance))
    with pytest.raises(RequirementError, match=r"SemanticGain needs relevance of 0 or more; the least of 'made' is -1"):
        SemanticGain()(compare(scores, -np.ones((3, 6))))
    with pytest.raises(ShapeError, match=r"\(3, 6\); it got \(6, 3\)"):
        agreement(scores, ranks(C_K.T.copy()))
    with pytest.raises(RequirementError, match="N of 1 or more; it got 0"):
        agreement(scores, ranks(C_K), top=(0,))
    with pytest.raises(RequirementError, match="top of 0"):
        ASP(top=-1)


def plain_gain(scores: np.ndarray, relevance: np.ndarray, k: int, ties: str) -> float:
    side = {"pessimistic": relevance, "optimistic": -relevance, "stable": np.arange(len(scores))}[ties]
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], side[place]))
    return relevance[order[:k]].sum() / np.sort(relevance)[::-1][:k].sum()


@pytest.mark.parametrize("k", [1, 5, 40, 300])
def test_semantic_gain_equals_plain_loop(k: int) -> None:
    scores, relevance = (np.nan_to_num(part, nan=-np.inf, posinf=np.inf, neginf=-np.inf) for part in made())
    for ties in ("pessimistic", "optimistic", "stable"):
        loop = [plain_gain(s, c.astype(float), k, ties) for s, c in zip(scores, relevance, strict=True)]
        np.testing.assert_allclose(SemanticGain(k, ties)(compare(scores, relevance)), loop, atol=1e-12)
    shuffled = []
    g = np.random.default_rng(5)
    for _ in range(400):
        order = g.permutation(130)
        shuffled.append(SemanticGain(k, "stable")(compare(scores[:, order], relevance[:, order])).numpy())
    expected = SemanticGain(k, "expected")(compare(scores, relevance))
    np.testing.assert_allclose(expected, np.mean(shuffled, axis=0), atol=0.06)
    np.testing.assert_array_equal(SemanticGain(k, "expected")(compare(scores[:, order], relevance[:, order])), expected)


def test_semantic_gain_without_relevance_is_nan() -> None:
    assert SemanticGain()(compare(S_K, np.zeros((3, 6)))).isnan().all()
