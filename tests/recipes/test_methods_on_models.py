"""Every method that weights or draws, on every host that gives embeddings: what is built, what is refused and why."""

from __future__ import annotations

import numpy as np
import pytest
import tiny_models

from subtext.core import DIRECTIONS
from subtext.data.feature_file import FeatureShape
from subtext.errors import RecipeError
from subtext.models.similarity.cosine import Cosine
from subtext.objectives.losses.margin import Margin
from subtext.objectives.mining import DistanceSampling
from subtext.objectives.objective import Term
from subtext.objectives.weighting import Rank
from subtext.recipes.build import build
from subtext.recipes.catalogue import models
from subtext.training.setup import BuildContext, Setup

pytestmark = pytest.mark.contract

SMALL: dict[str, object] = {"embed_dim": 16, "word_dim": 8}
HOSTS: dict[str, dict[str, object]] = {
    "dual": SMALL,
    "vse": SMALL,
    "pvse": {**SMALL, "views": 2},
    "vse_infinity": SMALL,
    "dsran": SMALL,
    "ascl": {**SMALL, "attention": False},
    "pcme": {**SMALL, "samples": 2},
    "pcme_plus": SMALL,
    "clip": {"model": "{clip}"},
    "adapt": {"model": "{clip}"},
}
METHODS: dict[str, dict[str, object]] = {
    "diversity": {"graph": "graph"},
    "discrepancy": {"graph": "graph"},
    "combined": {"graph": "graph"},
    "uniform": {},
    "random": {},
    "amrani": {"features": "features.npz"},
    "hal": {},
    "mithun": {},
    "distance": {},
}
COSINE = "needs a model that compares items by the cosine of their vectors"
TRIPLET = "needs a model with a triplet loss between images and texts"
WITHOUT_TRIPLET = ("dual", "ascl", "pcme", "pcme_plus", "clip", "adapt")
REFUSED = {
    # Its loss is one of plain cosines, which a match probability or a distance of distributions would lose.
    **{(host, "hal"): COSINE for host in ("pcme", "pcme_plus")},
    # The hardest negative, or one drawn negative, of a hinge: a softmax or a soft contrastive loss has no such thing.
    **{(host, method): TRIPLET for host in WITHOUT_TRIPLET for method in ("mithun", "distance")},
}
"""(host, method) as they come -> why not."""
ALSO: dict[str, dict[str, object]] = {"mithun": {"hardest_only": False}, "distance": {"loss": "margin"}}
"""What weights any loss, or brings its own."""
STILL = {(host, "distance"): TRIPLET for host in ("pcme", "pcme_plus")}
"""What is refused with that, too: a margin between distances of points says nothing of distributions."""


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.clip(tmp_path_factory.mktemp("models") / "clip"))


def made(host: str, clip: str, *methods: tuple[str, dict[str, object]]) -> Setup:
    shape = FeatureShape(6, 6, {n: np.zeros(6, np.float32) for n in ("pooled", "grid")}, {
        n: np.ones(6, np.float32) for n in ("pooled", "grid")
    })  # fmt: skip
    context = BuildContext(
        image_features=None if host in ("clip", "adapt") else shape, texts=("a dog", "a dog and boats"), seed=0
    )
    arguments = {key: clip if value == "{clip}" else value for key, value in HOSTS[host].items()}
    return build(host, arguments, methods=methods, context=context)


