"""Random weights (Thomas and Kovashka 2022): the control of Table 3, uneven weights without a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.option_marks import Span

if TYPE_CHECKING:
    from subtext.training.setup import Setup


def random(
    setup: Setup,
    *,
    total: Annotated[float, "lambda, the sum of the weights over a batch"] = 196.0,
    batch: Annotated[int, "pairs that total is for; 0: whatever the batch", Span(0)] = 32,
    half: Annotated[bool, "the mean of both directions, as in the paper; off: the host's own scale"] = True,
    drop_last: Annotated[bool, "leave out the last batch of an epoch where it is smaller"] = True,
) -> Setup:
    """Weights pairs at random, anew in every epoch (Thomas and Kovashka 2022): what uneven weights do by themselves."""
    from dataclasses import replace

    from subtext.objectives.weighting.random import Random
    from subtext.recipes.method_terms import weighted

    made = weighted("random", setup, lambda direction: Random(total, direction, batch), half=half)
    return replace(made, plan=replace(made.plan, drop_last=drop_last))
