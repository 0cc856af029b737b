"""Distance-weighted sampling (Wu et al. 2017): worked chances, draws that follow them, and what cannot move a draw."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import S3, doubles, items, random_items, scene_of, take

from subtext.core import DIRECTIONS, Epoch, Scene
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.mining import DistanceSampling, log_rarity
from subtext.objectives.scene import Groups, compose

pytestmark = pytest.mark.golden

D = doubles([0.3, 0.5, 0.8, 1, 1.2, 1.39, 1.45])


def chances(width: int) -> list[float]:
    """Of seven negatives at the distances above, as `DistanceSampling` has them for one query."""
    angles = 2 * torch.asin(D / 2)
    vectors = torch.zeros(7, width, dtype=torch.float64)
    vectors[:, 0], vectors[:, 1] = angles.cos(), angles.sin()
    query = torch.zeros(1, width, dtype=torch.float64)
    query[0, 0] = 1
    found = DistanceSampling(direction="image_to_text").log_probabilities(
        items(query), items(vectors), torch.ones(1, 7, dtype=torch.bool)
    )
    return found.exp()[0].tolist()


def test_log_rarity_equals_worked_values():
    wanted = [1.41856362, 1.41856362, 0.5334638, 0.14384104, -0.14149956, -0.32872711, -0.37024855]
    assert log_rarity(D, 4).tolist() == pytest.approx(wanted, abs=1e-8)


def test_probabilities_equal_worked_values():
    wanted = [0.32503945, 0.32503945, 0.134135, 0.09085129, 0.0682982, 0.05663662, 0]
    assert chances(4) == pytest.approx(wanted, abs=1e-8)
    steep = chances(128)
    assert steep[:2] == pytest.approx([0.5, 0.5]) and steep[2] == pytest.approx(9.1e-24, rel=0.01)


def test_density_equals_that_of_random_points():
    """In three dimensions the share of points nearer than d is d^2 / 4, so its density is d / 2."""
    d = doubles([0.6, 1.1, 1.9])
    torch.testing.assert_close(log_rarity(d, 3) + d.log(), torch.zeros(3, dtype=torch.float64))


def test_probabilities_of_three_pairs_equal_worked_values():
    whole = scene_of(S3).image_to_text
    texts = torch.cat([whole.candidates.vectors[:, 0], torch.zeros(3, 1, dtype=torch.float64)], dim=1)
    images = torch.cat([whole.queries.vectors[:, 0], torch.zeros(3, 1, dtype=torch.float64)], dim=1)
    found = (
        DistanceSampling(direction="image_to_text")
        .log_probabilities(items(images), items(texts), whole.truth.negative)
        .exp()
    )
    wanted = [[0, 0.47777326, 0.52222674], [0.45349421, 0, 0.54650579], [0.62684464, 0.37315536, 0]]
    assert found.tolist() == [pytest.approx(row, abs=1e-8) for row in wanted]


def test_queries_without_negative_in_range_sample_all():
    found = DistanceSampling(direction="image_to_text", furthest=0.6).log_probabilities(
        items(torch.eye(3)), items(torch.eye(3)), ~torch.eye(3, dtype=torch.bool)
    )
    torch.testing.assert_close(found.exp(), (1 - torch.eye(3)) / 2)


def test_high_dimensional_rows_have_probabilities():
    vectors = torch.nn.functional.normalize(torch.randn(50, 1024, generator=torch.Generator().manual_seed(0)), dim=1)
    found = DistanceSampling(direction="image_to_text").log_probabilities(
        items(vectors), items(vectors.flip(0)), ~torch.eye(50, dtype=torch.bool)
    )
    torch.testing.assert_close(found.exp().sum(dim=1), torch.ones(50))


def test_samples_follow_probabilities():
    """A near negative among many far ones, which a perturbation of another distribution would favour."""
    angles = 2 * torch.asin(doubles([0.1, 0.5, 0.9, *[1.2] * 8]) / 2)
    texts = torch.stack([angles.cos(), angles.sin(), 0 * angles, 0 * angles], dim=1)
    images = items(doubles([[1, 0, 0, 0]] * 4000))
    whole = compose(Cosine(), images, items(texts), Groups(torch.zeros(4000, dtype=torch.long), torch.arange(11)))
    mining = DistanceSampling(direction="image_to_text")
    shares = mining(whole, Epoch(0, 0)).truth.negative.double().mean(dim=0)
    wanted = mining.log_probabilities(images, items(texts), whole.image_to_text.truth.negative)[0].exp()
    assert shares[0] == 0
    torch.testing.assert_close(shares, wanted, atol=4 * math.sqrt(0.25 / 4000), rtol=0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sample_does_not_depend_on_order(direction):
    images, texts = random_items(8, seed=1), random_items(8, seed=2)
    mining = DistanceSampling(direction=direction, furthest=2.1)
    drawn = mining(compose(Cosine(), images, texts, torch.arange(8)), Epoch(3, 7)).truth.negative
    order = torch.randperm(8)
    moved = mining(compose(Cosine(), images[order], texts[order], torch.arange(8)[order]), Epoch(3, 7)).truth.negative
    assert torch.equal(moved, drawn[order][:, order])
    alone = mining(
        compose(Cosine(), images[:3], texts[:3], torch.arange(3), gathered=(images[3:], texts[3:], torch.arange(3, 8))),
        Epoch(3, 7),
    ).truth.negative
    assert torch.equal(alone, drawn[:3])
    others = [
        mining(compose(Cosine(), images, texts, torch.arange(8)), e).truth.negative for e in (Epoch(4, 7), Epoch(3, 8))
    ]
    assert not any(torch.equal(each, drawn) for each in others)


def test_best_two_views_decide_the_distance():
    images, texts = random_items(4, views=3, seed=1), random_items(4, views=2, seed=2)
    negative = ~torch.eye(4, dtype=torch.bool)
    mining = DistanceSampling(direction="image_to_text", furthest=2.1)
    best = Cosine()(images, texts)
    distances = (2 - 2 * best).sqrt()
    wanted = log_rarity(distances, images.width).masked_fill(~negative, -math.inf).log_softmax(dim=1)
    torch.testing.assert_close(mining.log_probabilities(images, texts, negative), wanted)


def test_query_without_negatives_samples_none():
    whole = scene_of(S3).image_to_text
    one = take(whole, queries=torch.tensor([0]), candidates=torch.tensor([0]))
    mined = DistanceSampling(direction="image_to_text")(Scene(one, one), Epoch(0, 0))
    assert not mined.truth.negative.any() and mined.truth.match.all()
