"""What every weighting must do. Weightings are found by walking the package."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from find_parts import classes, instances
from scenes import SCENES, cast, random_items, scene

from subtext.core import Comparison, Epoch, Scene, Truth
from subtext.errors import RequirementError
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.scene import compose
from subtext.objectives.weighting import Density, Neighbourhood, Random, Rank, Uniform
from subtext.ops import draw

pytestmark = pytest.mark.contract

every_weighting = pytest.mark.parametrize("weighting", instances("objectives.weighting"))
EPOCH = Epoch(number=1, seed=0)


def test_weightings_are_discovered():
    assert {"Rank", "Uniform"} <= {part.__name__ for part in classes("objectives.weighting")}


@pytest.mark.parametrize("weighting", classes("objectives.weighting"))
def test_weighting_is_frozen_dataclass(weighting):
    assert dataclasses.is_dataclass(weighting) and weighting.__dataclass_params__.frozen


@every_weighting
@pytest.mark.parametrize("kind", SCENES)
def test_one_finite_weight_per_query_without_gradient(weighting, kind):
    whole = scene(kind)
    scores = whole.image_to_text.scores.requires_grad_()
    forward = dataclasses.replace(whole.image_to_text, scores=scores)
    weights = weighting(Scene(forward, forward.flip()), EPOCH)
    assert callable(weighting)
    assert weights.shape == (len(scores),)
    assert weights.isfinite().all() and (weights >= 0).all()
    assert not weights.requires_grad


@every_weighting
@pytest.mark.parametrize("kind", ["pairs", "several"])
def test_weights_follow_pair_order(weighting, kind):
    images, texts, order = random_items(6, seed=1), random_items(6, seed=2), torch.randperm(6)
    groups = torch.arange(6) if kind == "pairs" else torch.tensor([0, 0, 1, 2, 1, 3])
    weights = weighting(compose(Cosine(), images, texts, groups), EPOCH)
    moved = weighting(compose(Cosine(), images[order], texts[order], groups[order]), EPOCH)
    torch.testing.assert_close(moved, weights[order])


@every_weighting
def test_float32_and_float64_agree(weighting):
    images, texts, groups = random_items(6, seed=1), random_items(6, seed=2), torch.arange(6)
    single = compose(Cosine(), cast(images, torch.float32), cast(texts, torch.float32), groups)
    weights = weighting(single, EPOCH)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.double(), weighting(compose(Cosine(), images, texts, groups), EPOCH).double())


@every_weighting
def test_shared_batch_is_weighted_as_whole_batch(weighting):
    images, texts, groups = random_items(6, seed=1), random_items(6, seed=2), torch.arange(6)
    whole = weighting(compose(Cosine(), images, texts, groups), EPOCH)
    first = compose(Cosine(), images[:2], texts[:2], groups[:2], gathered=(images[2:], texts[2:], groups[2:]))
    torch.testing.assert_close(weighting(first, EPOCH), whole[:2])


@every_weighting
def test_ignored_cells_do_not_affect_weights(weighting):
    whole = scene("ignored").image_to_text
    assert whole.truth.ignored is not None and whole.truth.ignored.any()
    changed = dataclasses.replace(whole, scores=whole.scores.masked_fill(whole.truth.ignored, 9.0))
    torch.testing.assert_close(
        weighting(Scene(changed, changed.flip()), EPOCH), weighting(Scene(whole, whole.flip()), EPOCH)
    )


def test_rank_weighting_uses_direction():
    scores = torch.tensor([[0.1, 0.9], [0.0, 0.2]])
    forward = Comparison(scores, Truth(torch.eye(2, dtype=torch.bool)))
    whole = Scene(forward, forward.flip())
    assert Rank(direction="image_to_text")(whole, EPOCH).tolist() == [2.0, 1.5]
    assert Rank(direction="text_to_image")(whole, EPOCH).tolist() == [1.5, 2.0]


def test_ties_do_not_rank_above_positive():
    forward = Comparison(torch.ones(3, 3), Truth(torch.eye(3, dtype=torch.bool)))
    weights = Rank(direction="image_to_text")(Scene(forward, forward.flip()), EPOCH)
    torch.testing.assert_close(weights, torch.full((3,), 4 / 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rank(direction="image_to_text", strength=-1.0), r"Rank needs a strength of 0 or more; it got -1\.0"),
        (lambda: Uniform(total=0.0), r"Uniform needs a total above 0; it got 0\.0"),
        (lambda: Random(total=0.0), r"Random needs a total above 0; it got 0\.0"),
        (lambda: Density(total=0.0), r"Density needs a total above 0; it got 0\.0"),
        (lambda: Random(total=1.0, batch=-1), r"Random needs a batch of 0 or more pairs; it got -1"),
    ],
)
def test_bad_settings_raise_by_name(make, message):
    with pytest.raises(RequirementError, match=message):
        make()


def test_permuted_control_reassigns_scores_between_pairs():
    """All weights stay, and with them their effective sample size; what they say of the pairs is lost."""
    whole = compose(Cosine(), random_items(8, seed=1), random_items(8, seed=2), torch.arange(8))
    image, text = torch.rand(2, 8, generator=torch.Generator().manual_seed(3))
    table = {"diversity/image": image, "diversity/text": text}
    epochs = [Epoch(number, 0, table=table) for number in (1, 2)]
    plain = Neighbourhood(total=8.0, batch=8)(whole, epochs[0])
    found = {
        control: [Neighbourhood(total=8.0, batch=8, control=control)(whole, epoch) for epoch in epochs]
        for control in ("permuted", "random")
    }
    for weights in (*found["permuted"], *found["random"]):
        torch.testing.assert_close(weights.sort().values, plain.sort().values)
        assert not torch.allclose(weights, plain)
    assert torch.equal(*found["permuted"]) and not torch.equal(*found["random"])
    for control, number in (("permuted", 0), ("random", 1)):
        order = torch.from_numpy(draw.permutation(8, seed=0, epoch=number, purpose="permuted weights"))
        torch.testing.assert_close(found[control][0], plain[order])


def test_weighting_reports_sum_of_weights():
    one = {"placement": "inner", "combine": "absdiff"}
    for settings, wanted in ((one, 1.0), (one | {"combine": "text"}, 6.0), (one | {"placement": "both"}, 6.0)):
        weighting = Neighbourhood(total=4.0, batch=8, **settings)
        assert weighting.total_for(12) == wanted and weighting.sums_to_one == (wanted == 1)
    assert Neighbourhood(total=4.0).total_for(32) == 4 and Density(total=4.0, scale="none").total_for(3) == 3
