"""HAL with a memory bank (Liu et al. 2020): worked values, its loops, and what is left out of the bank."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import S3, doubles, items, random_items, scene_of

from subtext.core import DIRECTIONS, Embeddings, Epoch, Scene
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.hal import HAL
from subtext.objectives.mining import Hubs
from subtext.objectives.objective import Objective, Term
from subtext.objectives.scene import compose

pytestmark = pytest.mark.golden

TEXTS = doubles([[0.5, 0.1, 0.2], [0.1, 0.3, 0], [0.2, 0.2, 0.4], [0, 0.1, 0.1], [0.9, 0.9, 0.9]])
IMAGES = doubles([[0.3, 0, 0.1], [0.1, 0.2, 0.2], [0.2, 0.4, 0.1], [0, 0.3, 0.3], [0.9, 0.9, 0.9]])
CAPTIONS = torch.tensor([10, 11, 12, 13, 2])


def kept(images: torch.Tensor, texts: torch.Tensor, image_rows: torch.Tensor, text_rows: torch.Tensor) -> Epoch:
    bank = {
        "hubs/image": Embeddings(images[:, None] if images.ndim == 2 else images, image_rows),
        "hubs/text": Embeddings(texts[:, None] if texts.ndim == 2 else texts, text_rows),
    }
    return Epoch(number=1, seed=0, bank=bank)


BANK = kept(IMAGES, TEXTS, torch.tensor([20, 21, 22, 23, 24]), CAPTIONS)


def total(scene: Scene, epoch: Epoch, loss: HAL, **settings: object) -> float:
    terms = {
        direction: Term(loss, direction, mining=Hubs(direction=direction, threshold=loss.threshold, **settings))
        for direction in DIRECTIONS
    }
    return Objective(terms)(scene, epoch)[0].item()


@pytest.mark.parametrize(("nearest", "wanted"), [(2, 0.0849896931), (3, 0.0849475499), (250, 0.0849475499)])
def test_three_pairs_equal_worked_values(nearest, wanted):
    loss = HAL(diagonal="one")
    assert total(scene_of(S3), BANK, loss, nearest=nearest) == pytest.approx(wanted, abs=1e-9)


SOFT = {"positive_scale": 1.0, "negative_scale": 1.0, "nearest": 2}


def test_three_pairs_with_soft_weights_equal_worked_values():
    loss = HAL(gamma=2.0, threshold=0.3, diagonal="one")
    assert total(scene_of(S3), BANK, loss, **SOFT) == pytest.approx(1.1385891219, abs=1e-9)


def test_soft_weights_equal_worked_values():
    """Scores of one everywhere and a threshold of zero show the weights themselves."""
    plain = scene_of(S3)
    mined = Hubs(direction="image_to_text", threshold=0.0, **SOFT)(plain, BANK).scores / plain.image_to_text.scores
    wanted = [
        [0.75305459, 0.59876697, 0.57414308],
        [0.58941439, 0.77595303, 0.58300209],
        [0.56018943, 0.57810214, 0.73406325],
    ]
    assert mined.tolist() == [pytest.approx(row, abs=1e-8) for row in wanted]


def test_batch_captions_and_images_are_excluded_from_bank():
    own_pictures = kept(IMAGES, TEXTS, torch.tensor([20, 21, 22, 0, 24]), CAPTIONS)
    fewer = kept(IMAGES[:3], TEXTS[:3], torch.tensor([20, 21, 22]), CAPTIONS[:3])
    loss = HAL(diagonal="one")
    assert total(scene_of(S3), own_pictures, loss, exclude_same_image=False) == total(scene_of(S3), BANK, loss)
    assert total(scene_of(S3), own_pictures, loss) == total(scene_of(S3), fewer, loss)


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("inside", [False, True])
def test_mining_equals_plain_loop(views, inside):
    images, texts = random_items(4, views=views, seed=1), random_items(4, views=views, seed=2)
    others = random_items(9, views=views, seed=3), random_items(9, views=views, seed=4)
    epoch = kept(others[0].vectors, others[1].vectors, torch.arange(9) + 50, torch.arange(9) + 50)
    scene = compose(Cosine(), images, texts, torch.arange(4))
    alpha, above, beta, below, count = 3.0, 0.2, 2.0, 0.1, 3
    settings = {"positive_scale": alpha, "negative_scale": beta, "nearest": count, "inside": inside}
    mined = Hubs(direction="image_to_text", threshold=0.3, **settings)(scene, epoch).scores

    def score(one: torch.Tensor, other: torch.Tensor) -> float:
        return max(float(a @ b) for a in one for b in other)

    def top(one: torch.Tensor, bank: Embeddings) -> list[float]:
        return sorted((score(one, other) for other in bank.vectors), reverse=True)[:count]

    near_i, near_t = (
        [top(one, bank) for one in side.vectors] for side, bank in ((images, others[1]), (texts, others[0]))
    )
    shift = beta * below if inside else below
    a = [sum(math.exp(beta * t - shift) for t in row) for row in near_i]
    b = [sum(math.exp(beta * t - shift) for t in row) for row in near_t]
    s = [[score(x, y) for y in texts.vectors] for x in images.vectors]
    for i in range(4):
        for j in range(4):
            if i == j:
                own = math.exp(alpha * (s[i][i] - above))
                p = sum(math.exp(alpha * (t - above)) for t in near_i[i] + near_t[i])
                wanted = (1 - own / (own + p)) * s[i][i]
            else:
                mass = a[i] + b[j]
                weight = mass / (mass + math.exp(beta * s[i][i]) + math.exp(beta * s[j][j]))
                wanted = 0.3 + weight * (s[i][j] - 0.3)
            assert mined[i, j].item() == pytest.approx(wanted, abs=1e-12)


def test_bank_of_batch_alone_changes_nothing():
    own = kept(IMAGES[:3], TEXTS[:3], torch.arange(3), torch.arange(3))
    scene = scene_of(S3)
    assert Hubs(direction="image_to_text")(scene, own) is scene.image_to_text
    assert Hubs(direction="image_to_text")(scene, Epoch(0, 0)) is scene.image_to_text


def test_weights_have_no_gradient():
    vectors = items(torch.eye(3, dtype=torch.float64)).vectors.clone().requires_grad_()
    scene = compose(Cosine(), Embeddings(vectors, torch.arange(3)), items(doubles(S3).T), torch.arange(3))
    mined = Hubs(direction="image_to_text", threshold=0.0, **SOFT)(scene, BANK).scores
    weights = (mined / scene.image_to_text.scores).detach()
    (found,) = torch.autograd.grad(mined.sum(), vectors, retain_graph=True)
    (wanted,) = torch.autograd.grad((weights * scene.image_to_text.scores).sum(), vectors)
    torch.testing.assert_close(found, wanted)
