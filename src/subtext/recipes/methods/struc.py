"""Structure-preserving embedding (Wang, Li and Lazebnik 2016), as Thomas and Kovashka 2020 compare with it."""

from __future__ import annotations

from typing import Annotated, Literal

from subtext.recipes.options import Setup
from subtext.settings import Interval, IsPath
from subtext.training.plan import Requires

_GRAPH = Requires("structure", ("texts", "images"))
_STRUCTURE = Requires("structure_weight", ("0", "0.0"), needs="structure_weight above 0", negated=True)


def struc(
    setup: Setup,
    *,
    structure: Annotated[
        Literal["captions", "texts", "images"],
        "captions of the same image, or neighbours in a graph: their texts or images",
        _STRUCTURE,
    ] = "captions",
    graph: Annotated[str, "folder written by `subtext neighbours build`", IsPath(), _GRAPH, _STRUCTURE] = "",
    pool_size: Annotated[int, "nearest texts to sample from", Interval(1), _GRAPH, _STRUCTURE] = 200,
    margin: Annotated[float, "margin, in distance", Interval(0)] = 0.05,
    hard_negatives: Annotated[int, "hardest negatives of a query that count", Interval(1)] = 10,
    text_to_image_weight: Annotated[float, "weight of the text-to-image loss", Interval(0)] = 1.5,
    image_to_text_weight: Annotated[float, "weight of the image-to-text loss", Interval(0)] = 1.0,
    structure_weight: Annotated[float, "weight of the structure loss", Interval(0)] = 0.05,
) -> Setup:
    """Keeps the distances between related items smaller than those to all others (Wang, Li and Lazebnik 2016).

    The structure is one more text of the same image for each text. In the baselines of Thomas and Kovashka 2020 it is a
    sampled semantic neighbour, whose texts or images stay close. Replaces the losses between images and texts; of each
    related pair, the batch's own item is the query. The paper takes the ten hardest of 500 pairs: in small batches
    these are nearly all, and with random weights the hardest alone may collapse the model.

    Args:
        setup: What the model, its objective and its batches are so far.
        structure: Captions of the same image, or neighbours in a graph: their texts or images.
        graph: Folder written by `subtext neighbours build`.
        pool_size: Nearest texts to sample from.
        margin: Margin, in distance.
        hard_negatives: Hardest negatives of a query that count.
        text_to_image_weight: Weight of the text-to-image loss.
        image_to_text_weight: Weight of the image-to-text loss.
        structure_weight: Weight of the structure loss.

    Returns:
        The changed setup.

    Raises:
        RecipeError: Without a graph where the structure needs one, for a model that does not compare by cosine, and for
            losses that would be lost.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.errors import RecipeError
    from subtext.objectives.losses.structure import Structure
    from subtext.objectives.objective import Term
    from subtext.recipes.methods.neighbourhoods.sampling import SampledNeighbours, require_no_neighbours
    from subtext.recipes.parts import replace_terms, require_cosine
    from subtext.training.step import Side

    require_cosine("struc", setup)
    require_no_neighbours("struc", setup)
    if structure != "captions" and not graph:
        raise RecipeError(
            f"structure={structure} needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one"
        )
    loss = Structure(margin=margin, hardest=hard_negatives)
    terms = {
        "text_to_image": Term(loss, "text_to_image", text_to_image_weight),
        "image_to_text": Term(loss, "image_to_text", image_to_text_weight),
    }
    setup = replace_terms("struc", setup, {name: term for name, term in terms.items() if term.weight})
    if not structure_weight:
        return setup
    side: Side = "image" if structure == "images" else "text"
    within = Term(replace(loss, positives="farthest"), f"{side}_neighbours", structure_weight)
    sampling = SampledNeighbours((side,), Path(graph) if graph else None, pool_size=pool_size, negatives="both")
    return replace(
        setup,
        objective=replace(setup.objective, parts={**setup.objective.parts, "structure": within}),
        extras=(sampling, *setup.extras),
    )
