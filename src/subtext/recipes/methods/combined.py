"""COMBINED-VAL and COMBINED-STATS (Thomas and Kovashka 2022): diversity and discrepancy in one weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.neighbour_weights import Further, Lambda, Neighbours
from subtext.training.option_marks import When

if TYPE_CHECKING:
    from subtext.training.setup import Setup

_VAL, _STATS = When("how", ("val",)), When("how", ("stats",))


def combined(
    setup: Setup,
    *,
    how: Annotated[Literal["val", "stats"], "beta and gamma as given, or from the scores' statistics"] = "val",
    beta: Annotated[float, "weight of diversity; 1 to 4 in the paper", _VAL] = 3.0,
    gamma: Annotated[float, "weight of discrepancy; 1 to 4 in the paper", _VAL] = 1.0,
    statistics: Annotated[
        Literal["pooled", "each"], "of both modalities' scores together, or apart", _STATS
    ] = "pooled",
    moments: Annotated[
        Literal["refreshed", "fixed"], "statistics of each epoch, or of the first", _STATS
    ] = "refreshed",
    near: Neighbours = Neighbours(),
    common: Lambda = Lambda(combine="mean"),
    further: Further = Further(),
    diagonal: Annotated[bool, "diversity: compare a neighbour with itself, too, as printed"] = True,
) -> Setup:
    """Weights pairs by diversity and discrepancy in one (Thomas and Kovashka 2022, eq. 7 and 8).

    Weights of the two are beta and gamma, found on validation pairs (val), or each score's mean times its standard
    deviation (stats), which as printed is within about 1 % of uniform weights.
    """
    from subtext.objectives.weighting.neighbourhood import Neighbourhood
    from subtext.recipes.neighbour_weights import scored

    if how == "val":
        weighting = Neighbourhood(common.total, diversity=beta, discrepancy=gamma)
    else:
        weighting = Neighbourhood(common.total, diversity=1.0, discrepancy=1.0, statistics=statistics)
    return scored(
        "combined", setup, weighting, near, common=common, further=further, diagonal=diagonal, moments=moments
    )
