"""Uniform weights (Thomas and Kovashka 2022): the control, the scale of a weighting without its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.option_marks import Span

if TYPE_CHECKING:
    from subtext.training.setup import Setup


def uniform(
    setup: Setup,
    *,
    total: Annotated[float, "lambda, the sum of the weights over a batch"] = 196.0,
    batch: Annotated[int, "pairs that total is for; 0: whatever the batch", Span(0)] = 32,
    half: Annotated[bool, "the mean of both directions, as in the paper; off: the host's own scale"] = True,
    drop_last: Annotated[bool, "leave out the last batch of an epoch where it is smaller"] = True,
) -> Setup:
    """Weights all pairs alike (Thomas and Kovashka 2022): what other weights of the same total have to beat."""
    from dataclasses import replace

    from subtext.objectives.weighting.uniform import Uniform
    from subtext.recipes.method_terms import weighted

    made = weighted("uniform", setup, lambda direction: Uniform(total, direction, batch), half=half)
    return replace(made, plan=replace(made.plan, drop_last=drop_last))
