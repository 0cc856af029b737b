"""What every mining must do. They are found by walking the package."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from find_parts import classes, instances
from scenes import SCENES, cast, random_items, scene, scene_of

from subtext.core import DIRECTIONS, Embeddings, Epoch, Scene
from subtext.errors import RequirementError
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.mining import DistanceSampling, Hubs
from subtext.objectives.objective import Term
from subtext.objectives.scene import Groups, compose

pytestmark = pytest.mark.contract

every_mining = pytest.mark.parametrize("mining", instances("objectives.mining"))
SIDES = [dataclasses.replace(random_items(9, seed=seed), ids=torch.arange(9) + 70) for seed in (8, 9)]
EPOCH = Epoch(number=1, seed=0, bank={"hubs/image": SIDES[0], "hubs/text": SIDES[1]})
HALF = Epoch(1, 0, bank={name: cast(items, torch.float32) for name, items in EPOCH.bank.items()})


def test_minings_are_discovered():
    assert {"Cosines", "DistanceSampling", "Hubs"} <= {part.__name__ for part in classes("objectives.mining")}


@every_mining
@pytest.mark.parametrize("kind", SCENES)
def test_mining_keeps_items_and_matches(mining, kind):
    whole = scene(kind)
    mined = mining(whole, EPOCH)
    assert callable(mining)
    assert mined.scores.shape == whole.image_to_text.scores.shape and mined.scores.isfinite().all()
    assert torch.equal(mined.truth.match, whole.image_to_text.truth.match)
    assert not (mined.truth.negative & ~whole.image_to_text.truth.negative).any()
    assert mined.queries is whole.image_to_text.queries and mined.candidates is whole.image_to_text.candidates


@every_mining
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_shared_batch_mines_as_whole_batch(mining, direction):
    mining = dataclasses.replace(mining, direction=direction)
    images, texts, groups = random_items(6, seed=1), random_items(6, seed=2), torch.arange(6)
    whole = mining(compose(Cosine(), images, texts, groups), EPOCH)
    first = mining(
        compose(Cosine(), images[:2], texts[:2], groups[:2], gathered=(images[2:], texts[2:], groups[2:])), EPOCH
    )
    torch.testing.assert_close(first.scores, whole.scores[:2])
    assert torch.equal(first.truth.negative, whole.truth.negative[:2])


@every_mining
def test_float32_and_float64_agree(mining):
    images, texts, groups = random_items(6, seed=1), random_items(6, seed=2), torch.arange(6)
    single = mining(compose(Cosine(), cast(images, torch.float32), cast(texts, torch.float32), groups), HALF)
    double = mining(compose(Cosine(), images, texts, groups), EPOCH)
    torch.testing.assert_close(single.scores.double(), double.scores, atol=1e-5, rtol=1e-5)
    assert torch.equal(single.truth.negative, double.truth.negative)


@every_mining
def test_term_reads_mined_comparison(mining):
    images, texts = random_items(6, seed=1), random_items(6, seed=2)
    whole, loss = compose(Cosine(scale=3.0), images, texts, torch.arange(6)), Triplet(margin=0.3)
    found = Term(loss, "image_to_text", mining=mining)(whole, EPOCH)
    torch.testing.assert_close(found, loss(mining(whole, EPOCH)).mean())
    assert not torch.allclose(found, Term(loss, "image_to_text")(whole, EPOCH))


@pytest.mark.parametrize(
    ("mining", "whole", "epoch", "message"),
    [
        (
            Hubs(direction="image_to_text"),
            scene("pairs"),
            Epoch(0, 0, bank={}),
            "bank with 'hubs/image' and 'hubs/text'; .* none",
        ),
        (
            DistanceSampling(direction="image_to_text"),
            None,
            EPOCH,
            "DistanceSampling needs the embeddings behind the scores",
        ),
        (Hubs(direction="image_to_text"), None, EPOCH, "needs the embeddings behind the scores"),
    ],
)
def test_missing_mining_input_raises(mining, whole, epoch, message):
    if whole is None:
        bare = dataclasses.replace(scene("pairs").image_to_text, queries=None, candidates=None)
        whole = Scene(bare, bare.flip())
    with pytest.raises(RequirementError, match=message):
        mining(whole, epoch)


def test_hub_mining_rejects_images_with_all_texts():
    images, texts = random_items(3, seed=1), random_items(6, seed=2)
    whole = compose(Cosine(), images, texts, Groups(torch.arange(3), torch.arange(6) // 2))
    with pytest.raises(RequirementError, match="3 images and 6 texts; take caption_sampling=all or one"):
        Hubs(direction="image_to_text")(whole, EPOCH)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DistanceSampling(direction="image_to_text", nearest=2.0),
            "DistanceSampling needs 0 < nearest < furthest; it got nearest 2",
        ),
        (
            lambda: DistanceSampling(direction="image_to_text", nearest=1.4),
            "0 < nearest < furthest; it got nearest 1.4 and furthest",
        ),
        (lambda: Hubs(direction="image_to_text", nearest=0), "Hubs needs nearest of 1 or more; it got 0"),
    ],
)
def test_bad_settings_raise_by_name(make, message):
    assert Hubs(direction="image_to_text", nearest=1).nearest == 1
    with pytest.raises(RequirementError, match=message):
        make()


def test_default_settings_equal_published_ones():
    assert dataclasses.astuple(DistanceSampling(direction="image_to_text")) == ("image_to_text", 0.5, 1.4)
    assert dataclasses.astuple(Hubs(direction="image_to_text")) == (
        "image_to_text",
        0.3,
        40,
        0.2,
        40,
        0.1,
        250,
        False,
        True,
    )


def test_mining_is_permutation_invariant():
    whole = scene_of([[0.6, 0.5], [0.3, 0.4]])
    other = Embeddings(SIDES[0].vectors[:, :1, :2], SIDES[0].ids)
    epoch = Epoch(1, 0, bank={"hubs/image": other, "hubs/text": other})
    swapped = torch.tensor([1, 0])
    images, texts = whole.image_to_text.queries, whole.image_to_text.candidates
    moved = compose(Cosine(), images[swapped], texts[swapped], torch.tensor([1, 0]))
    mined = [Hubs(direction="image_to_text")(one, epoch).scores for one in (whole, moved)]
    torch.testing.assert_close(mined[1], mined[0][swapped][:, swapped])
