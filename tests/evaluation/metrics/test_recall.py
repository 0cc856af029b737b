"""Recall, ranks and ties: values of the cards, and a plain loop beside every fast path."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from subtext.core import Comparison, Truth
from subtext.data.dataset import Judgements
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation.metric import mean
from subtext.evaluation.metrics.best_rank import BestRank, ReciprocalRank, median_rank
from subtext.evaluation.metrics.recall import Recall
from subtext.evaluation.relevance import match as matching
from subtext.ops.rank import Counts, best_of, both_directions
from subtext.ops.sparse import CandidateLists

pytestmark = pytest.mark.golden


def best_positive(scores: torch.Tensor, match: torch.Tensor, ignored: torch.Tensor | None = None, **options) -> Counts:
    """Counts of the rows of a block whose truth is given cell by cell."""
    left_out = None if ignored is None else CandidateLists.of_mask(ignored)
    return best_of(scores, CandidateLists.of_mask(match), left_out, **options)


IMAGES, CAPTIONS = np.arange(3), np.arange(15) // 5


def det(rows: int, columns: int, phase: float, step: float) -> torch.Tensor:
    return torch.sin(phase + step * torch.arange(rows * columns, dtype=torch.float64)).reshape(rows, columns)


def karpathy(scores: torch.Tensor) -> tuple[Comparison, Comparison]:
    """Five captions a picture: both directions."""
    match = torch.from_numpy(IMAGES[:, None] == CAPTIONS[None, :])
    forward = Comparison(scores, Truth(match))
    return forward, Comparison(scores.T, Truth(match.T))


def test_recall_of_worked_example() -> None:
    forward, backward = karpathy(det(3, 15, 0.4, 1.9))
    assert Recall(1)(forward).mean().item() == pytest.approx(1 / 3)
    assert Recall(5)(forward).mean().item() == 1
    assert Recall(1)(backward).mean().item() == pytest.approx(0.5333, abs=1e-4)
    ranks = BestRank()(forward).numpy(), BestRank()(backward).numpy()
    assert (median_rank(ranks[0]), mean(ranks[0])) == (2, 2.0)
    assert median_rank(ranks[1]) == 1
    assert mean(ranks[1]) == pytest.approx(1.666667, abs=1e-6)


def test_ranks_of_worked_example() -> None:
    scores = torch.tensor([[0.8, 0.96, 0.0], [0.96, 0.8, 0.6], [1.0, 0.96, 1.0]])
    eye = torch.eye(3, dtype=torch.bool)
    # The card counts strictly greater scores: the third picture ties with its best negative.
    assert best_positive(scores, eye).rank("optimistic").tolist() == [1, 1, 0]
    assert best_positive(scores.T.contiguous(), eye).rank("optimistic").tolist() == [2, 2, 0]
    assert best_positive(scores, eye).rank("pessimistic").tolist() == [1, 1, 1]


def test_constant_scores_have_zero_recall_by_default() -> None:
    forward, backward = karpathy(torch.zeros(3, 15))
    for comparison in (forward, backward):
        assert Recall(1)(comparison).tolist() == [0.0] * comparison.scores.shape[0]
        assert Recall(1, ties="optimistic")(comparison).tolist() == [1.0] * comparison.scores.shape[0]
    # Column order: picture 0 owns the first caption, the first picture owns captions 0 to 4.
    assert Recall(1, ties="stable")(forward).tolist() == [1.0, 0.0, 0.0]
    assert Recall(1, ties="stable")(backward).tolist() == [1.0] * 5 + [0.0] * 10
    # A random order puts one of 5 positives of 15 first with probability 1/3.
    assert Recall(1, ties="expected")(forward).tolist() == pytest.approx([1 / 3] * 3)
    assert Recall(3, ties="expected")(forward)[0].item() == pytest.approx(1 - math.comb(10, 3) / math.comb(15, 3))
    assert Recall(11, ties="expected")(forward).tolist() == [1.0] * 3


def plain_rank(scores: list[float], positive: list[bool], ignored: list[bool], ties: str) -> float:
    """Zero-based rank of the best positive by sorting all orders, one query, in plain Python."""
    keep = [j for j in range(len(scores)) if not ignored[j]]
    if not any(positive[j] for j in keep):
        return math.nan

    def worst_last(value: float) -> float:
        return -math.inf if math.isnan(value) else value

    if all(math.isnan(scores[j]) for j in keep if positive[j]):
        return float(sum(not positive[j] for j in keep))
    keep = [j for j in keep if not math.isnan(scores[j])]
    by_score = sorted(keep, key=lambda j: -worst_last(scores[j]))
    best = max(scores[j] for j in keep if positive[j])
    same = [j for j in by_score if scores[j] == best]
    ahead = sum(scores[j] > best for j in keep)

    def first(order: tuple[int, ...]) -> int:
        return next(place for place, j in enumerate(order) if positive[j])

    places = [first(order) for order in itertools.permutations(same)]
    if ties == "stable":
        return ahead + first(tuple(sorted(same)))
    return ahead + {"pessimistic": max, "optimistic": min, "expected": lambda p: sum(p) / len(p)}[ties](places)


def drawn(seed: int, queries: int = 40, candidates: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Few distinct scores, some NaN and infinite, several positives, some queries without any."""
    g = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 3, (queries, candidates), generator=g).float()
    kind = torch.rand(queries, candidates, generator=g)
    scores[kind < 0.1] = torch.nan
    scores[(kind > 0.1) & (kind < 0.13)] = -torch.inf
    scores[(kind > 0.13) & (kind < 0.16)] = torch.inf
    match = torch.rand(queries, candidates, generator=g) < 0.25
    ignored = (torch.rand(queries, candidates, generator=g) < 0.2) & ~match
    return scores, match, ignored


