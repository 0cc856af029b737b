"""Options of one ranking loss are refused where the other is taken."""

from __future__ import annotations

import pytest

from subtext.data.feature_file import FeatureShape
from subtext.errors import RecipeError
from subtext.objectives.losses.triplet import Triplet
from subtext.objectives.objective import Term
from subtext.recipes.build import build
from subtext.training.setup import BuildContext

pytestmark = pytest.mark.contract

TEXTS = ("a red dog", "a blue cat")
CONTEXT = BuildContext(image_features=FeatureShape(pooled=8), texts=TEXTS)


@pytest.mark.parametrize(
    ("host", "given", "named"),
    [
        ("pvse", {"loss": "softmax", "margin": 0.3}, "margin needs loss=triplet"),
        ("pvse", {"loss": "softmax", "negatives": "all"}, "negatives needs loss=triplet"),
        ("vse_infinity", {"loss": "softmax", "all_negatives_epochs": 2}, "all_negatives_epochs needs loss=triplet"),
        ("vse_infinity", {"temperature": 0.1}, "temperature needs loss=softmax"),
        ("ascl", {"all_negatives_epochs": 2}, "all_negatives_epochs needs loss=triplet"),
        ("dual", {"pooling": "last"}, "a bag of words has no last"),
    ],
)
def test_option_of_unused_loss_raises(host: str, given: dict[str, object], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        build(host, {"embed_dim": 8, **given}, context=CONTEXT)


@pytest.mark.parametrize(
    ("host", "given", "margin", "reduction", "weight"),
    [
        ("vse_infinity", {}, 0.3, "sum", 1.0),
        ("scan", {}, 0.3, "sum", 1.0),
        ("sgraf", {"reasoning": "saf"}, 0.3, "sum", 1.0),
        ("sgraf", {"reasoning": "sgr"}, 0.3, "sum", 1.0),
        ("imram", {}, 0.3, "sum", 1.0),
        ("dsran", {}, 0.3, "sum", 1.0),
        ("ascl", {"loss": "triplet", "temperature": 0.1}, 3.0, "mean", 0.1),
    ],
)
def test_easy_epochs_use_all_negatives(
    host: str, given: dict[str, object], margin: float, reduction: str, weight: float
) -> None:
    options = {"embed_dim": 8, "margin": 0.3, "all_negatives_epochs": 2, **given}
    parts = build(
        host, options, context=BuildContext(image_features=FeatureShape(pooled=8, grid=8), texts=TEXTS)
    ).objective.parts
    for side in ("image_to_text", "text_to_image"):
        easy, hard = parts[f"{side}, all negatives"], parts[side]
        assert isinstance(easy, Term) and isinstance(easy.loss, Triplet)
        assert isinstance(hard, Term) and isinstance(hard.loss, Triplet)
        assert (easy.loss.negatives, easy.from_epoch, easy.until_epoch) == ("all", 0, 2)
        assert (hard.loss.negatives, hard.from_epoch, hard.until_epoch) == ("hardest", 2, None)
        for term, loss in ((easy, easy.loss), (hard, hard.loss)):
            assert loss.margin == pytest.approx(margin)
            assert (term.on, term.reduction, term.weight) == (side, reduction, weight)


@pytest.mark.parametrize(("texts", "wanted"), [(10, 64), (2_000, 100), (40_000, 1280)])
def test_recommended_batch_size_follows_number_of_pairs(texts: int, wanted: int) -> None:
    context = BuildContext(image_features=FeatureShape(pooled=8), texts=("a red dog",) * texts)
    assert build("dual", {"embed_dim": 8}, context=context).plan.batch_size == wanted
    assert build("dual", {"embed_dim": 8}, context=context, plan={"batch_size": 32}).plan.batch_size == 32


def test_recommended_batch_of_starter_towers_is_a_fifth_of_the_pairs() -> None:
    context = BuildContext(texts=("a red dog",) * 2_000)
    for options, wanted in (({"image": "starter", "text": "starter"}, 400), ({"image": "starter", "text": "bag"}, 100)):
        assert build("dual", options, context=context).plan.batch_size == wanted
