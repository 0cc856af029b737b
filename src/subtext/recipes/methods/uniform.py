"""Uniform weights (Thomas and Kovashka 2022): the control, the scale of a weighting without its order."""

from __future__ import annotations

from subtext.recipes.options import AverageDirections, DropLast, ReferenceBatch, Setup, TotalWeight


def uniform(
    setup: Setup,
    *,
    total_weight: TotalWeight = 196.0,
    reference_batch: ReferenceBatch = 32,
    average_directions: AverageDirections = True,
    drop_last: DropLast = True,
) -> Setup:
    """Gives all pairs the same weight: the control for weights with the same sum (Thomas and Kovashka 2022).

    Args:
        setup: What the model, its objective and its batches are so far.
        total_weight: Lambda, the sum of the weights over a batch.
        reference_batch: Batch size that total_weight is for; 0 for the batch as it is.
        average_directions: Average both directions, as in the paper; off: keep the model's own scale.
        drop_last: Drop the last batch of an epoch if it is smaller.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For what `weight_terms` refuses.
    """
    from subtext.objectives.weighting import Uniform
    from subtext.recipes.parts import weight_terms

    return weight_terms(
        "uniform",
        setup,
        lambda direction: Uniform(total_weight, direction, reference_batch),
        average=average_directions,
        drop_last=drop_last,
    )
