"""Upper bounds of scores: never below a score as it is summed, and hardly above it."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from subtext.ops.compiled import nearest
from subtext.ops.compiled.nearest import score_offsets

pytestmark = pytest.mark.identity

ROWS = 48


def kinds(width: int) -> dict[str, np.ndarray]:
    """Vectors of like and of unlike lengths."""
    draw = np.random.default_rng(5)
    plain = draw.standard_normal((ROWS, width)).astype(np.float32)
    spiky = plain.copy()
    spiky[::3, 0] *= 1000
    lengths = np.logspace(-6, 6, ROWS, dtype=np.float32)[:, None]
    holes = plain.copy()
    holes[::2] = 0
    equal = np.repeat(plain[:, :1], width, axis=1)
    far = plain + np.float32(1000)
    return {
        "plain": plain,
        "spiky": spiky,
        "of all lengths": plain * lengths,
        "some are zero": holes,
        "equal numbers": equal,
        "far from the origin": far,
        "the smallest": (plain * np.float32(1e-41)).astype(np.float32),
        "small beside large": np.concatenate([plain[:24] * np.float32(1e-30), plain[24:] * np.float32(1e10)]),
        "the largest": plain * np.float32(1e18 / max(1, np.abs(plain).max() * width**0.5)),
    }


KINDS = tuple(kinds(1))


def compiled_scores(vectors: np.ndarray) -> np.ndarray:
    """Every score, as the sweep sums it."""
    score, scores = nearest._compiled()["score"], np.empty((len(vectors), len(vectors)), dtype=np.float32)
    for row in range(len(vectors)):
        score(vectors, row, scores[row])
    return scores


def running_sums(vectors: np.ndarray) -> np.ndarray:
    """Every score by running sums in float32, which round the most."""
    squares = [np.cumsum((vectors - row) ** 2, axis=1, dtype=np.float32)[:, -1] for row in vectors]
    return np.float32(-0.5) * np.stack(squares)


def exact(vectors: np.ndarray) -> np.ndarray:
    """Every score in float64."""
    u = vectors.astype(np.float64)
    return -((u[:, None] - u) ** 2).sum(axis=2) / 2


def bounds(vectors: np.ndarray) -> np.ndarray:
    """Every bound, in the sweep's precision and order of sums."""
    products = (torch.from_numpy(vectors) @ torch.from_numpy(vectors).T).numpy()
    offsets = score_offsets(vectors)
    return products + (offsets[:, None] + offsets)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 5, 64, 301])
def test_bound_is_never_below_score(kind, width):
    vectors = kinds(width)[kind]
    above = bounds(vectors)
    for scores in (compiled_scores(vectors), running_sums(vectors), exact(vectors)):
        assert (above >= scores).all()


def test_bounds_are_tight():
    """A bound that is always true could be infinite: it may exceed the score by a ten-thousandth of both lengths."""
    vectors = kinds(64)["plain"]
    norm = np.linalg.norm(vectors.astype(np.float64), axis=1)
    over = bounds(vectors) - exact(vectors)
    assert (over <= 1e-4 * (norm[:, None] + norm) ** 2).all()


def test_bound_is_compared_with_limits_of_both_sides():
    """Each pair alone may reach its row's limit or its column's; equality reaches it."""
    reached = numba.njit(nearest._reached)
    products, offsets = np.float32([1, 2, 3]), np.float32([0, 0.5, 0])
    never = np.full(3, np.inf, dtype=np.float32)
    for limit, answer in ((4.0, True), (np.nextafter(np.float32(4), np.float32(5)), False)):
        assert reached(products, np.float32(1), offsets, np.float32(limit), never) == answer
        assert reached(products, np.float32(1), offsets, np.float32(np.inf), never) is False
    for column, bound in enumerate((2.0, 3.5, 4.0)):
        limits = never.copy()
        limits[column] = bound
        assert reached(products, np.float32(1), offsets, np.float32(np.inf), limits)
        limits[column] = np.nextafter(np.float32(bound), np.float32(9))
        assert not reached(products, np.float32(1), offsets, np.float32(np.inf), limits)
