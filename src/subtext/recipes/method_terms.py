"""What the methods with losses within a modality share: what they need of a host, and what they replace in it.

What the methods that learn ranks share: where their loss stands beside a host's own, and in which scores.

What the methods with sample weights share: which terms they weight, and how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from subtext.errors import RecipeError

if TYPE_CHECKING:
    from subtext.core import Direction
    from subtext.objectives.objective import Loss, Penalty, Reduction, Term, Weighting
    from subtext.training.setup import Setup


def require_cosine(method: str, setup: Setup) -> None:
    """Raise RecipeError unless items are compared by the cosine of their vectors, and no neighbours are drawn yet."""
    from subtext.models.similarity.cosine import Cosine

    if not isinstance(setup.model.similarity, Cosine):
        raise RecipeError(
            f"{method} needs a host whose items are compared by the cosine of their vectors; this one compares by "
            f"{type(setup.model.similarity).__name__}; take another host"
        )
    if setup.neighbours is not None:
        raise RecipeError(f"{method} draws neighbours, and another method does so already; take one of them alone")


def require_own_texts(method: str, setup: Setup) -> None:
    """Raise RecipeError where the losses between pictures and texts read texts that are made or drawn at random."""
    if setup.opened:
        return
    if setup.rewriting is not None:
        raise RecipeError(
            f"{method} changes the losses between pictures and texts, and asymmetry has widened them; take one of "
            "these methods alone"
        )
    if any(getattr(part, "on", "") == "image_to_random" for part in setup.objective.parts.values()):
        raise RecipeError(
            f"{method} changes the losses between pictures and texts; with neighbourhoods:form=reference one of them "
            "reads random texts, as the paper's code has it; take another form, or one of these methods alone"
        )


def retold(method: str, setup: Setup, terms: Mapping[str, Term] | None) -> Setup:
    """The host with these losses between pictures and texts in the place of its own, and the plain cosine.

    terms  None leaves both as they are. Penalties stay

    A learnt scale and shift go: they belong to the losses that are replaced.
    Raises RecipeError where those have sample weights or chosen negatives, which would be lost.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.models.model import Model
    from subtext.models.similarity.cosine import Cosine
    from subtext.objectives.objective import Objective, Term

    if terms is None:
        return setup
    require_own_texts(method, setup)
    kept: dict[str, Term | Penalty] = {}
    for name, part in setup.objective.parts.items():
        if not isinstance(part, Term) or part.on not in DIRECTIONS:
            kept[name] = part
        elif part.weighting is not None or part.mining is not None:
            what, does = ("sample weights", "weights") if part.mining is None else ("chosen negatives", "chooses")
            raise RecipeError(
                f"{method} replaces the losses between pictures and texts; '{name}' has {what} that would be lost; "
                f"name {method} before the method that {does}"
            )
    model = Model(setup.model.image, setup.model.text, Cosine())
    return replace(setup, model=model, objective=Objective({**terms, **kept}))


BATCH = 128
"""Dataset of a batch in the published code, whose losses are sums over them."""


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


def weighted(method: str, setup: Setup, make: Callable[[Direction], Weighting], *, half: bool) -> Setup:
    """The host with these sample weights on its losses between pictures and texts, in both directions.

    make  the weighting of a direction
    half  halves those losses: the mean of both directions, 1 / (2 B^2) over the cells, where PVSE's is their sum

    Raises RecipeError where there is no such loss, and where one is weighted already.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.objectives.objective import Objective, Term
    from subtext.recipes.method_terms import require_own_texts

    require_own_texts(method, setup)
    parts = dict(setup.objective.parts)
    for name, part in parts.items():
        if not isinstance(part, Term) or part.on not in DIRECTIONS:
            continue
        if part.weighting is not None:
            raise RecipeError(
                f"{method} weights a loss that has no weights yet; '{name}' has; take one weighting alone, or "
                "combined, which is of both scores"
            )
        direction = next(known for known in DIRECTIONS if known == part.on)
        parts[name] = replace(part, weighting=make(direction), weight=part.weight / 2 if half else part.weight)
    if all(part is setup.objective.parts[name] for name, part in parts.items()):
        raise RecipeError(
            f"{method} needs a host with a loss between pictures and texts; this objective has "
            f"{', '.join(parts)}; leave the method out, or take another host"
        )
    return replace(setup, objective=Objective(parts))
