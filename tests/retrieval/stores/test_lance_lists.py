"""How LanceDB's lists are chosen: what codes are predicted to find is what a plain simulation and Lance itself find."""

from __future__ import annotations

import numpy as np
import pytest

from subtext.retrieval import ann

lance_lists = pytest.importorskip("subtext.retrieval.stores.lance_lists")
ListSearch = lance_lists.ListSearch


def unit(count: int, *, seed: int, width: int = 64) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def held_out(rows: np.ndarray, count: int) -> lance_lists.HeldOut:
    queries = unit(count, seed=5)
    order = np.argsort(-(queries @ rows.T), axis=1)[:, : lance_lists.DEEP]
    scores = np.take_along_axis(queries @ rows.T, order, axis=1)
    nearest = [rows[own[:10]][:, None] for own in order]
    return lance_lists.HeldOut(np.full(count, -1), queries, scores, [own[:10] for own in order], nearest)


def test_more_bits_have_less_error_and_need_fewer_candidates() -> None:
    rows = unit(2000, seed=1)
    errors = {bits: lance_lists.coding_error(rows, rows[:4].copy(), bits) for bits in (1, 3, 5, lance_lists.WHOLE)}
    assert errors[1] > 3 * errors[3] > 9 * errors[5] > 0 and errors[lance_lists.WHOLE] == 0
    own = held_out(rows, 16)
    curves = {bits: lance_lists.found_by_candidates(own.scores, error) for bits, error in errors.items()}
    needed = {bits: np.count_nonzero(curve < 0.95) for bits, curve in curves.items()}
    assert needed[1] > needed[3] > needed[5] >= needed[lance_lists.WHOLE] == 10
    assert all(curve[0] == 0 and (np.diff(curve) >= 0).all() for curve in curves.values())
    # A loop: errors are drawn, and it is counted who is still among so many.
    generator, shares = np.random.default_rng(9), []
    for scores in np.repeat(own.scores, 8, axis=0):
        order = np.argsort(-(scores + errors[3] * generator.standard_normal(len(scores))))
        shares.append(np.isin(np.arange(10), order[:20]).mean())
    assert curves[3][20] == pytest.approx(np.mean(shares), abs=0.03)


def test_centroids_of_the_right_length_have_less_error_and_the_same_lists() -> None:
    rows = unit(2000, seed=1)
    for count in (1, 4):
        centroids = lance_lists.centroids_of(rows, count, seed=0)
        length = np.linalg.norm(centroids, axis=1, keepdims=True)
        assert np.ptp(length) < 1e-6 and length[0] == pytest.approx(
            (rows @ (centroids / length).T).max(axis=1).mean(), 0.1
        )
        np.testing.assert_array_equal(ann.assign(rows, centroids), ann.assign(rows, centroids / length))
        errors = [lance_lists.coding_error(rows, own, 3) for own in (centroids, centroids / length)]
        assert errors[0] < 0.85 * errors[1]


def test_lists_that_hold_no_clusters_together_are_few_and_all_searched() -> None:
    rows = unit(3000, seed=2)
    asked = {"images": {"texts": held_out(rows, 16)}}
    centroids = [rows[:count].copy() for count in (16, 64)]
    errors, by_hand = [{1: 0.13, 5: 0.008}] * 2, dict[str, int]()

    def cost(search: ListSearch) -> int:
        return search.cost(200_000, 512, 4, 2**28)

    (found,) = lance_lists.cheapest(asked, centroids, errors, 0.95, {"images": 26}, by_hand, cost).values()
    assert (found.lists, found.bits) == (16, 5) and found.probes >= 8 and found.candidates < 60
    (single,) = lance_lists.cheapest(
        asked, [rows[:1].copy(), *centroids], errors[:1] * 3, 0.95, {"images": 26}, by_hand, cost
    ).values()
    assert (single.lists, single.probes) == (1, 1), "which is read in the fewest requests"
    nothing = lance_lists.cheapest(asked, centroids, [{1: 9.0}] * 2, 0.95, {"images": 26}, by_hand, cost)
    assert nothing == {"images": ListSearch(16, 1, 16, lance_lists.MOST)}, "the most that there is, which is measured"
    for by_hand in ({"probes": 2}, {"candidates": 3}, {"probes": 2, "candidates": 3}):
        (own,) = lance_lists.cheapest(asked, centroids, errors, 0.95, {"images": 26}, by_hand, cost).values()
        assert {name: getattr(own, name) for name in by_hand} == by_hand


def test_a_small_cache_makes_codes_shorter() -> None:
    """Who cannot keep lists reads those that are searched each time."""
    large = {bits: ListSearch(64, bits, 64, 400 // bits**2).cost(10**6, 512, 4, 2**34) for bits in (1, 4)}
    small = {bits: ListSearch(64, bits, 64, 400 // bits**2).cost(10**6, 512, 4, 2**20) for bits in (1, 4)}
    assert large[4] < large[1] and small[1] < small[4] and large[4] < small[4]


def test_what_finds_too_little_is_raised_until_there_is_no_more() -> None:
    def found(search: ListSearch) -> dict[str, float]:
        return {"images": 0.5 + search.probes / 100 + search.candidates / 1000, "texts": 1.0}

    enough, share = lance_lists.measured(ListSearch(64, 4, 8, 26), found, 0.7, {})
    assert (enough.probes, enough.candidates) == (32, 35) and share["images"] >= 0.7
    most, share = lance_lists.measured(ListSearch(64, 4, 8, 26), lambda own: {"images": 0.1}, 0.7, {})
    assert (most.probes, most.candidates) == (64, lance_lists.MOST) and share == {"images": 0.1}
    fixed = {"probes": 8, "candidates": 26}
    assert lance_lists.measured(ListSearch(64, 4, 8, 26), lambda own: {"images": 0.1}, 0.7, fixed)[0].probes == 8
