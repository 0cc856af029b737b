"""What several methods share: they weight, replace or add terms between images and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from subtext.errors import RecipeError

if TYPE_CHECKING:
    from subtext.core import Direction
    from subtext.objectives.objective import Loss, Penalty, Reduction, Term, Weighting
    from subtext.training.setup import Setup

BATCH = 128
"""Pairs of a batch in published code whose losses are sums over them."""


def ranking_terms(setup: Setup) -> dict[str, tuple[Term, Direction]]:
    """The terms between images and texts by name, each with its direction."""
    from subtext.core import DIRECTIONS
    from subtext.objectives.objective import Term

    return {
        name: (part, part.on)
        for name, part in setup.objective.parts.items()
        if isinstance(part, Term) and part.on in DIRECTIONS
    }


def losses_of(setup: Setup) -> str:
    """The losses of an objective, for a message."""
    return ", ".join(type(getattr(part, "loss", part)).__name__ for part in setup.objective.parts.values())


def uses_cosine(setup: Setup) -> bool:
    """Whether items are compared by the cosine of their vectors, scaled or not."""
    from subtext.models.similarity.cosine import Cosine

    return isinstance(setup.model.similarity, Cosine)


def has_cosines(setup: Setup) -> bool:
    """Whether items have cosines: they are compared by these, or by means and variances (`pcme_plus`)."""
    from subtext.models.similarity.closed_form_distance import ClosedFormDistance

    return uses_cosine(setup) or isinstance(setup.model.similarity, ClosedFormDistance)


def require_cosine(method: str, setup: Setup) -> None:
    """Raise RecipeError unless items are compared by the cosine of their vectors."""
    if not uses_cosine(setup):
        raise RecipeError(
            f"{method} needs a model that compares items by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; choose another model"
        )


def require_no_neighbours(method: str, setup: Setup) -> None:
    """Raise RecipeError where another method samples neighbours already."""
    if setup.neighbours is not None:
        raise RecipeError(f"{method} samples neighbours, and another method does so already; use one of them alone")


def require_plain_texts(method: str, setup: Setup) -> None:
    """Raise RecipeError where the losses between images and texts read edited or random texts."""
    if setup.opened:
        return
    if setup.rewriting is not None:
        raise RecipeError(
            f"{method} changes the losses between images and texts, and asymmetry has extended them; use one of "
            "these methods alone"
        )
    if any(getattr(part, "on", "") == "image_to_random" for part in setup.objective.parts.values()):
        raise RecipeError(
            f"{method} changes the losses between images and texts; with neighbourhoods:form=reference one of them "
            "reads random texts, as in the published code; choose another form, or use one of these methods alone"
        )


def weight_terms(method: str, setup: Setup, make: Callable[[Direction], Weighting], *, average: bool) -> Setup:
    """The setup with sample weights on its losses between images and texts, in both directions.

    make     the weighting of a direction
    average  halves those losses: the mean of both directions, 1 / (2 B^2) over the cells, where PVSE's is their sum

    Raises RecipeError where there is no such loss, and where one is weighted already.
    """
    from dataclasses import replace

    from subtext.objectives.objective import Objective

    require_plain_texts(method, setup)
    terms = ranking_terms(setup)
    for name, (term, _) in terms.items():
        if term.weighting is not None:
            raise RecipeError(
                f"{method} weights a loss that has no weights yet; '{name}' has; use one weighting alone, or "
                "combined, which joins both scores"
            )
    if not terms:
        raise RecipeError(
            f"{method} needs a model with a loss between images and texts; this objective has "
            f"{', '.join(setup.objective.parts)}; leave the method out, or choose another model"
        )
    weighted = {
        name: replace(term, weighting=make(direction), weight=term.weight / 2 if average else term.weight)
        for name, (term, direction) in terms.items()
    }
    return replace(setup, objective=Objective({**setup.objective.parts, **weighted}))


def replace_terms(method: str, setup: Setup, terms: Mapping[str, Term]) -> Setup:
    """The setup with these losses between images and texts in place of its own, and the plain cosine.

    Penalties stay. A learnt scale and shift go: they belong to the losses that are replaced.
    Raises RecipeError where those have sample weights or sampled negatives, which would be lost.
    """
    from dataclasses import replace

    from subtext.models.model import Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Objective

    require_plain_texts(method, setup)
    replaced = ranking_terms(setup)
    for name, (term, _) in replaced.items():
        if term.weighting is not None or term.mining is not None:
            lost, verb = ("sample weights", "weights") if term.mining is None else ("sampled negatives", "samples")
            raise RecipeError(
                f"{method} replaces the losses between images and texts; '{name}' has {lost} that would be lost; "
                f"name {method} before the method that {verb}"
            )
    remaining: dict[str, Term | Penalty] = {
        name: part for name, part in setup.objective.parts.items() if name not in replaced
    }
    model = Model(setup.model.image, setup.model.text, Cosine())
    return replace(setup, model=model, objective=Objective({**terms, **remaining}))


def add_terms(method: str, setup: Setup, loss: Loss, *, weight: float, sum_weight: float) -> Setup:
    """The setup with this loss beside its own, in both directions, as a mean over queries.

    weight      of each direction; below 0 for the one that relates to the model's loss as `sum_weight` does to a sum
                over a batch of 128: a model may take a mean over queries, or over cells

    Where items have cosines (`has_cosines`) the loss reads plain ones; else the model's own scores.

    Raises RecipeError where the model has no loss between images and texts.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.objectives.mining.cosines import Cosines
    from subtext.objectives.objective import Term

    parts, own_terms = setup.objective.parts, [term for term, _ in ranking_terms(setup).values()]
    if not own_terms:
        raise RecipeError(
            f"{method} is added to a loss between images and texts; this objective has {', '.join(parts)}; leave "
            "the method out, or choose another model"
        )
    scales: dict[Reduction, float] = {"sum": 1.0, "mean": 1 / BATCH, "mean over cells": 1 / BATCH**2}
    weight = weight if weight >= 0 else sum_weight * scales[own_terms[0].reduction]
    cosine = has_cosines(setup)
    terms = {
        f"{method} {side}": Term(loss, on=side, weight=weight, mining=Cosines(side) if cosine else None)
        for side in DIRECTIONS
    }
    if repeated := sorted(terms.keys() & parts.keys()):
        raise RecipeError(f"{method} is named twice: '{repeated[0]}' is there already; name it once")
    return replace(setup, objective=replace(setup.objective, parts={**parts, **terms}))
