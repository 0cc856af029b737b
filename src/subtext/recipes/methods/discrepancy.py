"""DISCREPANCY (Thomas and Kovashka 2022): how far a pair lies from the neighbours of its semantic neighbours."""

from __future__ import annotations

from subtext.recipes.options import DiscrepancyOptions, NeighbourOptions, Setup, WeightOptions


def discrepancy(
    setup: Setup,
    *,
    neighbours: NeighbourOptions = NeighbourOptions(),
    weights: WeightOptions = WeightOptions(),
    comparison: DiscrepancyOptions = DiscrepancyOptions(),
) -> Setup:
    """Weights pairs by their distance from the neighbours of their neighbours (Thomas and Kovashka 2022, eq. 2).

    Embeddings are those of the epoch before; in the first epoch all pairs have the same weight.

    Args:
        setup: What the model, its objective and its batches are so far.
        neighbours: Which neighbours a pair is compared with, and by what.
        weights: How scores become weights, and their sum over a batch.
        comparison: How the neighbours of both modalities are compared.

    Returns:
        The changed setup.

    Raises:
        RecipeError: For what `neighbour_weights` refuses.
    """
    from subtext.objectives.weighting import Neighbourhood
    from subtext.recipes.parts import neighbour_weights

    weighting = Neighbourhood(weights.total_weight, diversity=0.0, discrepancy=1.0)
    return neighbour_weights("discrepancy", setup, weighting, neighbours, weights=weights, comparison=comparison)
