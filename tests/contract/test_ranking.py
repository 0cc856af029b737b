"""Options of one ranking loss are refused where the other is taken."""

from __future__ import annotations

import pytest

from subtext.data.supply import FeatureShape, Supply
from subtext.errors import RecipeError
from subtext.recipes.build import build

SUPPLY = Supply(image_features=FeatureShape(pooled=8), texts=("a red dog", "a blue cat"))


@pytest.mark.parametrize(
    ("host", "given", "named"),
    [
        ("pvse", {"loss": "softmax", "margin": 0.3}, "margin needs loss=triplet"),
        ("pvse", {"loss": "softmax", "negatives": "all"}, "negatives needs loss=triplet"),
        ("vse_infinity", {"loss": "softmax", "easy_epochs": 2}, "easy_epochs needs loss=triplet"),
        ("vse_infinity", {"temperature": 0.1}, "temperature needs loss=softmax"),
        ("dual", {"pooling": "last"}, "a bag of words has no last"),
    ],
)
def test_an_option_of_the_other_loss_is_refused(host: str, given: dict[str, object], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        build(host, {"width": 8, **given}, supply=SUPPLY)


@pytest.mark.parametrize(("texts", "wanted"), [(10, 64), (2_000, 100), (40_000, 1280)])
def test_the_recommended_batch_follows_the_number_of_pairs(texts: int, wanted: int) -> None:
    supply = Supply(image_features=FeatureShape(pooled=8), texts=("a red dog",) * texts)
    assert build("dual", {"width": 8}, supply=supply).plan.batch_size == wanted
    assert build("dual", {"width": 8}, supply=supply, plan={"batch_size": 32}).plan.batch_size == 32
