"""The angular loss (Thomas and Kovashka 2020): worked values of its terms, its identities, its loops."""

from __future__ import annotations

import math

import pytest
import torch
from scenes import comparison, doubles, items, random_items
from torch import Tensor

from subtext.core import Comparison, Embeddings, Truth
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.angular import Angular
from subtext.objectives.losses.triplet import Triplet

pytestmark = pytest.mark.golden

# Three pairs in the plane, one neighbour of each, and three texts drawn at random.
X = doubles([[1, 0], [0.6, 0.8], [-0.8, 0.6]])
Y = doubles([[0.8, 0.6], [0, 1], [-0.6, -0.8]])
NEAR_X = doubles([[0.6, -0.8], [1, 0], [-1, 0]])
NEAR_Y = doubles([[0.6, 0.8], [-0.6, 0.8], [0, -1]])
RANDOM = doubles([[0, 1], [0.28, 0.96], [0.8, -0.6]])
EYE = torch.eye(3, dtype=torch.bool)
TERMS = ("image_to_text", "text_to_image", "image_neighbours", "text_neighbours")


def against(anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, kept: Tensor = ~EYE) -> Comparison:
    """Anchors against their positives and, in further columns, the negatives of the anchors that `kept` says."""
    if negatives is None:
        columns, truth = positives, Truth(EYE)
    else:
        columns = torch.cat([positives, negatives])
        match = torch.cat([EYE, torch.zeros_like(kept)], dim=1)
        truth = Truth(match, ignored=torch.cat([~EYE, ~kept], dim=1))
    queries, candidates = items(anchors), items(columns)
    return Comparison(Cosine()(queries, candidates), truth, queries, candidates)


def in_batch() -> dict[str, Comparison]:
    """Negatives are the other items of the batch: other anchors, within a modality."""
    made = [against(X, Y), against(Y, X), against(X, NEAR_X, X), against(Y, NEAR_Y, Y)]
    return dict(zip(TERMS, made, strict=True))


def test_default_terms_equal_worked_values():
    values = {name: Angular()(one).mean().item() for name, one in in_batch().items()}
    wanted = (1.2779368855, 1.2498909202, 1.4347918670, 0.7634452576)
    assert values == pytest.approx(dict(zip(TERMS, wanted, strict=True)), abs=1e-9)
    total = values[TERMS[0]] + values[TERMS[1]] + 0.3 * values[TERMS[2]] + 0.2 * values[TERMS[3]]
    assert total == pytest.approx(3.1109544174, abs=1e-9)


def test_terms_of_reference_code_equal_worked_values():
    """Texts against random texts, pictures against all of the batch, themselves too; all counted three times."""
    whole, none = torch.ones_like(EYE), Angular(repeated=True)
    itself = Angular(repeated=True, include_positive=True)
    values = [
        none(against(X, Y, RANDOM, whole)),
        itself(against(Y, X)),
        itself(against(X, NEAR_X, X)),
        none(against(Y, NEAR_Y, RANDOM, whole)),
    ]
    means = [value.mean().item() for value in values]
    assert means == pytest.approx([3.3423952831, 5.2177426387, 5.3367435212, 3.5764285965], abs=1e-9)
    assert means[0] + means[1] + 0.3 * means[2] + 0.2 * means[3] == pytest.approx(10.8764466974, abs=1e-9)
    assert Angular()(against(X, Y, RANDOM, whole)).mean().item() == pytest.approx(2.4612498680, abs=1e-9)


@pytest.mark.parametrize(("t", "wanted"), [(0.25, (0.12, 0.02, 0.20, 0.0)), (1 / 3, (0.0, 0.0, 0.1777777778, 0.0))])
def test_hinge_terms_equal_worked_values(t, wanted):
    loss = Angular(form="hinge", degrees=math.degrees(math.atan(math.sqrt(t))))
    assert [loss(one).mean().item() for one in in_batch().values()] == pytest.approx(list(wanted), abs=1e-9)


@pytest.mark.parametrize(("negative", "wanted"), [((0.6, 0.8, 0.0), 1.6), ((0.0, 0.0, 1.0), 0.0)])
def test_one_hinge_by_hand(negative, wanted):
    anchor, others = items(doubles([[1, 0, 0]])), items(doubles([[0, 1, 0], list(negative)]))
    one = Comparison(Cosine()(anchor, others), Truth(torch.tensor([[True, False]])), anchor, others)
    assert Angular(form="hinge")(one).item() == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("margin", "wanted"),
    [(0.1, (0.5733333333, 0.14, 0.0666666667, 0.0)), (0.2, (0.64, 0.1733333333, 0.1333333333, 0.0))],
)
def test_triplet_of_paper_is_twice_hinge_at_half_margin(margin, wanted):
    loss = Triplet(margin=margin / 2)
    values = [2 * loss(one).mean().item() for one in in_batch().values()]
    assert values == pytest.approx(list(wanted), abs=1e-9)


