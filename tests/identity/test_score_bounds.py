"""Bounds of scores: never below the score, hardly above it, and the same bits whatever a vector holds."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from subtext.ops import nearest as score_bounds
from subtext.ops.nearest import HIGH, WIDE, lowest, reached, rounded

ROWS = 48


def kinds(width: int) -> dict[str, np.ndarray]:
    """Vectors that round well and badly."""
    draw = np.random.default_rng(5)
    plain = draw.standard_normal((ROWS, width)).astype(np.float32)
    spiky = plain.copy()
    spiky[::3, 0] *= 1000
    lengths = np.logspace(-6, 6, ROWS, dtype=np.float32)[:, None]
    holes = plain.copy()
    holes[::2] = 0
    return {"plain": plain, "spiky": spiky, "of all lengths": plain * lengths, "some are nought": holes}


KINDS = ("plain", "spiky", "of all lengths", "some are nought")


def exact(vectors: np.ndarray) -> np.ndarray:
    """Every score by a loop, in float64."""
    u = vectors.astype(np.float64)
    return np.array([[-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / 2 for y in u] for x in u])


def summed(vectors: np.ndarray) -> np.ndarray:
    """Every score by running sums in float32."""
    squares = [np.cumsum((vectors - row) ** 2, axis=1, dtype=np.float32)[:, -1] for row in vectors]
    return np.float32(-0.5) * np.stack(squares)


def bits(given, row_limits, column_limits, lanes=16) -> np.ndarray:
    """(N N) which pairs reach a limit."""
    length = given.terms.shape[1]
    answer = np.zeros((length, length), dtype=bool)
    kernel = reached(lanes)
    lines = [np.ascontiguousarray(line, dtype=np.float32) for line in (row_limits, column_limits)]
    rounding = (given.panels.ctypes.data, given.panels.shape[1], given.terms.ctypes.data, length)
    where = (*rounding, lines[0].ctypes.data, lines[1].ctypes.data)
    for row in range(0, length, HIGH):
        for column in range(0, length, WIDE):
            word = kernel(where, row, column)
            tile = [bool(word >> place & 1) for place in range(HIGH * WIDE)]
            answer[row : row + HIGH, column : column + WIDE] = np.reshape(tile, (HIGH, WIDE))
    return answer


def bounds_by_loop(given) -> np.ndarray:
    """The formula of the docstring, one pair at a time, in float64."""
    whole = given.panels.transpose(0, 2, 1, 3).reshape(given.terms.shape[1], -1).astype(np.int64)
    scale, norm, slack, half = given.terms.astype(np.float64)
    total = np.zeros((len(whole), len(whole)))
    for u in range(len(whole)):
        for v in range(len(whole)):
            product = scale[u] * scale[v] * int(whole[u] @ whole[v])
            total[u, v] = product + norm[u] * slack[v] + slack[u] * norm[v] + half[u] + half[v]
    return total


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 5, 64, 301])
def test_no_score_is_above_its_bound(kind, width):
    vectors = kinds(width)[kind]
    scores = exact(vectors)
    assert (bounds_by_loop(rounded(vectors)) >= scores).all()


def test_bounds_are_near():
    """A bound that is always true could be infinite: it may exceed the score by a thousandth of both lengths."""
    vectors = kinds(64)["plain"]
    norm = np.linalg.norm(vectors.astype(np.float64), axis=1)
    over = bounds_by_loop(rounded(vectors)) - exact(vectors)
    assert (over <= 1e-3 * norm[:, None] * norm).all()


@pytest.mark.parametrize("lanes", [16, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_what_the_formula_says(kind, lanes):
    """At limits a little below and above each bound: float32 may decide only what lies between."""
    given = rounded(kinds(29)[kind])
    bounds = bounds_by_loop(given)
    spare = 1e-5 * (1e-30 + np.abs(bounds).max(axis=1))
    never = np.full(len(bounds), np.inf)
    for column in range(0, ROWS, 5):
        limit = bounds[:, column]
        assert bits(given, limit - spare, never, lanes)[:, column].all()
        assert not bits(given, limit + spare, never, lanes)[:, column].any()
        assert bits(given, never, limit - spare, lanes)[column].all()
        assert not bits(given, never, limit + spare, lanes)[column].any()


def test_the_largest_integers_do_not_overflow():
    """Equal numbers round to the largest integer throughout: their products add up to nearly 2^31."""
    for width in (1, 2, 7, 200, 1000):
        vectors = np.full((WIDE, width), 3.0, dtype=np.float32)
        given = rounded(vectors)
        below, above = (np.full(WIDE, 9.0 * width * share, dtype=np.float32) for share in (-0.001, 0.01))
        assert bits(given, below, below).all() and not bits(given, above, above).any()


def test_chunks_round_as_a_whole(monkeypatch):
    vectors = kinds(10)["spiky"]
    at_once = rounded(vectors)
    monkeypatch.setattr(score_bounds, "_CHUNK", 16)
    in_parts = rounded(vectors)
    np.testing.assert_array_equal(at_once.panels, in_parts.panels)
    np.testing.assert_array_equal(at_once.terms, in_parts.terms)


def test_rows_fill_whole_panels():
    given = rounded(kinds(3)["plain"][:17])
    assert given.panels.shape == (2, 2, 16, 2) and given.terms.shape == (4, 32)
    assert not given.panels[1, :, 1:].any() and not given.terms[:, 17:].any()


def test_lowest_is_the_lowest_bit():
    compiled = numba.njit(lowest)
    assert [compiled(np.uint64(1) << np.uint64(place)) for place in range(64)] == list(range(64))
    assert compiled(np.uint64(0b1011000)) == 3


@pytest.mark.parametrize("size", [1e-18, 1e-30, 1e-41])
def test_the_smallest_numbers_stay_below_their_bounds(size):
    vectors = (kinds(64)["plain"] * np.float32(size)).astype(np.float32)
    vectors[::5] = 1e10 * kinds(64)["plain"][::5]
    given = rounded(vectors)
    scores = summed(vectors)
    never = np.full(ROWS, np.inf)
    for column in range(ROWS):
        assert bits(given, scores[:, column], never)[:, column].all()


def test_sums_in_float32_stay_below_their_bounds():
    """300 equal numbers: a running sum is off by more than rounding to integers takes."""
    vectors = np.repeat(np.random.default_rng(0).standard_normal((ROWS, 1), dtype=np.float32), 300, axis=1)
    given = rounded(vectors)
    scores = summed(vectors)
    never = np.full(ROWS, np.inf)
    for column in range(ROWS):
        assert bits(given, scores[:, column], never)[:, column].all()
