"""What figures of whole rankings are made of, beside plain loops: ASP over N and its lines, thresholds, first lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from reproduce.figures.of_dataset import count_above
from reproduce.figures.of_systems import queries_of_equal_recall, top_list, top_results
from subtext.core import DIRECTIONS, Comparison
from subtext.errors import RequirementError
from subtext.evaluation.metric import SemanticRanks
from subtext.evaluation.metrics import asp as reference
from subtext.evaluation.metrics.asp import ASP
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import of_groups
from subtext.ops.compiled.semantic_rank import RankTies, ranks

pytestmark = pytest.mark.identity

PICTURES, TEXTS = 7, 14


def made(seed: int = 0) -> tuple[torch.Tensor, Graded]:
    """Scores and a relevance, both with ties."""
    g = np.random.default_rng(seed)
    relevance = np.round(np.maximum(g.random((PICTURES, TEXTS)) - 0.3, 0), 1).astype(np.float32)
    scores = np.round(relevance + g.standard_normal(relevance.shape), 1).astype(np.float32)
    return torch.from_numpy(scores), Graded("made", relevance)


def turned(values: np.ndarray, direction: str) -> np.ndarray:
    return values if direction == "image_to_text" else np.ascontiguousarray(values.T)


def agreed(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.mean(np.minimum(first, second) / np.maximum(first, second)))


def places(values: np.ndarray, ties: str) -> np.ndarray:
    """Ranks of one row by counting, from 1."""
    found = []
    for column, value in enumerate(values):
        ahead, level = int((values > value).sum()), int((values == value).sum())
        before = int((values[:column] == value).sum())
        found.append(1 + ahead + {"ordinal": before, "min": 0, "average": (level - 1) / 2}[ties])
    return np.array(found)


@pytest.mark.parametrize("ties", ["ordinal", "min", "average"])
def test_asp_over_n_equals_plain_loop(ties: RankTies) -> None:
    all_scores, graded = made()
    match = of_groups(np.arange(PICTURES), np.repeat(np.arange(PICTURES), 2))
    for direction in DIRECTIONS:
        scores, values = (turned(each, direction) for each in (all_scores.numpy(), graded.values))
        truth = graded.truth(direction, 0, len(scores), match)
        for top in (1, 3, 5, scores.shape[1]):
            metric = ASP(ties=ties, top=top)(Comparison(torch.from_numpy(scores), truth)).numpy()
            for query, row in enumerate(scores):
                semantic = places(values[query], ties)
                inside = semantic <= top
                if inside.any():
                    first, same = places(row[inside], "min"), row[inside][:, None] == row[inside]
                    runs = [low + np.arange(size) for low, size in zip(first, same.sum(axis=1), strict=True)]
                    both = zip(semantic[inside], runs, strict=True)
                    mine = np.mean([agreed(np.full(len(run), rank), run) for rank, run in both])
                    assert metric[query] == pytest.approx(mine, abs=1e-9)
                else:
                    assert np.isnan(metric[query])


@pytest.mark.parametrize("ties", ["ordinal", "min", "average"])
def test_chance_and_ceiling_are_means_over_all_orders(ties: str) -> None:
    """Of five candidates with ties, over all 120 orders, and over those that keep to the relevance."""
    values = np.array([[0.9, 0.4, 0.4, 0.1, 0.1]], dtype=np.float32)
    tops = (1, 2, 3, 4, 5)
    chance, ceiling = (line[0] for line in reference.among_first(ranks(values, "min"), tops, ties))
    semantic = places(values[0], ties)
    for place, top in enumerate(tops):
        inside = np.flatnonzero(semantic <= top)
        orders = [np.array(order) + 1 for order in itertools.permutations(range(len(inside)))]
        all_of_them = [agreed(semantic[inside], order) for order in orders]
        best = [
            value
            for order, value in zip(orders, all_of_them, strict=True)
            if (np.diff(values[0, inside][np.argsort(order)]) <= 0).all()
        ]
        assert chance[place] == pytest.approx(np.mean(all_of_them))
        assert ceiling[place] == pytest.approx(np.mean(best))


def test_asp_chance_and_ceiling_match_its_n() -> None:
    scores, graded = made()
    readings = SemanticRanks.of(scores, graded.values, "ordinal")
    for top in (0, 3, TEXTS):
        chance, ceiling = reference.among_first(ranks(graded.values, "min"), (top or TEXTS,))
        np.testing.assert_array_equal(ASP(top=top).chance(readings), chance[:, 0])
        np.testing.assert_array_equal(ASP(top=top).ceiling(readings), ceiling[:, 0])
    assert ASP(top=3, within=False).chance(readings) is None


def test_query_without_valid_n_has_nan_lines() -> None:
    best = np.array([[1, 1, 1]], dtype=np.uint16)
    found = reference.among_first(best, (1,), "average")
    assert np.isnan(found[0]).all() and np.isnan(found[1]).all()
    with pytest.raises(RequirementError, match="N of 1 or more; it got 0"):
        reference.among_first(best, (2, 0))


def test_counts_above_thresholds_equal_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    _, graded = made()
    groups = np.repeat(np.arange(PICTURES), 2)
    match = of_groups(np.arange(PICTURES), groups)
    levels = (0.3, 0.0, 0.5, 0.7)
    found = count_above(graded, match, levels)
    assert found.thresholds.tolist() == np.sort(np.float32(levels)).tolist() and found.images == PICTURES
    for level, pairs, own in zip(found.thresholds, found.pairs, found.positives, strict=True):
        rows = [(i, t) for i in range(PICTURES) for t in range(TEXTS) if graded.values[i, t] > level]
        assert (pairs, own) == (len(rows), sum(groups[text] == image for image, text in rows))
        assert pairs == int((graded.values > float(level)).sum())
    whole = graded.blocks
    monkeypatch.setattr(Graded, "blocks", lambda self, direction: whole(direction, 4 * TEXTS * 3))
    assert count_above(graded, match, levels).pairs.tolist() == found.pairs.tolist()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_top_k_lists_equal_plain_sort(direction: str) -> None:
    source, graded = made(1)
    groups = np.repeat(np.arange(PICTURES), 2)
    match = of_groups(np.arange(PICTURES), groups)
    found = top_results(source, graded, match, direction, ks=(1, 2), top=4)
    scores, values = (turned(each, direction) for each in (source.numpy(), graded.values))
    own = turned(np.arange(PICTURES)[:, None] == groups[None], direction)
    for query in range(len(scores)):
        order = sorted(range(scores.shape[1]), key=lambda c: (-scores[query, c], values[query, c]))
        assert found.relevance[query] == pytest.approx(values[query, order[:4]].mean())
        best = scores[query, own[query]].max()
        rank = int(((scores[query] >= best) & ~own[query]).sum())
        assert found.hits[query].tolist() == [rank < 1, rank < 2]
        listed = top_list(source, graded, direction, query, 4)
        assert listed.relevance.mean() == pytest.approx(found.relevance[query])
        np.testing.assert_array_equal(listed.scores, scores[query, listed.candidates])
        np.testing.assert_array_equal(listed.relevance, values[query, listed.candidates])
        assert (np.diff(listed.scores) <= 0).all()


def test_queries_of_equal_recall_are_selected() -> None:
    source, graded = made()
    match = of_groups(np.arange(PICTURES), np.repeat(np.arange(PICTURES), 2))
    one = top_results(source, graded, match, "text_to_image", ks=(1, 3))
    assert queries_of_equal_recall(one, one).tolist() == np.flatnonzero(one.hits[:, 0] == 1).tolist()
    perfect = torch.from_numpy(np.eye(PICTURES, dtype=np.float32)[:, np.repeat(np.arange(PICTURES), 2)])
    best = top_results(perfect, graded, match, "text_to_image", ks=(1, 3))
    assert queries_of_equal_recall(one, best).tolist() == np.flatnonzero(one.hits[:, 0] == 1).tolist()
    worst = top_results(-perfect, graded, match, "text_to_image", ks=(1, 3))
    assert queries_of_equal_recall(worst, worst).tolist() == list(range(TEXTS)), "none at 1: all that are equal"
    assert not len(queries_of_equal_recall(best, worst))


def test_nan_score_ranks_last() -> None:
    source, graded = made()
    source[0, 3] = torch.nan
    listed = top_list(source, graded, "image_to_text", 0, TEXTS)
    assert listed.candidates[-1] == 3 and np.isnan(listed.scores[-1])
