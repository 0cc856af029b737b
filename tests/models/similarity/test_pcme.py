"""PCME and PCME++ (card B2): heads, probabilities, distances, losses and penalties, from the authors' code."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from regions_and_words import det
from torch import Tensor, nn
from torch.nn.functional import normalize

from subtext.core import DIRECTIONS, Embeddings, Encoded, Epoch, Scene
from subtext.models.heads.gaussian import Spread
from subtext.models.heads.parts import Pie
from subtext.models.similarity.probabilistic import ClosedFormDistance, MatchProbability
from subtext.objectives.losses.soft_contrastive import SoftContrastive
from subtext.objectives.objective import Objective, Penalty, Term
from subtext.objectives.regularisers import KL, Uniformity
from subtext.objectives.scene import Relevance, compose

pytestmark = pytest.mark.golden

F64 = torch.float64
FIRST = Epoch(number=0, seed=0)


def assert_near(found: Tensor, wanted: list[list[float]], within: float = 1e-8) -> None:
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=F64), atol=within, rtol=0)


def drawn() -> tuple[Embeddings, Embeddings]:
    """Three pictures and three texts of two draws, and the log deviations that the authors' code takes."""
    sides = []
    for vectors, spread in ((0.2, 0.1), (0.9, 0.4)):
        log_std = det((3, 4), spread)[:, None] - 3
        sides.append(Embeddings(0.5 * det((3, 2, 4), vectors), torch.arange(3), log_std=log_std))
    return sides[0], sides[1]


def normal() -> tuple[Embeddings, Embeddings]:
    """Three pictures and three texts by mean and log variance."""
    sides = []
    for vectors, spread in ((0.2, 0.1), (0.9, 0.4)):
        log_variance = det((3, 4), spread)[:, None] - 3
        means = normalize(det((3, 4), vectors), dim=-1)[:, None]
        sides.append(Embeddings(means, torch.arange(3), log_std=log_variance / 2))
    return sides[0], sides[1]


def scene(similarity: nn.Module, items: tuple[Embeddings, Embeddings], relevance: Tensor | None = None) -> Scene:
    graded = None if relevance is None else Relevance(relevance, relevance.T, "made")
    return compose(similarity, *items, torch.arange(3), relevance=graded)


def probability(start: float) -> MatchProbability:
    return MatchProbability(scale=start, shift=start).double()


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        (
            15.0,
            [
                [0.50003003, 0.50000082, 0.50023895],
                [0.68935388, 0.5003376, 0.50002544],
                [0.48258025, 0.67218459, 0.50322823],
            ],
        ),
        (
            5.0,
            [
                [0.51171571, 0.50579651, 0.52503354],
                [0.56150701, 0.52711766, 0.51783392],
                [0.47416523, 0.55500039, 0.55571629],
            ],
        ),
    ],
)
def test_match_probabilities_equal_reference(start: float, wanted: list[list[float]]) -> None:
    # The card's table was made in single precision; the losses below hold to 1e-9.
    assert_near(probability(start).probability(*drawn()), wanted, 4e-8)


def test_sample_distances_equal_reference() -> None:
    """Of one draw each the log odds are twice shift - scale * distance."""
    images, texts = drawn()
    one, other = (
        replace(each, vectors=each.vectors[0][:, None], ids=torch.arange(2), log_std=None) for each in (images, texts)
    )
    distances = 1 - probability(1.0)(one, other) / 2
    assert_near(distances.T, [[0.45237251, 1.30103128], [1.47586134, 0.45865418]])


@pytest.mark.parametrize(
    ("start", "positive", "negative", "total"),
    [(15.0, 2.0722708209, 5.0232784405, 7.0955492613), (5.0, 1.8978149821, 4.4556472616, 6.3534622437)],
)
def test_soft_contrastive_equals_reference(start: float, positive: float, negative: float, total: float) -> None:
    made = scene(probability(start), drawn())
    for direction in DIRECTIONS:
        comparison = made.comparison(direction)
        assert SoftContrastive()(comparison).sum().item() == pytest.approx(total, abs=1e-9)
        ignoring = replace(comparison.truth, ignored=~comparison.truth.match)
        own = SoftContrastive()(replace(comparison, truth=ignoring)).sum().item()
        assert own == pytest.approx(positive, abs=1e-9)
        assert total - own == pytest.approx(negative, abs=1e-9)


