"""Random weights (Thomas and Kovashka 2022): the control of Table 3, uneven weights without a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.option_marks import Range

if TYPE_CHECKING:
    from subtext.training.setup import Setup


def random(
    setup: Setup,
    *,
    total_weight: Annotated[float, "lambda, the sum of the weights over a batch"] = 196.0,
    reference_batch: Annotated[int, "batch size that total_weight is for; 0 for the batch as it is", Range(0)] = 32,
    average_directions: Annotated[
        bool, "average both directions, as in the paper; off: keep the model's own scale"
    ] = True,
    drop_last: Annotated[bool, "drop the last batch of an epoch where it is smaller"] = True,
) -> Setup:
    """Weights pairs at random, anew in every epoch (Thomas and Kovashka 2022): the control for uneven weights."""
    from dataclasses import replace

    from subtext.objectives.weighting.random import Random
    from subtext.recipes.method_terms import weight_terms

    weighted = weight_terms(
        "random", setup, lambda direction: Random(total_weight, direction, reference_batch), average=average_directions
    )
    return replace(weighted, plan=replace(weighted.plan, drop_last=drop_last))
