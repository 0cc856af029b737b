"""Evaluation from a model to a JSON file: figures, folds, intervals, chance, and what the protocol states."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from subtext.core import Embeddings
from subtext.data.dataset import Dataset, Items, Judgements
from subtext.data.inputs import Draw, InputBatch
from subtext.errors import RequirementError, ShapeError
from subtext.evaluation import (
    Protocol,
    embed_pairs,
    evaluate as evaluation,
    evaluate_embeddings,
    evaluate_model,
    evaluate_scores,
    gallery_of,
    scoring as sources,
)
from subtext.evaluation.intervals import intervals
from subtext.evaluation.metrics import BestRank, CWay, CWayRank, Recall, SampledCWay, default_metrics
from subtext.models.model import Branch, Model
from subtext.models.similarity.cosine import Cosine


class Numbers:
    """Reads an item whose value is a list of numbers, written as text."""

    augments = False
    fingerprint = "numbers"

    def __call__(self, batch: InputBatch, draw: Draw | None = None) -> dict[str, Tensor]:
        rows = [[float(number) for number in value.split()] for value in batch.values]
        return {"pooled": torch.tensor(rows), "ids": torch.from_numpy(batch.rows)}

    def save(self, folder: Path) -> None:
        raise AssertionError("nothing is saved while evaluating")


class Same(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return inputs["pooled"]


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, pooled: Tensor, ids: Tensor) -> Embeddings:
        vectors = nn.functional.normalize(self.gain * pooled, dim=-1)[:, None]
        return Embeddings(vectors, ids, residuals=vectors, parts=vectors)


def model() -> Model:
    return Model(Branch(Numbers(), Same(), Unit()), Branch(Numbers(), Same(), Unit()), Cosine(temperature=0.1))


def made(
    pictures: int = 40, texts_each: int = 5, noise: float = 1.0, seed: int = 0, width: int = 16
) -> tuple[Dataset, np.ndarray, np.ndarray]:
    """Pictures, and texts that are noisy copies of them."""
    g = np.random.default_rng(seed)
    x = g.standard_normal((pictures, width))
    owner = np.repeat(np.arange(pictures), texts_each)
    y = x[owner] + noise * g.standard_normal((len(owner), width))

    def items(kind: str, vectors: np.ndarray, groups: np.ndarray) -> Items:
        return Items(
            ids=[f"{kind}{row}" for row in range(len(vectors))],
            values=[" ".join(f"{v:.9f}" for v in vector) for vector in vectors],
            groups=groups.astype(np.int64),
            splits=np.array(["val"] * len(vectors)),
        )

    links = np.stack([owner, np.arange(len(owner))], axis=1).astype(np.int64)
    pairs = Dataset(items("image", x, np.arange(pictures)), items("text", y, owner), links, Path())
    return pairs, x, y


def plain(scores: np.ndarray, owner: np.ndarray) -> dict[str, float]:
    """Karpathy's evaluation by full sorting, for scores without ties."""
    i2t = np.array(
        [min(np.argsort(-row).tolist().index(t) for t in np.flatnonzero(owner == i)) for i, row in enumerate(scores)]
    )
    t2i = np.array([np.argsort(-column).tolist().index(owner[t]) for t, column in enumerate(scores.T)])
    found = {}
    for name, ranks in (("image_to_text", i2t), ("text_to_image", t2i)):
        found |= {f"{name}/recall@{k}": 100 * float((ranks < k).mean()) for k in (1, 5, 10)}
        found[f"{name}/median_rank"] = math.floor(np.median(ranks)) + 1
        found[f"{name}/mean_rank"] = float(ranks.mean()) + 1
        found[f"{name}/mrr"] = 100 * float((1 / (ranks + 1)).mean())
    found["rsum"] = sum(value for name, value in found.items() if "recall" in name)
    return found


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_figures_equal_full_sort() -> None:
    pairs, x, y = made()
    told: list[int] = []
    subject = model().train()
    metrics = [*default_metrics(), CWay(5)]
    result = evaluate_model(subject, pairs, metrics=metrics, batch_size=32, progress=told.append)
    expected = plain(unit(x) @ unit(y).T, pairs.texts.groups)
    for name, value in expected.items():
        assert result.figures[name] == pytest.approx(value), name
    assert subject.training
    assert told == sorted(told)
    assert told[-1] == 240
    assert result.figures["image_to_text/tie_share"] == 0
    assert result.chance["text_to_image/recall@10"] == pytest.approx(25)
    assert result.chance["image_to_text/recall@1"] == pytest.approx(2.5)
    assert result.chance["image_to_text/5_way@1"] == 20
    for name, (low, high) in result.intervals.items():
        assert low <= result.figures[name] <= high, name


