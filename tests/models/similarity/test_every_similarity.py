"""What every similarity must do. Similarities are found by walking the package."""

from __future__ import annotations

import inspect
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from find_parts import classes
from regions_and_words import of_parts, random_pairs
from scenes import cast, items, random_items
from torch.nn.functional import pad

from subtext.errors import RequirementError, ShapeError
from subtext.models.similarity.cosine import Cosine
from subtext.models.similarity.cross_attention import CrossAttention
from subtext.ops.pairwise import PairSimilarity

pytestmark = pytest.mark.contract

OF_VECTORS = ("Cosine", "MatchProbability", "ClosedFormDistance")
PAIRWISE = [part for part in classes("models.similarity") if part.__name__ not in OF_VECTORS]


def small(part):
    """One for items of width 5, as `random_items` makes them, that learns in float64."""
    wants = "width" in inspect.signature(part).parameters
    return part(**({"width": 5} if wants else {})).double().eval()


def close(scores, exact):
    """Equal to what float32 holds of the largest: a cosine over a small temperature rounds as much near 0 as near 1."""
    torch.testing.assert_close(scores.double(), exact, rtol=0, atol=1e-5 * max(1.0, exact.abs().max().item()))


every_similarity = pytest.mark.parametrize(
    "similarity",
    [pytest.param(small(part), id=part.__name__) for part in classes("models.similarity")]
    + [
        pytest.param(Cosine(temperature=0.07, learnable=True), id="Cosine(temperature=0.07, learnable=True)"),
        pytest.param(Cosine(scale=10.0, shift=-10.0, learnable=True), id="Cosine(scale=10, shift=-10, learnable=True)"),
        pytest.param(Cosine(scale=4.0, shift=0.5), id="Cosine(scale=4, shift=0.5)"),
        pytest.param(Cosine(block_bytes=1), id="Cosine(block_bytes=1)"),
        pytest.param(CrossAttention(attending="image_to_text", pooling="mean"), id="CrossAttention(regions ask)"),
    ],
)


def test_similarities_are_discovered():
    assert "Cosine" in {part.__name__ for part in classes("models.similarity")}


@every_similarity
@pytest.mark.parametrize(("images", "texts", "views"), [(4, 6, 1), (6, 4, 3), (1, 1, 2)])
def test_one_finite_score_per_pair(similarity, images, texts, views):
    scores = similarity(random_items(images, views=views, seed=1), random_items(texts, views=views, seed=2))
    assert scores.shape == (images, texts)
    assert scores.isfinite().all()


@every_similarity
def test_similarity_declares_whether_it_is_indexable(similarity):
    assert isinstance(similarity.indexable, bool)


@every_similarity
def test_scores_follow_order_of_images_and_texts(similarity):
    images, texts = random_items(5, seed=1), random_items(7, seed=2)
    rows, columns = torch.randperm(5), torch.randperm(7)
    torch.testing.assert_close(similarity(images[rows], texts[columns]), similarity(images, texts)[rows][:, columns])


@every_similarity
def test_score_depends_on_its_pair_alone(similarity):
    images, texts = random_items(5, seed=1), random_items(7, seed=2)
    whole = similarity(images, texts)
    for row in range(5):
        for column in range(7):
            alone = similarity(images[row : row + 1], texts[column : column + 1])
            torch.testing.assert_close(alone[0, 0], whole[row, column])


@every_similarity
def test_float32_and_float64_agree(similarity):
    images, texts = random_items(5, seed=1), random_items(7, seed=2)
    scores = deepcopy(similarity).float()(cast(images, torch.float32), cast(texts, torch.float32))
    assert scores.dtype == torch.float32
    close(scores, similarity(images, texts))


@every_similarity
def test_finite_gradient(similarity):
    images, texts = random_items(5, seed=1), random_items(7, seed=2)
    given = [side.parts if type(similarity) in PAIRWISE else side.vectors for side in (images, texts)]
    leaves = [side.requires_grad_() for side in given] + list(similarity.parameters())
    gradients = torch.autograd.grad(similarity(images, texts).square().sum(), leaves)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


@every_similarity
def test_scores_stay_float32_under_autocast(similarity):
    images = cast(random_items(5, seed=1), torch.bfloat16)
    texts = cast(random_items(7, seed=2), torch.bfloat16)
    exact = similarity(cast(images, torch.float64), cast(texts, torch.float64))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = deepcopy(similarity).float()(images, texts)
    assert scores.dtype == torch.float32
    close(scores, exact)


@pytest.mark.parametrize("part", PAIRWISE)
def test_pair_similarity_ignores_padding_and_region_order(part):
    similarity = small(part)
    images, texts, alone = random_pairs(5)
    scores = similarity(images, texts)
    shuffled = torch.randperm(6)
    again = replace(images, parts=images.parts[:, shuffled], mask=images.mask[:, shuffled])
    torch.testing.assert_close(similarity(again, texts), scores)
    for i, t, regions, words in alone:
        one = replace(images[i : i + 1], parts=regions[None], mask=None)
        pair = similarity(one, replace(texts[t : t + 1], parts=words[None], mask=None))
        torch.testing.assert_close(pair[0, 0], scores[i, t])


