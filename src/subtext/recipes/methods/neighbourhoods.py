"""Semantic neighbourhoods (Thomas and Kovashka 2020): items stay near those whose texts mean something similar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.training.option_marks import Place, Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from subtext.neighbours.sampling import Side
    from subtext.objectives.objective import Loss, Term
    from subtext.training.setup import Setup

Form = Literal["angular", "hinge", "reference", "triplet"]
Between = Literal["form", "host"]
Negatives = Literal["anchors", "neighbours", "both"]
WEIGHTS = {"triplet": (0.1, 0.3)}
"""Form -> the paper's weights of pictures and of texts; those of the other forms are (0.3, 0.2)."""


def neighbourhoods(
    setup: Setup,
    *,
    graph: Annotated[str, "folder that `subtext neighbours build` wrote", Place()] = "",
    image_graph: Annotated[str, "another graph for the pictures, by their features", Place()] = "",
    form: Annotated[Form, "N-pair angular, its hinge, the paper's code, or a triplet loss"] = "angular",
    between: Annotated[Between, "between pictures and texts: this form, or the host's own loss"] = "form",
    degrees: Annotated[float, "of the angular forms", Span(1, 90)] = 45.0,
    margin: Annotated[float, "of the triplet form, in cosine", Span(0)] = 0.1,
    symmetric: Annotated[float, "weight of texts asking for pictures", Span(0)] = 1.0,
    image: Annotated[float, "weight of pictures; -1 for the paper's, 0.3 (triplet 0.1)", Span(-1)] = -1.0,
    text: Annotated[float, "weight of texts; -1 for the paper's, 0.2 (triplet 0.3)", Span(-1)] = -1.0,
    pool: Annotated[int, "nearest texts that one is drawn from; 10 in the paper's code", Span(1)] = 200,
    negatives: Annotated[Negatives, "what neighbours are told from: the batch's items, their neighbours"] = "anchors",
) -> Setup:
    """Pulls each item towards a sampled neighbour of its own modality (Thomas and Kovashka 2020).

    In every epoch every pair draws one pair from the nearest `pool` in the graph; the losses within pictures and within
    texts ask that it be nearer than the other items of the batch. Loss and weights are the paper's: between pictures
    and texts too (`between=host` keeps the host's), by the plain cosine. Neighbours by looks:
    a graph of picture features.

    `form=reference` is the paper's code: pictures, and texts with their neighbours, are told from as many texts drawn
    from all, each counted as often; pictures are told from all of the batch, themselves too. Validation draws none.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.errors import RecipeError
    from subtext.neighbours.sampling import NeighbourDraw
    from subtext.recipes.method_terms import require_cosine, retold

    require_cosine("neighbourhoods", setup)
    ours = WEIGHTS.get(form, (0.3, 0.2))
    weights: dict[Side, float] = {
        "image": ours[0] if image < 0 else image,
        "text": ours[1] if text < 0 else text,
    }
    sides: tuple[Side, ...] = tuple(side for side, weight in weights.items() if weight)
    if sides and not graph:
        raise RecipeError(
            "neighbourhoods needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one, or "
            "take image=0 and text=0 for the loss between pictures and texts alone"
        )
    if graph and not sides and not setup.opened:
        raise RecipeError("graph needs image or text above 0; both are 0; leave graph out, or change that")
    if image_graph and "image" not in sides:
        raise RecipeError("image_graph needs image above 0; image is 0; leave image_graph out, or change that")
    terms = _between(form, symmetric, degrees=degrees, margin=margin) if between == "form" else None
    made = retold("neighbourhoods", setup, terms)
    # The paper's code draws the texts that are wrong; those that are wrong for texts are the same.
    strangers = form == "reference" and (terms is not None or "text" in sides)
    if not sides and not strangers:
        return made
    within = _within(form, {side: weights[side] for side in sides}, degrees=degrees, margin=margin)
    folder, of_images = (Path(one) if one and sides else None for one in (graph, image_graph))
    draw = NeighbourDraw(sides, folder, of_images, pool, negatives, strangers)
    parts = {**made.objective.parts, **within}
    return replace(made, objective=replace(made.objective, parts=parts), neighbours=draw)


def _within(form: Form, weights: Mapping[Side, float], *, degrees: float, margin: float) -> dict[str, Term]:
    from subtext.objectives.objective import Term

    return {
        f"{side} neighbours": Term(
            _loss(form, degrees=degrees, margin=margin, own=side == "image"), f"{side}_neighbours", weight
        )
        for side, weight in weights.items()
    }


def _between(form: Form, symmetric: float, *, degrees: float, margin: float) -> dict[str, Term]:
    from subtext.objectives.objective import Term

    texts = "image_to_random" if form == "reference" else "image_to_text"
    terms = {"image_to_text": Term(_loss(form, degrees=degrees, margin=margin, own=False), texts)}
    if symmetric:
        loss = _loss(form, degrees=degrees, margin=margin, own=True)
        terms["text_to_image"] = Term(loss, "text_to_image", symmetric)
    return terms


def _loss(form: Form, *, degrees: float, margin: float, own: bool) -> Loss:
    """The loss of a term; `own` where the paper's code takes the positive for one more negative."""
    from subtext.objectives.losses.angular import Angular
    from subtext.objectives.losses.triplet import Triplet

    if form == "triplet":
        return Triplet(margin=margin, negatives="all")
    if form == "hinge":
        return Angular(degrees=degrees, form="hinge")
    return Angular(degrees=degrees, repeated=form == "reference", own=own and form == "reference")
