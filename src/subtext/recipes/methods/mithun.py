"""Rank weights (Mithun et al. 2018): pairs whose partner is ranked badly count up to twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.recipes.options import Setup
from subtext.training.plan import Requires

if TYPE_CHECKING:
    from subtext.objectives.objective import Penalty, Term

_ALL = Requires("hardest_only", ("False",), needs="hardest_only=False")


def mithun(
    setup: Setup,
    *,
    strength: Annotated[float, "extra weight of the worst rank; 1 in the paper"] = 1.0,
    hardest_only: Annotated[
        bool, "use the hardest negative alone, as the published code does; off: the model's own loss"
    ] = True,
    average_directions: Annotated[bool, "average both directions; off: keep the model's own scale", _ALL] = True,
) -> Setup:
    """Weights each pair by the rank of its partner in both directions (Mithun et al. 2018).

    Needs a model with a triplet loss between images and texts. With `hardest_only=False` a model that has none gets
    weights on whatever loss it has between them.

    Args:
        setup: What the model, its objective and its batches are so far.
        strength: Extra weight of the worst rank; 1 in the paper.
        hardest_only: Use the hardest negative alone, as the published code does; off: the model's own loss.
        average_directions: Average both directions; off: keep the model's own scale.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For a model without a loss that it weights, and for one that has weights already.
    """
    from dataclasses import replace

    from subtext.errors import RecipeError
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Objective
    from subtext.objectives.weighting import Rank
    from subtext.recipes.parts import losses_of, ranking_terms, require_plain_texts

    require_plain_texts("mithun", setup)
    terms = ranking_terms(setup)
    triplets = {name: term for name, term in terms.items() if isinstance(term[0].loss, Triplet)}
    chosen = triplets if hardest_only or triplets else terms
    if not chosen:
        raise RecipeError(
            "mithun needs a model with a triplet loss between images and texts (vse, pvse, vse_infinity); this "
            f"objective has {losses_of(setup)}; weight any loss by rank (mithun:hardest_only=no), or choose another "
            "model"
        )
    parts: dict[str, Term | Penalty] = dict(setup.objective.parts)
    for name, (term, direction) in chosen.items():
        if term.weighting is not None:
            raise RecipeError(f"mithun weights a loss that has no weights yet; '{name}' has; use one weighting alone")
        loss, reduction = term.loss, term.reduction
        # The first epochs of a model, over all negatives, stay as they are.
        if hardest_only and isinstance(loss, Triplet) and term.until_epoch is None:
            loss = replace(loss, negatives="hardest")
            # The hardest negative is one value per query: a mean over all cells would shrink it.
            reduction = "mean" if reduction == "mean over cells" else reduction
        weight = term.weight / 2 if average_directions and not hardest_only else term.weight
        weighting = Rank(direction=direction, strength=strength)
        parts[name] = replace(term, weighting=weighting, loss=loss, reduction=reduction, weight=weight)
    unread = {"negatives": "mithun:hardest_only takes the hardest"} if hardest_only else {}
    return replace(setup, objective=Objective(parts), unread={**setup.unread, **unread})
