"""DIVERSITY (Thomas and Kovashka 2022): how unlike each other the semantic neighbours of a pair are."""

from __future__ import annotations

from typing import Annotated

from subtext.recipes.options import NeighbourOptions, Setup, WeightOptions
from subtext.settings import Unfold
from subtext.training.plan import Requires

_SIGN = Requires("sign", ("0.0",), needs="a sign other than 0", negated=True)


def diversity(
    setup: Setup,
    *,
    neighbours: Annotated[NeighbourOptions, Unfold(NeighbourOptions(), without=("samples",))] = NeighbourOptions(),
    weights: WeightOptions = WeightOptions(),
    diagonal: Annotated[bool, "compare a neighbour with itself, too, as printed", _SIGN] = True,
) -> Setup:
    """Weights pairs by how diverse their semantic neighbours' embeddings are (Thomas and Kovashka 2022, eq. 4).

    Embeddings are those of the epoch before; in the first epoch all pairs have the same weight.

    Args:
        setup: What the model, its objective and its batches are so far.
        neighbours: Which neighbours a pair is compared with, and by what.
        weights: How scores become weights, and their sum over a batch.
        diagonal: Compare a neighbour with itself, too, as printed.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For what `neighbour_weights` refuses.
    """
    from subtext.objectives.weighting import Neighbourhood
    from subtext.recipes.parts import neighbour_weights

    weighting = Neighbourhood(weights.total_weight, diversity=1.0, discrepancy=0.0)
    return neighbour_weights("diversity", setup, weighting, neighbours, weights=weights, diagonal=diagonal)
