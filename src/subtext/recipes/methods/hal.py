"""HAL (Liu et al. 2020): near negatives count exponentially, and hubs most of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from subtext.training.when import Span

if TYPE_CHECKING:
    from subtext.training.setup import Setup


def hal(
    setup: Setup,
    *,
    gamma: Annotated[float, "how steeply near negatives count; 60 on Flickr30K", Span(0)] = 30.0,
    threshold: Annotated[float, "score from which they do, in cosine; 0.7 on Flickr30K"] = 0.3,
    diagonal: Annotated[bool, "the pair's own cell among negatives, as in the paper's code"] = True,
) -> Setup:
    """Replaces the losses between pictures and texts by the hubness-aware one (Liu et al. 2020), on plain cosines.

    Other parts of the objective stay. Needs a host that compares by the cosine of vectors.
    """
    from subtext.core import DIRECTIONS
    from subtext.errors import RecipeError
    from subtext.losses.hal import HAL
    from subtext.objective import Term
    from subtext.recipes.within import retold
    from subtext.similarity.cosine import Cosine

    if not isinstance(setup.model.similarity, Cosine):
        raise RecipeError(
            "hal needs a host whose items are compared by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; take another host"
        )
    loss = HAL(gamma, threshold, "shifted" if diagonal else "none")
    return retold("hal", setup, {direction: Term(loss, on=direction) for direction in DIRECTIONS})
