"""Smooth-AP (Brown et al. 2020): worked values, the loop it stands for, and what it becomes as temperatures fall."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import S3, comparison, doubles, scene_of

from subtext.core import Comparison, Embeddings, Truth
from subtext.errors import RequirementError
from subtext.objectives.losses.smooth_ap import SmoothAP

pytestmark = pytest.mark.golden

FIRST = [[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]]
SECOND = [[1, 0], [0.6, 0.8], [0.8, 0.6], [0, 1]]
CLASSES = torch.tensor([0, 0, 1, 1])


def gallery(vectors: list[list[float]], *, itself: bool) -> Comparison:
    """Every item asks for its class; its own column is right, or is ignored."""
    rows = doubles(vectors)
    truth, own = Truth.from_groups(CLASSES, CLASSES), torch.eye(4, dtype=torch.bool)
    return Comparison(rows @ rows.T, truth if itself else Truth(truth.match & ~own, ignored=own))


@pytest.mark.parametrize(
    ("vectors", "temperature", "itself", "wanted"),
    [
        (FIRST, 1.0, True, 0.3539124272),
        (FIRST, 0.1, True, 0.1710082030),
        (FIRST, 0.01, True, 0.0877504330),
        (FIRST, 1.0, False, 0.4646939330),
        (FIRST, 0.1, False, 0.2971375451),
        (FIRST, 0.01, False, 0.2499999872),
        (SECOND, 1.0, True, 0.3794840639),
        (SECOND, 0.1, True, 0.3086978851),
        (SECOND, 1.0, False, 0.5036516495),
        (SECOND, 0.1, False, 0.5593238734),
    ],
)
def test_loss_within_one_modality_equals_worked_values(vectors, temperature, itself, wanted):
    values = SmoothAP(temperature)(gallery(vectors, itself=itself))
    assert values.mean().item() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("temperature", "forward", "backward"),
    [(1.0, 0.4870803836, 0.4869710223), (0.1, 0.3843764736, 0.3773915410), (0.01, 0.1705580326, 0.3333259444)],
)
def test_loss_between_modalities_equals_worked_values(temperature, forward, backward):
    scene, loss = scene_of(S3), SmoothAP(temperature)
    assert loss(scene.image_to_text).mean().item() == pytest.approx(forward, abs=1e-9)
    assert loss(scene.text_to_image).mean().item() == pytest.approx(backward, abs=1e-9)


def counted(whole: Comparison) -> list[tuple[list[float], list[float]]]:
    """Scores of the positives and of the negatives of every query."""
    truth = whole.truth
    return [
        (row[match].tolist(), row[negative].tolist())
        for row, match, negative in zip(whole.scores, truth.match, truth.negative, strict=True)
    ]


@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "no positive", "all positive"])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_loss_equals_plain_loop(kind, temperature):
    whole, wanted = comparison(kind), []
    for positives, negatives in counted(whole):
        parts = []
        for place, score in enumerate(positives):
            others = positives[:place] + positives[place + 1 :]
            among = 1 + sum(1 / (1 + math.exp((score - other) / temperature)) for other in others)
            rank = among + sum(1 / (1 + math.exp((score - other) / temperature)) for other in negatives)
            parts.append(among / rank)
        wanted.append(1 - sum(parts) / len(parts) if parts else 0.0)
    assert SmoothAP(temperature)(whole).tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "all positive"])
def test_loss_approaches_1_minus_ap_as_temperature_falls(kind):
    whole, wanted = comparison(kind), []
    for positives, negatives in counted(whole):
        ranked = sorted(positives, reverse=True)
        precisions = [
            place / (place + sum(other > score for other in negatives)) for place, score in enumerate(ranked, start=1)
        ]
        wanted.append(1 - sum(precisions) / len(precisions))
    errors = [(SmoothAP(t)(whole) - doubles(wanted)).abs().max().item() for t in (0.1, 0.01, 1e-3, 1e-6)]
    assert errors[-1] < 1e-9
    assert errors[0] >= errors[-1]


def drawn_batch(items: int = 3, draws: int = 2) -> Comparison:
    """Items of several draws, whose own scores are all 0."""
    generator = torch.Generator().manual_seed(4)
    images, texts = (
        Embeddings(torch.randn(items, draws, 4, generator=generator, dtype=torch.float64), torch.arange(items))
        for _ in range(2)
    )
    scores = torch.zeros(items, items, dtype=torch.float64)
    return Comparison(scores, Truth(torch.eye(items, dtype=torch.bool)), images, texts)


@pytest.mark.parametrize("variant", ["rows", "released"])
def test_loss_of_samples_equals_plain_loop(variant):
    """Every draw asks; all draws of its partner are positives; the release compares with the column, not the row."""
    whole, temperature = drawn_batch(), 0.4
    images, texts = (side.vectors.flatten(0, 1) for side in (whole.queries, whole.candidates))
    scores, wanted = images @ texts.T, []
    for query in range(len(scores)):
        rivals = scores[:, query] if variant == "released" else scores[query]
        item, parts = query // 2, []
        for positive in range(2 * item, 2 * item + 2):
            ahead = [
                0 if other == positive else 1 / (1 + math.exp((scores[query, positive] - rivals[other]) / temperature))
                for other in range(len(rivals))
            ]
            parts.append((1 + sum(ahead[2 * item : 2 * item + 2])) / (1 + sum(ahead)))
        wanted.append(1 - sum(parts) / 2)
    values = SmoothAP(temperature, variant, draws=True)(whole)
    assert values.tolist() == pytest.approx(doubles(wanted).view(3, 2).mean(dim=1).tolist(), abs=1e-12)
    assert (values != SmoothAP(temperature)(whole)).all()


def test_samples_without_embeddings_raise():
    whole = drawn_batch()
    with pytest.raises(RequirementError, match="SmoothAP with draws needs the embeddings behind the scores"):
        SmoothAP(draws=True)(Comparison(whole.scores, whole.truth))
    with pytest.raises(RequirementError, match="'released' needs as many candidates as queries; it got 2 x 3"):
        SmoothAP(variant="released")(Comparison(whole.scores[:2], Truth(whole.truth.match[:2])))
