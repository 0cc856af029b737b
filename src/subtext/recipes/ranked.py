"""What the methods that learn ranks share: where their loss stands beside a host's own, and in which scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from subtext.errors import RecipeError

if TYPE_CHECKING:
    from subtext.objectives.objective import Loss, Reduction
    from subtext.training.setup import Setup

BATCH = 128
"""Pairs of a batch in the published code, whose losses are sums over them."""


def by_cosine(setup: Setup) -> bool:
    """Whether items are compared by the cosine of their vectors, scaled or not."""
    from subtext.models.similarity.cosine import Cosine

    return isinstance(setup.model.similarity, Cosine)


def of_cosines(setup: Setup) -> bool:
    """Whether items have cosines: they are compared by these, or by their means and deviations (`pcme_plus`)."""
    from subtext.models.similarity.closed_form_distance import ClosedFormDistance

    return by_cosine(setup) or isinstance(setup.model.similarity, ClosedFormDistance)


def beside(method: str, setup: Setup, loss: Loss, *, weight: float, sum_weight: float) -> Setup:
    """The host with this loss beside its own, in both directions, as a mean over queries.

    weight      of each direction; below 0 for the one that stands to the host's loss as `sum_weight` does to a sum over
                a batch of 128: a host may take a mean over queries, or over cells

    Where items are compared by cosine (`of_cosines`) the loss reads plain ones; else the model's own scores.

    Raises RecipeError where the host has no loss between pictures and texts.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.objectives.mining.cosines import Cosines
    from subtext.objectives.objective import Term

    parts = setup.objective.parts
    own = [part for part in parts.values() if isinstance(part, Term) and part.on in DIRECTIONS]
    if not own:
        raise RecipeError(
            f"{method} stands beside a loss between pictures and texts; this objective has {', '.join(parts)}; leave "
            "the method out, or take another host"
        )
    shares: dict[Reduction, float] = {"sum": 1.0, "mean": 1 / BATCH, "mean over cells": 1 / BATCH**2}
    chosen = weight if weight >= 0 else sum_weight * shares[own[0].reduction]
    cosine = of_cosines(setup)
    terms = {
        f"{method} {side}": Term(loss, on=side, weight=chosen, mining=Cosines(side) if cosine else None)
        for side in DIRECTIONS
    }
    if taken := sorted(terms.keys() & parts.keys()):
        raise RecipeError(f"{method} is named twice: '{taken[0]}' is there already; name it once")
    return replace(setup, objective=replace(setup.objective, parts={**parts, **terms}))
