"""Random weights, and uniform ones of pictures with all their texts: their sums, and what moves a draw."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import random_items, scene

from subtext.core import DIRECTIONS, Epoch
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.scene import Groups, compose
from subtext.objectives.weighting import Random, Uniform
from subtext.ops import draw

pytestmark = pytest.mark.golden


def together():
    """Three pictures, and six texts of theirs: three, two and one."""
    groups = Groups(torch.arange(3), torch.tensor([0, 0, 0, 1, 1, 2]))
    return compose(Cosine(), random_items(3, seed=1), random_items(6, seed=2), groups)


def test_random_weights_are_softmax_of_pair_samples():
    whole = scene("pairs")
    keys = whole.image_to_text.candidates.ids.numpy()
    numbers = draw.uniform(keys, seed=5, epoch=2, purpose="random weight")[:, 0].tolist()
    raised = [math.exp(number) for number in numbers]
    wanted = [12 * each / sum(raised) for each in raised]
    for direction in DIRECTIONS:
        assert Random(12.0, direction=direction)(whole, Epoch(2, 5)).tolist() == pytest.approx(wanted)


def test_weights_change_with_seed_and_epoch():
    whole = scene("pairs")
    found = [
        tuple(Random(12.0)(whole, epoch).tolist()) for epoch in (Epoch(0, 0), Epoch(1, 0), Epoch(0, 1), Epoch(0, 0))
    ]
    assert found[0] == found[3] and len(set(found)) == 3


@pytest.mark.parametrize("part", [Random, Uniform])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_weights_sum_to_total_in_both_directions(part, direction):
    for whole in (scene("pairs"), together()):
        assert part(12.0, direction=direction)(whole, Epoch(0, 0)).sum().item() == pytest.approx(12.0)
        assert part(12.0, direction=direction, batch=3)(whole, Epoch(0, 0)).sum().item() == pytest.approx(24.0)


def test_image_weight_follows_its_text_count():
    assert Uniform(12.0)(together(), Epoch(0, 0)).tolist() == pytest.approx([6.0, 4.0, 2.0])
    texts = Random(12.0, direction="text_to_image")(together(), Epoch(0, 0))
    pictures = Random(12.0, direction="image_to_text")(together(), Epoch(0, 0))
    torch.testing.assert_close(pictures, torch.stack([texts[:3].sum(), texts[3:5].sum(), texts[5]]))