def test_penalties_equal_reference() -> None:
    made = scene(probability(15.0), drawn())
    assert KL(modality="image", published=True)(made).item() == pytest.approx(11.5339925328, abs=1e-9)
    assert KL(modality="text", published=True)(made).item() == pytest.approx(11.3311015816, abs=1e-9)
    assert Uniformity()(made).item() == pytest.approx(-1.2783104092, abs=1e-9)


@pytest.mark.parametrize(("uniformity", "wanted"), [(0.0, 14.1913271737), (10.0, 1.4082230814)])
def test_full_objective_equals_reference(uniformity: float, wanted: float) -> None:
    terms = {side: Term(SoftContrastive(), on=side, reduction="sum") for side in DIRECTIONS}
    penalties = {of: Penalty(KL(modality=of, published=True), 1e-5) for of in ("image", "text")}
    parts = {**terms, **penalties, "uniformity": Penalty(Uniformity(), uniformity)}
    total, _ = Objective(parts)(scene(probability(15.0), drawn()), FIRST)
    assert total.item() == pytest.approx(wanted, abs=1e-8)


def fill(module: nn.Module) -> None:
    with torch.no_grad():
        for k, parameter in enumerate(module.parameters()):
            parameter.copy_(0.3 * det(tuple(parameter.shape), 0.5 * k + 0.1))


PARTS = det((2, 3, 5), 0.6)
MASK = torch.tensor([[True, True, True], [True, True, False]])


def test_item_mean_equals_reference() -> None:
    head = Pie(5, 4, 4, project=False).double()
    fill(head)
    views, _, attention = head.views(det((2, 4), 0.8), PARTS, MASK)
    reference = [[0.31450849, 0.3739571, 0.31153441], [0.53343928, 0.46656072, 0]]
    vectors = [
        [0.24494097, 0.04644713, -0.26961809, 0.14095272],
        [0.5063411, -0.11145632, -0.09837704, -0.43142366],
    ]
    assert_near(attention[..., 0], reference)
    # The card's vectors come before their length is set to one.
    assert_near(views[:, 0], normalize(torch.tensor(vectors, dtype=F64), dim=1).tolist(), 2e-8)


def test_image_spread_equals_reference() -> None:
    head = Spread(5, 4, pooled_width=5).double()
    fill(head)
    wanted = [
        [1.16100349, -0.28220501, -0.03228103, -0.28581137],
        [-0.44773669, 0.95352342, -0.73795316, -0.19987704],
    ]
    assert_near(head(Encoded(PARTS, None, det((2, 5), 1.2))), wanted)


def closed(**given: object) -> ClosedFormDistance:
    return ClosedFormDistance(**given).double()  # type: ignore[arg-type]


def test_closed_form_distances_equal_reference() -> None:
    wanted = [
        [1.1933784, 4.41639754, 0.76990524],
        [3.73672245, 0.63398354, 4.3912162],
        [2.16610066, 3.55535031, 1.12702032],
    ]
    assert_near(closed().distance(*normal()), wanted)


def plus(similarity: ClosedFormDistance, loss: SoftContrastive, vib: float = 0.0) -> float:
    terms = {side: Term(loss, on=side, reduction="mean over cells") for side in DIRECTIONS}
    total, _ = Objective({**terms, "vib": Penalty(KL(over="mean"), vib)})(scene(similarity, normal()), FIRST)
    return total.item()


def test_closed_form_losses_equal_reference() -> None:
    assert plus(closed(), SoftContrastive()) == pytest.approx(0.8725777653, abs=1e-9)
    assert plus(closed(), SoftContrastive(pseudo=0.1), 1e-4) == pytest.approx(0.9344846379, abs=1e-9)
    assert KL(over="mean")(scene(closed(), normal())).item() == pytest.approx(2.1518001664, abs=1e-9)
    assert plus(closed(), SoftContrastive(pseudo=0.1, smoothing=1e-4), 1e-4) == pytest.approx(0.936088578, abs=1e-9)


def test_two_candidates_score_at_least_as_positive() -> None:
    made = scene(closed(), normal())
    more = 0
    for direction in DIRECTIONS:
        scores = made.comparison(direction).scores
        more += int((scores >= scores.diagonal()[:, None]).sum()) - 3
    assert more == 2


def test_wasserstein_equals_reference() -> None:
    assert plus(closed(kind="wasserstein"), SoftContrastive()) == pytest.approx(1.1617470395, abs=1e-9)
