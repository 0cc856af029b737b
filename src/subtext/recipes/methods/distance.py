"""Distance-weighted sampling (Wu et al. 2017): one negative per query, sampled evenly over distances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Setup
from subtext.settings import Interval
from subtext.training.plan import Requires

if TYPE_CHECKING:
    from subtext.objectives.objective import Penalty, Term

_MARGIN = Requires("loss", ("margin",))


def distance(
    setup: Setup,
    *,
    min_distance: Annotated[float, "smaller distances count as this one", Interval(0, below=2)] = 0.5,
    max_distance: Annotated[float, "negatives at this distance or beyond are not sampled", Interval(0)] = 1.4,
    loss: Annotated[Literal["triplet", "margin"], "the model's triplet loss, or the paper's margin loss"] = "triplet",
    margin: Annotated[float, "margin of the margin loss, in distance", Interval(0), _MARGIN] = 0.2,
    boundary: Annotated[float, "distance that separates positives from negatives", Interval(0), _MARGIN] = 1.2,
) -> Setup:
    """Samples one negative per query and direction, uniformly over distances (Wu et al. 2017).

    The model's triplet loss keeps its margin, and becomes the mean over all queries of both directions, as does the
    margin loss in its place. Needs a model with a triplet loss between images and texts. With loss=margin it also takes
    a model that compares items by cosine, and replaces its losses, on plain cosines.

    Args:
        setup: What the model, its objective and its batches are so far.
        min_distance: Smaller distances count as this one.
        max_distance: Negatives at this distance or beyond are not sampled.
        loss: The model's triplet loss, or the paper's margin loss.
        margin: Margin of the margin loss, in distance.
        boundary: Distance that separates positives from negatives.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For an empty range of distances, for negatives that are sampled already, and for a model without a
            loss that it can change.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.objectives.losses.margin import Margin
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.mining import DistanceSampling
    from subtext.objectives.objective import Objective, Term
    from subtext.recipes.parts import losses_of, ranking_terms, replace_terms, require_plain_texts, uses_cosine

    if min_distance >= max_distance:
        raise RecipeError(f"distance needs min_distance below max_distance; it got {min_distance} and {max_distance}")
    require_plain_texts("distance", setup)
    parts: dict[str, Term | Penalty] = dict(setup.objective.parts)
    for name, (term, direction) in ranking_terms(setup).items():
        # The first epochs of a model, over all negatives, stay as they are.
        if not isinstance(term.loss, Triplet) or term.until_epoch is not None:
            continue
        if term.mining is not None:
            raise RecipeError(f"distance samples from all negatives; those of '{name}' are sampled already; use one")
        parts[name] = replace(
            term,
            loss=Margin(margin, boundary) if loss == "margin" else replace(term.loss, negatives="all"),
            mining=DistanceSampling(direction, min_distance, max_distance),
            reduction="mean",
            weight=term.weight / 2,
        )
    if parts != dict(setup.objective.parts):
        losses = [part.loss for part in parts.values() if isinstance(part, Term)]
        kept = any(isinstance(held, Triplet) for held in losses)
        unread = ("negatives",) if kept else ("negatives", "margin")
        reasons = dict.fromkeys(unread, "distance samples the negatives" + ("" if kept else ", for a loss of its own"))
        return replace(setup, objective=Objective(parts), unread={**setup.unread, **reasons})
    if loss == "margin" and uses_cosine(setup):
        terms: dict[str, Term] = {}
        for side in DIRECTIONS:
            mining = DistanceSampling(side, min_distance, max_distance)
            terms[side] = Term(Margin(margin, boundary), on=side, weight=0.5, mining=mining)
        return replace_terms("distance", setup, terms)
    raise RecipeError(
        "distance needs a model with a triplet loss between images and texts (vse, pvse, vse_infinity); this "
        f"objective has {losses_of(setup)}; replace it where items are compared by cosine (distance:loss=margin), or "
        "choose another model"
    )
