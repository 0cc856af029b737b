"""DISCREPANCY (Thomas and Kovashka 2022): how far a pair lies from the neighbours of its semantic neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subtext.recipes.neighbour_weights import Further, Lambda, Neighbours

if TYPE_CHECKING:
    from subtext.training.setup import Setup


def discrepancy(
    setup: Setup,
    *,
    near: Neighbours = Neighbours(),
    common: Lambda = Lambda(),
    further: Further = Further(),
) -> Setup:
    """Weights pairs by how far they lie from their neighbours' neighbours (Thomas and Kovashka 2022, eq. 2).

    Embeddings are those of the epoch before; in the first epoch all pairs count alike.
    """
    from subtext.objectives.weighting.neighbourhood import Neighbourhood
    from subtext.recipes.neighbour_weights import scored

    weighting = Neighbourhood(common.total, diversity=0.0, discrepancy=1.0)
    return scored("discrepancy", setup, weighting, near, common=common, further=further)
