"""Random weights (Thomas and Kovashka 2022): the control of Table 3, uneven weights without a reason."""

from __future__ import annotations

from subtext.recipes.options import AverageDirections, DropLast, ReferenceBatch, Setup, TotalWeight


def random(
    setup: Setup,
    *,
    total_weight: TotalWeight = 196.0,
    reference_batch: ReferenceBatch = 32,
    average_directions: AverageDirections = True,
    drop_last: DropLast = True,
) -> Setup:
    """Weights pairs at random in every epoch: the control for unequal weights (Thomas and Kovashka 2022).

    Returns:
        The changed setup.

    Raises:
        RecipeError: For what `weight_terms` refuses.
    """
    from subtext.objectives.weighting import Random
    from subtext.recipes.parts import weight_terms

    return weight_terms(
        "random",
        setup,
        lambda direction: Random(total_weight, direction, reference_batch),
        average=average_directions,
        drop_last=drop_last,
    )
