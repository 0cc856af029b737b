"""The nearest rows: the sweep over blocks gives what sorting everything gives, in one thread and in several."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from subtext.errors import ShapeError
from subtext.ops.compiled import nearest
from subtext.ops.compiled.nearest import nearest_rows

pytestmark = pytest.mark.identity


def whole_numbers(rows: int, width: int, *, top: int = 4, seed: int = 3) -> np.ndarray:
    """Vectors whose products are whole numbers, so that scores are exact and many of them are equal."""
    return np.random.default_rng(seed).integers(-top, top + 1, size=(rows, width)).astype(np.float32)


def by_loop(vectors, *, count, candidates=None, groups=None):
    """One row at a time, in float64, ties by row."""
    total = len(vectors)
    exact = vectors.astype(np.float64)
    rows, scores = np.full((total, count), -1), np.full((total, count), -np.inf)
    for row in range(total):
        found = -((exact - exact[row]) ** 2).sum(axis=1) / 2
        fit = [
            other
            for other in range(total)
            if other != row
            and (candidates is None or candidates[other])
            and (groups is None or not (groups[:, other] == groups[:, row]).any())
        ]
        best = sorted(fit, key=lambda other: (-found[other], other))[:count]
        rows[row, : len(best)], scores[row, : len(best)] = best, found[best]
    return rows, scores


@pytest.fixture
def swept(monkeypatch):
    """Small blocks and no short cut, so that a few hundred rows meet every kind of block."""
    for name, value in {"SMALL": 0, "ROWS": 48, "COLUMNS": 80, "SAMPLE": 64}.items():
        monkeypatch.setattr(nearest, name, value)


CASES = {
    "plain": {},
    "few may be neighbours": {"candidates": np.arange(300) % 3 == 0},
    "fewer than a sample may be": {"candidates": np.arange(300) < 40},
    "groups": {"groups": np.stack([np.arange(300) // 7, np.arange(300) % 50])},
    "groups and candidates": {"candidates": np.arange(300) % 2 == 1, "groups": np.arange(300)[None] // 90},
    "one group": {"groups": np.zeros((1, 300), dtype=np.int64)},
}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_sweep_equals_plain_loop(swept, case, threads):
    vectors = whole_numbers(300, 5)
    torch.set_num_threads(threads)
    try:
        found = nearest_rows(vectors, count=20, **CASES[case])
    finally:
        torch.set_num_threads(1)
    rows, scores = by_loop(vectors, count=20, **CASES[case])
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores.astype(np.float32))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sorting_equals_plain_loop(case):
    vectors = whole_numbers(300, 5)
    found = nearest_rows(vectors, count=20, **CASES[case])
    rows, scores = by_loop(vectors, count=20, **CASES[case])
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores.astype(np.float32))


@pytest.mark.parametrize("spread", [0.0, 3.0], ids=["equal lengths", "lengths over many magnitudes"])
def test_sweep_finds_all_neighbours_of_float_vectors(swept, spread):
    """Where bounds are wide for some rows and close for others; scores are those of the loop to float32's last bits."""
    draw = np.random.default_rng(8)
    vectors = draw.standard_normal((300, 33)) * np.exp(spread * draw.standard_normal((300, 1)))
    vectors[::7, 3] *= 50
    vectors = vectors.astype(np.float32)
    found = nearest_rows(vectors, count=25)
    rows, scores = by_loop(vectors, count=25)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-6 * np.abs(scores).min())
    assert (found.rows == rows).mean() > 0.999


@pytest.mark.parametrize("small", [0, 4096], ids=["swept", "sorted"])
def test_equal_rows_have_zero_distance(swept, monkeypatch, small):
    """No cancellation: L2 is summed from differences, however long the vectors are."""
    monkeypatch.setattr(nearest, "SMALL", small)
    vectors = np.random.default_rng(2).standard_normal((200, 9)).astype(np.float32) + 1000
    vectors[150] = vectors[3]
    found = nearest_rows(vectors, count=2)
    rows, _ = by_loop(vectors, count=2)
    assert found.rows[3, 0] == 150 and found.rows[150, 0] == 3 and found.scores[3, 0] == 0
    np.testing.assert_array_equal(found.rows, rows)


def test_scores_beyond_float32_raise():
    with pytest.raises(ShapeError, match="scale the vectors"):
        nearest_rows(np.full((3, 4), 1e20, dtype=np.float32), count=1)


@pytest.mark.parametrize("count", [1, 2, 37, 299, 400])
def test_neighbour_count_may_be_any_length(swept, count):
    vectors = whole_numbers(300, 4)
    rows, _ = by_loop(vectors, count=count)
    np.testing.assert_array_equal(nearest_rows(vectors, count=count).rows, rows)


def test_low_threshold_guess_is_corrected(swept, monkeypatch):
    """With a guess of one, every limit is too high; each row is scored with all candidates again and is right."""
    vectors = whole_numbers(300, 4)
    asked = []
    compiled = nearest._compiled()
    counted = {**compiled, "score": lambda *given: (asked.append(given[1]), compiled["score"](*given))}
    monkeypatch.setattr(nearest, "_guess", lambda seen, chosen, count: 1)
    monkeypatch.setattr(nearest, "_compiled", lambda: counted)
    rows, scores = by_loop(vectors, count=30)
    found = nearest_rows(vectors, count=30)
    assert len(asked) > 50
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores.astype(np.float32))


def test_identical_rows_are_ordered_by_row_number(swept):
    found = nearest_rows(np.ones((200, 3), dtype=np.float32), count=4)
    assert found.rows[0].tolist() == [1, 2, 3, 4] and found.rows[150].tolist() == [0, 1, 2, 3]
    assert (found.scores == 0).all()


def test_sorted_rows_give_correct_neighbours(swept):
    """Rows in the order of one direction: the sample is not the first rows as they stand."""
    vectors = np.sort(whole_numbers(300, 1, top=1000), axis=0)
    rows, _ = by_loop(vectors, count=20)
    np.testing.assert_array_equal(nearest_rows(vectors, count=20).rows, rows)


def test_progress_increases_to_total(swept):
    told: list[int] = []
    nearest_rows(whole_numbers(300, 3), count=5, progress=told.append)
    assert told == sorted(told) and told[-1] == 300 and len(told) > 3


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_vectors_raise(bad):
    vectors = np.ones((5, 2), dtype=np.float32)
    vectors[3, 1] = bad
    with pytest.raises(ShapeError, match="row 3"):
        nearest_rows(vectors, count=2)
    with pytest.raises(ShapeError, match="1 or more; it got 0"):
        nearest_rows(np.ones((5, 2), dtype=np.float32), count=0)


def test_cut_keeps_largest_keys():
    keys = np.random.default_rng(0).permutation(500)
    nearest._cut(keys, 400, 60)
    assert sorted(keys[:60]) == sorted(np.random.default_rng(0).permutation(500)[:400])[-60:]
    assert keys[59] == keys[:60].min()
