"""What must be equal because it is the same thing: views, blocks, directions."""

from __future__ import annotations

import pytest
import torch
from scenes import comparison, items, random_items

from subtext.core import Comparison, Truth
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.triplet import Triplet

pytestmark = pytest.mark.identity


def test_one_view_equals_plain_cosine():
    images, texts = random_items(5, views=1, seed=1), random_items(7, views=1, seed=2)
    plain = torch.cosine_similarity(images.vectors, texts.vectors[:, 0][None], dim=2)
    torch.testing.assert_close(Cosine()(images, texts), plain)


def test_equal_views_equal_one_view():
    images, texts = random_items(5, views=1, seed=1), random_items(7, views=1, seed=2)
    twice = items(images.vectors.expand(-1, 2, -1)), items(texts.vectors.expand(-1, 3, -1))
    torch.testing.assert_close(Cosine()(*twice), Cosine()(images, texts))


@pytest.mark.parametrize("views", [2, 3])
def test_best_view_scores_equal_plain_loops(views):
    images, texts = random_items(4, views=views, seed=1), random_items(5, views=views, seed=2)
    for i, row in enumerate(Cosine()(images, texts).tolist()):
        for t, score in enumerate(row):
            every = [float(a @ b) for a in images.vectors[i] for b in texts.vectors[t]]
            assert score == pytest.approx(max(every))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_block_size_changes_neither_scores_nor_gradients(rows):
    images, texts = random_items(7, views=3, seed=1), random_items(5, views=2, seed=2)
    leaves = [side.vectors.requires_grad_() for side in (images, texts)]
    whole, cut = Cosine(), Cosine(block_bytes=rows * 4 * 3 * 2 * 5)
    torch.testing.assert_close(cut(images, texts), whole(images, texts))
    with torch.no_grad():
        torch.testing.assert_close(cut(images, texts), whole(images, texts))
    weight = torch.randn(7, 5, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((cut(images, texts) * weight).sum(), leaves),
        torch.autograd.grad((whole(images, texts) * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_gradient_reaches_winning_views_only():
    images = items(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).requires_grad_())
    texts = items(torch.tensor([[[0.8, 0.6], [-1.0, 0.0]]]))
    (gradient,) = torch.autograd.grad(Cosine()(images, texts).sum(), [images.vectors])
    torch.testing.assert_close(gradient, torch.tensor([[[0.8, 0.6], [0.0, 0.0]]]))


@pytest.mark.parametrize("kind", ["pairs", "ignored", "one"])
def test_flipping_twice_is_identity(kind):
    whole = comparison(kind)
    back = whole.flip().flip()
    assert torch.equal(back.scores, whole.scores)
    assert torch.equal(back.truth.match, whole.truth.match)
    assert torch.equal(back.truth.negative, whole.truth.negative)
    assert back.queries is whole.queries and back.candidates is whole.candidates


@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "no positive"])
def test_kinds_of_negatives_are_ordered_by_loss(kind):
    whole = comparison(kind)
    of = {negatives: Triplet(margin=0.3, negatives=negatives)(whole) for negatives in ("all", "hardest", "semi-hard")}
    assert (of["semi-hard"] <= of["hardest"]).all()
    assert (of["hardest"] <= of["all"]).all()
    assert (of["hardest"] < of["all"]).any(), "a fixture in which they never differ would show nothing"


def test_kinds_agree_with_one_negative():
    whole = comparison("pairs")
    pair = whole.scores[:2, :2]
    two = Comparison(pair, Truth(torch.eye(2, dtype=torch.bool)))
    values = [Triplet(margin=0.5, negatives=negatives)(two) for negatives in ("all", "hardest", "semi-hard")]
    assert torch.equal(values[0], values[1]) and torch.equal(values[1], values[2])
