"""Two stages equal what a plain loop makes of them, and with every candidate they are the second model alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from regions_and_words import of_parts
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from subtext.core import DIRECTIONS, Embeddings
from subtext.data.dataset import Dataset, Items
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import Protocol, evaluate_embeddings, evaluate_matrix, gallery_of, scoring
from subtext.evaluation.metrics import PMRP, AveragePrecision, Hubness, PMRecall, Recall, RPrecision
from subtext.evaluation.relevance import plausible
from subtext.evaluation.scoring import Embedded, Matrix
from subtext.evaluation.two_stages import scores as two_stages
from subtext.evaluation.two_stages.evaluate import RankingStage, evaluate_two_stages
from subtext.evaluation.two_stages.scores import CandidateScores, TwoStage
from subtext.evaluation.two_stages.sweep import LOSS
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.cross_attention import CrossAttention, Imram
from subtext.models.similarity.sgraf import Sgr

pytestmark = pytest.mark.identity

PROTOCOL = Protocol(bootstrap=0)


def made(pictures: int = 30, each: int = 2, *, seed: int = 0) -> tuple[RankingStage, RankingStage, Dataset]:
    """Pictures of three regions and texts of one to four words that name some of them, seen by two models."""
    g = torch.Generator().manual_seed(seed)
    regions = normalize(torch.randn(pictures, 3, 6, generator=g), dim=-1)
    owners = torch.arange(pictures).repeat_interleave(each)
    words = normalize(
        regions.repeat_interleave(each, 0)[:, [0, 1, 2, 0]] + torch.randn(len(owners), 4, 6, generator=g) / 2, dim=-1
    )
    images = of_parts(regions)
    texts = of_parts(words, torch.randint(1, 5, (len(owners),), generator=g).tolist())
    noise = torch.randn(len(owners), 1, 6, generator=g)
    blurred = Embeddings(normalize(texts.parts.mean(1, keepdim=True) + noise / 2, dim=-1), texts.ids)
    plain = Embeddings(normalize(images.vectors, dim=-1), images.ids)
    groups = np.arange(pictures, dtype=np.int64)
    names = [f"p{row}" for row in range(pictures)]
    pairs = Dataset(
        Items(names, [None] * pictures, groups, np.array(["val"] * pictures)),
        Items(
            [f"t{row}" for row in range(len(owners))],
            ["a"] * len(owners),
            owners.numpy(),
            np.array(["val"] * len(owners)),
        ),
        np.stack([owners.numpy(), np.arange(len(owners))], axis=1),
        Path(),
    )
    return RankingStage(Cosine(), plain, blurred), RankingStage(CrossAttention().eval(), images, texts), pairs


def exhaustive(stage: RankingStage) -> np.ndarray:
    return scoring.matrix(*stage).numpy().astype(np.float64)


def places(first: np.ndarray, second: np.ndarray, right: list[list[int]], count: int) -> list[float]:
    """Rank from 1 of each query's best partner, by a plain loop: the list in its second order, then the rest."""
    found = []
    for query, partners in enumerate(right):
        order = sorted(range(first.shape[1]), key=lambda c: -first[query, c])
        listed = sorted(order[:count], key=lambda c: -second[query, c])
        whole = listed + order[count:]
        found.append(1.0 + min(whole.index(partner) for partner in partners))
    return found


