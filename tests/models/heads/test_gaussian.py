"""Probabilistic items: fast ways beside plain loops, and draws that are the item's own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_training
import torch
from regions_and_words import det
from torch import Tensor, nn

from subtext.core import Embeddings, Encoded
from subtext.data.inputs import Draw
from subtext.evaluation.scoring import matrix
from subtext.models.heads.gaussian import Gaussian, Spread
from subtext.models.heads.graph import GraphAttention, GraphAttentionLayer
from subtext.models.heads.mean import Mean
from subtext.models.model import Branch, Model
from subtext.models.similarity import probabilistic as match_probability
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.probabilistic import ClosedFormDistance, MatchProbability
from subtext.ops import draw
from subtext.recipes.models.pcme_plus.mixing import Mixing, mixed_truth
from subtext.training.step import StepReader

pytestmark = pytest.mark.identity

F64 = torch.float64


def items(count: int, draws: int, width: int, *, seed: int, dtype: torch.dtype = F64) -> Embeddings:
    g = torch.Generator().manual_seed(seed)
    means = torch.nn.functional.normalize(torch.randn(count, 1, width, generator=g, dtype=F64), dim=-1)
    log_std = 0.3 * torch.randn(count, 1, width, generator=g, dtype=F64) - 2
    noise = torch.randn(count, draws, width, generator=g, dtype=F64)
    return Embeddings((means + log_std.exp() * noise).to(dtype), torch.arange(count), log_std=log_std.to(dtype))


def by_loops(images: Embeddings, texts: Embeddings, scale: float, shift: float) -> Tensor:
    """p, one pair of draws at a time."""
    found = torch.zeros(len(images), len(texts), dtype=F64)
    for i in range(len(images)):
        for t in range(len(texts)):
            pairs = [
                1 / (1 + math.exp(-2 * (shift - scale * math.sqrt(float((x - y).square().sum()) + 1e-6))))
                for x in images.vectors[i]
                for y in texts.vectors[t]
            ]
            found[i, t] = sum(pairs) / len(pairs)
    return found


def test_match_probability_equals_plain_loops() -> None:
    images, texts = items(5, 3, 6, seed=1), items(4, 2, 6, seed=2)
    similarity = MatchProbability(scale=7.0, shift=6.0).double()
    found = similarity.probability(images, texts)
    torch.testing.assert_close(found, by_loops(images, texts, 7.0, 6.0), atol=1e-13, rtol=0)
    torch.testing.assert_close(similarity(images, texts), torch.logit(found), atol=1e-10, rtol=0)


def test_match_probability_gradient_matches_finite_differences() -> None:
    images, texts = items(4, 3, 6, seed=1), items(3, 3, 6, seed=2)
    similarity = MatchProbability(scale=3.0, shift=3.0).double()
    leaves = [side.vectors.requires_grad_() for side in (images, texts)]
    apart = leaves[0][:, :, None, None] - leaves[1]
    logits = 2 * (similarity.shift - similarity.scale * (apart.square().sum(-1) + 1e-6).sqrt())
    plain = torch.logit(torch.sigmoid(logits).mean(dim=(1, 3)))
    weight = torch.randn(4, 3, dtype=F64)
    every = [*leaves, *similarity.parameters()]
    wanted = torch.autograd.grad((plain * weight).sum(), every)
    found = torch.autograd.grad((similarity(images, texts) * weight).sum(), every)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_block_size_changes_neither_scores_nor_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity = MatchProbability(scale=3.0, shift=3.0).double()
    found = []
    for most in (2**24, 60):
        monkeypatch.setattr(match_probability, "KEPT_FLOATS", most)
        monkeypatch.setattr(match_probability, "BLOCK_FLOATS", most)
        images, texts = items(7, 3, 6, seed=1), items(5, 2, 6, seed=2)
        leaves = [side.vectors.requires_grad_() for side in (images, texts)]
        scores = similarity(images, texts)
        gradients = torch.autograd.grad(scores.square().sum(), [*leaves, *similarity.parameters()])
        with torch.no_grad():
            found.append([scores.detach(), similarity(images, texts), *gradients])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_distant_pairs_have_distinct_finite_scores_and_gradients() -> None:
    """As an untrained model has them: deviations of 1 in a thousand dimensions, distances of 45, p of e^-1300."""
    g = torch.Generator().manual_seed(0)
    images, texts = (
        Embeddings(torch.randn(3, 4, 1024, generator=g).requires_grad_(), torch.arange(3)) for _ in range(2)
    )
    scores = MatchProbability()(images, texts)
    assert scores.isfinite().all() and (scores < -1000).all()
    assert len(scores.unique()) == 9
    gradients = torch.autograd.grad(torch.nn.functional.softplus(-scores).sum(), [images.vectors, texts.vectors])
    assert all(gradient.isfinite().all() and gradient.abs().sum() > 0 for gradient in gradients)
    same = MatchProbability(scale=15.0, shift=1000.0)(images, images)
    assert same.isfinite().all() and (same > 0).all()


@pytest.mark.parametrize("draws", [1, 3])
def test_scores_are_bit_identical_in_any_order_and_block(draws: int) -> None:
    images, texts = (items(n, draws, 48, seed=n, dtype=torch.float32) for n in (70, 83))
    for similarity in (MatchProbability(), ClosedFormDistance(), ClosedFormDistance(kind="wasserstein")):
        whole = matrix(similarity, images, texts)
        rows, columns = torch.randperm(70), torch.randperm(83)
        assert torch.equal(matrix(similarity, images[rows], texts[columns], 10_000), whole[rows][:, columns])
        assert torch.equal(matrix(similarity, images[7:8], texts[80:]), whole[7:8, 80:])


def test_mean_distance_ranks_as_cosine() -> None:
    images, texts = (
        replace(each, vectors=torch.nn.functional.normalize(each.vectors, dim=-1))
        for each in (items(6, 1, 5, seed=1), items(9, 1, 5, seed=2))
    )
    by_distance = MatchProbability().double()(images, texts).argsort(dim=1)
    assert torch.equal(by_distance, Cosine()(images, texts).argsort(dim=1))


@pytest.mark.parametrize("kind", ["sampled", "wasserstein"])
def test_closed_form_distance_equals_plain_loops(kind: str) -> None:
    images, texts = items(5, 1, 6, seed=1), items(4, 1, 6, seed=2)
    found = ClosedFormDistance(kind=kind).double().distance(images, texts)
    for i in range(5):
        for t in range(4):
            apart = (images.vectors[i, 0] - texts.vectors[t, 0]).square().sum()
            one, other = images.log_std[i, 0].exp(), texts.log_std[t, 0].exp()
            more = (one - other).square() if kind == "wasserstein" else one.square() + other.square()
            assert found[i, t].item() == pytest.approx((apart + more.sum()).item(), abs=1e-12)


def test_closed_form_distance_equals_mean_over_samples() -> None:
    images, texts = items(2, 1, 6, seed=1), items(2, 1, 6, seed=2)
    g = torch.Generator().manual_seed(0)
    one, other = (
        each.vectors + each.log_std.exp() * torch.randn(2, 100_000, 6, generator=g, dtype=F64)
        for each in (images, texts)
    )
    sampled = (one[:, None] - other).square().sum(dim=-1).mean(dim=-1)
    torch.testing.assert_close(sampled, ClosedFormDistance().double().distance(images, texts), atol=0.01, rtol=0)


def test_equal_distributions_have_zero_wasserstein_distance() -> None:
    one = items(3, 1, 6, seed=1)
    assert ClosedFormDistance(kind="wasserstein").double().distance(one, one).diagonal().abs().max() < 1e-12


def test_normal_numbers_have_standard_moments() -> None:
    keys = np.arange(5_000, dtype=np.int64) ** 2
    found = draw.normal(keys, seed=3, epoch=1, purpose="noise", count=7)
    assert found.shape == (5_000, 7) and found.dtype == np.float32
    values = found.astype(np.float64)
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02
    assert abs((values**4).mean() - 3) < 0.2
    assert np.abs(np.corrcoef(values.T) - np.eye(7)).max() < 0.06


def test_samples_depend_on_seed_epoch_item_and_purpose() -> None:
    keys = draw.keys([f"item {n}" for n in range(11)])
    told = {"seed": 3, "epoch": 2, "purpose": "image draws"}
    whole = draw.normal(keys, **told, count=6)
    order = np.random.default_rng(0).permutation(11)
    assert np.array_equal(draw.normal(keys[order], **told, count=6), whole[order])
    for row in range(11):
        assert np.array_equal(draw.normal(keys[row : row + 1], **told, count=6)[0], whole[row])
    assert np.array_equal(draw.normal(keys, **told, count=5), whole[:, :5])
    for other in ({"seed": 4}, {"epoch": 3}, {"purpose": "text draws"}):
        assert not np.isclose(draw.normal(keys, **{**told, **other}, count=6), whole).any()


def gaussian(draws: int = 3, **given: object) -> Gaussian:
    torch.manual_seed(0)
    return Gaussian(Mean(16, 8), Spread(16, 8, pooled_width=16), 8, draws=draws, **given)  # type: ignore[arg-type]


def probabilistic(**given: object) -> Model:
    """The small model with gaussian heads."""
    other = small_training.setup().model
    torch.manual_seed(1)
    text = Gaussian(Mean(8, 8), Spread(8, 8, recurrent=True), 8, draws=3, side="text", **given)  # type: ignore[arg-type]
    return Model(
        Branch(other.image.input_spec, small_training.Body(), gaussian(**given)),
        Branch(other.text.input_spec, other.text.encoder, text),
        MatchProbability(),
    )


def test_samples_of_an_item_do_not_depend_on_batch() -> None:
    model, texts = probabilistic().eval(), ["red wet", "blue", "tall old round", "flat"]
    whole = model.embed_texts(texts)
    assert whole.vectors.shape == (4, 3, 8) and whole.log_std is not None and whole.log_std.shape == (4, 1, 8)
    turned = model.embed_texts(texts[::-1])
    torch.testing.assert_close(turned.vectors.flip(0), whole.vectors, atol=1e-6, rtol=0)
    alone = model.embed_texts(["flat"])
    torch.testing.assert_close(alone.vectors[0], whole.vectors[3], atol=1e-6, rtol=0)
    assert not torch.allclose(whole.vectors[0, 0], whole.vectors[0, 1])


def test_other_seed_samples_same_distribution() -> None:
    first, second = probabilistic().eval(), probabilistic(seed=5).eval()
    one, other = (model.embed_texts(["red wet"]) for model in (first, second))
    assert torch.equal(one.log_std, other.log_std)
    assert not torch.isclose(one.vectors, other.vectors).any()
    assert torch.equal(first.text.head.mean.project.weight, second.text.head.mean.project.weight)


def test_training_samples_change_by_epoch_and_resume_identically() -> None:
    model, data = probabilistic(), small_training.pairs(4)
    rows = data.links[:4]

    def noise(epoch: int, seed: int = 0) -> Tensor:
        return StepReader(model, data, Draw(seed, epoch))(rows).images["noise"]

    assert torch.equal(noise(0), noise(0))
    assert not torch.isclose(noise(0), noise(1)).any() and not torch.isclose(noise(0), noise(0, 1)).any()
    both = StepReader(model, data, Draw(0, 0))(rows)
    assert not torch.isclose(both.images["noise"][0], both.texts["noise"][0]).any()
    evaluated = StepReader(model, data, None)(rows).images["noise"]
    assert not torch.isclose(evaluated, noise(0)).any()


def test_ranking_by_means_needs_no_samples() -> None:
    model = probabilistic(drawn="learning").eval()
    found = model.embed_texts(["red wet"])
    assert found.views == 1
    torch.testing.assert_close(found.vectors.norm(dim=2), torch.ones(1, 1))
    assert "noise" in StepReader(model, small_training.pairs(4), Draw(0, 0))(small_training.pairs(4).links[:4]).texts


def test_model_is_indexable_by_means() -> None:
    model = probabilistic().eval()
    means = model.to_indexable("an index")
    assert means.indexable and not model.indexable
    found = means.embed_texts(["red wet", "blue"])
    assert found.views == 1 and found.uncertainty is not None and (found.uncertainty > 0).all()
    torch.testing.assert_close(
        found.vectors, probabilistic(drawn="learning").eval().embed_texts(["red wet", "blue"]).vectors
    )
    torch.testing.assert_close(found.uncertainty, found.log_std.exp().square().mean(dim=(1, 2)).sqrt())
    assert Embeddings(torch.zeros(2, 1, 3), torch.arange(2)).uncertainty is None
    plain = small_training.setup().model
    assert plain.to_indexable("an index") is plain


def test_graph_layer_equals_plain_loops() -> None:
    torch.manual_seed(0)
    layer = GraphAttentionLayer(6, heads=2, norm="layer").double().eval()
    parts = det((2, 4, 6), 0.3)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    with torch.no_grad():
        found = layer(parts, mask)
        for n, count in ((0, 4), (1, 2)):
            x = parts[n, :count]
            heads = []
            for head in range(2):
                cut = slice(3 * head, 3 * head + 3)
                q, k, v = (part(x)[:, cut] for part in (layer.query, layer.key, layer.value))
                weights = torch.stack([torch.softmax(torch.stack([a @ b for b in k]) / math.sqrt(3), 0) for a in q])
                heads.append(weights @ v)
            hidden = layer.inner_norm(x + layer.out(torch.cat(heads, dim=1)))
            wanted = layer.outer_norm(hidden + layer.second(torch.relu(layer.first(hidden))))
            torch.testing.assert_close(found[n, :count], wanted)
    assert not found[1, 2:].any()


def test_batch_norm_statistics_skip_masked_parts() -> None:
    torch.manual_seed(0)
    layer = GraphAttentionLayer(6).double().train()
    mask = torch.arange(5) < torch.tensor([[5], [2], [3]])
    parts = torch.randn(3, 5, 6, dtype=F64)
    layer(parts.masked_fill(~mask[..., None], 1e3), mask)
    seen = layer.inner_norm.running_mean.clone()
    layer.inner_norm.reset_running_stats()
    layer(parts.masked_fill(~mask[..., None], -50.0), mask)
    torch.testing.assert_close(layer.inner_norm.running_mean, seen)
    assert seen.abs().max() < 5


def test_order_of_regions_and_cells_does_not_matter() -> None:
    torch.manual_seed(0)
    head = GraphAttention(6, 8, cells=2).double().eval()
    parts, ids = torch.randn(3, 5, 6, dtype=F64), torch.arange(3)
    plain = head(Encoded(parts), ids).vectors
    moved = parts[:, [1, 0, 4, 2, 3]]
    torch.testing.assert_close(head(Encoded(moved), ids).vectors, plain)
    crossed = parts[:, [2, 1, 0, 3, 4]]
    assert not torch.allclose(head(Encoded(crossed), ids).vectors, plain)


def pictures(count: int = 6) -> tuple[Tensor, np.ndarray]:
    torch.manual_seed(0)
    return torch.randn(count, 3, 16, 16), draw.keys([f"p{n}" for n in range(count)])


@pytest.mark.parametrize("kind", ["mixup", "cutmix", "both"])
def test_mixed_images_are_convex_shares_of_two(kind: str) -> None:
    pixels, keys = pictures()
    mixed, own = Mixing(1.0, kind)(pixels, keys, Draw(0, 0))
    others = pixels.flip(0)
    for row, share in enumerate(own.tolist()):
        assert 0 < share <= 1
        blended = share * pixels[row] + (1 - share) * others[row]
        cut = (mixed[row] == others[row]).all(dim=0)
        if cut.any():
            assert cut.float().mean().item() == pytest.approx(1 - share, abs=1e-6)
            assert torch.equal(mixed[row][:, ~cut], pixels[row][:, ~cut])
        else:
            torch.testing.assert_close(mixed[row], blended)
    again, same = Mixing(1.0, kind)(pixels, keys, Draw(0, 0))
    assert torch.equal(again, mixed) and torch.equal(same, own)
    assert not torch.equal(Mixing(1.0, kind)(pixels, keys, Draw(0, 1))[1], own)


def test_mixing_shares_have_expected_distribution() -> None:
    keys = draw.keys([f"p{n}" for n in range(4000)])
    _, own = Mixing(0.25, "mixup")(torch.zeros(4000, 1, 2, 2), keys, Draw(0, 0))
    changed = own[own < 1]
    assert len(changed) / 4000 == pytest.approx(0.25, abs=0.03)
    assert changed.mean().item() == pytest.approx(0.5, abs=0.03)
    # The variance of Beta(2, 2).
    assert changed.var().item() == pytest.approx(0.05, abs=0.006)


def test_mixed_image_is_relevant_to_both_texts() -> None:
    relevance = mixed_truth(torch.tensor([1.0, 0.7, 0.4, 1.0]), 5)
    wanted = torch.tensor([[1, 0, 0, 0, 0], [0, 0.7, 0.3, 0, 0], [0, 0.6, 0.4, 0, 0], [0, 0, 0, 1, 0.0]])
    torch.testing.assert_close(relevance.images, wanted)
    torch.testing.assert_close(relevance.texts[:, :4], wanted[:, :4].T)
    assert relevance.scale == "mixed" and not relevance.texts[:, 4:].any()
    middle = mixed_truth(torch.tensor([1.0, 0.2, 1.0]), 3)
    assert middle.images[1, 1] == 1, "the one in the middle is mixed with itself"


def test_images_are_mixed_in_training_only(tmp_path: Path) -> None:
    made = small_training.setup_with_pixels()
    data = small_training.with_pictures(small_training.pairs(6), tmp_path)
    rows = data.links[::2]
    mixing = Mixing(1.0)
    plain = StepReader(made.model, data, Draw(0, 0))(rows)
    read = StepReader(made.model, data, Draw(0, 0), mixing=mixing)(rows)
    assert plain.relevance is None and read.relevance is not None
    assert not torch.equal(read.images["pixels"], plain.images["pixels"])
    assert StepReader(made.model, data, None, mixing=mixing)(rows).relevance is None
    halves = [StepReader(made.model, data, Draw(0, 0), mixing=mixing, processes=2, rank=rank)(rows) for rank in (0, 1)]
    for half in halves:
        assert half.relevance is not None and half.relevance.images.shape == (3, 6)
        torch.testing.assert_close(half.relevance.images.sum(dim=1), torch.ones(3))


def test_module_without_samples_gets_no_noise() -> None:
    model: nn.Module = small_training.setup().model
    assert (
        "noise" not in StepReader(model, small_training.pairs(4), Draw(0, 0))(small_training.pairs(4).links[:4]).images
    )