def test_every_embedding_model_is_covered() -> None:
    """The others score pairs alone: they have no vectors that a neighbourhood could be taken from."""
    assert set(models()) - set(HOSTS) == {"scan", "sgraf", "chan", "imram"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("host", HOSTS)
def test_method_applies_to_model_or_raises(host: str, method: str, clip: str) -> None:
    if (host, method) in REFUSED:
        with pytest.raises(RecipeError, match=f"^{method} {REFUSED[host, method]}"):
            made(host, clip, (method, METHODS[method]))
        return
    setup, plain = made(host, clip, (method, METHODS[method])), made(host, clip)
    assert setup.objective != plain.objective or method == "hal"
    between = [part for part in setup.objective.parts.values() if isinstance(part, Term) and part.on in DIRECTIONS]
    assert {part.on for part in between} == set(DIRECTIONS)
    if method in ("diversity", "discrepancy", "combined", "amrani"):
        assert len(setup.banks) == 1, "what its weights are read from"
    if method not in ("hal", "distance"):
        assert all(part.weighting is not None for part in between)


@pytest.mark.parametrize("method", ALSO)
@pytest.mark.parametrize("host", WITHOUT_TRIPLET)
def test_triplet_free_method_applies_to_other_losses(host: str, method: str, clip: str) -> None:
    if (host, method) in STILL:
        with pytest.raises(RecipeError, match=f"^{method} {STILL[host, method]}"):
            made(host, clip, (method, ALSO[method]))
        return
    setup, plain = made(host, clip, (method, ALSO[method])), made(host, clip)
    parts, before = setup.objective.parts, plain.objective.parts
    for name, side in ((name, part.on) for name, part in before.items() if isinstance(part, Term)):
        term = parts[name] if method == "mithun" else parts[side]
        assert isinstance(term, Term)
        if method == "mithun":
            assert isinstance(term.weighting, Rank) and term.weighting.direction == side
            assert term.loss == before[name].loss and term.reduction == before[name].reduction
            # As the other weightings have it: 1 / (2 B^2), where the host's own is 1 / B^2.
            assert term.weight == before[name].weight / 2
        else:
            assert term == Term(Margin(), side, weight=0.5, mining=DistanceSampling(side))
            assert isinstance(setup.model.similarity, Cosine) and not list(setup.model.similarity.parameters())
    assert {name for name in before if not isinstance(before[name], Term)} <= set(parts)


def test_rank_weights_halve_with_all_negatives_unless_disabled(clip: str) -> None:
    whole = made("pvse", clip).objective.parts
    for options, factor in (
        ({"hardest_only": False}, 0.5),
        ({"hardest_only": False, "average_directions": False}, 1.0),
        ({}, 1.0),
    ):
        parts = made("pvse", clip, ("mithun", options)).objective.parts
        for side in DIRECTIONS:
            assert parts[side].weight == factor * whole[side].weight


def test_method_errors_suggest_alternatives(clip: str) -> None:
    with pytest.raises(RecipeError, match="weight any loss by rank \\(mithun:hardest_only=no\\)"):
        made("dual", clip, ("mithun", {}))
    with pytest.raises(RecipeError, match="distance:loss=margin"):
        made("dual", clip, ("distance", {}))
    with pytest.raises(RecipeError, match=r"needs a model whose items are vectors; .* scores pairs"):
        made_pairs("diversity", {"graph": "graph"})


def made_pairs(method: str, options: dict[str, object]) -> Setup:
    """A host that scores pairs."""
    shape = FeatureShape(None, 6, {"grid": np.zeros(6, np.float32)}, {"grid": np.ones(6, np.float32)})
    context = BuildContext(image_features=shape, texts=("a dog", "a dog and boats"), seed=0)
    return build("scan", SMALL, methods=[(method, options)], context=context)


def test_samples_count_as_views_of_an_item(clip: str) -> None:
    """Options of several views are for `pcme`, whose items are draws; `pcme_plus` has one vector an item."""
    assert made("pcme", clip, ("diversity", {"graph": "graph", "views": "mean"})).banks
    with pytest.raises(RecipeError, match="diversity: views needs a model with several views"):
        made("pcme_plus", clip, ("diversity", {"graph": "graph", "views": "mean"}))
    with pytest.raises(RecipeError, match="current=True needs views=mean or aligned"):
        made("pcme", clip, ("discrepancy", {"graph": "graph", "use_current": True}))