@pytest.mark.parametrize("ties", ["optimistic", "expected", "stable"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_counts_equal_all_orders(ties: str, seed: int) -> None:
    scores, match, ignored = drawn(seed)
    fast = best_positive(scores, match, ignored, stable=True).rank(ties)
    slow = [plain_rank(*row, ties) for row in zip(scores.tolist(), match.tolist(), ignored.tolist(), strict=True)]
    np.testing.assert_allclose(fast, slow, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pessimistic_rank_is_below_tied_negatives(seed: int) -> None:
    scores, match, ignored = drawn(seed)
    counts = best_positive(scores, match, ignored)
    for query in range(len(scores)):
        negative = ~(match[query] | ignored[query])
        positive = scores[query][match[query]]
        number = positive[~positive.isnan()]
        if not len(positive):
            assert math.isnan(counts.rank()[query])
        elif not len(number):
            assert counts.rank()[query] == negative.sum()
        else:
            assert counts.rank()[query] == (scores[query][negative] >= number.max()).sum()
        assert counts.negatives[query] == negative.sum()
        assert counts.positives[query] == match[query].sum()
        assert counts.invalid[query] == (scores[query].isnan() & ~ignored[query]).sum()


def assert_same(a: Counts, b: Counts) -> None:
    for name in ("greater", "tied", "level", "positives", "negatives", "invalid", "earlier"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_pass_gives_both_directions(kernel: bool, dtype: torch.dtype) -> None:
    scores, match, _ = drawn(3, queries=37, candidates=53)
    scores = scores.to(dtype)
    rows, columns = both_directions(
        scores, CandidateLists.of_mask(match), CandidateLists.of_mask(match.T.contiguous()), stable=True, kernel=kernel
    )
    assert_same(rows, best_positive(scores, match, stable=True))
    assert_same(columns, best_positive(scores.T.contiguous(), match.T.contiguous(), stable=True))


def test_kernel_agrees_over_tiles_bands_and_threads() -> None:
    from subtext.ops.compiled.threshold_counts import threshold_counts

    g = np.random.default_rng(0)
    scores = g.integers(0, 50, (16400, 70), dtype=np.int64).astype(np.float32)
    row_best, column_best = g.integers(0, 50, 16400).astype(np.float32), g.integers(0, 50, 70).astype(np.float32)
    wide, wide_columns = scores.T.copy(), row_best
    for matrix, rows, columns in ((scores, row_best, column_best), (wide, column_best, wide_columns)):
        for threads in (1, 3):
            (reached, above, invalid), by_column = threshold_counts(matrix, rows, columns, kernel=True, threads=threads)
            np.testing.assert_array_equal(reached, (matrix >= rows[:, None]).sum(1))
            np.testing.assert_array_equal(above, (matrix > rows[:, None]).sum(1))
            np.testing.assert_array_equal(invalid, 0)
            np.testing.assert_array_equal(by_column[:2], [(matrix >= columns).sum(0), (matrix > columns).sum(0)])


@pytest.mark.parametrize("kernel", [False, True])
def test_transposed_block_counts_equally(kernel: bool) -> None:
    scores, match, ignored = drawn(4, queries=21, candidates=33)
    lying = scores.T.contiguous().T
    assert not lying.is_contiguous()
    cells, leave_out = CandidateLists.of_mask(match), CandidateLists.of_mask(ignored)
    assert_same(
        best_of(lying, cells, leave_out, stable=True, kernel=kernel),
        best_positive(scores, match, ignored, stable=True),
    )


def test_query_blocks_concatenate_to_whole() -> None:
    scores, match, _ = drawn(5)
    cells = CandidateLists.of_mask(match)
    pieces = [best_of(scores[s : s + 7], cells[s : s + 7], stable=True) for s in range(0, 40, 7)]
    assert_same(Counts.cat(pieces), best_of(scores, cells, stable=True))


def test_expected_recall_is_mean_over_all_orders() -> None:
    scores = torch.tensor([[2.0, 1.0, 1.0, 1.0, 1.0, 0.0]])
    match = torch.tensor([[False, True, False, True, False, False]])
    for k in range(1, 6):
        hits = []
        for order in itertools.permutations([1, 2, 3, 4]):
            ranked = [0, *order, 5]
            hits.append(any(match[0, j] for j in ranked[:k]))
        assert Recall(k, ties="expected")(Comparison(scores, Truth(match))).item() == pytest.approx(
            sum(hits) / len(hits)
        )


def test_metrics_are_nan_without_positives() -> None:
    match = torch.tensor([[True, False], [False, False]])
    comparison = Comparison(torch.tensor([[0.1, 0.2], [0.3, 0.4]]), Truth(match))
    assert ReciprocalRank()(comparison)[0].item() == 0.5
    for metric in (ReciprocalRank(), Recall(), BestRank(), Recall(ties="expected")):
        assert math.isnan(metric(comparison)[1].item())


def test_groups_and_pairs_give_the_same_cells() -> None:
    images, texts = np.array([4, 9, 4, 7]), np.array([9, 4, 4, 8, 9])
    mask = torch.from_numpy(images[:, None] == texts[None, :])
    rows, columns = CandidateLists.of_groups(images, texts).expand()
    assert list(zip(rows, columns, strict=True)) == [(0, 1), (0, 2), (1, 0), (1, 4), (2, 1), (2, 2)]
    twice = np.concatenate([rows, rows])[::-1], np.concatenate([columns, columns])[::-1]
    for cells in (CandidateLists.of_pairs(*twice, queries=4), CandidateLists.of_mask(mask)):
        np.testing.assert_array_equal(cells.expand(), (rows, columns))
        assert cells.lengths.tolist() == [2, 2, 2, 0]


def test_chance_equals_mean_over_random_orders() -> None:
    match = torch.tensor([[True, True, False, False, False]])
    counts = best_positive(torch.arange(5.0)[None], match)
    firsts = [min(order.index(0), order.index(1)) for order in itertools.permutations(range(5))]
    for k in (1, 2, 3, 4, 5, 9):
        assert Recall(k).chance(counts)[0] == pytest.approx(sum(f < k for f in firsts) / len(firsts))
    assert BestRank().chance(counts)[0] == pytest.approx(1 + sum(firsts) / len(firsts))


def test_inconsistent_arguments_raise() -> None:
    counts = best_positive(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(RequirementError, match="stable=True"):
        counts.rank("stable")
    with pytest.raises(ShapeError, match="each of 2 queries; it got 3"):
        best_of(torch.zeros(2, 3), CandidateLists.of_groups(np.arange(3), np.arange(3)))
    with pytest.raises(ShapeError, match="it got 1 and 2"):
        CandidateLists.of_pairs(np.zeros(1, np.int64), np.zeros(2, np.int64), queries=3)


def test_match_gives_truth_of_any_block_or_subset() -> None:
    images, texts = np.array([4, 9, 4, 7, 2]), np.array([9, 4, 4, 8, 9, 2])
    mask = images[:, None] == texts[None, :]
    whole = matching.of_groups(images, texts)
    for start, stop in ((0, 5), (1, 3), (4, 9)):
        block = whole.truth("image_to_text", start, stop).match.numpy()
        np.testing.assert_array_equal(block, mask[start:stop])
    np.testing.assert_array_equal(whole.truth("text_to_image", 2, 6).match.numpy(), mask.T[2:6])
    rows, columns = np.array([4, 0, 1]), np.array([5, 2, 0, 3])
    part = whole.take(rows, columns)
    np.testing.assert_array_equal(part.truth("image_to_text", 0, 3).match.numpy(), mask[rows][:, columns])
    np.testing.assert_array_equal(part.truth("text_to_image", 0, 4).match.numpy(), mask[rows][:, columns].T)
    judged = matching.of_judgements(
        Judgements(np.array([0, 5, 5]), np.array([1, 1, 0]), np.array([0.5, 0.0, 2.0], np.float32)), images=2, texts=6
    )
    assert np.argwhere(judged.truth("image_to_text", 0, 2).match.numpy()).tolist() == [[0, 5], [1, 0]]
