"""COMBINED-VAL and COMBINED-STATS (Thomas and Kovashka 2022): diversity and discrepancy in one weight."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import DiscrepancyOptions, NeighbourOptions, Setup, WeightOptions
from subtext.training.plan import Requires

_SIGN = Requires("sign", ("0.0",), needs="a sign other than 0", negated=True)
_BETA = Requires("beta", ("0.0",), needs="beta other than 0", negated=True)
_VAL, _STATS = Requires("mode", ("val",)), Requires("mode", ("stats",))


def combined(
    setup: Setup,
    *,
    mode: Annotated[Literal["val", "stats"], "use beta and gamma, or the scores' statistics", _SIGN] = "val",
    beta: Annotated[float, "weight of diversity; 1 to 4 in the paper", _VAL, _SIGN] = 3.0,
    gamma: Annotated[float, "weight of discrepancy; 1 to 4 in the paper", _VAL, _SIGN] = 1.0,
    statistics: Annotated[
        Literal["pooled", "separate"], "of both modalities' scores together, or of each", _STATS
    ] = "pooled",
    moments: Annotated[
        Literal["refreshed", "fixed"], "statistics of each epoch, or of the first", _STATS
    ] = "refreshed",
    neighbours: NeighbourOptions = NeighbourOptions(),
    weights: WeightOptions = WeightOptions(combine="mean"),
    comparison: DiscrepancyOptions = DiscrepancyOptions(),
    diagonal: Annotated[bool, "diversity: compare a neighbour with itself, too, as printed", _BETA, _SIGN] = True,
) -> Setup:
    """Weights pairs by a combination of diversity and discrepancy (Thomas and Kovashka 2022, eq. 7 and 8).

    The two are weighted by beta and gamma, chosen on validation pairs (val), or by each score's mean times its standard
    deviation (stats), which as printed is within about 1 % of uniform weights.

    Args:
        setup: What the model, its objective and its batches are so far.
        mode: Use beta and gamma, or the scores' statistics.
        beta: Weight of diversity; 1 to 4 in the paper.
        gamma: Weight of discrepancy; 1 to 4 in the paper.
        statistics: Of both modalities' scores together, or of each.
        moments: Statistics of each epoch, or of the first.
        neighbours: Which neighbours a pair is compared with, and by what.
        weights: How scores become weights, and their sum over a batch.
        comparison: How the neighbours of both modalities are compared.
        diagonal: Diversity: compare a neighbour with itself, too, as printed.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For beta and gamma of 0, and what `neighbour_weights` refuses.
    """
    from subtext.errors import RecipeError
    from subtext.objectives.weighting import Neighbourhood
    from subtext.recipes.parts import neighbour_weights

    if mode == "val" and not (beta or gamma):
        raise RecipeError("combined needs a beta or a gamma other than 0; both are 0; use uniform, which is the same")
    if mode == "val":
        weighting = Neighbourhood(weights.total_weight, diversity=beta, discrepancy=gamma)
    else:
        weighting = Neighbourhood(
            weights.total_weight,
            diversity=1.0,
            discrepancy=1.0,
            statistics="each" if statistics == "separate" else "pooled",
        )
    return neighbour_weights(
        "combined",
        setup,
        weighting,
        neighbours,
        weights=weights,
        comparison=comparison,
        diagonal=diagonal,
        moments=moments,
    )
