"""Smooth-AP (Brown et al. 2020): positives before all others, by a smooth average precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.option_marks import Span

if TYPE_CHECKING:
    from subtext.training.setup import Setup

WEIGHT = 50.0
"""Beside a sum over a batch of 128, as DAA's: the weight that Li et al. 2022 gave it is not stated."""


def smooth_ap(
    setup: Setup,
    *,
    temperature: Annotated[float, "in cosine, or in score where a model has no cosines", Span(0)] = 0.01,
    weight: Annotated[float, "of each direction; -1: as 50 to a hinge summed over 128 pairs, alone: 1/2"] = -1.0,
    alone: Annotated[bool, "in the place of the host's losses between pictures and texts"] = False,
) -> Setup:
    """Adds a smooth average precision between pictures and texts to the host's loss (Brown et al. 2020).

    With `alone` it takes the place of the host's: the mean of both directions, on plain cosines. Where items are
    compared by cosine it reads those, else the model's scores.
    """
    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.objectives.losses.smooth_ap import SmoothAP
    from subtext.objectives.objective import Term
    from subtext.recipes.method_terms import beside, by_cosine, retold

    if not temperature:
        raise RecipeError("smooth_ap needs a temperature above 0; it got 0")
    loss = SmoothAP(temperature)
    if not alone:
        return beside("smooth_ap", setup, loss, weight=weight, sum_weight=WEIGHT)
    if not by_cosine(setup):
        raise RecipeError(
            "alone needs a host whose items are compared by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; leave alone out, or take another host"
        )
    chosen = 0.5 if weight < 0 else weight
    return retold("smooth_ap", setup, {side: Term(loss, on=side, weight=chosen) for side in DIRECTIONS})
