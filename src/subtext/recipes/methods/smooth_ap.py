"""Smooth-AP (Brown et al. 2020): positives before all others, by a smooth average precision."""

from __future__ import annotations

from typing import Annotated

from subtext.recipes.options import Setup
from subtext.training.plan import Range

WEIGHT = 50.0
"""Beside a sum over a batch of 128, as DAA's: Li et al. 2022 do not state their weight."""


def smooth_ap(
    setup: Setup,
    *,
    temperature: Annotated[float, "temperature, in cosine; in score where a model has no cosines", Range(0)] = 0.01,
    weight: Annotated[
        float, "weight of each direction; -1: relative to the model's loss as 50 to a sum over 128 pairs; alone 1/2"
    ] = -1.0,
    replace_loss: Annotated[bool, "replace the model's losses between images and texts"] = False,
) -> Setup:
    """Adds a smooth average precision between images and texts to the model's loss (Brown et al. 2020).

    With `replace_loss` it replaces that loss: the mean of both directions, on plain cosines. Where items are compared
    by cosine it reads plain cosines, else the model's scores.
    """
    from subtext.errors import RecipeError
    from subtext.objectives.losses.smooth_ap import SmoothAP
    from subtext.recipes.parts import add_terms, both_directions, replace_terms, require_cosine

    if not temperature:
        raise RecipeError("smooth_ap needs a temperature above 0; it got 0")
    loss = SmoothAP(temperature)
    if not replace_loss:
        return add_terms("smooth_ap", setup, loss, weight=weight, sum_weight=WEIGHT)
    require_cosine("replace_loss", setup)
    return replace_terms("smooth_ap", setup, both_directions(loss, 0.5 if weight < 0 else weight))
