"""Structure-preserving embedding (Wang, Li and Lazebnik 2016), as Thomas and Kovashka 2020 compare with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from subtext.training.option_marks import Place, Span

if TYPE_CHECKING:
    from subtext.training.setup import Setup

Neighbourhood = Literal["captions", "texts", "pictures"]


def struc(
    setup: Setup,
    *,
    structure: Annotated[Neighbourhood, "of the same picture, or neighbours in a graph: their texts, pictures"] = (
        "captions"
    ),
    graph: Annotated[str, "texts, pictures: folder that `subtext neighbours build` wrote", Place()] = "",
    pool: Annotated[int, "texts, pictures: nearest texts that one is drawn from", Span(1)] = 200,
    margin: Annotated[float, "in distances", Span(0)] = 0.05,
    hardest: Annotated[int, "negatives of a query that count", Span(1)] = 10,
    image: Annotated[float, "weight of texts asking for pictures", Span(0)] = 1.5,
    text: Annotated[float, "weight of pictures asking for texts", Span(0)] = 1.0,
    weight: Annotated[float, "weight of the structure", Span(0)] = 0.05,
) -> Setup:
    """Keeps what belongs together nearer than anything else, by distances (Wang, Li and Lazebnik 2016).

    The structure is one more text of the same picture for each text; or, in the baselines of Thomas and Kovashka 2020,
    a sampled semantic neighbour, whose texts or whose pictures are to stay near. Replaces the losses between pictures
    and texts; of each two that belong together, the batch's own one asks. The paper's ten hardest are of 500 pairs: of
    small batches they are nearly all, and from random weights the hardest alone may let everything fall together.
    """
    from dataclasses import replace
    from pathlib import Path

    from subtext.errors import RecipeError
    from subtext.neighbours.sampling import NeighbourDraw, Side
    from subtext.objectives.losses.structure import Structure
    from subtext.objectives.objective import Term
    from subtext.recipes.method_terms import require_cosine, retold

    require_cosine("struc", setup)
    if structure == "captions" and graph:
        raise RecipeError(
            "graph needs structure=texts|pictures; structure is captions; leave graph out, or change that"
        )
    if structure != "captions" and not graph:
        raise RecipeError(
            f"structure={structure} needs graph=FOLDER, which `subtext neighbours build` writes; it got none; name one"
        )
    each = Structure(margin=margin, hardest=hardest)
    terms = {"text_to_image": Term(each, "text_to_image", image), "image_to_text": Term(each, "image_to_text", text)}
    made = retold("struc", setup, {name: term for name, term in terms.items() if term.weight})
    if not weight:
        return made
    side: Side = "image" if structure == "pictures" else "text"
    farthest = Term(replace(each, positives="farthest"), f"{side}_neighbours", weight)
    source = Path(graph) if graph else None
    return replace(
        made,
        objective=replace(made.objective, parts={**made.objective.parts, "structure": farthest}),
        neighbours=NeighbourDraw((side,), source, pool=pool, negatives="both"),
    )
