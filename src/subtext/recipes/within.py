"""What the methods with losses within a modality share: what they need of a host, and what they replace in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from subtext.errors import RecipeError

if TYPE_CHECKING:
    from subtext.objectives.objective import Penalty, Term
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
