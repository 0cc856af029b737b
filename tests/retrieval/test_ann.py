"""Rows that FAISS compares, and lists of rows, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from subtext.retrieval import ann
from subtext.retrieval.ann import best_rows, rescore_top_k, scores_of_rows

pytestmark = pytest.mark.identity


def unit(count: int, width: int = 16, *, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.mark.parametrize("queries", [1, 3, 40, 300])
@pytest.mark.parametrize("dead", [False, True])
def test_best_rows_equal_full_sort(queries: int, dead: bool) -> None:
    vectors, asked = unit(203), unit(queries, seed=1)
    gone = np.random.default_rng(2).random(203) < 0.4 if dead else None
    found = best_rows(asked, vectors, 9, dead=gone)
    for query, rows in zip(asked, found, strict=True):
        scores = [(-float(query.astype(np.float64) @ vector), row) for row, vector in enumerate(vectors)]
        wanted = [row for _, row in sorted(scores) if gone is None or not gone[row]][:9]
        assert sorted(rows.tolist()) == sorted(wanted)


def test_missing_rows_are_padded_with_minus_one() -> None:
    gone = np.array([True, False, True])
    assert sorted(best_rows(unit(1), unit(3), 3, dead=gone)[0].tolist()) == [-1, -1, 1]
    assert best_rows(unit(2), unit(3), 10).shape == (2, 3)


def test_scores_of_rows_equal_products() -> None:
    vectors, query = unit(50), unit(1, seed=1)[0]
    rows = np.array([49, 3, 3, 0])
    np.testing.assert_allclose(scores_of_rows(query, vectors, rows), vectors[rows] @ query, atol=1e-6)
    assert scores_of_rows(query, vectors, rows[:0]).shape == (0,)


def test_likeliest_lists_equal_full_sort() -> None:
    centroids, query = unit(64), unit(1, seed=1)[0]
    order = np.argsort(-(centroids.astype(np.float64) @ query.astype(np.float64)))
    for probes in (1, 5, 63, 64):
        assert ann.likeliest(query, centroids, probes).tolist() == sorted(order[:probes].tolist())


def test_item_is_ranked_by_its_best_row() -> None:
    vectors, queries = unit(12), unit(2, seed=1)
    keys = np.array([5, 5, 5, 2, 2, 2, 9, 9, 9, 1, 1, 1])
    found, scores = rescore_top_k(queries, vectors, keys, 3)
    best = {key: max(float(q @ v) for q in queries.astype(float) for v in vectors[keys == key]) for key in (1, 2, 5, 9)}
    wanted = sorted(best, key=lambda key: -best[key])[:3]
    assert found.tolist() == wanted
    np.testing.assert_allclose(scores, [best[key] for key in wanted], atol=1e-6)


def test_equal_scores_are_ordered_by_key() -> None:
    vectors = np.repeat(unit(1, 512), 7, axis=0)
    for keys in (np.array([6, 5, 4, 3, 2, 1, 0]), np.array([3, 1, 6, 0, 2, 5, 4])):
        found, scores = rescore_top_k(unit(1, 512, seed=1), vectors, keys, 4)
        assert found.tolist() == [0, 1, 2, 3] and len(set(scores.tolist())) == 1


def test_rows_of_lists_equal_plain_loop() -> None:
    offsets = np.array([0, 3, 3, 7, 8])
    for chosen in ([], [1], [0], [0, 2, 3], [1, 3]):
        wanted = [row for each in chosen for row in range(offsets[each], offsets[each + 1])]
        assert ann.rows_in(np.array(chosen, dtype=np.int64), offsets).tolist() == wanted


def test_rows_are_assigned_to_nearest_centroid() -> None:
    vectors, centroids = unit(500), unit(16, seed=1)
    assert ann.assign(vectors, centroids).tolist() == (vectors @ centroids.T).argmax(axis=1).tolist()
    near = ann.likeliest(vectors[0], centroids, 4)
    assert near.tolist() == sorted(np.argsort(-(centroids @ vectors[0]))[:4].tolist())


def clustered(count: int, *, seed: int) -> np.ndarray:
    centres = unit(30, seed=9)
    drawn = centres[np.random.default_rng(seed).integers(0, 30, count)] + 0.5 * unit(count, seed=seed)
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def test_enough_lists_are_probed_for_target_recall() -> None:
    vectors = clustered(3000, seed=3)
    centroids = ann.train(vectors, 64, seed=0)
    np.testing.assert_array_equal(centroids, ann.train(vectors, 64, seed=0))
    np.testing.assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-5)
    own = ann.assign(vectors, centroids)
    order = np.argsort(own, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=64))])
    rows, asked = np.ascontiguousarray(vectors[order]), clustered(60, seed=4)
    probes, recalls = ann.probes_needed([asked, rows[:40]], rows, centroids, offsets, 0.985)
    assert 1 < probes < 64 and min(recalls) >= 0.985

    def by_hand(queries: np.ndarray, probes: int, *, own: int = 0) -> float:
        found = []
        for query in queries:
            wanted = np.argsort(-(rows @ query), kind="stable")[own : own + 10]
            looked = set(ann.rows_in(ann.likeliest(query, centroids, probes), offsets).tolist())
            found.append(np.mean([row in looked for row in wanted]))
        return float(np.mean(found))

    assert recalls == pytest.approx([by_hand(asked, probes), by_hand(rows[:40], probes, own=1)])
    fewer = probes - max(1, probes // 16)
    assert min(by_hand(asked, fewer), by_hand(rows[:40], fewer, own=1)) < 0.985, "hardly fewer are too few"


def test_uninformative_lists_are_all_probed() -> None:
    rows = unit(40)
    centroids = unit(4, seed=1)
    own = ann.assign(rows, centroids)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(own, minlength=4))])
    probes, recalls = ann.probes_needed(
        [unit(5, seed=2)], rows[np.argsort(own, kind="stable")], centroids, offsets, 0.985
    )
    assert probes == 4 and recalls == [1.0]
    assert ann.probes_needed([], rows, centroids, offsets, 0.9) == (1, [])


@pytest.mark.parametrize("count", [1, 30, 5000])
def test_rows_of_sixteen_bits_are_compared_as_their_own_numbers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block, and without the dead ones."""
    monkeypatch.setattr(ann, "BLOCK", 256)
    rows, queries = unit(1000, seed=1).astype(np.float16), unit(4, seed=2)
    dead = np.arange(1000) % 3 == 0
    scores = queries.astype(np.float64) @ rows.T.astype(np.float64)
    for mask in (None, dead):
        own = scores if mask is None else np.where(mask, -np.inf, scores)
        for query, found in zip(own, ann.best_rows(queries, rows, count, dead=mask), strict=True):
            alive = np.count_nonzero(np.isfinite(query))
            assert set(found[found >= 0].tolist()) == set(np.argsort(-query)[: min(count, alive)].tolist())
    chosen = np.arange(0, 1000, 3)
    np.testing.assert_allclose(ann.scores_of_rows(queries[0], rows, chosen), scores[0][chosen], atol=1e-6)
    np.testing.assert_array_equal(ann.widened(rows), rows.astype(np.float32))
