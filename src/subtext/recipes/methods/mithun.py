"""Rank weights (Mithun et al. 2018): pairs whose partner is ranked badly count up to twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.option_marks import Before, When

if TYPE_CHECKING:
    from subtext.training.setup import Setup

_ALL = When("hard", ("False",), needs="hard=False")


def mithun(
    setup: Setup,
    *,
    strength: Annotated[float, "how much more the worst rank counts than no weight; 1 in the paper"] = 1.0,
    hard: Annotated[bool, "the hardest negative alone, as the paper's code always does; off: the host's own"] = True,
    half: Annotated[bool, "the mean of both directions; off: the host's own scale", _ALL, Before(False)] = True,
) -> Setup:
    """Weights each pair by the rank of its partner (Mithun et al. 2018), in both directions.

    Needs a host with a triplet loss between pictures and texts; of one that has none it weights, without `hard`,
    whatever loss there is between them.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Objective, Term
    from subtext.objectives.weighting.rank import Rank
    from subtext.recipes.method_terms import require_own_texts

    require_own_texts("mithun", setup)
    parts = dict(setup.objective.parts)
    between = [part for part in parts.values() if isinstance(part, Term) and part.on in DIRECTIONS]
    triplets = hard or any(isinstance(part.loss, Triplet) for part in between)
    for name, part in parts.items():
        if not isinstance(part, Term) or part.on not in DIRECTIONS:
            continue
        if triplets and not isinstance(part.loss, Triplet):
            continue
        if part.weighting is not None:
            raise RecipeError(f"mithun weights a loss that has no weights yet; '{name}' has; take one weighting alone")
        direction = next(known for known in DIRECTIONS if known == part.on)
        loss, reduction = part.loss, part.reduction
        # Epochs that a host begins with, easy ones, stay easy.
        if hard and isinstance(loss, Triplet) and part.until_epoch is None:
            loss = replace(loss, negatives="hardest")
            # The hardest negative is one value a query: a mean over all cells would make nothing of it.
            reduction = "mean" if reduction == "mean over cells" else reduction
        weighting = Rank(of=direction, strength=strength)
        weight = part.weight / 2 if half and not hard else part.weight
        parts[name] = replace(part, weighting=weighting, loss=loss, reduction=reduction, weight=weight)
    if all(part is setup.objective.parts[name] for name, part in parts.items()):
        raise RecipeError(
            "mithun needs a host with a triplet loss between pictures and texts (vse, pvse, vse_infinity); this "
            f"objective has {', '.join(type(getattr(part, 'loss', part)).__name__ for part in parts.values())}; "
            "weight any loss by rank (mithun:hard=no), or take another host"
        )
    return replace(setup, objective=Objective(parts))
