"""The nearest items are those that a plain loop finds, whatever the block."""

from __future__ import annotations

import numpy as np
import pytest

from subtext.errors import ShapeError
from subtext.search.ann import nearest


def vectors(count: int, views: int, width: int = 8, *, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, views, width)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=2, keepdims=True)


def plain(queries: np.ndarray, candidates: np.ndarray, top: int) -> tuple[list[list[int]], list[list[float]]]:
    """Every pair of views in a loop, then a sort by score and by row."""
    rows, scores = [], []
    for query in queries:
        found = []
        for row, candidate in enumerate(candidates):
            best = max(float(np.dot(u.astype(np.float64), v.astype(np.float64))) for u in query for v in candidate)
            found.append((-best, row))
        found.sort()
        rows.append([row for _, row in found[:top]])
        scores.append([-score for score, _ in found[:top]])
    return rows, scores


@pytest.mark.parametrize(("views", "query_views"), [(1, 1), (3, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("block_bytes", [1, 400, 2**26])
def test_nearest_equals_the_plain_loop(views: int, query_views: int, block_bytes: int) -> None:
    queries, candidates = vectors(4, query_views, seed=1), vectors(37, views, seed=2)
    found = nearest(queries, candidates, top=5, block_bytes=block_bytes)
    rows, scores = plain(queries, candidates, 5)
    assert found.rows.tolist() == rows
    np.testing.assert_allclose(found.scores, scores, atol=1e-6)


def test_an_item_of_several_views_is_found_once() -> None:
    twice = np.repeat(vectors(3, 1), 4, axis=1)
    found = nearest(vectors(2, 1, seed=5), twice, top=10)
    assert [sorted(rows) for rows in found.rows.tolist()] == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("block_bytes", [1, 12, 2**26])
def test_equal_scores_stand_in_the_order_of_the_rows(block_bytes: int) -> None:
    query = np.float32([[[1, 0]]])
    candidates = np.float32([[[0, 1]], [[1, 0]], [[0.6, 0.8]], [[1, 0]], [[1, 0]], [[0, 1]]])
    assert nearest(query, candidates, top=2, block_bytes=block_bytes).rows.tolist() == [[1, 3]]
    assert nearest(query, candidates, top=6, block_bytes=block_bytes).rows.tolist() == [[1, 3, 4, 2, 0, 5]]


def test_top_beyond_the_index_gives_everything_and_an_empty_index_nothing() -> None:
    assert nearest(vectors(2, 1), vectors(3, 1), top=9).rows.shape == (2, 3)
    assert nearest(vectors(2, 1), np.zeros((0, 1, 8), np.float32), top=9).rows.shape == (2, 0)


def test_best_is_the_vector_itself() -> None:
    candidates = vectors(50, 1)
    found = nearest(candidates, candidates, top=1)
    assert found.rows[:, 0].tolist() == list(range(50))
    np.testing.assert_allclose(found.scores[:, 0], 1, atol=1e-6)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ShapeError, match="one width; it got 8 and 5"):
        nearest(vectors(2, 1), vectors(2, 1, 5), top=1)
    with pytest.raises(ShapeError, match="top of 1 or more; it got 0"):
        nearest(vectors(2, 1), vectors(2, 1), top=0)