@pytest.mark.parametrize("workers", [0, 3])
def test_embeddings_keep_order_and_drop_unused_parts(workers: int) -> None:
    pairs, x, y = made(pictures=13)
    images, texts = embed_pairs(model(), pairs, batch_size=4, workers=workers)
    np.testing.assert_allclose(images.vectors[:, 0], unit(x), atol=1e-6)
    np.testing.assert_allclose(texts.vectors[:, 0], unit(y), atol=1e-6)
    assert texts.ids.tolist() == list(range(65))
    assert images.residuals is None
    assert images.parts is None


@pytest.mark.parametrize("exact", [False, True])
def test_blockwise_evaluation_equals_full_matrix(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    pairs, _, _ = made()
    subject = model()
    images, texts = embed_pairs(subject, pairs)
    protocol = Protocol(exact=exact, bootstrap=0)
    whole = evaluate_embeddings(subject.similarity, images, texts, pairs, protocol=protocol)
    monkeypatch.setattr(evaluation, "STORED_BYTES", 0)
    blocks = evaluate_embeddings(subject.similarity, images, texts, pairs, protocol=protocol, block_bytes=4_000)
    assert blocks.figures == pytest.approx(whole.figures, nan_ok=True)
    monkeypatch.setattr(sources, "KERNEL_CELLS", 0)
    compiled = evaluate_embeddings(subject.similarity, images, texts, pairs, protocol=protocol, block_bytes=4_000)
    assert compiled.figures == pytest.approx(whole.figures, nan_ok=True)


def test_folds_average_over_consecutive_blocks() -> None:
    pairs, x, y = made(noise=1.5)
    scores = unit(x) @ unit(y).T
    result = evaluate_model(model(), pairs, protocol=Protocol(folds=4))
    blocks = [plain(scores[s : s + 10, 5 * s : 5 * s + 50], np.arange(50) // 5) for s in range(0, 40, 10)]
    for name in blocks[0]:
        assert result.figures[name] == pytest.approx(np.mean([block[name] for block in blocks])), name
    assert result.protocol["fold_sizes"] == [[10, 50]] * 4
    assert result.figures["rsum"] > evaluate_model(model(), pairs).figures["rsum"]
    with pytest.raises(RequirementError, match="41 folds need as many images; there are 40"):
        evaluate_model(model(), pairs, protocol=Protocol(folds=41))


def test_scores_with_unequal_groups_leave_out_unpaired() -> None:
    image_groups, text_groups = np.array([3, 3, 8, 9]), np.array([3, 8, 8, 7, 3, 3])
    scores = torch.tensor(
        [
            [0.9, 0.1, 0.2, 0.95, 0.3, 0.4],
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
            [0.9, 0.8, 0.7, 0.1, 0.1, 0.1],
            [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
        ]
    )
    result = evaluate_scores(scores, image_groups, text_groups)
    np.testing.assert_array_equal(result.per_query["image_to_text/mean_rank"], [2, 1, 2, np.nan])
    np.testing.assert_array_equal(result.per_query["text_to_image/mean_rank"], [2, 1, 1, np.nan, 2, 1])
    assert result.protocol["left_out"] == {"image_to_text": 1, "text_to_image": 1}
    assert result.protocol["queries"] == {"image_to_text": 3, "text_to_image": 5}
    assert result.figures["image_to_text/recall@1"] == pytest.approx(100 / 3)
    assert result.figures["text_to_image/tie_share"] == pytest.approx(40)
    with pytest.raises(ShapeError, match=r"\(4, 6\) as the data is; it got \(6, 4\)"):
        evaluate_scores(scores.T.contiguous(), image_groups, text_groups)
    with pytest.raises(ShapeError, match="embedding for each of 40 images"):
        pairs, _, _ = made()
        images, texts = embed_pairs(model(), pairs)
        evaluate_embeddings(Cosine(), images[:39], texts, pairs)


def test_nan_scores_rank_last_and_are_counted() -> None:
    scores = torch.eye(4)
    scores[0] = torch.nan
    result = evaluate_scores(scores, np.arange(4), np.arange(4), protocol=Protocol(ties="optimistic"))
    assert result.per_query["image_to_text/mean_rank"].tolist() == [4, 1, 1, 1]
    assert result.per_query["text_to_image/mean_rank"].tolist() == [4, 1, 1, 1]
    assert result.figures["image_to_text/nan_scores"] == result.figures["text_to_image/nan_scores"] == 4


def test_judgements_define_positives() -> None:
    pairs, _, _ = made(pictures=6, texts_each=1, noise=0.0)
    graded = Judgements(np.array([0, 1, 2, 3]), np.array([0, 0, 2, 1]), np.array([2, 1, 0, 1], dtype=np.float32))
    judged = Dataset(pairs.images, pairs.texts, pairs.links, Path(), graded)
    result = evaluate_model(model(), judged, protocol=Protocol())
    assert result.protocol["positives"] == "judgements"
    assert result.protocol["queries"] == {"image_to_text": 2, "text_to_image": 3}
    ranks = result.per_query["text_to_image/mean_rank"]
    assert ranks[0] == 1
    assert ranks[1] > 1
    assert np.isnan(ranks[[2, 4, 5]]).all()
    folded = evaluate_model(model(), judged, protocol=Protocol(folds=1))
    assert folded.figures == result.figures


def test_intervals_have_nominal_coverage() -> None:
    """Queries of a group are copies of each other: only resampling whole groups gives honest intervals."""
    g = np.random.default_rng(1)
    covered = 0
    for trial in range(60):
        hits = g.random(80) < 0.4
        scores = torch.zeros(80, 400)
        scores[np.arange(400) // 5, np.arange(400)] = torch.from_numpy(np.where(np.repeat(hits, 5), 1.0, -1.0)).float()
        protocol = Protocol(bootstrap=200, seed=trial)
        result = evaluate_scores(scores, np.arange(80), np.arange(400) // 5, protocol=protocol)
        low, high = result.intervals["text_to_image/recall@1"]
        covered += low <= 40 <= high
    assert 51 <= covered <= 60


def test_interval_of_mean_matches_standard_error() -> None:
    pairs, _, _ = made(pictures=300, texts_each=1, noise=2.0)
    result = evaluate_model(model(), pairs, protocol=Protocol(bootstrap=2000))
    hits = result.per_query["text_to_image/recall@10"]
    low, high = result.intervals["text_to_image/recall@10"]
    assert (high - low) / 2 == pytest.approx(196 * hits.std() / math.sqrt(300), rel=0.15)
    assert result.intervals == evaluate_model(model(), pairs, protocol=Protocol(bootstrap=2000)).intervals


def judged(pictures: int, texts: int, each: int, seed: int = 0) -> tuple[Dataset, np.ndarray]:
    """Texts that were each judged to fit several pictures, so that all are connected; and whose row links them."""
    g = np.random.default_rng(seed)
    rows = np.stack([g.choice(pictures, size=each, replace=False) for _ in range(texts)])
    vectors = g.standard_normal((pictures, 16))

    def items(kind: str, values: np.ndarray) -> Items:
        names = [f"{kind}{row}" for row in range(len(values))]
        written = [" ".join(f"{v:.9f}" for v in vector) for vector in values]
        return Items(names, written, np.zeros(len(values), dtype=np.int64), np.array(["test"] * len(values)))

    text_rows = np.repeat(np.arange(texts), each)
    links = np.stack([rows.reshape(-1), text_rows], axis=1)
    judgements = Judgements(text_rows, rows.reshape(-1), np.ones(len(links), dtype=np.float32))
    noisy = vectors[rows].mean(axis=1) + 0.5 * g.standard_normal((texts, 16))
    return Dataset(items("image", vectors), items("text", noisy), links, Path(), judgements), rows


def test_connected_judgements_are_resampled_by_image() -> None:
    """All are of one component; a text goes with the first picture that a row of the data names it with."""
    pairs, rows = judged(80, 160, 4)
    result = evaluate_model(model(), pairs, protocol=Protocol(bootstrap=2000))
    assert len(set(pairs.images.groups)) == 1
    assert result.protocol["intervals"]["clusters"]["text_to_image"] == len(set(rows.min(axis=1)))
    hits = 100 * result.per_query["text_to_image/recall@10"]
    low, high = result.intervals["text_to_image/recall@10"]
    assert 0.5 < (high - low) / (2 * 1.96 * hits.std() / math.sqrt(160)) < 2
    assert result.notes == ()


def test_text_of_a_group_belongs_to_its_image() -> None:
    """Forty pictures share a group, and each has a text of its own: forty clusters, and folds keep pairs together."""
    pairs, _, _ = made(pictures=40, texts_each=1)
    one = np.zeros(40, dtype=np.int64)
    grouped = replace(pairs, images=replace(pairs.images, groups=one), texts=replace(pairs.texts, groups=one))
    gallery = gallery_of(grouped)
    assert gallery.owners.tolist() == list(range(40))
    assert [texts.tolist() for _, texts, _ in gallery.folds(2)] == [list(range(20)), list(range(20, 40))]
    unlinked = gallery_of(replace(grouped, links=np.empty((0, 2), dtype=np.int64)))
    assert set(unlinked.owners.tolist()) == {0}


def test_interval_equals_plain_loop_over_images() -> None:
    g = np.random.default_rng(4)
    values, clusters = g.random(60), g.integers(0, 15, 60)
    found = intervals({"a": values}, {"a": clusters}, {}, samples=4000, seed=0)["a"]
    means = []
    for _ in range(4000):
        drawn = g.choice(np.unique(clusters), size=len(np.unique(clusters)))
        means.append(np.concatenate([values[clusters == cluster] for cluster in drawn]).mean())
    np.testing.assert_allclose(found, np.percentile(means, [2.5, 97.5]), atol=0.01)


@pytest.mark.parametrize(("pictures", "there"), [(9, False), (10, True)])
def test_few_images_have_no_interval_with_note(pictures: int, there: bool) -> None:
    pairs, _, _ = made(pictures=pictures, noise=2.0)
    result = evaluate_model(model(), pairs, protocol=Protocol(bootstrap=100))
    told = result.to_json()
    assert (told["intervals"]["rsum"] is not None) == there
    assert (told["intervals"]["text_to_image/recall@1"] is not None) == there
    assert told["protocol"]["intervals"]["clusters"] == {"image_to_text": pictures, "text_to_image": pictures}
    assert any("needs 10 of them; the queries belong to 9" in note for note in result.notes) != there
    assert "image_to_text/median_rank" not in told["intervals"]


def test_constant_figure_has_no_interval() -> None:
    result = evaluate_scores(torch.eye(30), np.arange(30), np.arange(30), metrics=[Recall(1)])
    assert result.figures["text_to_image/recall@1"] == 100
    assert result.to_json()["intervals"]["text_to_image/recall@1"] is None
    assert result.notes == (
        "no 95 % interval of image to text recall@1, text to image recall@1: all queries agree, so resampling shows no "
        "spread",
    )


def test_choice_larger_than_gallery_is_skipped_with_note() -> None:
    pairs, _, _ = made(pictures=12, texts_each=2)
    metrics = [each for c in (5, 20, 40) for each in (CWay(c), CWay(c, at=3), CWayRank(c))]
    result = evaluate_model(model(), pairs, metrics=metrics, protocol=Protocol(bootstrap=0))
    ways = {name for name in result.figures if "_way" in name}
    assert ways == {
        *(f"{d}/5_way{what}" for d in ("image_to_text", "text_to_image") for what in ("@1", "@3", "_mean_rank")),
        *(f"image_to_text/20_way{what}" for what in ("@1", "@3", "_mean_rank")),
    }
    assert not {name for name in (*result.chance, *result.per_query) if "40_way" in name}
    assert any("20-way choice of texts among images is left out: it needs 19 wrong" in note for note in result.notes)
    assert any("40-way choice of images among texts" in note and "at most 22" in note for note in result.notes)
    assert all(math.isfinite(value) for value in result.figures.values())


def test_choice_with_too_few_candidates_gives_note() -> None:
    groups = np.array([0] * 4 + [1, 2])
    result = evaluate_scores(torch.rand(6, 6), groups, groups, metrics=[CWay(4)])
    assert np.isnan(result.per_query["image_to_text/4_way@1"]).tolist() == [True] * 4 + [False] * 2
    assert any(
        "4-way choice of images among texts leaves out queries with fewer than 3 wrong texts" in n for n in result.notes
    )


def test_scores_without_matching_pairs_raise() -> None:
    with pytest.raises(RequirementError, match="none of 2 images and 3 texts do"):
        evaluate_scores(torch.rand(2, 3), np.array([0, 1]), np.array([2, 3, 4]))


def test_smallest_data_has_figures() -> None:
    result = evaluate_scores(torch.ones(1, 1), np.zeros(1, np.int64), np.zeros(1, np.int64))
    assert result.figures["rsum"] == 600
    assert result.figures["image_to_text/median_rank"] == 1
    assert result.chance["rsum"] == 600
    json.dumps(result.to_json(), allow_nan=False)


def test_nan_scores_and_ties_give_notes() -> None:
    scores = torch.ones(12, 12)
    scores[3, 3] = torch.nan
    result = evaluate_scores(scores, np.arange(12), np.arange(12), protocol=Protocol(bootstrap=0))
    assert any(note.startswith("not a number: 1 score,") for note in result.notes)
    assert any(note.startswith("ties: in up to 91.7 % of queries") for note in result.notes)


def test_json_contains_protocol(tmp_path: Path) -> None:
    pairs, _, _ = made(pictures=4, texts_each=2)
    metrics = [*default_metrics(), SampledCWay(3, seed=5), SampledCWay(100, seed=5)]
    result = evaluate_model(model(), pairs, metrics=metrics, protocol=Protocol(seed=5, bootstrap=50))
    result.save(tmp_path / "out" / "figures.json")
    result.save_queries(tmp_path / "out" / "queries.npz")
    told = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert told["text_to_image/recall@1"] == result.figures["text_to_image/recall@1"]
    assert "text_to_image/100_way@1" not in told and told["notes"] == list(result.notes)
    stated = told["protocol"]
    assert (stated["ties"], stated["seed"], stated["folds"], stated["split"]) == ("pessimistic", 5, 1, "val")
    assert stated["gallery"] == {"images": 4, "texts": 8}
    assert stated["metrics"]["3_way@1"] == "SampledCWay(c=3, seed=5)"
    assert "all texts" in stated["candidates"] and "rounded down" in stated["median_rank"]
    assert set(stated["versions"]) == {"python", "subtext", "torch", "transformers", "numpy"}
    assert stated["versions"]["torch"] == torch.__version__
    assert len(stated["data"]) == 32
    with np.load(tmp_path / "out" / "queries.npz", allow_pickle=False) as kept:
        assert kept["text_to_image/id"].tolist() == pairs.texts.ids
        assert 100 * kept["text_to_image/recall@1"].mean() == pytest.approx(told["text_to_image/recall@1"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["figures.json", "queries.npz"]


def test_median_of_two_middle_ranks_is_rounded_down() -> None:
    """Ranks 1 and 2: Karpathy's code says 1, a plain median 1.5."""
    result = evaluate_scores(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), np.arange(2), np.arange(2))
    assert result.per_query["image_to_text/mean_rank"].tolist() == [1, 2]
    assert result.figures["image_to_text/median_rank"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"folds": 0}, "1 or more; it got 0"),
        ({"fold_sizes": (5, 5)}, r"1 or more, each once; it got \(5, 5\)"),
        ({"folds": 2, "fold_sizes": (5,)}, "say the same in two ways; it got folds=2 and fold_sizes=\\(5,\\)"),
        ({"bootstrap": -1}, "0 or more; it got -1"),
        ({"references": 0}, "1 or more; it got 0"),
        ({"ties": "random"}, "'stable'; it got 'random'"),
    ],
)
def test_invalid_protocol_raises(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RequirementError, match=message):
        Protocol(**arguments)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([], "needs a metric; it got none"),
        (["recal@10"], "there is no metric 'recal@10'; did you mean recall@1"),
        ([10], r"metrics such as Recall\(1, 5, 10\), or their names such as 'recall@10'; it got 10"),
        (["asp:tfidf1"], "needs graded relevance by name"),
        (["alignment-uniformity"], "needs embeddings; it got none"),
    ],
)
def test_unsuitable_metrics_raise(metrics: list[object], message: str) -> None:
    with pytest.raises(RequirementError, match=message):
        evaluate_scores(torch.eye(4), np.arange(4), np.arange(4), metrics=metrics)


def test_metric_by_name_equals_metric_object() -> None:
    groups = np.arange(30)
    names = ["recall@10", "mean-rank", "20-way"]
    by_name, by_object = (
        evaluate_scores(torch.rand(30, 30, generator=torch.Generator().manual_seed(0)), groups, groups, metrics=metrics)
        for metrics in (names, [Recall(10), BestRank(), CWay(20)])
    )
    assert by_name.to_json() == by_object.to_json() and "text_to_image/20_way@1" in by_name.figures
    with pytest.raises(RequirementError, match=r"Recall\(k=\(1, 5\)\) stands for 2 metrics"):
        _ = Recall(1, 5).name


@pytest.mark.slow
def test_large_gallery_is_evaluated_without_full_matrix() -> None:
    """16,000 x 16,000 scores would be 1 GB; blocks, counts and samples take a fraction of it."""
    count = 16_000
    g = torch.Generator().manual_seed(0)
    vectors = nn.functional.normalize(torch.randn(count, 2, 8, generator=g), dim=-1)
    items = [
        Items([f"{kind}{n}" for n in range(count)], [None] * count, np.arange(count), np.array(["test"] * count))
        for kind in ("image", "text")
    ]
    pairs = Dataset(*items, np.stack([np.arange(count)] * 2, axis=1), Path())
    embedded = Embeddings(vectors, torch.arange(count))
    noisy = Embeddings(
        nn.functional.normalize(vectors + 0.1 * torch.randn(count, 2, 8, generator=g), dim=-1), embedded.ids
    )
    resident, done, highest = Path("/proc/self/statm"), threading.Event(), 0

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.005):
            highest = max(highest, int(resident.read_text().split()[1]) * 4096)

    before = int(resident.read_text().split()[1]) * 4096
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = evaluate_embeddings(Cosine(), embedded, noisy, pairs)
    finally:
        done.set()
        watcher.join()
    assert (highest - before) / 2**20 < 600
    assert result.figures["image_to_text/recall@10"] > 100 * result.chance["image_to_text/recall@10"]
