"""What is measured beyond recall: by relevance, other truths, labels, people, lengths, folds; beside its metric."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from subtext.core import Comparison, Embeddings
from subtext.data.dataset import Dataset, Items, Judgements
from subtext.errors import DataError, RequirementError, ShapeError
from subtext.evaluation import (
    Protocol,
    evaluate_embeddings,
    evaluate_matrix,
    gallery_of,
    scoring as sources,
)
from subtext.evaluation.checks import space as spaces
from subtext.evaluation.checks.space import space_of_pairs, with_space
from subtext.evaluation.metrics import (
    ASP,
    NDCG,
    PMRP,
    AveragePrecision,
    Hubness,
    HumanAgreement,
    PMRecall,
    Recall,
    RPrecision,
    SemanticGain,
    default_metrics,
)
from subtext.evaluation.relevance import plausible
from subtext.evaluation.relevance.graded import Graded
from subtext.evaluation.relevance.match import Match, of_groups
from subtext.models.similarity.ascl import Ascl
from subtext.models.similarity.cosine import Cosine

PICTURES, EACH = 20, 2
QUIET = Protocol(bootstrap=0)
SIDES = ("image_to_text", "text_to_image")
PRECISION = (RPrecision(), AveragePrecision())
MADE = (ASP("made"), *(SemanticGain(k, against="made") for k in (5, 10, 20)), NDCG(10, against="made"))
"""The metrics of the relevance "made"."""


def made(seed: int = 0, *, each: int = EACH) -> tuple[Dataset, torch.Tensor, Graded]:
    """Dataset, scores with some ties, and a relevance of many zeros."""
    g = np.random.default_rng(seed)
    owner = np.repeat(np.arange(PICTURES), each)
    labels = [[name for name in ("cat", "dog", "car") if g.random() < 0.5] for _ in range(PICTURES)]

    def items(kind: str, groups: np.ndarray) -> Items:
        names = [f"{kind}{row}" for row in range(len(groups))]
        words = ["word " * (5 * (row % 5) + 1) for row in range(len(groups))]
        more = {"labels": labels} if kind == "image" else {}
        return Items(names, list(words), groups.astype(np.int64), np.array(["val"] * len(groups)), more)

    links = np.stack([owner, np.arange(len(owner))], axis=1).astype(np.int64)
    pairs = Dataset(items("image", np.arange(PICTURES)), items("text", owner), links, Path())
    relevance = np.maximum(g.random((PICTURES, len(owner)), dtype=np.float32) - 0.3, 0)
    scores = np.round(2 * relevance + g.standard_normal(relevance.shape), 1).astype(np.float32)
    return pairs, torch.from_numpy(scores), Graded("made", relevance)


def both(scores: torch.Tensor, graded: Graded, match: Match) -> dict[str, Comparison]:
    """The two comparisons that a metric reads."""
    turned = {"image_to_text": scores, "text_to_image": scores.T.contiguous()}
    return {side: Comparison(turned[side], graded.truth(side, 0, len(turned[side]), match)) for side in SIDES}


def test_every_figure_is_mean_of_its_metric() -> None:
    pairs, scores, graded = made()
    match = of_groups(pairs.images.groups, pairs.texts.groups)
    asked = (*PRECISION, ASP("made"), ASP("made", top=5), SemanticGain(3, against="made"), NDCG(4, against="made"))
    gallery = gallery_of(pairs, relevances=(graded,))
    result = evaluate_matrix(scores, gallery, metrics=asked, protocol=QUIET)
    metrics = {
        "asp(made)": ASP(),
        "asp@5(made)": ASP(top=5),
        "gain@3(made)": SemanticGain(3),
        "ndcg@4(made)": NDCG(4),
        "r_precision": RPrecision(),
        "map@r": AveragePrecision(),
    }
    for side, comparison in both(scores, graded, match).items():
        for name, metric in metrics.items():
            values = metric(comparison).numpy()
            np.testing.assert_allclose(result.per_query[f"{side}/{name}"], values, atol=1e-12)
            assert result.figures[f"{side}/{name}"] == pytest.approx(100 * np.nanmean(values))
        assert result.chance[f"{side}/asp(made)"] == pytest.approx(50, abs=4)
        assert 90 < result.ceiling[f"{side}/asp(made)"] < 100
    assert result.chance["image_to_text/r_precision"] == pytest.approx(100 / PICTURES)
    told = json.loads(result.json_text())
    assert told["protocol"]["metrics"]["asp@5(made)"] == "ASP(against='made', top=5)" and "asp(made)" in "".join(
        told["ceiling"]
    )


def test_ceiling_averages_over_folds() -> None:
    pairs, scores, graded = made()
    # Ties in the second fold alone: the best order reaches less there.
    values = graded.values.copy()
    values[PICTURES // 2 :] = np.round(2 * values[PICTURES // 2 :])
    name, found = "image_to_text/asp(made)", []
    for images in (np.arange(PICTURES // 2), np.arange(PICTURES // 2, PICTURES)):
        texts = np.flatnonzero(np.isin(pairs.texts.groups, pairs.images.groups[images]))
        cut = gallery_of(pairs.subset(images, texts), relevances=(Graded("made", values[np.ix_(images, texts)]),))
        part = evaluate_matrix(scores[images][:, texts], cut, metrics=MADE, protocol=QUIET)
        found.append(part.ceiling[name])
    gallery = gallery_of(pairs, relevances=(Graded("made", values),))
    folded = evaluate_matrix(scores, gallery, metrics=MADE, protocol=replace(QUIET, folds=2))
    assert abs(found[0] - found[1]) > 1 and folded.ceiling[name] == pytest.approx(np.mean(found))


def test_perfect_scores_reach_ceiling() -> None:
    pairs, _, graded = made()
    g = np.random.default_rng(1)
    found = []
    for _ in range(30):
        nearly = torch.from_numpy(graded.values + 1e-5 * g.random(graded.values.shape, dtype=np.float32))
        gallery = gallery_of(pairs, relevances=(graded,))
        result = evaluate_matrix(nearly, gallery, metrics=MADE, protocol=QUIET)
        found.append(result.figures["image_to_text/asp(made)"])
    assert np.mean(found) == pytest.approx(result.ceiling["image_to_text/asp(made)"], abs=0.3)
    assert result.figures["image_to_text/gain@5(made)"] == pytest.approx(100, abs=0.01)


def test_gallery_order_and_block_size_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, scores, graded = made()
    protocol = replace(QUIET, ties="expected")
    asked = (*default_metrics(), *PRECISION, ASP("made", "min"), *MADE[1:], Hubness(3), PMRP(), PMRecall())
    gallery = gallery_of(pairs, relevances=(graded,), labels=plausible.of_pairs(pairs))
    whole = evaluate_matrix(scores, gallery, metrics=asked, protocol=protocol)
    g = np.random.default_rng(2)
    images, texts = g.permutation(PICTURES), g.permutation(PICTURES * EACH)
    moved = pairs.subset(images, texts)
    there = gallery_of(moved, relevances=(graded.take(images, texts),), labels=plausible.of_pairs(moved))
    shuffled = evaluate_matrix(scores[images][:, texts].contiguous(), there, metrics=asked, protocol=protocol)
    for name, column in whole.per_query.items():
        if "/" in name and column.dtype.kind == "f":
            order = images if name.startswith("image") else texts
            np.testing.assert_array_equal(shuffled.per_query[name], column[order], err_msg=name)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 4 * 40 * 3)
    blocks = evaluate_matrix(scores, gallery, metrics=asked, protocol=protocol)
    for name, column in whole.per_query.items():
        np.testing.assert_array_equal(blocks.per_query[name], column, err_msg=name)


def test_other_truths_and_their_metrics() -> None:
    pairs, scores, graded = made()
    g = np.random.default_rng(3)
    other = of_groups(g.integers(0, 6, PICTURES), g.integers(0, 8, PICTURES * EACH))
    gallery, asked = (
        gallery_of(pairs, truths={"eccv": other}),
        (Recall(5, against="eccv"), AveragePrecision(against="eccv")),
    )
    result = evaluate_matrix(scores, gallery, metrics=asked, protocol=QUIET)
    for side, comparison in both(scores, graded, other).items():
        for name, metric in (("recall@5(eccv)", Recall(5)), ("map@r(eccv)", AveragePrecision())):
            np.testing.assert_array_equal(result.per_query[f"{side}/{name}"], metric(comparison).numpy())
    assert np.isnan(result.per_query["text_to_image/map@r(eccv)"]).any()
    assert "image_to_text/recall@5(eccv)" in result.chance


def test_pmrp_skips_images_without_labels() -> None:
    pairs, scores, _ = made()
    labels = pairs.images.metadata["labels"]
    assert [] in labels
    gallery = gallery_of(pairs, labels=plausible.of_pairs(pairs))
    result = evaluate_matrix(scores, gallery, metrics=[PMRP()], protocol=QUIET)
    kept = np.array([row for row, one in enumerate(labels) if one])
    texts = np.flatnonzero(np.isin(pairs.texts.groups, kept))
    distance = np.array([[len(set(labels[a]) ^ set(labels[b])) for b in pairs.texts.groups[texts]] for a in kept])
    graded = Graded("labels", -distance.astype(np.float32))
    part = scores[kept][:, texts].contiguous()
    for side, comparison in both(part, graded, of_groups(kept, pairs.texts.groups[texts])).items():
        column = result.per_query[f"{side}/pmrp"]
        rows = kept if side == "image_to_text" else texts
        np.testing.assert_allclose(column[rows], PMRP()(comparison))
        assert np.isnan(np.delete(column, rows)).all()


def test_two_fold_counts_from_one_matrix() -> None:
    pairs, scores, graded = made()
    asked = (*default_metrics(), *PRECISION, *MADE, PMRP(), PMRecall())
    gallery = gallery_of(pairs, relevances=(graded,), labels=plausible.of_pairs(pairs))
    result, whole, folded = (
        evaluate_matrix(scores, gallery, metrics=asked, protocol=protocol)
        for protocol in (replace(QUIET, fold_sizes=(20, 5)), QUIET, replace(QUIET, folds=4))
    )
    assert {n: v for n, v in result.figures.items() if "folds)" not in n} == whole.figures
    assert {n.removesuffix("(4 folds)"): v for n, v in result.figures.items() if "folds)" in n} == folded.figures
    piece = scores[:5, :10]
    alone = ASP()(Comparison(piece, graded.take(np.arange(5), np.arange(10)).truth("image_to_text", 0, 5,
                  of_groups(np.arange(5), np.arange(10) // 2))))  # fmt: skip
    np.testing.assert_allclose(result.per_query["image_to_text/asp(made)(4 folds)"][:5], alone)
    assert result.protocol["fold_sizes"] == [[20, 40], *[[5, 10]] * 4]


def test_figures_by_length_human_ratings_and_hubness() -> None:
    pairs, scores, _ = made()
    lengths = np.array([len(text.split()) for text in pairs.texts.values])
    rows, columns = np.divmod(np.random.default_rng(4).permutation(800)[:50], 40)
    human = Judgements(columns, rows, scores.numpy()[rows, columns])
    asked = (Recall(1, 5, by_length=True), Hubness(2), HumanAgreement())
    gallery = gallery_of(pairs, lengths=lengths, ratings=human)
    result = evaluate_matrix(scores, gallery, metrics=asked, protocol=QUIET)
    column = result.per_query["text_to_image/recall@5"]
    for label, inside in (("words 0-9", lengths < 10), ("words 15-19", (lengths > 14) & (lengths < 20))):
        assert result.figures[f"text_to_image/recall@5({label})"] == pytest.approx(100 * column[inside].mean())
    assert sum(result.protocol["words"].values()) == 40
    assert result.figures["human/spearman"] == pytest.approx(1)
    assert result.figures["human/auc"] == 1 and result.figures["human/pairs"] == 50
    order = np.argsort(-scores.numpy() + 1e-6 * np.arange(40), axis=1)
    assert result.figures["image_to_text/unfound@2"] <= 1 - len(np.unique(order[:, :1])) / 40
    assert "image_to_text/hubness@2" in result.figures


def test_alignment_and_uniformity_equal_plain_formulas() -> None:
    pairs, _, _ = made()
    g = torch.Generator().manual_seed(0)
    vectors = torch.nn.functional.normalize(torch.randn(PICTURES, 1, 6, generator=g), dim=-1)
    images = Embeddings(vectors, torch.arange(PICTURES))
    texts = Embeddings(vectors.repeat_interleave(EACH, dim=0), torch.arange(PICTURES * EACH))
    result = with_space(evaluate_embeddings(Cosine(), images, texts, pairs, protocol=QUIET), images, texts, pairs)
    assert result.figures["alignment"] == pytest.approx(0, abs=1e-6)
    assert result.figures["text/alignment"] == pytest.approx(0, abs=1e-6)
    gaps = torch.pdist(vectors[:, 0].double())
    assert result.figures["image/uniformity"] == pytest.approx(float(gaps.mean()), abs=1e-6)
    assert result.figures["text/uniformity"] == pytest.approx(float(gaps.mean()), abs=1e-6)
    json.dumps(result.to_json(), allow_nan=False)


def test_text_alignment_covers_all_text_pairs_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, _, _ = made()
    g = np.random.default_rng(1)
    # Five texts of some pictures, one of others, none of a few; in no order.
    owner = g.permutation(np.concatenate([np.repeat(np.arange(6), 5), np.arange(6, 16)]))
    texts = replace(pairs.texts, groups=owner)
    vectors = torch.from_numpy(g.normal(size=(len(owner), 1, 6)).astype(np.float32))
    found = Embeddings(vectors, torch.arange(len(owner)))
    images = Embeddings(torch.from_numpy(g.normal(size=(PICTURES, 1, 6))).float(), torch.arange(PICTURES))
    monkeypatch.setattr(spaces, "_ROWS", 7)
    figures = spaces.space(images, found, replace(pairs, texts=texts, links=np.empty((0, 2), dtype=np.int64)))
    unit = torch.nn.functional.normalize(vectors[:, 0].double(), dim=1)
    gaps = [
        float((unit[one] - unit[other]).norm())
        for one, other in itertools.combinations(range(len(owner)), 2)
        if owner[one] == owner[other]
    ]
    assert len(gaps) == 60
    assert figures["text/alignment"] == pytest.approx(np.mean(gaps), abs=1e-7)
    alone = replace(texts, groups=np.arange(len(owner)))
    assert "text/alignment" not in spaces.space(images, found, replace(pairs, texts=alone))


def test_nan_scores_rank_last_and_are_counted() -> None:
    pairs, scores, graded = made()
    scores[3] = torch.nan
    gallery = gallery_of(pairs, relevances=(graded,))
    result = evaluate_matrix(scores, gallery, metrics=(*PRECISION, *MADE), protocol=QUIET)
    assert result.figures["image_to_text/nan_scores"] == 40
    assert result.per_query["image_to_text/r_precision"][3] == 0
    assert np.isfinite(list(result.figures.values())).all()


def test_inconsistent_arguments_raise() -> None:
    pairs, scores, graded = made()
    small = Graded("made", graded.values[:5].copy())
    with pytest.raises(ShapeError, match=r"relevance made must be \(images, texts\) = \(20, 40\).*it got \(5, 40\)"):
        gallery_of(pairs, relevances=(small,))
    with pytest.raises(ShapeError, match="the truth cxc must be of"):
        gallery_of(pairs, truths={"cxc": of_groups(np.arange(3), np.arange(3))})
    with pytest.raises(ShapeError, match="transpose them"):
        evaluate_matrix(scores.T.contiguous(), pairs)
    with pytest.raises(RequirementError, match=r"needs graded relevance by name.*it got 'other'; there are made"):
        evaluate_matrix(scores, gallery_of(pairs, relevances=(graded,)), metrics=[ASP("other")])
    with pytest.raises(RequirementError, match="needs people's ratings of pairs; it got none"):
        evaluate_matrix(scores, pairs, metrics=[HumanAgreement()])
    with pytest.raises(RequirementError, match=r"share one rule for ties; RPrecision\(ties='expected'\) has another"):
        evaluate_matrix(scores, pairs, metrics=[RPrecision("expected")])
    broken = graded.values.copy()
    broken[2, 7] = np.inf
    with pytest.raises(DataError, match="relevance made needs finite numbers; image_to_text query 2, candidate 7"):
        evaluate_matrix(scores, gallery_of(pairs, relevances=(Graded("made", broken),)), metrics=MADE)
    one = Judgements(np.array([0]), np.array([0]), np.array([1.0], dtype=np.float32))
    with pytest.raises(DataError, match="two rated pairs or more; it got 1"):
        evaluate_matrix(scores, gallery_of(pairs, ratings=one), metrics=[HumanAgreement()])


def test_pair_space_is_measured_between_partners() -> None:
    each = 5
    pairs, _, _ = made(each=each)
    g = torch.Generator().manual_seed(0)
    similarity = Ascl(width=8, heads=2)
    images = Embeddings(torch.randn(PICTURES, 1, 8, generator=g), torch.arange(PICTURES), parts=parts(PICTURES, g))
    words = PICTURES * each
    mask = torch.rand(words, 3, generator=g) > 0.3
    mask[:, 0] = True
    texts = Embeddings(
        torch.zeros(words, 1, 8), torch.arange(words), parts=parts(words, g) * mask[..., None], mask=mask
    )
    found = space_of_pairs(similarity, images, texts, pairs)
    whole = torch.nn.functional.normalize(similarity.pair_vectors(images, texts).detach(), dim=3)
    own = [(text // each, text) for text in range(words)]
    gaps = [float((whole[picture, text, 0] - whole[picture, text, 1]).norm()) for picture, text in own]
    assert found["own_pair/alignment"] == pytest.approx(np.mean(gaps), abs=1e-5)
    beside = [
        float((whole[picture, text, 1] - whole[picture, other, 1]).norm())
        for picture, text in own
        for other in range(text + 1, (picture + 1) * each)
    ]
    assert len(beside) == PICTURES * 10
    assert found["own_pair/text/alignment"] == pytest.approx(np.mean(beside), abs=1e-5)
    means = torch.stack([whole[row, row * each : (row + 1) * each, 0].mean(dim=0) for row in range(PICTURES)])
    apart = torch.pdist(torch.nn.functional.normalize(means, dim=1))
    assert found["own_pair/image/uniformity"] == pytest.approx(float(apart.mean()), abs=1e-5)
    with pytest.raises(RequirementError, match="this one is Cosine; measure its space without them"):
        space_of_pairs(Cosine(), images, texts, pairs)


def parts(count: int, g: torch.Generator) -> torch.Tensor:
    """Three of each item."""
    return torch.nn.functional.normalize(torch.randn(count, 3, 8, generator=g), dim=2)