@pytest.mark.parametrize("count", [1, 5, 17])
def test_two_stage_ranks_equal_plain_loop(count: int) -> None:
    first, second, pairs = made()
    result = evaluate_two_stages(first, second, pairs, candidates=[count], protocol=PROTOCOL)
    one, two = exhaustive(first), exhaustive(second)
    mine = [[2 * row, 2 * row + 1] for row in range(30)]
    # A picture is ranked behind its own other text in the loop; the best one counts, so that does not matter.
    wanted = {
        "image_to_text": places(one, two, mine, count),
        "text_to_image": places(one.T, two.T, [[row // 2] for row in range(60)], count),
    }
    for direction, ranks in wanted.items():
        assert result.per_query[f"{direction}/mean_rank"].tolist() == ranks
        missed = 100 * np.mean(np.array(ranks) > count)
        assert result.about["two_stage"]["missed"][direction] == pytest.approx(missed)
    assert result.about["two_stage"]["missed"]["text_to_image"] > 0


def test_candidates_missed_by_first_stage_count_as_misses() -> None:
    first, second, pairs = made()
    found = evaluate_two_stages(first, second, pairs, candidates=[3], protocol=PROTOCOL)
    whole = evaluate_embeddings(*second, pairs, protocol=PROTOCOL)
    ranks = found.per_query["text_to_image/mean_rank"]
    hidden = (ranks > 3) & (whole.per_query["text_to_image/mean_rank"] == 1)
    assert hidden.any() and (found.per_query["text_to_image/recall@1"][hidden] == 0).all()


def test_all_candidates_equal_second_model_alone() -> None:
    first, second, pairs = made()
    whole = evaluate_embeddings(*second, pairs, protocol=PROTOCOL)
    for candidates in ([60], [5, 60]):
        found = evaluate_two_stages(first, second, pairs, candidates=candidates, protocol=PROTOCOL)
        for direction in DIRECTIONS:
            name = f"{direction}/mean_rank"
            assert np.array_equal(found.per_query[name], whole.per_query[name])


def test_sweep_reports_loss_and_smallest_sufficient_count() -> None:
    first, second, pairs = made()
    told = evaluate_two_stages(first, second, pairs, candidates=[60, 2, 20], protocol=PROTOCOL).about["two_stage"]
    assert [row["candidates"] for row in told["sweep"]] == [2, 20, 60]
    for row in told["sweep"]:
        alone = evaluate_two_stages(first, second, pairs, candidates=[row["candidates"]], protocol=PROTOCOL)
        for direction in DIRECTIONS:
            name = f"{direction}/recall@1"
            assert row[name] == alone.figures[name]
            assert row["lost"][direction] == pytest.approx(told["exhaustive"][name] - row[name])
        assert row["pairs"] == alone.about["two_stage"]["pairs"]
    enough = [row["candidates"] for row in told["sweep"] if max(row["lost"].values()) <= 0.2]
    assert told["enough"] == enough[0] and told["sweep"][-1]["lost"] == {"image_to_text": 0, "text_to_image": 0}


def test_scored_pairs_are_counted_once() -> None:
    first, second, pairs = made()
    told = evaluate_two_stages(first, second, pairs, candidates=[4], protocol=PROTOCOL).about["two_stage"]
    lists = two_stages.shortlists(*first, 4)
    both = {(row, int(c)) for row, line in enumerate(lists.image_to_text) for c in line}
    both |= {(int(c), row) for row, line in enumerate(lists.text_to_image) for c in line}
    assert told["pairs"] == {"image_to_text": 120, "text_to_image": 240, "together": len(both)}
    assert told["share_of_pairs"]["together"] == len(both) / 1800
    assert [tuple(pair) for pair in lists.pairs().tolist()] == sorted(both)


def test_selected_pairs_score_as_in_full_matrix() -> None:
    _, second, _ = made()
    whole = exhaustive(second)
    g = np.random.default_rng(0)
    chosen = np.unique(g.integers(0, 1800, 200))
    pairs = np.stack(np.divmod(chosen, 60), axis=1)
    found = two_stages.pair_scores(*second, pairs)
    np.testing.assert_allclose(found, whole[pairs[:, 0], pairs[:, 1]], rtol=2e-6, atol=2e-6)
    with pytest.raises(ShapeError, match="ordered by image"):
        two_stages.pair_scores(*second, pairs[::-1].copy())


def test_each_fold_has_its_own_candidates() -> None:
    first, second, pairs = made()
    found = evaluate_two_stages(first, second, pairs, candidates=[4], protocol=Protocol(bootstrap=0, folds=3))
    told = found.about["two_stage"]
    assert told["pairs"]["text_to_image"] == 240 and told["share_of_pairs"]["text_to_image"] == 240 / (3 * 10 * 20)
    assert found.per_query["text_to_image/mean_rank"].max() <= 10


def test_each_set_of_folds_is_counted_separately() -> None:
    first, second, pairs = made()
    several = Protocol(bootstrap=0, fold_sizes=(30, 10))
    both = evaluate_two_stages(first, second, pairs, candidates=[4], protocol=several)
    whole, folded = (
        evaluate_two_stages(first, second, pairs, candidates=[4], protocol=Protocol(bootstrap=0, folds=folds))
        for folds in (1, 3)
    )
    told, names = both.about["two_stage"], ("folds", "pairs", "share_of_pairs", "missed")
    for name in names:
        assert told[name] == whole.about["two_stage"][name]
        assert told["also_folds"]["(3 folds)"][name] == folded.about["two_stage"][name]
    assert set(told["also_folds"]["(3 folds)"]) == set(names) and "also_folds" not in whole.about["two_stage"]
    of_whole, of_folds = (told["pairs"]["together"], told["also_folds"]["(3 folds)"]["pairs"]["together"])
    scored = [note.split(" (1 in")[0] for note in both.notes if "the second model scored" in note]
    wanted = (("whole", of_whole, 1800, ""), ("3 folds", of_folds, 600, " within a fold"))
    assert scored == [
        f"two stages, {which}: the second model scored {count} pairs, {100 * count / every:.1f} % of all{where}"
        for which, count, every, where in wanted
    ]
    assert any(note.startswith("two stages: the second model scored") for note in whole.notes)
    assert any(
        "have no correct partner among the candidates" in note and note.startswith("two stages, 3 folds")
        for note in folded.notes
    )


def test_sweep_counts_each_set_of_folds() -> None:
    first, second, pairs = made()
    several = Protocol(bootstrap=0, fold_sizes=(30, 10))
    told = evaluate_two_stages(first, second, pairs, candidates=[2, 4], protocol=several).about["two_stage"]
    for row in told["sweep"]:
        alone = evaluate_two_stages(first, second, pairs, candidates=[row["candidates"]], protocol=several)
        assert row["also_folds"] == alone.about["two_stage"]["also_folds"]


def orders(first: np.ndarray, second: np.ndarray, count: int) -> torch.Tensor:
    """Numbers that order the candidates of each row as two stages do, by a plain loop."""
    found = np.empty_like(first)
    for query in range(len(first)):
        order = sorted(range(first.shape[1]), key=lambda c: -first[query, c])
        whole = sorted(order[:count], key=lambda c: -second[query, c]) + order[count:]
        found[query, whole] = -np.arange(len(whole))
    return torch.from_numpy(found)


@pytest.mark.parametrize("count", [1, 5, 60])
@pytest.mark.parametrize("folds", [1, 3])
def test_pmrp_skips_images_without_labels(count: int, folds: int) -> None:
    first, second, pairs = made()
    names = [None if row % 4 == 1 else {"ab"[row % 2], "cde"[row % 3]} for row in range(30)]
    gallery, metrics = gallery_of(pairs, labels=plausible.labelled(names, np.arange(60) // 2)), [PMRP(), PMRecall()]
    asked = Protocol(bootstrap=0, folds=folds)
    found = evaluate_two_stages(first, second, gallery, candidates=[count], metrics=metrics, protocol=asked)
    one, two = exhaustive(first), exhaustive(second)
    for direction in DIRECTIONS:
        whole = np.full((30, 60), -1000.0)
        for start in range(0, 30, 30 // folds):
            here = np.ix_(range(start, start + 30 // folds), range(2 * start, 2 * start + 60 // folds))
            turned = (lambda matrix: matrix) if direction == "image_to_text" else np.transpose
            whole[here] = turned(orders(turned(one[here]), turned(two[here]), count).numpy())
        wanted = evaluate_matrix(torch.from_numpy(whole), gallery, metrics=metrics, protocol=asked)
        for name in (f"{direction}/pmrp", f"{direction}/pm_recall@1"):
            np.testing.assert_array_equal(found.per_query[name], wanted.per_query[name])
    assert np.isnan(found.per_query["image_to_text/pmrp"]).sum() == 8


def test_subset_of_candidates_keeps_order() -> None:
    g = np.random.default_rng(0)
    first = Matrix(torch.from_numpy(g.normal(size=(7, 9)).astype(np.float32)))
    lists = two_stages.Shortlists(*(two_stages.top_columns(side, 3) for side in (first.scores, first.scores.T)))
    scores = {direction: g.normal(size=lists.of(direction).shape) for direction in DIRECTIONS}
    whole = CandidateScores(first, lists, scores)
    assert whole.part(np.arange(7), np.arange(9)) is whole
    images, texts = np.array([5, 0, 3]), np.array([8, 1, 2, 6])
    # A part of a part, in two steps that leave the same items.
    again = whole.part(np.array([0, 3, 5, 6]), np.array([1, 2, 6, 8])).part(np.array([2, 0, 1]), np.array([3, 0, 1, 2]))
    for part in (whole.part(images, texts), again):
        assert part.shape == (3, 4)
        for direction, (asking, answering) in zip(DIRECTIONS, ((images, texts), (texts, images)), strict=True):
            (_, _, before), (_, _, after) = next(whole.blocks(direction)), next(part.blocks(direction))
            wanted = before[torch.from_numpy(asking)][:, torch.from_numpy(answering)].argsort(dim=1)
            assert torch.equal(after.argsort(dim=1), wanted)
            # Some query has lost all of its list, and some has kept a part of it.
            kept = (part.lists.of(direction) >= 0).sum(axis=1)
            assert kept.min() < 3 and (kept > 0).any()


class Copies(TorchDispatchMode):
    """Counts tensors of as many numbers as one has that are made, other than views of it."""

    def __init__(self, whole: Tensor) -> None:
        super().__init__()
        self.whole, self.made = whole, 0

    def __torch_dispatch__(self, func: object, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and found.data_ptr() != self.whole.data_ptr():
            self.made += found.numel() == self.whole.numel()
        return found


def test_known_score_matrix_is_read_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, _ = made()
    lists = two_stages.shortlists(*first, 5)
    monkeypatch.setattr(two_stages, "shortlists", lambda *given, **named: lists)
    # A first stage that keeps no scores itself.
    plan = TwoStage(
        Embedded(*first, stored_bytes=0), Embedded(*second), candidates=5, most=5, every=Matrix(scoring.matrix(*second))
    )
    with Copies(plan.every.scores) as watch:
        found = plan.part(np.arange(30), np.arange(60))
    assert watch.made == 0
    whole = exhaustive(second)
    np.testing.assert_array_equal(
        found.scores["image_to_text"], np.take_along_axis(whole, lists.image_to_text, axis=1).astype(np.float32)
    )


def test_sweep_reports_sufficient_count_per_direction() -> None:
    first, second, pairs = made()
    counts = [1, 2, 3, 4, 6, 8, 10, 15, 20, 30, 60]
    told = evaluate_two_stages(first, second, pairs, candidates=counts, protocol=PROTOCOL).about["two_stage"]
    for direction in DIRECTIONS:
        fits = [row["candidates"] for row in told["sweep"] if row["lost"][direction] <= LOSS]
        assert told["enough_of"][direction] == fits[0]
    assert len({*told["enough_of"].values()}) == 2 and told["enough"] >= max(told["enough_of"].values())
    assert told["allowed"] == {"recall": 1, "points": LOSS}
    few = evaluate_two_stages(first, second, pairs, candidates=[1, 2], protocol=PROTOCOL).about["two_stage"]
    assert few["enough"] is None and None in few["enough_of"].values()


def test_sweep_loss_uses_smallest_recall_without_recall_at_1() -> None:
    first, second, pairs = made()
    told = evaluate_two_stages(
        first, second, pairs, candidates=[2, 60], metrics=[Recall(10, 5)], protocol=PROTOCOL
    ).about["two_stage"]
    assert told["allowed"]["recall"] == 5
    for row in told["sweep"]:
        for direction in DIRECTIONS:
            name = f"{direction}/recall@5"
            assert row["lost"][direction] == told["exhaustive"][name] - row[name]


def test_rounding_note_covers_imram() -> None:
    first, second, pairs = made()
    notes = evaluate_two_stages(first, second, pairs, candidates=[5], protocol=PROTOCOL).notes
    assert any("by 1e-6 of their size (of an IMRAM with texts of one word: by up to 1e-4)" in note for note in notes)


def test_ties_go_to_earlier_row_and_nan_ranks_last() -> None:
    scores = torch.tensor([[0.5, 0.7, 0.7, 0.5], [float("nan"), 0.1, float("nan"), 0.2]])
    assert two_stages.top_columns(scores, 3).tolist() == [[1, 2, 0], [3, 1, 0]]


def test_invalid_two_stage_settings_raise() -> None:
    first, second, pairs = made()
    with pytest.raises(RequirementError, match="a first stage needs a model whose vectors decide the score"):
        evaluate_two_stages(second, second, pairs)
    with pytest.raises(RequirementError, match="two stages need 1 candidate a query or more; it got \\[0\\]"):
        evaluate_two_stages(first, second, pairs, candidates=[0])
    with pytest.raises(ShapeError, match="embeddings of 30 images and 60 texts"):
        evaluate_two_stages(first, second._replace(texts=second.texts[:3]), pairs)


def test_extra_metrics_read_two_stage_order() -> None:
    first, second, pairs = made()
    metrics = [RPrecision(), AveragePrecision(), Hubness(3)]
    found = evaluate_two_stages(first, second, pairs, candidates=[60], metrics=metrics, protocol=PROTOCOL)
    whole = evaluate_embeddings(*second, pairs, metrics=metrics, protocol=PROTOCOL)
    for name in ("image_to_text/r_precision", "text_to_image/map@r", "text_to_image/hubness@3"):
        assert found.figures[name] == pytest.approx(whole.figures[name])


@pytest.mark.parametrize(
    "similarity", [Ascl(width=6, heads=2), Sgr(width=6, nodes=4), Imram(width=6)], ids=lambda s: type(s).__name__
)
def test_prepared_image_is_reused_for_all_its_texts(similarity: torch.nn.Module) -> None:
    _, second, _ = made(8)
    similarity = similarity.eval()
    whole = scoring.matrix(similarity, second.images, second.texts).detach().numpy()
    pairs = np.stack(np.divmod(np.arange(0, 128, 3), 16), axis=1)
    found = two_stages.pair_scores(similarity, second.images, second.texts, pairs)
    np.testing.assert_allclose(found, whole[pairs[:, 0], pairs[:, 1]], rtol=5e-6, atol=5e-6)