@pytest.mark.parametrize("part", PAIRWISE)
def test_checkpointed_chunks_have_equal_scores_and_gradients(part, monkeypatch):
    similarity = small(part)
    found = []
    for kept in (2**27, 1):
        monkeypatch.setattr("subtext.ops.pairwise.KEPT_FLOATS", kept)
        monkeypatch.setattr("subtext.ops.pairwise.BLOCK_FLOATS", 2**27 if kept > 1 else 1)
        images, texts, _ = random_pairs(5)
        leaves = [images.parts.requires_grad_(), texts.parts.requires_grad_(), *similarity.parameters()]
        scores = similarity(images, texts)
        found.append([scores.detach(), *torch.autograd.grad(scores.square().sum(), leaves)])
    for once, again in zip(*found, strict=True):
        torch.testing.assert_close(once, again)


def test_chunks_beyond_memory_limit_are_checkpointed(monkeypatch):
    """Three texts of 1, 3 and 2 words with two pictures: one number a word and pair is 2, 4 and 6 in turn."""
    again = []
    monkeypatch.setattr("subtext.ops.pairwise.KEPT_FLOATS", 6)
    monkeypatch.setattr(
        "subtext.ops.pairwise.checkpoint", lambda score, *given, **options: again.append(given[2]) or score(*given)
    )
    images, texts = (of_parts(torch.ones(n, 3, 2), lengths) for n, lengths in ((2, [3, 3]), (3, [1, 3, 2])))
    similarity = PairSimilarity()
    monkeypatch.setattr(similarity, "floats", lambda _, words: words)
    scores = similarity.all_pairs(images, texts, lambda some, _, read: read.parts.sum(dim=(1, 2)).expand(len(some), -1))
    assert scores.tolist() == [[2, 6, 4]] * 2
    assert [each.parts.shape[1] for each in again] == [3]


@pytest.mark.parametrize("part", PAIRWISE)
def test_pair_similarity_without_parts_raises(part):
    similarity = small(part)
    images, texts, _ = random_pairs(5)
    with pytest.raises(RequirementError, match="take a head that gives parts"):
        similarity(replace(images, parts=None, mask=None), texts)
    with pytest.raises(ShapeError, match="one width; it got 5 and 4"):
        similarity(images, replace(texts, parts=texts.parts[:, :, :4]))
    if "width" in inspect.signature(part).parameters:
        wide = [
            replace(side, parts=pad(side.parts, (0, 1)), vectors=pad(side.vectors, (0, 1))) for side in (images, texts)
        ]
        with pytest.raises(ShapeError, match="regions and words of width 5; it got 6"):
            similarity(*wide)
    nothing = texts.mask.clone()
    nothing[2] = False
    with pytest.raises(RequirementError, match="parts of every text; 1 have none, first id 2"):
        similarity(images, replace(texts, mask=nothing))


def test_sides_may_have_different_view_counts():
    images, texts = random_items(3, views=2, seed=1), random_items(4, views=3, seed=2)
    by_hand = torch.stack(
        [torch.stack([(images.vectors[i] @ texts.vectors[t].T).max() for t in range(4)]) for i in range(3)]
    )
    torch.testing.assert_close(Cosine().cosine(images, texts), by_hand)


def test_unequal_widths_raise():
    with pytest.raises(ShapeError, match="one width; it got 5 and 4"):
        Cosine()(random_items(2, width=5), random_items(2, width=4))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"above 0; it got 0\.0"),
        ({"temperature": -1.0}, r"above 0; it got -1\.0"),
        ({"scale": float("inf")}, "above 0; it got inf"),
        ({"scale": 0.0}, r"above 0; it got 0\.0"),
        ({"scale": 2.0, "temperature": 0.5}, r"it got both, 0\.5 and 2\.0"),
        ({"scale": 200.0, "learnable": True}, r"at most largest = 100\.0; it got 200\.0; raise largest"),
    ],
)
def test_bad_settings_raise_by_name(settings, message):
    with pytest.raises(RequirementError, match=message):
        Cosine(**settings)


def test_scale_and_shift_leave_cosines_unchanged():
    images, texts = random_items(3, seed=1), random_items(4, seed=2)
    plain = Cosine().cosine(images, texts)
    changed = Cosine(temperature=0.25, shift=-2.0)
    torch.testing.assert_close(changed(images, texts), 4 * plain - 2)
    torch.testing.assert_close(changed.cosine(images, texts), plain)
    assert plain.abs().max() <= 1


def test_learnt_parameters_survive_saving():
    trained = Cosine(temperature=0.07, shift=-10.0, learnable=True)
    with torch.no_grad():
        for value in trained.parameters():
            value += 0.5
    again = Cosine(temperature=0.07, shift=-10.0, learnable=True)
    again.load_state_dict(trained.state_dict())
    images, texts = random_items(3, seed=1), random_items(4, seed=2)
    assert torch.equal(again(images, texts), trained(images, texts))
    assert not Cosine(temperature=0.07).state_dict(), "what is not learnt comes from the arguments"


def test_learnt_scale_is_clamped_but_recovers():
    similarity = Cosine(scale=99.0, learnable=True)
    one = items(torch.tensor([[1.0, 0.0]]))
    optimiser = torch.optim.SGD(similarity.parameters(), lr=0.01)
    for _ in range(5):
        optimiser.zero_grad()
        (-similarity(one, one)).sum().backward()
        optimiser.step()
    assert similarity.scale.item() == pytest.approx(100.0)
    for _ in range(5):
        optimiser.zero_grad()
        similarity(one, one).sum().backward()
        optimiser.step()
    assert similarity.scale.item() < 99.0
