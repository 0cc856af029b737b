"""Distance-weighted sampling (Wu et al. 2017): one negative a query, drawn evenly over distances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.training.option_marks import Span, When

if TYPE_CHECKING:
    from subtext.training.setup import Setup


_MARGIN = When("loss", ("margin",))


def distance(
    setup: Setup,
    *,
    nearest: Annotated[float, "distances below it are taken for it", Span(0, 2)] = 0.5,
    furthest: Annotated[float, "negatives from this distance on are not drawn", Span(0)] = 1.4,
    loss: Annotated[Literal["triplet", "margin"], "the host's hinge, or the paper's own loss"] = "triplet",
    margin: Annotated[float, "of the margin loss, in distance", Span(0), _MARGIN] = 0.2,
    boundary: Annotated[float, "distance that pairs have to be within, and others beyond", Span(0), _MARGIN] = 1.2,
) -> Setup:
    """Draws one negative a query, evenly over distances, in each direction (Wu et al. 2017).

    The host's triplet loss keeps its margin, and becomes the mean over all queries of both directions; so does the
    margin loss where it takes its place. Needs a host with a triplet loss between pictures and texts; with loss=margin
    one whose items are compared by cosine will do, whose own losses it replaces, on plain cosines.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.losses.margin import Margin
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.mining.distance import Distance
    from subtext.objectives.objective import Objective, Term
    from subtext.recipes.method_terms import require_own_texts, retold

    if nearest >= furthest:
        raise RecipeError(f"distance needs nearest below furthest; it got {nearest} and {furthest}")
    require_own_texts("distance", setup)
    parts = dict(setup.objective.parts)
    for name, part in parts.items():
        if not isinstance(part, Term) or not isinstance(part.loss, Triplet) or part.on not in DIRECTIONS:
            continue
        # Epochs that a host begins with, easy ones, stay easy.
        if part.until_epoch is not None:
            continue
        if part.mining is not None:
            raise RecipeError(f"distance draws from all negatives; '{name}' has them chosen already; take one alone")
        direction = next(known for known in DIRECTIONS if known == part.on)
        parts[name] = replace(
            part,
            loss=Margin(margin, boundary) if loss == "margin" else replace(part.loss, negatives="all"),
            mining=Distance(direction, nearest, furthest),
            reduction="mean",
            weight=part.weight / 2,
        )
    if all(part is setup.objective.parts[name] for name, part in parts.items()):
        if loss == "margin" and isinstance(setup.model.similarity, Cosine):
            own: dict[str, Term] = {
                side: Term(Margin(margin, boundary), on=side, weight=0.5, mining=Distance(side, nearest, furthest))
                for side in DIRECTIONS
            }
            return retold("distance", setup, own)
        raise RecipeError(
            "distance needs a host with a triplet loss between pictures and texts (vse, pvse, vse_infinity); this "
            f"objective has {', '.join(type(getattr(part, 'loss', part)).__name__ for part in parts.values())}; "
            "replace it where items are compared by cosine (distance:loss=margin), or take another host"
        )
    return replace(setup, objective=Objective(parts))
