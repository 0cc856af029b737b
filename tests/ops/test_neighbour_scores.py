"""Diversity and discrepancy (Thomas and Kovashka 2022, eq. 2 and 4): worked values, and plain double loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from subtext.errors import ShapeError
from subtext.ops import neighbour_scores as ops, neighbour_scores as pooled_ops
from subtext.ops.neighbour_scores import (
    Scoring,
    exact_scores,
    gram_diversity,
    neighbour_scores,
    pooled_scores,
    sampled_discrepancy,
    second_sums,
    select_neighbours,
)

pytestmark = pytest.mark.golden

NEAR = torch.tensor([[1, 2], [0, 2], [1, 3], [4, 0], [3, 2]], dtype=torch.int32)
UNEVEN = torch.tensor([[1, 2, 3], [0, -1, -1], [1, 3, -1], [4, 0, -1], [3, -1, -1]], dtype=torch.int32)
IMAGES = torch.tensor([[1, 0], [0.6, 0.8], [0, 1], [-0.8, 0.6], [0, -1]], dtype=torch.float64)
TEXTS = torch.tensor([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1], [-0.6, 0.8]], dtype=torch.float64)
FURTHER = torch.tensor([[0, 1], [0.8, -0.6], [-1, 0], [0, 1], [0.6, 0.8]], dtype=torch.float64)
BOTH = torch.stack([IMAGES, FURTHER], dim=1)
ALL = [
    Scoring(second=second, diagonal=diagonal, average=average)
    for second in ("multiset", "unique", "direct", "none")
    for diagonal in (True, False)
    for average in ("pairs", "lists")
    if average == "pairs" or second == "multiset"
]


def assert_values(found: torch.Tensor, wanted: list[float]) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(wanted, dtype=torch.float64), atol=1e-7, rtol=0)


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def loops(score, lists: list[list[int]], scoring: Scoring) -> tuple[list[float], list[float]]:
    """Both scores by the printed double sums; score(a, b) of two items."""
    diversity, discrepancy = [], []
    for item, near in enumerate(lists):
        inner = [score(a, b) for x, a in enumerate(near) for y, b in enumerate(near) if scoring.diagonal or x != y]
        diversity.append(mean(inner))
        further = [lists[j] for j in near if lists[j]]
        flat = [far for some in further for far in some]
        if scoring.second == "direct":
            flat = near
        elif scoring.second == "none":
            flat = []
        elif scoring.second == "unique":
            flat = sorted(set(flat))
        if scoring.average == "lists":
            discrepancy.append(mean([mean([score(item, far) for far in some]) for some in further]))
        else:
            discrepancy.append(mean([score(item, far) for far in flat]))
    return diversity, discrepancy


def made(count: int = 23, width: int = 6, views: int = 3, *, short: bool = True):
    """A bank of unit vectors, lists of neighbours of unequal length (one of them empty), and the lists in Python."""
    generator = torch.Generator().manual_seed(3)
    bank = torch.nn.functional.normalize(torch.randn(count, views, 70, generator=generator), dim=-1).double()
    near = torch.stack([torch.randperm(count - 1, generator=generator)[:width] for _ in range(count)])
    near = near + (near >= torch.arange(count)[:, None])
    if short:
        near[::3, 4:] = -1
        near[5] = -1
        near[7, 1:] = -1
    return bank, near.int(), [[int(j) for j in row if j >= 0] for row in near]


def test_printed_formulas_equal_worked_values():
    images, texts = neighbour_scores(IMAGES, NEAR), neighbour_scores(TEXTS, NEAR)
    assert_values(images.discrepancy, [0.2, 0.7, 0, 0.55, -0.1])
    assert_values(texts.discrepancy, [0.6, 0.89, 0.62, 0.80, 0.30])
    assert_values(images.diversity, [0.9, 0.5, 0.5, 0.5, 0.8])
    assert_values(texts.diversity, [0.98, 0.80, 0.80, 0.20, 0.90])


def test_two_views_in_every_reading_equal_worked_values():
    best = exact_scores(BOTH, NEAR)
    assert_values(best.discrepancy, [0.95, 0.90, 0.95, 0.95, 0.90])
    assert_values(best.diversity, [0.9, 1, 0.9, 0.9, 1])
    average = neighbour_scores(BOTH.mean(dim=1), NEAR)
    assert_values(average.discrepancy, [0.275, 0.125, 0.075, 0.45, 0.05])
    assert_values(average.diversity, [0.1, 0.25, 0.225, 0.2, 0.625])
    aligned = neighbour_scores(BOTH.flatten(1) / 2**0.5, NEAR)
    assert_values(aligned.discrepancy, [0.275, 0.425, 0.05, 0.325, 0.275])
    assert_values(aligned.diversity, [0.5, 0.5, 0.35, 0.7, 0.65])


def test_unequal_lists_equal_worked_values():
    assert_values(neighbour_scores(IMAGES, UNEVEN).discrepancy, [0.36, 0.6, -0.3333333333, 0.65, 0.5])
    lists = neighbour_scores(IMAGES, UNEVEN, Scoring(average="lists"))
    assert_values(lists.discrepancy, [0.4666666667, 0.6, -0.25, 0.7666666667, 0.5])


@pytest.mark.parametrize("scoring", ALL, ids=str)
def test_sparse_products_equal_double_loops(scoring):
    bank, near, lists = made()
    for vectors in (bank.mean(dim=1), bank.flatten(1) / 3**0.5):
        gram = (vectors @ vectors.T).tolist()
        found = neighbour_scores(vectors, near, scoring)
        for mine, wanted in zip(found, loops(lambda a, b, gram=gram: gram[a][b], lists, scoring), strict=True):
            torch.testing.assert_close(mine.double(), torch.tensor(wanted).double(), atol=1e-6, rtol=0, equal_nan=True)


@pytest.mark.parametrize(
    "scoring", [one for one in ALL if one.second in ("multiset", "direct") and one.average == "pairs"], ids=str
)
def test_pooled_scores_equal_double_loops(scoring, monkeypatch):
    bank, near, lists = made()
    gram = torch.einsum("akh,blh->abkl", bank, bank).amax(dim=(2, 3)).tolist()
    diversity, discrepancy = (torch.tensor(w).double() for w in loops(lambda a, b: gram[a][b], lists, scoring))
    for cells in (2**24, 500):
        monkeypatch.setattr(pooled_ops, "_CELLS", cells)
        found = exact_scores(bank, near, scoring)
        near_same = {"atol": 1e-6, "rtol": 0, "equal_nan": True}
        torch.testing.assert_close(found.diversity.double(), diversity, **near_same)
        torch.testing.assert_close(found.discrepancy.double(), discrepancy, **near_same)
        torch.testing.assert_close(gram_diversity(bank, near, scoring).double(), diversity, **near_same)


@pytest.mark.parametrize("scoring", [*ALL, Scoring(second="none"), Scoring(second="none", diagonal=False)], ids=str)
def test_subset_of_items_has_the_same_scores(scoring):
    bank, near, _ = made()
    items = torch.tensor([0, 5, 6, 7, len(near) - 1])
    vectors, rows = bank.mean(dim=1), torch.arange(len(bank)) // 2
    for given in (None, rows):
        every = neighbour_scores(vectors, near, scoring, rows=given)
        some = neighbour_scores(vectors, near, scoring, rows=given, items=items)
        for found, wanted in zip(some, every, strict=True):
            torch.testing.assert_close(found, wanted[items], rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("samples", [0, 5])
@pytest.mark.parametrize("second", ["multiset", "direct", "none"])
@pytest.mark.parametrize("count", [14, 60])
def test_subset_of_items_has_the_same_pooled_scores(second, samples, count):
    bank, near, _ = made(count=count)
    items, keys = torch.tensor([1, 5, 9, count - 1]), np.arange(count) * 3
    given = {"keys": keys, "samples": samples, "seed": 1, "epoch": 2}
    every = pooled_scores(bank, near, Scoring(second), **given)
    some = pooled_scores(bank, near, Scoring(second), items=items, **given)
    for found, wanted in zip(some, every, strict=True):
        torch.testing.assert_close(found.double(), wanted[items].double(), rtol=0, atol=1e-6, equal_nan=True)


def test_diversity_equals_squared_length_of_neighbour_sum():
    bank, near, _ = made(short=False)
    vectors = bank.mean(dim=1)
    lengths = vectors[near.long()].sum(dim=1).square().sum(dim=1)
    torch.testing.assert_close(neighbour_scores(vectors, near).diversity, lengths / 36)


def test_diversity_without_diagonal_is_affine_in_diversity():
    """For unit vectors (N DIV - 1) / (N - 1), so weights change in scale alone."""
    bank, near, _ = made(short=False)
    kept, dropped = (neighbour_scores(bank[:, 0], near, Scoring(diagonal=one)).diversity for one in (True, False))
    torch.testing.assert_close(dropped, (6 * kept - 1) / 5)


def test_mean_of_means_equals_multiset_for_equal_lists():
    bank, near, _ = made(short=False)
    both = [neighbour_scores(bank[:, 0], near, Scoring(average=one)).discrepancy for one in ("pairs", "lists")]
    torch.testing.assert_close(both[0], both[1])


def test_pooled_score_of_one_view_is_plain_score():
    bank, near, _ = made(views=1)
    plain, best = neighbour_scores(bank[:, 0], near), exact_scores(bank, near)
    torch.testing.assert_close(best.discrepancy, plain.discrepancy.float(), equal_nan=True)
    torch.testing.assert_close(best.diversity, plain.diversity.float(), equal_nan=True)


def test_slabs_and_blocks_do_not_change_scores(monkeypatch):
    bank, near, _ = made()
    whole = neighbour_scores(bank.flatten(1), near, Scoring(second="unique"))
    monkeypatch.setattr(ops, "SLAB", 7)
    monkeypatch.setattr(ops, "_UNIQUE", 100)
    for one, other in zip(whole, neighbour_scores(bank.flatten(1), near, Scoring(second="unique")), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("storage", [torch.float16, torch.bfloat16])
def test_half_precision_storage_stays_close(storage):
    bank, near, _ = made()
    vectors = bank[:, 0].float()
    whole, half = neighbour_scores(vectors, near), neighbour_scores(vectors, near, storage=storage)
    for one, other in zip(whole, half, strict=True):
        assert other.dtype == torch.float32
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0, equal_nan=True)


@pytest.mark.parametrize("scoring", [Scoring(), Scoring(average="lists"), Scoring(second="direct")], ids=str)
def test_second_sums_give_discrepancy_of_any_embedding(scoring):
    bank, near, _ = made()
    vectors = bank.mean(dim=1)
    sums = second_sums(vectors, near, scoring)
    found = neighbour_scores(vectors, near, scoring).discrepancy
    torch.testing.assert_close((sums * vectors).sum(dim=1), found, equal_nan=True)


def draws(bank, near, samples, *, seed=0, epoch=1, keys=None):
    keys = np.arange(100, 100 + len(bank)) if keys is None else keys
    return sampled_discrepancy(bank, near, keys, samples=samples, seed=seed, epoch=epoch)


def test_many_samples_approach_all_pairs():
    """2,000 of a multiset of 36 leave none out."""
    bank, near, _ = made(short=False)
    exact = exact_scores(bank, near).discrepancy
    torch.testing.assert_close(draws(bank, near, 2000).float(), exact)
    short, near_short, _ = made()
    wanted = exact_scores(short, near_short).discrepancy
    torch.testing.assert_close(draws(short, near_short, 2000).float(), wanted, equal_nan=True)


@pytest.mark.parametrize("short", [False, True])
def test_gathered_views_score_as_full_bank(monkeypatch, short):
    """The two ways to the scores of a sample."""
    bank, near, _ = made(short=short)
    of_all = draws(bank, near, 5)
    monkeypatch.setattr("subtext.ops.neighbour_scores._DENSE", 0)
    torch.testing.assert_close(draws(bank, near, 5), of_all, equal_nan=True)


@pytest.mark.parametrize("samples", [36, 50])
def test_small_multiset_is_used_whole(samples):
    """36 neighbours of neighbours each."""
    bank, near, _ = made(short=False)
    torch.testing.assert_close(draws(bank, near, samples).float(), exact_scores(bank, near).discrepancy)


@pytest.mark.parametrize("samples", [3, 5, 12, 20, 35])
def test_positions_are_sampled_uniformly_without_repeats(samples):
    """36 places, of which fewer than half are drawn, or all but some; from eight times as many on a repeat is left out.

    A place is among the samples of 2,000 items samples / 36 of the time.
    """
    keys, total = np.arange(2000), np.full(2000, 36)
    total[:5] = [0, 1, 2, 4, 30]
    found = pooled_ops._positions(keys, total, samples, seed=0, epoch=0)
    assert found.shape == (2000, samples) and found.max() == 35
    chosen = [row[row >= 0] for row in found]
    assert all(len(np.unique(row)) == len(row) for row in chosen)
    assert all((row < bound).all() for row, bound in zip(chosen, total, strict=True))
    wanted = np.minimum(total, samples)
    counts = np.array([len(row) for row in chosen])
    assert (counts == wanted)[total < 8 * samples].all() and (counts <= wanted).all()
    often = np.bincount(np.concatenate(chosen[5:]), minlength=36) / 1995
    share = counts[5:].mean() / 36
    assert np.abs(often - share).max() < 4.5 * (share * (1 - share) / 1995) ** 0.5 + 1e-9


def test_mean_over_samples_equals_exact_score():
    bank, near, lists = made()
    exact = exact_scores(bank, near).discrepancy.double()
    many = torch.stack([draws(bank, near, 4, epoch=epoch) for epoch in range(600)])
    assert bool((many[0] != many[1]).any())
    spread = many.std(dim=0) / 600**0.5
    gone = torch.tensor([not any(lists[j] for j in near_of) for near_of in lists])
    assert bool(exact.isnan().eq(gone).all())
    assert bool(((many.mean(dim=0) - exact).abs() < 4.5 * spread + 1e-6)[~gone].all())


def test_sample_depends_on_its_item_alone(monkeypatch):
    bank, near, _ = made()
    whole = draws(bank, near, 5)
    monkeypatch.setattr(pooled_ops, "_CELLS", 3000)
    torch.testing.assert_close(draws(bank, near, 5), whole, equal_nan=True)
    assert bool((draws(bank, near, 5, seed=1) != whole)[~whole.isnan()].any())


def test_sampled_scores_are_exact_up_to_sampling():
    bank, near, _ = made(count=60, width=4, short=False)
    keys = np.arange(60)
    for width in (4, 60):
        wide = torch.cat([near, torch.full((60, width - 4), -1, dtype=torch.int32)], dim=1)
        found = pooled_scores(bank, wide, Scoring(), keys=keys, samples=10, seed=0, epoch=0)
        torch.testing.assert_close(found.diversity.float(), exact_scores(bank, near).diversity)
        torch.testing.assert_close(found.discrepancy, draws(bank, near, 10, epoch=0, keys=keys))
    exact = pooled_scores(bank, near, Scoring(), keys=keys, samples=0, seed=0, epoch=0)
    torch.testing.assert_close(exact.discrepancy, exact_scores(bank, near).discrepancy)


def test_unknown_neighbours_are_removed_from_lists():
    known = torch.tensor([True, True, False, True, True])
    cut = select_neighbours(NEAR, known)
    assert cut.tolist() == [[1, -1], [0, -1], [1, 3], [4, 0], [3, -1]]


def test_items_without_neighbours_have_nan_scores():
    found = neighbour_scores(IMAGES, torch.full((5, 2), -1, dtype=torch.int32))
    assert bool(found.diversity.isnan().all()) and bool(found.discrepancy.isnan().all())
    lone = torch.full((5, 2), -1, dtype=torch.int32)
    best = exact_scores(BOTH, lone)
    assert bool(best.diversity.isnan().all()) and bool(draws(BOTH, lone, 3).isnan().all())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scoring(second="unique", average="lists"), "needs second=multiset; it got unique"),
        (lambda: exact_scores(BOTH, NEAR, Scoring(second="unique")), r"views=max\) needs second=multiset or direct"),
        (lambda: exact_scores(BOTH, NEAR, Scoring(second="none")), "it got none; take pooled_scores"),
        (lambda: second_sums(IMAGES, NEAR, Scoring(second="unique")), "needs second=multiset or direct; it got unique"),
        (lambda: second_sums(IMAGES, NEAR, Scoring(second="none")), "needs second=multiset or direct; it got none"),
    ],
)
def test_inconsistent_arguments_raise(make, message):
    with pytest.raises(ShapeError, match=message):
        make()
