"""What every loss must do. Losses are found by walking the package, each in every combination of its switches."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
import torch
from find_parts import classes, instances
from scenes import KINDS, cast_comparison, comparison, take

from subtext.core import Comparison, Truth
from subtext.errors import RequirementError
from subtext.objectives.losses.angular import Angular
from subtext.objectives.losses.daa import DAA
from subtext.objectives.losses.hal import HAL
from subtext.objectives.losses.infonce import InfoNCE
from subtext.objectives.losses.listwise import Listwise
from subtext.objectives.losses.sigmoid import Sigmoid
from subtext.objectives.losses.smooth_ap import SmoothAP
from subtext.objectives.losses.soft_contrastive import SoftContrastive
from subtext.objectives.losses.triplet import Triplet

pytestmark = pytest.mark.contract

SOFT = pytest.param(SoftContrastive(pseudo=0.3, smoothing=0.01), id="SoftContrastive(pseudo=0.3, smoothing=0.01)")
every_loss = pytest.mark.parametrize("loss", [*instances("objectives.losses"), SOFT])


def reads_scores(loss) -> bool:
    """Whether scores are all that a loss needs; others say that they need the embeddings."""
    whole = comparison("pairs")
    try:
        loss(dataclasses.replace(whole, queries=None, candidates=None))
    except RequirementError:
        return False
    return True


OF_SCORES = [case for case in [*instances("objectives.losses"), SOFT] if reads_scores(case.values[0])]
OF_VECTORS = [case for case in instances("objectives.losses") if not reads_scores(case.values[0])]
every_loss_of_scores = pytest.mark.parametrize("loss", OF_SCORES)
every_loss_of_vectors = pytest.mark.parametrize("loss", OF_VECTORS)
every_kind = pytest.mark.parametrize("kind", KINDS)


def test_losses_are_discovered():
    assert {"Triplet", "InfoNCE", "Sigmoid"} <= {loss.__name__ for loss in classes("objectives.losses")}


@pytest.mark.parametrize("loss", classes("objectives.losses"))
def test_loss_is_frozen_dataclass_in_own_file(loss):
    assert dataclasses.is_dataclass(loss) and loss.__dataclass_params__.frozen
    assert not issubclass(loss, torch.nn.Module), "losses own no parameters"
    public = [
        name
        for name, value in vars(inspect.getmodule(loss)).items()
        if inspect.isclass(value) and value.__module__ == loss.__module__ and not name.startswith("_")
    ]
    assert public == [loss.__name__]


@every_loss
@every_kind
def test_one_finite_value_per_query(loss, kind):
    whole = comparison(kind)
    values = loss(whole)
    assert callable(loss)
    assert values.shape == (len(whole.scores),)
    assert values.isfinite().all()


@every_loss_of_scores
@every_kind
def test_finite_gradient(loss, kind):
    whole = comparison(kind)
    scores = whole.scores.clone().requires_grad_()
    loss(dataclasses.replace(whole, scores=scores)).sum().backward()
    assert scores.grad is not None and scores.grad.isfinite().all()


@every_loss_of_scores
@pytest.mark.parametrize("kind", ["pairs", "several", "ignored"])
def test_gradient_matches_finite_differences(loss, kind):
    whole = comparison(kind)

    def values(scores):
        return loss(dataclasses.replace(whole, scores=scores))

    assert torch.autograd.gradcheck(values, (whole.scores.clone().requires_grad_(),), eps=1e-7, atol=1e-6)


@every_loss
@every_kind
def test_loss_is_invariant_to_candidate_order(loss, kind):
    whole = comparison(kind)
    order = torch.randperm(whole.scores.shape[1])
    torch.testing.assert_close(loss(take(whole, candidates=order)), loss(whole))


@every_loss
@every_kind
def test_loss_follows_query_order(loss, kind):
    whole = comparison(kind)
    order = torch.randperm(whole.scores.shape[0])
    torch.testing.assert_close(loss(take(whole, queries=order)), loss(whole)[order])


@every_loss
@every_kind
def test_query_loss_depends_on_its_row_alone(loss, kind):
    whole = comparison(kind)
    alone = torch.cat([loss(take(whole, queries=torch.tensor([row]))) for row in range(len(whole.scores))])
    torch.testing.assert_close(alone, loss(whole))


@every_loss
@every_kind
def test_float32_and_float64_agree(loss, kind):
    whole = comparison(kind)
    values = loss(cast_comparison(whole, torch.float32))
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), loss(whole), rtol=1e-5, atol=1e-6)


@every_loss_of_scores
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_scores_are_summed_in_float32(loss, half):
    whole = comparison("several")
    rough = dataclasses.replace(whole, scores=(whole.scores * 20).to(half), queries=None, candidates=None)
    same = dataclasses.replace(rough, scores=rough.scores.double())
    values = loss(rough)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), loss(same), rtol=1e-5, atol=1e-5)


@every_loss_of_scores
def test_ignored_cells_do_not_affect_loss(loss):
    whole = comparison("ignored")
    assert whole.truth.ignored is not None and whole.truth.ignored.any()
    for far in (-50.0, 50.0):
        changed = dataclasses.replace(whole, scores=whole.scores.masked_fill(whole.truth.ignored, far))
        torch.testing.assert_close(loss(changed), loss(whole))


@every_loss_of_scores
def test_higher_positive_scores_cost_less(loss):
    whole = comparison("several")
    assert whole.truth.relevance is not None
    # Twentyfold, a teacher is sure of what is right.
    sure = dataclasses.replace(whole.truth, relevance=20 * whole.truth.relevance)
    whole = dataclasses.replace(whole, truth=sure)

    def shifted(lead: float) -> torch.Tensor:
        return loss(dataclasses.replace(whole, scores=whole.scores + lead * whole.truth.match))

    assert (shifted(10.0) < shifted(-10.0)).all()


@every_loss_of_scores
def test_large_scores_stay_finite(loss):
    whole = comparison("several")
    scores = (whole.scores * 1e4).float().requires_grad_()
    values = loss(dataclasses.replace(whole, scores=scores, queries=None, candidates=None))
    values.sum().backward()
    assert values.isfinite().all() and scores.grad.isfinite().all()


def with_vectors(whole: Comparison, rows: torch.Tensor, columns: torch.Tensor) -> Comparison:
    """The comparison with other vectors, and no scores worth reading."""
    assert whole.queries is not None and whole.candidates is not None
    queries = dataclasses.replace(whole.queries, vectors=rows)
    candidates = dataclasses.replace(whole.candidates, vectors=columns)
    return Comparison(torch.zeros_like(whole.scores), whole.truth, queries, candidates)


@every_loss_of_vectors
@every_kind
def test_vector_gradient_is_finite(loss, kind):
    whole = comparison(kind)
    vectors = [side.vectors.clone().requires_grad_() for side in (whole.queries, whole.candidates)]
    loss(with_vectors(whole, *vectors)).sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in vectors)


@every_loss_of_vectors
@pytest.mark.parametrize("kind", ["pairs", "several", "ignored"])
def test_vector_gradient_matches_finite_differences(loss, kind):
    whole = comparison(kind)
    vectors = [side.vectors.clone().requires_grad_() for side in (whole.queries, whole.candidates)]
    assert torch.autograd.gradcheck(lambda *each: loss(with_vectors(whole, *each)), vectors, eps=1e-7, atol=1e-6)


@every_loss_of_vectors
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_vectors_use_float32(loss, half):
    whole = cast_comparison(comparison("several"), half)
    values = loss(whole)
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), loss(cast_comparison(whole, torch.float64)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", [Triplet(), Triplet(negatives="hardest"), Triplet(negatives="semi-hard"), InfoNCE()])
def test_loss_is_zero_without_negatives(loss):
    scores = torch.tensor([[0.1, 0.9], [0.2, 0.8]])
    no_negative = Comparison(scores, Truth(torch.tensor([[True, True], [False, False]])))
    assert loss(no_negative).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Triplet(margin=-0.1), r"Triplet needs a margin of 0 or more, in score units; it got -0\.1"),
        (
            lambda: InfoNCE(label_smoothing=1.0),
            r"InfoNCE needs a label_smoothing of at least 0 and below 1; it got 1\.0",
        ),
        (lambda: Angular(degrees=90.0), r"Angular needs degrees between 0 and 90; it got 90\.0"),
        (lambda: Angular(form="hinge", include_positive=True), r"needs form 'smooth' for .* it got 'hinge'; leave"),
        (lambda: HAL(gamma=0.0), r"HAL needs a gamma above 0; it got 0\.0"),
        (lambda: SmoothAP(temperature=0.0), r"SmoothAP needs a temperature above 0; it got 0\.0"),
        (lambda: SoftContrastive(pseudo=-0.1), r"SoftContrastive needs pseudo of 0 or more; it got -0\.1"),
        (lambda: SoftContrastive(smoothing=0.5), r"a smoothing of at least 0 and below 0\.5; it got 0\.5"),
        (lambda: DAA(temperature=0.0), r"DAA needs a temperature above 0; it got 0\.0"),
        (lambda: Listwise(temperature=0.0), r"Listwise needs a temperature above 0; it got 0\.0"),
    ],
)
def test_bad_settings_raise_by_name(make, message):
    with pytest.raises(RequirementError, match=message):
        make()


@pytest.mark.parametrize(
    ("loss", "name"),
    [(Triplet, "negatives"), (Sigmoid, "over"), (Angular, "form"), (HAL, "diagonal"), (DAA, "variant")],
)
def test_unknown_setting_value_raises_outside_type_checks(loss, name):
    # Literal is checked by beartype while testing alone: the class itself must refuse it as well.
    made = object.__new__(loss)
    for field in dataclasses.fields(loss):
        object.__setattr__(made, field.name, "nearest" if field.name == name else field.default)
    with pytest.raises(RequirementError, match=f"{loss.__name__} needs {name} .* it got 'nearest'"):
        made.__post_init__()


@pytest.mark.parametrize("kind", ["pairs", "ignored"])
@pytest.mark.parametrize("loss", [Triplet(), Triplet(negatives="hardest"), InfoNCE(), Sigmoid()])
def test_training_keeps_one_matrix_beside_scores(loss, kind):
    """What the backward pass holds besides the scores: one matrix of numbers, and masks."""
    whole = comparison(kind)
    scores = whole.scores.clone().requires_grad_()
    kept: dict[int, torch.Tensor] = {}

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept[value.untyped_storage().data_ptr()] = value
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        values = loss(dataclasses.replace(whole, scores=scores))
    kept.pop(scores.untyped_storage().data_ptr(), None)
    matrices = [value for value in kept.values() if value.numel() >= scores.numel() and value.is_floating_point()]
    assert len(matrices) <= 1
    assert values.requires_grad
