"""Semantic neighbourhoods (Thomas and Kovashka 2020): losses within each modality, on a sampled neighbour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.recipes.options import Setup
from subtext.settings import Interval, IsPath
from subtext.training.plan import Requires

if TYPE_CHECKING:
    from subtext.objectives.objective import Loss, Term
    from subtext.training.step import Side

Form = Literal["angular", "hinge", "reference", "triplet"]
_ANGULAR = Requires("form", ("angular", "hinge", "reference"))
_TRIPLET = Requires("form", ("triplet",))
_FORM = Requires("cross_modal", ("form",))
WEIGHTS = {"triplet": (0.1, 0.3)}
"""Form -> the paper's weights of images and of texts; those of the other forms are (0.3, 0.2)."""


def neighbourhoods(
    setup: Setup,
    *,
    graph: Annotated[str, "folder written by `subtext neighbours build`", IsPath()] = "",
    image_graph: Annotated[str, "another graph for the images, by their features", IsPath()] = "",
    form: Annotated[Form, "N-pair angular loss, its hinge, the published code, or a triplet loss"] = "angular",
    cross_modal: Annotated[
        Literal["form", "model"], "between images and texts: this form, or the model's own loss"
    ] = "form",
    angle: Annotated[float, "angle of the loss, in degrees", Interval(1, below=90), _ANGULAR] = 45.0,
    margin: Annotated[float, "margin of the loss, in cosine", Interval(0), _TRIPLET] = 0.1,
    text_to_image_weight: Annotated[float, "weight of the text-to-image loss", Interval(0), _FORM] = 1.0,
    image_weight: Annotated[float, "weight within images; -1 for the paper's, 0.3 (triplet 0.1)", Interval(-1)] = -1.0,
    text_weight: Annotated[float, "weight within texts; -1 for the paper's, 0.2 (triplet 0.3)", Interval(-1)] = -1.0,
    pool_size: Annotated[int, "nearest texts to sample from; 10 in the published code", Interval(1)] = 200,
    negatives: Annotated[
        Literal["anchors", "neighbours", "both"], "negatives within a modality: the batch's items, their neighbours"
    ] = "anchors",
) -> Setup:
    """Pulls each item towards a sampled neighbour of its own modality (Thomas and Kovashka 2020).

    In every epoch each pair samples one pair from its nearest `pool_size` in the graph. The losses within images and
    within texts require it to be closer than the other items of the batch. Loss and weights are the paper's, also
    between images and texts (`cross_modal=model` keeps the model's own), by the plain cosine. For visual neighbours
    give a graph of image features.

    `form=reference` is the published code. The negatives of images, and of texts and their neighbours, are as many
    texts sampled from all, each counted as often. The negatives of texts are all images of the batch, their own
    included. Validation samples none.

    Args:
        setup: What the model, its objective and its batches are so far.
        graph: Folder written by `subtext neighbours build`.
        image_graph: Another graph for the images, by their features.
        form: N-pair angular loss, its hinge, the published code, or a triplet loss.
        cross_modal: Between images and texts: this form, or the model's own loss.
        angle: Angle of the loss, in degrees.
        margin: Margin of the loss, in cosine.
        text_to_image_weight: Weight of the text-to-image loss.
        image_weight: Weight within images; -1 for the paper's, 0.3 (triplet 0.1).
        text_weight: Weight within texts; -1 for the paper's, 0.2 (triplet 0.3).
        pool_size: Nearest texts to sample from; 10 in the published code.
        negatives: Negatives within a modality: the batch's items, their neighbours.

    Returns:
        The changed setup.

    Raises:
        RecipeError: Without a graph where neighbours are sampled, for an option that nothing reads, for a model that
            does not compare by cosine, and for losses that would be lost.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.errors import RecipeError
    from subtext.objectives.losses.angular import Angular
    from subtext.objectives.losses.triplet import Triplet
    from subtext.objectives.objective import Term
    from subtext.recipes.methods.neighbourhoods.sampling import SampledNeighbours, require_no_neighbours
    from subtext.recipes.parts import replace_terms, require_cosine

    require_cosine("neighbourhoods", setup)
    require_no_neighbours("neighbourhoods", setup)
    published = WEIGHTS.get(form, (0.3, 0.2))
    weights: dict[Side, float] = {
        "image": published[0] if image_weight < 0 else image_weight,
        "text": published[1] if text_weight < 0 else text_weight,
    }
    sides: tuple[Side, ...] = tuple(side for side, weight in weights.items() if weight)
    if sides and not graph:
        raise RecipeError(
            "neighbourhoods needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one, or "
            "set image_weight=0 and text_weight=0 for the loss between images and texts alone"
        )
    unused = {"graph": bool(graph), "pool_size": pool_size != 200, "negatives": negatives != "anchors"}
    for name, changed in unused.items():
        if changed and not sides:
            raise RecipeError(
                f"{name} needs image_weight or text_weight above 0; both are 0; leave {name} out, or change that",
                field=name,
            )
    if form == "reference" and negatives != "anchors" and "image" not in sides:
        raise RecipeError(
            "negatives needs image_weight above 0, since form=reference samples those of texts; image_weight is 0; "
            "leave negatives out, or change that",
            field="negatives",
        )
    if not sides and cross_modal == "model":
        raise RecipeError(
            "neighbourhoods changes nothing with cross_modal=model, image_weight=0 and text_weight=0; leave the "
            "method out"
        )
    if image_graph and "image" not in sides:
        raise RecipeError(
            "image_graph needs image_weight above 0; image_weight is 0; leave image_graph out, or change that",
            field="image_graph",
        )

    def loss(*, include_positive: bool) -> Loss:
        """The loss of a term; `include_positive` where the published code counts the positive as a negative, too."""
        if form == "triplet":
            return Triplet(margin=margin, negatives="all")
        if form == "hinge":
            return Angular(degrees=angle, form="hinge")
        return Angular(
            degrees=angle, repeated=form == "reference", include_positive=include_positive and form == "reference"
        )

    if cross_modal == "form":
        texts = "image_to_random" if form == "reference" else "image_to_text"
        terms = {"image_to_text": Term(loss(include_positive=False), texts)}
        if text_to_image_weight:
            terms["text_to_image"] = Term(loss(include_positive=True), "text_to_image", text_to_image_weight)
        setup = replace_terms("neighbourhoods", setup, terms)
    # The published code samples the negative texts; those of texts are the same.
    random_texts = form == "reference" and (cross_modal == "form" or "text" in sides)
    if not sides and not random_texts:
        return setup
    within: dict[str, Term] = {
        f"{side} neighbours": Term(loss(include_positive=side == "image"), f"{side}_neighbours", weights[side])
        for side in sides
    }
    text_graph, own_graph = (Path(path) if path and sides else None for path in (graph, image_graph))
    sampling = SampledNeighbours(sides, text_graph, own_graph, pool_size, negatives, random_texts)
    parts = {**setup.objective.parts, **within}
    return replace(setup, objective=replace(setup.objective, parts=parts), extras=(sampling, *setup.extras))
