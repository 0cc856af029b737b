"""What the methods with sample weights share: which terms they weight, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from subtext.errors import RecipeError

if TYPE_CHECKING:
    from subtext.core import Direction
    from subtext.objectives.objective import Weighting
    from subtext.training.setup import Setup


def weighted(method: str, setup: Setup, make: Callable[[Direction], Weighting], *, half: bool) -> Setup:
    """The host with these sample weights on its losses between pictures and texts, in both directions.

    make  the weighting of a direction
    half  halves those losses: the mean of both directions, 1 / (2 B^2) over the cells, where PVSE's is their sum

    Raises RecipeError where there is no such loss, and where one is weighted already.
    """
    from dataclasses import replace

    from subtext.core import DIRECTIONS
    from subtext.objectives.objective import Objective, Term
    from subtext.recipes.within import require_own_texts

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