def loops(whole: Comparison, loss: Angular) -> list[float]:
    """The value of every query from distances between points, one negative at a time, repeated where asked."""
    t = math.tan(math.radians(loss.degrees)) ** 2
    values = []
    for row in range(len(whole.scores)):
        of_positives = []
        for place in torch.nonzero(whole.truth.match[row])[:, 0].tolist():
            pairs = [(a, p) for a in whole.queries.vectors[row] for p in whole.candidates.vectors[place]]
            a, p = max(pairs, key=lambda pair: float(pair[0] @ pair[1]))
            others = [whole.candidates.vectors[c] for c in torch.nonzero(whole.truth.negative[row])[:, 0].tolist()]
            terms = []
            for views in others:
                n = max(views, key=lambda view: float((a + p) @ view))
                squares = (a - p).square().sum() - 4 * t * (n - (a + p) / 2).square().sum()
                terms.append(float(squares) if loss.form == "hinge" else float(squares) - 2 + 6 * t)
            if loss.include_positive:
                terms.append(4 * t + (2 * t - 2) * float(a @ p))
            if loss.form == "hinge":
                of_positives.append(sum(max(0.0, term) for term in terms))
            else:
                times = len(terms) if loss.repeated else 1
                of_positives.append(math.log1p(sum(math.exp(term) for term in terms for _ in range(times))))
        values.append(sum(of_positives) / len(of_positives) if of_positives else 0.0)
    return values


SETTINGS = [
    Angular(), Angular(degrees=40.0), Angular(repeated=True),
    Angular(repeated=True, include_positive=True, degrees=50.0),
    Angular(include_positive=True), Angular(form="hinge", degrees=25.0), Angular(form="hinge", degrees=36.0),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["pairs", "several", "ignored", "one", "no positive", "all positive"])
@pytest.mark.parametrize("loss", SETTINGS, ids=str)
def test_loss_equals_plain_loop_with_two_views(loss, kind):
    whole = comparison(kind)
    assert loss(whole).tolist() == pytest.approx(loops(whole, loss), abs=1e-10)


@pytest.mark.parametrize("loss", SETTINGS, ids=str)
def test_loss_equals_plain_loop_with_one_view(loss):
    queries, candidates = random_items(5, views=1, seed=1), random_items(7, views=1, seed=2)
    truth = Truth.from_groups(torch.arange(5), torch.tensor([0, 1, 2, 3, 4, 0, 9]))
    whole = Comparison(Cosine()(queries, candidates), truth, queries, candidates)
    assert loss(whole).tolist() == pytest.approx(loops(whole, loss), abs=1e-10)


def repeated_construction(anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """Every pair repeated once for each negative, and every negative once for each pair, all against all."""
    count = len(negatives)
    a, p = anchors.repeat_interleave(count, dim=0), positives.repeat_interleave(count, dim=0)
    n = negatives.repeat(len(anchors), 1)
    angles = 4 * (a + p) @ n.T - 4 * (a * p).sum(dim=1, keepdim=True)
    return (1 + angles.exp().sum(dim=1)).log().mean()


def test_closed_form_equals_repetition_in_value_and_gradient():
    gradients = []
    for repeat in (False, True):
        free = [random_items(4, views=1, seed=seed).vectors[:, 0].clone().requires_grad_() for seed in (1, 2)]
        # The constant of the positive's own term holds for unit vectors: lengths may not move.
        anchors, positives = (torch.nn.functional.normalize(each) for each in free)
        if repeat:
            value = repeated_construction(anchors, positives, positives)
        else:
            queries = Embeddings(anchors[:, None], torch.arange(4))
            candidates = Embeddings(positives[:, None], torch.arange(4))
            whole = Comparison(anchors @ positives.T, Truth(torch.eye(4, dtype=torch.bool)), queries, candidates)
            value = Angular(repeated=True, include_positive=True)(whole).mean()
        gradients.append([value.detach(), *torch.autograd.grad(value, free)])
    for short, long in zip(*gradients, strict=True):
        torch.testing.assert_close(short, long)


@pytest.mark.parametrize("degrees", [25.0, 36.0, 45.0])
def test_hinge_is_below_smooth_form(degrees):
    """With one negative, [f + 2 - 6t]+ <= max(0, f + 2 - 6t) and f <= log(1 + e^f)."""
    anchor, others = random_items(40, views=1, seed=3), random_items(80, views=1, seed=4)
    t = math.tan(math.radians(degrees)) ** 2
    for row in range(40):
        pair = others[torch.tensor([row, 40 + row])]
        one = Comparison(
            torch.zeros(1, 2, dtype=torch.float64), Truth(torch.tensor([[True, False]])), anchor[row : row + 1], pair
        )
        smooth, hinge = Angular(degrees=degrees)(one).item(), Angular(form="hinge", degrees=degrees)(one).item()
        f = math.log(math.expm1(smooth))
        assert hinge == pytest.approx(max(0.0, f + 2 - 6 * t), abs=1e-9)


def test_own_positive_term_is_constant_at_45_degrees():
    vectors = items(X).vectors.clone().requires_grad_()
    alone = Embeddings(vectors, torch.arange(3))
    whole = Comparison(torch.zeros(3, 3), Truth(EYE, ignored=~EYE), alone, items(Y))
    value = Angular(include_positive=True)(whole).sum()
    assert value.item() == pytest.approx(3 * math.log1p(math.exp(4)))
    assert torch.autograd.grad(value, vectors)[0].abs().max() < 1e-12
